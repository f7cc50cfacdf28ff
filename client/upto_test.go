package client_test

import (
	"reflect"
	"regexp"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/ratelimit-functions/ratelimit/client"
	"github.com/ratelimit-functions/ratelimit/embedded"
	"github.com/ratelimit-functions/ratelimit/functions"
)

func TestUpTo(t *testing.T) {
	ctx := t.Context()
	server, c := atNoon(t)
	two := client.Request{Keys: []string{"{u}:m", "{u}:d"}, Limits: []client.Limit{"10/m", "token_bucket 4/d"}, Costs: []int64{3}, UpTo: true, UsageKey: "{u}:usage"}
	for _, step := range []struct {
		name string
		wait time.Duration // time that passes before the call
		call func() (client.Result, error)
		want client.Result
	}{
		{"all of it", 0, func() (client.Result, error) { return c.Take(ctx, upTo("k", "10/m", 7)) },
			client.Result{Allowed: true, Taken: 7, Limit: 10, Remaining: 3, ResetAfter: 42 * time.Second, Index: 1, Source: "server"}},
		{"nothing", 0, func() (client.Result, error) { return c.Take(ctx, upTo("k", "10/m", 0)) },
			client.Result{Limit: 10, Remaining: 3, ResetAfter: 42 * time.Second, Index: 1, Source: "server"}},
		{"as many as fit", 0, func() (client.Result, error) { return c.Take(ctx, upTo("k", "10/m", 1<<53)) },
			client.Result{Allowed: true, Taken: 3, Limit: 10, ResetAfter: time.Minute, Index: 1, Source: "server"}},
		{"none fits", time.Second, func() (client.Result, error) { return c.Take(ctx, upTo("k", "10/m", 7)) },
			client.Result{Limit: 10, RetryAfter: 5 * time.Second, ResetAfter: 59 * time.Second, Index: 1, Source: "server"}},
		{"a whole cost is not taken in parts", 0, func() (client.Result, error) { return c.AllowN(ctx, "j", "10/m", 7) },
			client.Result{Allowed: true, Limit: 10, Remaining: 3, ResetAfter: 42 * time.Second, Index: 1, Source: "server"}},
		{"two keys", 0, func() (client.Result, error) { return c.Take(ctx, two) },
			client.Result{Allowed: true, Taken: 3, Limit: 4, Remaining: 1, ResetAfter: 24 * time.Hour, Index: 2, Source: "server"}},
		{"peek at two keys", 0, func() (client.Result, error) { return c.Peek(ctx, two) },
			client.Result{Allowed: true, Taken: 1, Limit: 4, ResetAfter: 24 * time.Hour, Index: 2, Source: "server"}},
		{"two keys, what is left", 0, func() (client.Result, error) { return c.Take(ctx, two) },
			client.Result{Allowed: true, Taken: 1, Limit: 4, ResetAfter: 24 * time.Hour, Index: 2, Source: "server"}},
		{"two keys, nothing left in one", 0, func() (client.Result, error) { return c.Take(ctx, two) },
			client.Result{Limit: 4, RetryAfter: 24 * time.Hour, ResetAfter: 24 * time.Hour, Index: 2, Source: "server"}},
		{"the first key was charged the same", 0, func() (client.Result, error) { return c.Peek(ctx, client.For("{u}:m", "10/m", 0)) },
			client.Result{Allowed: true, Limit: 10, Remaining: 6, ResetAfter: 24 * time.Second, Index: 1, Source: "server"}},
	} {
		server.Advance(step.wait)
		got, err := step.call()
		wantResult(t, step.name, got, err, step.want)
	}
	if usage := must[client.Usage](t)(c.Usage(ctx, "{u}:usage")); usage.Allowed != 2 || usage.Denied != 1 || usage.Cost != 4 {
		t.Errorf("usage of takes of 3, 1 and 0 units: %+v", usage)
	}
	_, err := c.Take(ctx, upTo("k", "10/m", -1))
	wantClasses(t, "cost", err, typed("bad_cost"))
}

