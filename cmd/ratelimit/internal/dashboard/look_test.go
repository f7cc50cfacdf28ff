package dashboard

import (
	"context"
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/ratelimit-functions/ratelimit/client"
	"github.com/ratelimit-functions/ratelimit/cmd/ratelimit/internal/usage"
	"github.com/ratelimit-functions/ratelimit/embedded"
	"github.com/ratelimit-functions/ratelimit/functions"
	"github.com/ratelimit-functions/ratelimit/internal/redistest"
)

func must[T any](t testing.TB) func(T, error) T { return redistest.Must[T](t) }

var require = redistest.Require

// board returns a Dashboard for a cluster of servers. It does not poll: tests call look themselves.
func board(t *testing.T, addrs ...string) *Dashboard {
	t.Helper()
	rdb := redistest.ClusterOf(t, addrs...)
	return New(Source{
		Connect:  func(context.Context) (redis.UniversalClient, error) { return rdb, nil },
		Nodes:    func(context.Context) ([]Node, error) { return nil, nil },
		NodeName: func(addr string) string { return "server" + addr },
		Faults:   func(err error) string { return "scan: " + err.Error() },
		Explain:  func(err error) string { return "call: " + err.Error() },
		Timeout:  time.Minute,
	})
}

// exports makes the given number of takes under the shadow policy export, whose limit is 1/d, and
// counts their usage.
func exports(t *testing.T, srv *embedded.Server, calls int) {
	t.Helper()
	c := must[*client.Client](t)(client.Open("redis://"+srv.Addr(), client.WithTimeout(time.Minute)))
	defer func() { _ = c.Close() }()
	for range calls {
		must[client.Result](t)(c.Take(t.Context(), client.Request{Keys: []string{"k"}, Limits: []client.Limit{"@export"}, UsageKey: "of " + srv.Addr()}))
	}
}

// The calls for each policy are summed over all primaries. If a primary is dead, the page shows an
// error, and the results of the others.
func TestLook(t *testing.T) {
	build := must[functions.Build](t)(functions.New(functions.WithPolicies(
		functions.Policy{Name: "export", Limits: []functions.PolicyLimit{{Limit: "1/d"}}, Shadow: true},
		functions.Policy{Name: "calc", Limits: []functions.PolicyLimit{{Key: "a", Limit: "1/s"}, {Key: "b", Limit: "2/s"}}, Track: true},
	)))
	one, two := embedded.Run(t, embedded.WithLibrary(build.Text())), embedded.Run(t, embedded.WithLibrary(build.Text()))
	exports(t, one, 3)
	exports(t, two, 4)
	d := board(t, one.Addr(), two.Addr())
	d.look(t.Context())
	s := d.state
	if len(s.Faults) > 0 || s.LookedMS == 0 || s.Keys != 2 || s.Sum.Allowed != 7 || len(s.Points) != 1 || s.Top["total"][0].Shown != `"of `+two.Addr()+`"` {
		t.Errorf("%+v", s)
	}
	if len(s.Policies) != 2 || s.Policies[0].Name != "export" || !s.Policies[0].Shadow || s.Policies[0].Count != (usage.Count{Allowed: 2, Denied: 5}) || s.Policies[0].PerSec.Denied != 0 ||
		strings.Join(s.Policies[1].Limits, " ") != "a: 1/s b: 2/s" || !s.Policies[1].Track || s.Policies[1].Shadow {
		t.Errorf("%+v", s.Policies)
	}
	exports(t, one, 2)
	d.look(t.Context())
	if s = d.state; s.Policies[0].Denied != 7 || s.Policies[0].PerSec.Denied <= 0 || s.PerSec.Allowed <= 0 || len(s.Points) != 2 {
		t.Errorf("%+v", s)
	}
	// The chart shows the calls of policies. The shadow would have denied both, and allowed both.
	if rate := s.Policies[0].PerSec; s.Calls != (usage.Rate{Allowed: rate.Allowed + rate.Denied}) || s.Points[1].Rate != s.Calls {
		t.Errorf("%+v, %+v, %+v", s.Calls, s.Points, rate)
	}
	_ = two.Close()
	d.look(t.Context())
	if s = d.state; len(s.Faults) != 2 || !strings.HasPrefix(s.Faults[0], "scan: ") || !strings.HasPrefix(s.Faults[1], "scan: ") || len(s.Policies) != 2 || s.Policies[0].Denied != 4 || s.Keys != 1 {
		t.Errorf("%+v", s)
	}
	_ = one.Close()
	d.look(t.Context())
	if s = d.state; len(s.Faults) != 2 || s.Keys != 1 || len(s.Policies) != 2 {
		t.Errorf("the last result is missing: %+v", s)
	}
}

