package lua_test

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/ratelimit-functions/ratelimit/embedded"
	"github.com/ratelimit-functions/ratelimit/functions"
	"github.com/ratelimit-functions/ratelimit/lua_test/model"
	"github.com/ratelimit-functions/ratelimit/lua_test/model/generate"
)

// TestShadowFields compares fields 7 to 9 of a reply with fields 1, 4 and 6 of the reply to the same
// call, on the same keys, by a library in which none of the policies is a shadow. If RATELIMIT_SOAK is
// set, it is the number of generated steps.
func TestShadowFields(t *testing.T) {
	wanted, done, compared, fails := generate.Wanted(t, 8000), 0, 0, false
	server := func(build functions.Build, err error) offline {
		require(t, err)
		return offline{embedded.Run(t, embedded.WithLibrary(mutated(t, build.Text())))}
	}
	shadows, enforced := server(generate.Library()), server(generate.Enforced())
	rapid.Check(t, func(t *rapid.T) {
		if done >= wanted && !fails {
			return
		}
		p, q := &promises{T: t, server: shadows, now: generate.StartUS}, &promises{T: t, server: enforced}
		p.do("FLUSHALL")
		run := generate.Steps().Draw(t, "run")
		done += len(run)
		for _, s := range run {
			p.now = s.Move.To(p.now, p.retry, p.reset)
			p.setTime(p.now)
			q.setTime(p.now)
			q.do("FLUSHALL")
			s.Call.Grow = nil // what it adds to the reply is not a field of a shadow
			comparable := p.mirror(s.Call, q)
			reply, err := shadows.Do(s.Call.Words()...)
			list, ok := reply.([]any)
			if err != nil || !ok || len(list) < 6 || s.Call.Verb == model.Usage {
				continue
			}
			p.retry, p.reset = list[3].(int64), list[4].(int64)
			if !comparable || len(list) < 9 {
				continue
			}
			compared++
			same, err := enforced.Do(s.Call.Words()...)
			if err != nil {
				t.Fatal(err)
			}
			of := same.([]any)
			if got, want := list[6:9], []any{of[0], of[3], of[5]}; !slices.Equal(got, want) {
				fails = true // from now on, rapid shrinks the failing run
				t.Fatalf("%q returns %v; if no policy is a shadow %v", s.Call.Words(), list, of)
			}
		}
	})
	t.Logf("%d steps, %d replies compared", done, compared)
	if compared < wanted/40 {
		t.Errorf("only %d replies had the fields of a shadow policy", compared)
	}
}

// mirror copies the keys of a call to q's server. It reports whether the replies of both servers can
// be compared: that is the case for a take, peek or refund that ONCE does not repeat, if all keys hold
// strings. A set of leases, which is not copied, can hold a block.
func (p *promises) mirror(c model.Call, q *promises) bool {
	if !slices.Contains([]string{model.Take, model.Peek, model.Refund}, c.Verb) {
		return false
	}
	for _, key := range c.Keys {
		switch p.do("TYPE", key) {
		case "zset":
			return false
		case "string":
			q.do("SET", key, p.do("GET", key).(string), "PXAT", fmt.Sprint(p.do("PEXPIRETIME", key)))
		}
	}
	return c.OnceMS == 0 || p.do("EXISTS", c.OnceKey) == int64(0)
}
