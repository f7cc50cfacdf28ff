package combinations

import (
	"fmt"
	"slices"
	"strings"

	"github.com/ratelimit-functions/ratelimit/embedded"
	"github.com/ratelimit-functions/ratelimit/lua_test/model"
)

// held executes a call on the server and in the model. It checks what must hold for every call:
//
//   - The reply, the effect on each key's expiry, and the counts are those of the model.
//   - A peek just before a take returns the same.
//   - A call that is denied, that errs or that only reads changes no byte. A call that ONCE repeats
//     changes no limiter.
//   - Shadow fields are the result of the same call with every policy enforced.
//   - Remaining, RetryAfter and the longest wait are exact; see exact.
func (w *world) held(x *execution, words []string) (any, error) {
	c := x.Call
	limiters := slices.Clone(c.Keys)
	all := c.AllKeys()
	if c.Usage != "" {
		all = all[:len(all)-1]
	}
	before := w.contents(all)
	was := w.model.Clone()
	x.repeated = c.OnceMS > 0 && w.model.Stored(c.OnceKey)
	var peeked string
	if c.Verb == model.Take && !c.Force && !x.repeated {
		peeked = w.try(c.Peeks())
		if c := changed(before, w.contents(all)); c != nil {
			w.fail("a peek changes nothing", "%v", c)
		}
	}
	wasCounted := w.policyCalls()
	reply, err := w.raw(words)
	got := show(reply, err)
	want, reason := w.expect(c)
	long := func(key string) bool { return len(key) >= len(tooLong) }
	if (reason == "BADCOST" || reason != "" && slices.ContainsFunc(c.AllKeys(), long)) && strings.HasPrefix(got, "RATELIMIT BAD") {
		reason = got[len("RATELIMIT "):] // the limit may be invalid, too
	}
	x.reason, x.moved = reason, w.model.Moved
	x.reply, _ = reply.([]any)
	if err != nil {
		x.reason = got
	}
	if reason != "" || err != nil || x.repeated {
		x.moved = map[string]int64{}
	}
	w.note("%12d us %s\n                -> %s", w.now-startUS, strings.Join(words, " "), got)
	if text := showModel(want, reason); got != text {
		w.fail("the reply is the model's", "%v: the library returns %s, the model %s", words, got, text)
	}
	if peeked != "" && peeked != got && !strings.HasPrefix(got, "RATELIMIT") {
		w.fail("peek is the take after it", "%v: peek %s, take %s", words, peeked, got)
	}
	difference := changed(before, w.contents(all))
	if difference != nil && w.mustNotChange(c, x, got) {
		w.fail("denied, refused and reading calls change nothing", "%v -> %s: %v", words, got, difference)
	}
	if err != nil {
		w.countsNothing(words, got, wasCounted)
	}
	w.repeats(c, limiters, x)
	w.expiries(x)
	w.shadowFields(was, c, x)
	w.exact(was, c, x)
	w.remember(c, x)
	return reply, err
}

// expect runs a call in the model.
func (w *world) expect(c model.Call) (any, string) {
	if slices.ContainsFunc(c.Costs, func(cost int64) bool { return cost < 0 || cost > model.MaxCount }) {
		w.model.Moved = nil
		return nil, "BADCOST"
	}
	return w.model.Do(c)
}

// startUS is the time of the first step in microseconds, for the log.
const startUS = int64(946684800000000) + int64(epoch/1000)

// try runs a call on the server, and returns what show returns.
func (w *world) try(c model.Call) string {
	reply, err := w.raw(c.Words())
	return show(reply, err)
}

func show(reply any, err error) string {
	if refused, ok := err.(embedded.Error); ok {
		if words := strings.Fields(string(refused)); words[0] == "RATELIMIT" {
			return "RATELIMIT " + words[1]
		}
		return string(refused)
	}
	must(err)
	return fmt.Sprint(reply)
}

func showModel(reply any, reason string) string {
	if reason != "" {
		return "RATELIMIT " + reason
	}
	return fmt.Sprint(reply)
}

// mustNotChange reports whether a call with this reply must leave its keys unchanged, apart from the
// usage key.
func (w *world) mustNotChange(c model.Call, x *execution, got string) bool {
	if x.reason != "" || c.Verb == model.Peek || c.Verb == model.Usage || x.repeated {
		return true
	}
	shadow := slices.ContainsFunc(c.Limits, func(p model.Policy) bool { return p.Shadow || p.Canary != nil && p.Canary.Shadow })
	if c.Verb == model.Refund && shadow {
		return false // shadow policies are refunded separately
	}
	return strings.HasPrefix(got, "[0 ")
}

