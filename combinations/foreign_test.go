package combinations

import (
	"maps"
	"slices"
	"strings"

	"github.com/ratelimit-functions/ratelimit/lua_test/model"
)

// foreign lists values that the library did not write, by name, as the commands that store them.
var foreign = map[string][][]any{
	"text":         {{"SET", "", "hello"}},
	"number":       {{"SET", "", "483920", "PX", "300000"}},
	"empty":        {{"SET", "", ""}},
	"list":         {{"RPUSH", "", "a", "b"}},
	"hash":         {{"HSET", "", "cost", "5", "a1", "one", "d2", "two", "name", "n"}},
	"broken usage": {{"HSET", "", "allowed", "1", "denied", "x", "cost", "1", "first", "1700000000000", "last", "1700000000000"}, {"PEXPIRE", "", "86400000"}},
	"broken state": {{"SET", "", "token_bucket:x:1", "PX", "300000"}},
}

// plant stores a foreign value in a key that the library does not use yet.
func (w *world) plant(key, kind string) bool {
	if _, used := w.model.Expiry(key); used || w.do("EXISTS", key) != int64(0) {
		return false
	}
	for _, command := range foreign[kind] {
		command = slices.Clone(command)
		command[1] = key
		w.do(command...)
	}
	w.planted[key] = kind
	w.note("             %s has a foreign value: %s", key, kind)
	return true
}

// onForeign executes a call if one of its keys has a foreign value, and reports whether it has. Such
// a call is refused: it changes and counts nothing. An empty string counts as no key.
func (w *world) onForeign(x *execution, words []string) (reply any, err error, found bool) {
	c := x.Call
	keys := c.AllKeys()
	maps.DeleteFunc(w.planted, func(key string, kind string) bool {
		return w.do("EXISTS", key) == int64(0) || kind == "empty" && w.do("TYPE", key) != "string" ||
			kind == "empty" && w.do("STRLEN", key) != int64(0)
	})
	if !slices.ContainsFunc(keys, func(key string) bool { return w.planted[key] != "" && w.planted[key] != "empty" }) {
		return nil, nil, false
	}
	before, counted := w.contents(keys), w.policyCalls()
	reply, err = w.raw(words)
	got := show(reply, err)
	w.note("%12d us %s\n                -> %s", w.now-startUS, strings.Join(words, " "), got)
	x.reply, _ = reply.([]any)
	after := w.contents(keys)
	for _, key := range keys {
		switch kind := w.planted[key]; {
		case kind == "":
		case c.Verb == model.Reset && err == nil:
			delete(w.planted, key)
		case before[key] != after[key]:
			w.fail("foreign values stay", "%v: %s (%s): %s became %s", words, key, kind, before[key], after[key])
			delete(w.planted, key)
		}
	}
	if err == nil && c.Verb != model.Reset && !w.ignores(c) {
		w.fail("foreign values are refused", "%v -> %s: %v", words, got, before)
	}
	if err != nil {
		x.reason = got
		if d := changed(before, after); d != nil {
			w.fail("denied, refused and reading calls change nothing", "%v -> %s: %v", words, got, d)
		}
		w.countsNothing(words, got, counted)
		return reply, err, true
	}
	// The call had an effect on other keys, which the model does not know.
	if c.Verb == model.Reset {
		w.model.Do(c)
		return reply, err, true
	}
	w.lostTrack = true
	return reply, err, true
}

// ignores reports whether a call may succeed although a key has a foreign value: a limit with a count
// of 0 does not use its key, and ONCE repeats a reply before any key is read.
func (w *world) ignores(c model.Call) bool {
	if c.OnceMS > 0 && w.model.Stored(c.OnceKey) {
		return true
	}
	return slices.ContainsFunc(c.Limits, func(p model.Policy) bool {
		return slices.ContainsFunc(p.Limits, func(l model.Limit) bool { return l.Rates[0].N == 0 })
	})
}
