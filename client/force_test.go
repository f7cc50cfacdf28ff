package client_test

import (
	"regexp"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/ratelimit-functions/ratelimit/client"
	"github.com/ratelimit-functions/ratelimit/embedded"
	"github.com/ratelimit-functions/ratelimit/functions"
)

func TestForce(t *testing.T) {
	ctx := t.Context()
	server, c := atNoon(t)
	forced := func(n int64) client.Request {
		return client.Request{Keys: []string{"k"}, Limits: []client.Limit{"10/m"}, Costs: []int64{n}, Force: true}
	}
	for _, step := range []struct {
		name string
		wait time.Duration // time that passes before the call
		n    int64
		want client.Result
	}{
		{"what fits", 0, 4, client.Result{Allowed: true, Limit: 10, Remaining: 6, ResetAfter: 24 * time.Second, Index: 1, Source: "server"}},
		{"what does not fit", 0, 11, client.Result{Allowed: true, Limit: 10, RetryAfter: 36 * time.Second, ResetAfter: 90 * time.Second, Index: 1, Source: "server"}},
		{"nothing", time.Second, 0, client.Result{Allowed: true, Limit: 10, RetryAfter: 35 * time.Second, ResetAfter: 89 * time.Second, Index: 1, Source: "server"}},
	} {
		server.Advance(step.wait)
		got, err := c.Take(ctx, forced(step.n))
		wantResult(t, step.name, got, err, step.want)
	}
	got, err := c.Allow(ctx, "k", "10/m")
	wantResult(t, "in debt", got, err, client.Result{Limit: 10, RetryAfter: 35 * time.Second, ResetAfter: 89 * time.Second, Index: 1, Source: "server"})
	require(t, c.Block(ctx, client.Block{For: time.Minute}, "k"))
	got, err = c.Take(ctx, forced(3))
	wantResult(t, "blocked", got, err, client.Result{Limit: 10, RetryAfter: time.Minute, ResetAfter: time.Minute, Index: 1, Source: "server"})
}

// A remembered denial does not apply to a call with Force.
func TestForceAfterADenial(t *testing.T) {
	s := newTestbed(t)
	c := s.denied(t)
	req := client.Request{Keys: []string{"k"}, Limits: []client.Limit{"4/s"}, Costs: []int64{2}, Force: true}
	if res := must[client.Result](t)(c.Take(t.Context(), req)); !res.Allowed || res.RetryAfter == 0 || res.Source != "server" {
		t.Errorf("%+v, want it charged by a server, in debt", res)
	}
}

// A refund with an OnceKey is retried, but gives the units back only once.
func TestRefundOnce(t *testing.T) {
	ctx := t.Context()
	server := embedded.Run(t, embedded.WithLibrary(functions.Source()), embedded.WithTime(noon))
	p := startProxy(t, server.Addr())
	c := newClient(t, connect(t, redis.Options{Addr: p.addr()}))
	must[client.Result](t)(c.AllowN(ctx, "{k}", perDay, 9))
	req := withOnceKey("refund")
	req.Costs = []int64{4}
	for _, losses := range []int{3, 0} {
		p.lose(losses, false)
		got, err := c.Refund(ctx, req)
		wantResult(t, "refund", got, err, client.Result{Allowed: true, Limit: 10, Remaining: 5, ResetAfter: 12 * time.Hour, Index: 1, Source: "server"})
		if n := p.seen(); n != losses+1 {
			t.Errorf("sent %d times, want %d", n, losses+1)
		}
	}
	if n := left(t, c, "{k}", perDay); n != 5 {
		t.Errorf("%d are left after a refund of 4 that was repeated, want 5", n)
	}
}

// olderThan simulates a library without an option: it replaces the text that pattern matches, and
// returns a client for a server with the changed library.
func olderThan(t *testing.T, pattern, replacement string) *client.Client {
	t.Helper()
	option := regexp.MustCompile(pattern)
	if n := len(option.FindAllString(functions.Source(), -1)); n != 1 {
		t.Fatalf("the library has %s %d times; this test knows of 1", pattern, n)
	}
	server := embedded.Run(t, embedded.WithLibrary(option.ReplaceAllString(functions.Source(), replacement)), embedded.WithTime(noon))
	return newClient(t, connect(t, redis.Options{Addr: server.Addr()}))
}

// A library that does not have FORCE parses that argument as a cost.
func TestForceOfAnOlderLibrary(t *testing.T) {
	c := olderThan(t, `FORCE = 'FORCE', `, "")
	req := client.Request{Keys: []string{"k"}, Limits: []client.Limit{"5/m"}, Force: true}
	_, err := c.Take(t.Context(), req)
	wantText(t, err, `ratelimit: take "k": the library on the server is too old for Force `+
		`(RATELIMIT BADCOST "FORCE": a cost is a whole number from 0 to 9007199254740992); deploy the library with: ratelimit deploy, or with package loader`)
	wantClasses(t, "older library", err, client.ErrNotDeployed)
	if n := left(t, c, "k", "5/m"); n != 5 {
		t.Errorf("%d are left of 5: something was counted", n)
	}
}

// An older library, in which refund has no ONCE, rejects this option.
func TestRefundOnceOfAnOlderLibrary(t *testing.T) {
	c := olderThan(t, `PAID = true, ONCE = true, `, "PAID = true, ")
	must[client.Result](t)(c.Allow(t.Context(), "{k}", perDay))
	_, err := c.Refund(t.Context(), withOnceKey("refund"))
	wantText(t, err, `ratelimit: refund "{k}" "{k}:once:refund": the library on the server is too old for an OnceKey of Refund `+
		`(RATELIMIT BADARGS "ONCE": not an option here); deploy the library with: ratelimit deploy, or with package loader`)
	wantClasses(t, "older library", err, client.ErrNotDeployed)
	if n := left(t, c, "{k}", perDay); n != 9 {
		t.Errorf("%d are left of 10 after one unit: something was given back", n)
	}
}