// repeats checks that a call with ONCE moves units once: a later call with the same request key
// changes no limiter.
func (w *world) repeats(c model.Call, limiters []string, x *execution) {
	if c.OnceMS == 0 || x.reason != "" {
		return
	}
	if !slices.ContainsFunc(limiters, func(key string) bool { return x.moved[key] != 0 }) {
		return
	}
	if w.once[c.OnceKey] > 0 {
		w.fail("ONCE moves units once", "%s moved %v again", c.OnceKey, x.moved)
	}
	w.once[c.OnceKey] = w.now/1000 + c.OnceMS
}

// expiries compares the expiries of the call's keys with the model, and checks that they are not
// later than the reset of a call that took units, plus 1 s.
func (w *world) expiries(x *execution) {
	c := x.Call
	for _, key := range c.AllKeys() {
		got := w.do("PEXPIRETIME", key)
		want, ok := w.model.Expiry(key)
		if !ok {
			want = -2
		}
		if w.planted[key] == "empty" && got == int64(-1) {
			continue // it counts as no key
		}
		if got != want {
			w.fail("expiries", "%s expires at %v, in the model at %d; it is %d", key, got, want, w.now/1000)
		}
		if took := x.moved[key]; took > 0 && len(x.reply) < 8 && !w.model.Overridden(key) && !w.model.Remembered(key) && w.model.Blocked(key) == 0 {
			if latest := w.now/1000 + x.reply[4].(int64) + 1000; got.(int64) > latest {
				w.fail("expiries", "%s expires %d ms after now, and its limit is full after %v ms", key, got.(int64)-w.now/1000, x.reply[4])
			}
		}
	}
}

// countsNothing checks that an error has not changed the counts of policies.
func (w *world) countsNothing(words []string, got string, was map[string][]int64) {
	for name, n := range w.policyCalls() {
		if !slices.Equal(n, was[name]) {
			w.fail("an error counts nothing", "%v -> %s: the counts %s were %v, and are %v", words, got, name, was[name], n)
		}
	}
}

// enforced returns limits with every shadow policy enforced.
func enforced(limits []model.Policy) []model.Policy {
	limits = slices.Clone(limits)
	for i, p := range limits {
		limits[i].Shadow = false
		if p.Canary != nil {
			canary := *p.Canary
			canary.Shadow = false
			limits[i].Canary = &canary
		}
	}
	return limits
}

// shadowFields checks that the shadow fields are what the call would return if every policy were
// enforced. was is the model before the call.
func (w *world) shadowFields(was *model.Model, c model.Call, x *execution) {
	if at := slices.IndexFunc(x.reply, func(f any) bool { return f == any("grow") }); len(x.reply) < 9 || at >= 0 && at < 9 || x.repeated || c.Verb != model.Take && c.Verb != model.Peek {
		return
	}
	c.Limits, c.OnceMS, c.OnceKey = enforced(c.Limits), 0, ""
	reply, reason := was.Do(c)
	if reason != "" {
		return
	}
	would := reply.([]any)
	if got, want := fmt.Sprint(x.reply[6:9]), fmt.Sprint([]any{would[0], would[3], would[5]}); got != want {
		w.fail("shadow fields are those of the enforced call", "%v: %s, enforced %s", c.Words(), got, want)
	}
}

// remember notes what the next calls of the scenario need.
func (w *world) remember(c model.Call, x *execution) {
	for i, key := range c.Keys {
		if w.mixes(c, x) {
			w.mixed[key] = true
		}
		if len(x.reply) > 0 && x.reply[0] == int64(0) {
			w.denied[key] = denial{w.executed, x.at}
		}
		if (c.Force || lends(c)) && x.moved[key] != 0 {
			w.forced[key] = true
		}
		if c.Verb == model.Take || c.Verb == model.Refund {
			if w.kinds[key] == nil {
				w.kinds[key] = map[string]bool{}
			}
			w.kinds[key][w.limitAt(c, i).String()] = true
			w.mixed[key] = w.mixed[key] || len(w.kinds[key]) > 1
		}
		if c.Verb == model.Override {
			w.kinds[key] = map[string]bool{"override": true, c.Limits[0].String(): true}
		}
	}
}

// limitAt returns the limit that a call names for a key. With a canary, it is that of the policy.
func (w *world) limitAt(c model.Call, i int) model.Limit {
	for _, p := range c.Limits {
		if i < len(p.Limits) {
			if p.Canary != nil {
				return model.Limit{Algorithm: "gcra", Rates: append(slices.Clone(p.Limits[i].Rates), p.Canary.Limits[i].Rates...)}
			}
			return p.Limits[i]
		}
		i -= len(p.Limits)
	}
	panic("no limit")
}