// Classes, guaranteed and borrowed calls have rows after their policy, and are not added to all calls.
func TestPartsOfPolicies(t *testing.T) {
	build := must[functions.Build](t)(functions.New(functions.WithPolicies(
		functions.Policy{Name: "api", Limits: []functions.PolicyLimit{{Limit: "2/d"}}, Classes: map[string]int{"batch": 50, "default": 0}},
		functions.Policy{Name: "tenant", Limits: []functions.PolicyLimit{{Key: "tenant", Limit: "1/d"}, {Key: "pool", Limit: "4/d"}}, Borrow: true, Floor: 50},
	)))
	srv := embedded.Run(t, embedded.WithLibrary(build.Text()))
	d := board(t, srv.Addr())
	d.look(t.Context())
	for range 3 {
		must[any](t)(srv.Do("FCALL", "ratelimit_take", "1", "k", "@api", "CLASS", "batch"))
		must[any](t)(srv.Do("FCALL", "ratelimit_take", "2", "{p}t", "{p}", "@tenant"))
	}
	d.look(t.Context())
	var got []policy
	sum := usage.Rate{}
	for _, p := range d.state.Policies {
		if p.Part == "" {
			sum.Allowed, sum.Denied = sum.Allowed+p.PerSec.Allowed, sum.Denied+p.PerSec.Denied
		}
		if (p.PerSec.Allowed > 0) != (p.Allowed > 0) || (p.PerSec.Denied > 0) != (p.Denied > 0) {
			t.Errorf("%+v: the rates do not fit the counts", p)
		}
		p.PerSec = usage.Rate{}
		got = append(got, p)
	}
	row := func(name, part string, allowed, denied int64, limits ...string) policy {
		return policy{Name: name, Part: part, Limits: append([]string{}, limits...), Counted: true, Count: usage.Count{Allowed: allowed, Denied: denied}}
	}
	want := []policy{
		row("api", "", 1, 2, "2/d"), row("api", "class batch 50%", 1, 2), row("api", "class default 0%", 0, 0),
		row("tenant", "", 2, 1, "tenant: 1/d", "pool: 4/d"), row("tenant", "guaranteed", 1, 0), row("tenant", "borrowed", 1, 0),
	}
	if !reflect.DeepEqual(got, want) || d.state.Calls != sum {
		t.Errorf("%+v\nwant %+v; all calls %+v, want %+v", got, want, d.state.Calls, sum)
	}
}

// A canary is listed after its policy. The page lists servers whose library does not count calls.
func TestPolicies(t *testing.T) {
	build := must[functions.Build](t)(functions.New(functions.WithPolicies(
		functions.Policy{Name: "api", Limits: []functions.PolicyLimit{{Key: "user", Limit: "1/d"}}, Canary: &functions.Canary{Limits: []string{"2/d"}, Share: 1000, Shadow: true}},
		functions.Policy{Name: "export", Limits: []functions.PolicyLimit{{Limit: "1/d"}}, Shadow: true},
	)))
	srv := embedded.Run(t, embedded.WithLibrary(build.Text()))
	exports(t, srv, 2)
	for range 4 {
		must[any](t)(srv.Do("FCALL", "ratelimit_take", "1", "u", "@api"))
	}
	d := board(t, srv.Addr())
	d.look(t.Context())
	want := []policy{
		{Name: "api", Limits: []string{"user: 1/d"}, Counted: true},
		{Name: "api", Limits: []string{"user: 2/d"}, Shadow: true, Share: 1000, Counted: true, Count: usage.Count{Allowed: 2, Denied: 2}},
		{Name: "export", Limits: []string{"1/d"}, Shadow: true, Counted: true, Count: usage.Count{Allowed: 1, Denied: 1}},
	}
	if got := d.state.Policies; !reflect.DeepEqual(got, want) || d.state.Uncounted != nil {
		t.Errorf("%+v\nwant %+v; %q", got, want, d.state.Uncounted)
	}
	require(t, srv.Load(strings.Replace(build.Text(), "'policy_calls'", "'something_else'", 1)))
	d.look(t.Context())
	if s := d.state; len(s.Uncounted) != 1 || !strings.HasPrefix(s.Uncounted[0], "server:") || len(s.Policies) != 2 || s.Policies[0].Counted {
		t.Errorf("%+v", s)
	}
}

// A dead server is named once, even if several requests to it fail.
func TestFaults(t *testing.T) {
	srv := embedded.Run(t)
	d := board(t, srv.Addr())
	d.look(t.Context())
	if got := d.state.Faults; len(got) != 1 || !strings.Contains(got[0], "does not have the library") || d.state.Policies != nil {
		t.Errorf("without the library: %q, %+v", got, d.state)
	}
	_ = srv.Close()
	d.from.Nodes = func(context.Context) ([]Node, error) { return []Node{{Dead: true}}, errors.New("dead") }
	d.look(t.Context())
	if got := d.state.Faults; len(got) != 1 || got[0] != "call: dead" {
		t.Errorf("%q", got)
	}
	d.from.Connect, d.rdb = func(context.Context) (redis.UniversalClient, error) { return nil, errors.New("no way") }, nil
	d.from.Nodes = func(context.Context) ([]Node, error) { return nil, nil }
	d.look(t.Context())
	if got := d.state.Faults; len(got) != 1 || got[0] != "call: no way" {
		t.Errorf("%q", got)
	}
}

// A long key is truncated.
func TestShown(t *testing.T) {
	for key, want := range map[string]string{
		"user:1": "user:1", "user 1": `"user 1"`, strings.Repeat("ü", 200): strings.Repeat("ü", 80) + "… (400 bytes)", strings.Repeat("ü", 500_000): strings.Repeat("ü", 80) + "… (1000000 bytes)",
	} {
		if got := shown(key); got != want {
			t.Errorf("%.20s of %d bytes is shown as %s", key, len(key), got)
		}
	}
}