// A repeated call returns the number of units that the first call took, however many it requests.
func TestUpToOnce(t *testing.T) {
	ctx := t.Context()
	server := embedded.Run(t, embedded.WithLibrary(functions.Source()), embedded.WithTime(noon))
	p := startProxy(t, server.Addr())
	c := newClient(t, connect(t, redis.Options{Addr: p.addr()}))
	req := withOnceKey("a")
	req.Costs, req.UpTo = []int64{7}, true
	want := client.Result{Allowed: true, Taken: 7, Limit: 10, Remaining: 3, ResetAfter: 1008 * time.Minute, Index: 1, Source: "server"}
	p.lose(3, false)
	got, err := c.Take(ctx, req)
	wantResult(t, "the fourth call", got, err, want)
	if n := p.seen(); n != 4 {
		t.Errorf("sent %d times, want 4", n)
	}
	req.Costs = []int64{2} // different, but the reply is still that of the first call
	got, err = c.Take(ctx, req)
	wantResult(t, "the same work with another number", got, err, want)
	plain := req
	plain.Costs, plain.UpTo, want.Taken = nil, false, 0
	got, err = c.Take(ctx, plain)
	wantResult(t, "the same work without a number", got, err, want)
	req.OnceKey += ":b"
	got, err = c.Take(ctx, req)
	wantResult(t, "other work", got, err, client.Result{Allowed: true, Taken: 2, Limit: 10, Remaining: 1, ResetAfter: 1296 * time.Minute, Index: 1, Source: "server"})
}

// An enforced limit decides how many units are taken. A shadow policy decides how many of these it
// would have allowed.
func TestUpToUnderAShadow(t *testing.T) {
	build := must[functions.Build](t)(functions.New(functions.WithPolicies(
		functions.Policy{Name: "try", Limits: []functions.PolicyLimit{{Limit: "3/h"}}, Shadow: true})))
	server := embedded.Run(t, embedded.WithLibrary(build.Text()), embedded.WithTime(noon))
	c := newClient(t, connect(t, redis.Options{Addr: server.Addr()}))
	got, err := c.Take(t.Context(), upTo("k", "@try", 5))
	wantResult(t, "with units left", got, err, client.Result{Allowed: true, Taken: 5, Limit: 3, ResetAfter: time.Hour, Index: 1, Source: "server",
		Shadow: &client.Result{Allowed: true, Taken: 3, Index: 1}})
	got, err = c.Take(t.Context(), upTo("k", "@try", 5))
	wantResult(t, "with none left", got, err, client.Result{Allowed: true, Taken: 5, Limit: 3, ResetAfter: time.Hour, Index: 1, Source: "server",
		Shadow: &client.Result{RetryAfter: 20 * time.Minute, Index: 1}})
}

// If the library is too old to have UPTO, it rejects that argument as an invalid cost. Take
// then returns ErrNotDeployed, and nothing is counted.
func TestUpToOfAnOlderLibrary(t *testing.T) {
	option := regexp.MustCompile(`\b(UPTO|upto) = 'UPTO',? ?`)
	if n := len(option.FindAllString(functions.Source(), -1)); n != 2 {
		t.Fatalf("the option is in the library's text %d times; this test knows of 2", n)
	}
	server := embedded.Run(t, embedded.WithLibrary(option.ReplaceAllString(functions.Source(), "")), embedded.WithTime(noon))
	c := newClient(t, connect(t, redis.Options{Addr: server.Addr()}))
	_, err := c.Take(t.Context(), upTo("k", "5/m", 3))
	want := `ratelimit: take "k": the library on the server is too old for UpTo ` +
		`(RATELIMIT BADCOST "UPTO": a cost is a whole number from 0 to 9007199254740992); deploy the library with: ratelimit deploy, or with package loader`
	wantText(t, err, want)
	wantClasses(t, "older library", err, client.ErrNotDeployed)
	if got := must[client.Result](t)(c.Peek(t.Context(), client.For("k", "5/m", 0))); got.Remaining != 5 {
		t.Errorf("%d are left of 5: something was counted", got.Remaining)
	}
}

// A reply whose first element is negative, or above the requested number, is invalid.
func TestRepliesToUpTo(t *testing.T) {
	for _, tt := range []struct {
		reply any
		ok    bool
	}{
		{integers(0, 5, 0, 1, 1, 1), true}, {integers(3, 5, 0, 0, 1, 1), true}, {integers(4, 5, 0, 0, 1, 1), false}, {integers(-1, 5, 0, 0, 1, 1), false},
	} {
		got, err := newClient(t, &fake{reply: tt.reply}).Take(t.Context(), upTo("k", "5/m", 3))
		if tt.ok != (err == nil) || err != nil && typeOf(err) != "bad_reply" {
			t.Errorf("%v: %+v, %v", tt.reply, got, err)
		}
	}
	// A shadow decision that takes more units than requested is invalid, and is ignored.
	for units, want := range map[int64]*client.Result{3: {Allowed: true, Taken: 3, Index: 1}, 4: nil} {
		f := &fake{reply: integers(3, 5, 0, 0, 1, 1, units, 0, 1)}
		if got, err := newClient(t, f).Take(t.Context(), upTo("k", "@p", 3)); err != nil || !reflect.DeepEqual(got.Shadow, want) {
			t.Errorf("a shadow of %d: %+v, %v", units, got.Shadow, err)
		}
	}
}
