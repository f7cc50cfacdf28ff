package lua_test

import (
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// verbs lists all functions of the library, each with a check of its reply's form.
var verbs = []struct {
	name  string
	shape func(reply any, keys int, upto bool) error
}{
	{"take", decisionShape}, {"peek", decisionShape}, {"refund", decisionShape}, {"acquire", decisionShape}, {"renew", decisionShape},
	{"release", countShape}, {"reset", countShape}, {"block", countShape}, {"unblock", countShape},
	{"override", countShape}, {"override_end", countShape},
	{"usage", listShape}, {"info", listShape},
}

func decisionShape(reply any, keys int, upto bool) error {
	list, ok := reply.([]any)
	if !ok || len(list) < 6 {
		return fmt.Errorf("%v is not an array of six", reply)
	}
	var f [6]int64
	for i := range f {
		if f[i], ok = list[i].(int64); !ok {
			return fmt.Errorf("field %d of %v is not an integer", i+1, reply)
		}
	}
	const longest = int64(1) << 53
	switch {
	case f[0] != 0 && f[0] != 1 && !upto, f[0] < 0 || f[0] > max(1, f[1]),
		f[1] < 0 || f[1] > longest,
		f[2] < 0 || f[2] > f[1],
		f[3] < -1 || f[3] > longest || f[0] > 0 && f[2] > 0 && f[3] < 0 || f[0] == 0 && f[3] == 0 && !upto,
		f[4] < 0 || f[4] > longest,
		f[5] < 1 || f[5] > int64(keys):
		return fmt.Errorf("%v is not a decision over %d keys", reply, keys)
	}
	if each, ok := list[len(list)-1].([]any); ok {
		for _, entry := range each {
			if fields, ok := entry.([]any); !ok || len(fields) != 5 {
				return fmt.Errorf("%v has the entry %v, which is not an array of five", reply, entry)
			}
		}
	}
	return nil
}

func countShape(reply any, keys int, _ bool) error {
	if n, ok := reply.(int64); !ok || n < 0 || n > int64(keys) {
		return fmt.Errorf("%v is not a number of keys from 0 to %d", reply, keys)
	}
	return nil
}

func listShape(reply any, _ int, _ bool) error {
	list, ok := reply.([]any)
	if !ok || len(list)%2 != 0 {
		return fmt.Errorf("%v is not a list of fields and values", reply)
	}
	for i := 0; i < len(list); i += 2 {
		if _, ok := list[i].(string); !ok {
			return fmt.Errorf("field %d of %v has no name", i/2+1, reply)
		}
	}
	return nil
}

var reasons = []string{"BADARGS", "BADLIMIT", "BADCOST", "BADKEYS", "BADSTATE", "NOPOLICY"}

// refusalShape checks that an error reply has the form that the contract requires.
func refusalShape(text string) error {
	words := strings.SplitN(text, " ", 3)
	if len(words) < 3 || words[0] != "RATELIMIT" || !slices.Contains(reasons, words[1]) {
		return fmt.Errorf("%q is not an error that the contract defines", text)
	}
	for _, raw := range []string{"user_function", "script:", "attempt to", "function:", "nil value", "bad argument"} {
		// Outside the quoted value, these words can only come from an error in Lua.
		if strings.Contains(unquoted(text), raw) {
			return fmt.Errorf("%q shows an error from Lua", text)
		}
	}
	for _, b := range []byte(text) {
		if b < ' ' || b > '~' {
			return fmt.Errorf("%q is not printable ASCII", text)
		}
	}
	if len(text) > 1000 {
		return fmt.Errorf("an error of %d bytes: %.100q", len(text), text)
	}
	return nil
}

// unquoted returns text without the part between the first and the last quotation mark.
func unquoted(text string) string {
	first, last := strings.Index(text, `"`), strings.LastIndex(text, `"`)
	if first < 0 {
		return text
	}
	return text[:first] + text[last+1:]
}

// everything returns the content of the server, with expiries.
func everything(t *testing.T, server offline) map[string]string {
	t.Helper()
	names := must[any](t)(server.Do("KEYS", "*"))
	all := map[string]string{}
	for _, name := range names.([]any) {
		key := name.(string)
		kind := must[any](t)(server.Do("TYPE", key))
		read := map[any][]string{
			"string": {"GET", key}, "zset": {"ZRANGE", key, "0", "-1", "WITHSCORES"}, "hash": {"HGETALL", key},
			"list": {"LRANGE", key, "0", "-1"}, "set": {"SMEMBERS", key}, "stream": {"XRANGE", key, "-", "+"},
		}[kind]
		if read == nil {
			t.Fatalf("no way to read a key of type %v", kind)
		}
		value := must[any](t)(server.Do(read...))
		expires := must[any](t)(server.Do("PEXPIRETIME", key))
		all[key] = fmt.Sprintf("%v %q %v", kind, value, expires)
	}
	return all
}

// callAndCheck makes one call, and fails the test unless the contract permits the result.
func callAndCheck(t *testing.T, server offline, verb int, keys, args []string) {
	t.Helper()
	v := verbs[verb%len(verbs)]
	before := everything(t, server)
	words := slices.Concat([]string{"FCALL", "ratelimit_" + v.name, strconv.Itoa(len(keys))}, keys, args)
	reply, err := server.Do(words...)
	after := everything(t, server)
	if err != nil {
		if wrong := refusalShape(err.Error()); wrong != nil {
			t.Fatalf("%.300q: %v", words, wrong)
		}
		if !reflect.DeepEqual(before, after) {
			t.Fatalf("%.300q ended in %v and changed keys\nbefore %q\nafter  %q", words, err, before, after)
		}
		return
	}
	upto := slices.Contains(args, "UPTO") || slices.Contains(args, "upto")
	if wrong := v.shape(reply, len(keys), upto); wrong != nil {
		t.Fatalf("%.300q: %v", words, wrong)
	}
	for key, held := range after {
		if before[key] != held && strings.HasSuffix(held, " -1") {
			t.Fatalf("%.300q left the key %q without an expiry: %s", words, key, held)
		}
	}
}
