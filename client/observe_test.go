package client_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/ratelimit-functions/ratelimit/client"
)

// heard records the events of an Observer. While calls run, read it with since.
type heard struct {
	mu      sync.Mutex
	calls   []client.Observation
	changes []breakerChange
	ctx     context.Context
}

// breakerChange holds the arguments of Observer.Breaker.
type breakerChange struct{ Node, From, To string }

// changesOf returns the changes of a breaker that opens and closes again.
func changesOf(node string) []breakerChange {
	return []breakerChange{{node, "closed", "open"}, {node, "open", "half-open"}, {node, "half-open", "closed"}}
}

// since returns the calls since the last call of since.
func (h *heard) since() []client.Observation {
	h.mu.Lock()
	defer h.mu.Unlock()
	calls := h.calls
	h.calls = nil
	return calls
}

func (h *heard) observer() client.Observer {
	return client.Observer{
		Call: func(ctx context.Context, o client.Observation) {
			h.mu.Lock()
			defer h.mu.Unlock()
			h.ctx, h.calls = ctx, append(h.calls, o)
		},
		Breaker: func(node, from, to string) {
			h.mu.Lock()
			defer h.mu.Unlock()
			h.changes = append(h.changes, breakerChange{node, from, to})
		},
	}
}

func TestObserverHearsOfEveryCall(t *testing.T) {
	request := client.Request{Keys: []string{"k"}, Limits: []client.Limit{perDay}}
	for _, tt := range []struct {
		operation string
		reply     any
		outcome   string
		call      func(context.Context, *client.Client) error
	}{
		{"take", integers(1, 10, 9, 0, 1, 1), "allowed", func(ctx context.Context, c *client.Client) error { return second(c.Allow(ctx, "k", perDay)) }},
		{"take", integers(0, 10, 0, 5, 1, 1), "denied", func(ctx context.Context, c *client.Client) error { return second(c.Take(ctx, request)) }},
		{"peek", integers(1, 10, 9, 0, 1, 1), "allowed", func(ctx context.Context, c *client.Client) error { return second(c.Peek(ctx, client.For("k", perDay))) }},
		{"refund", integers(0, 10, 9, 5, 1, 1), "denied", func(ctx context.Context, c *client.Client) error { return second(c.Refund(ctx, request)) }},
		{"acquire", integers(1, 10, 9, 0, 1, 1), "allowed", func(ctx context.Context, c *client.Client) error {
			return second(c.Lease("k", "concurrency 1 lease=1s", "").Acquire(ctx))
		}},
		{"renew", integers(0, 10, 9, 5, 1, 1), "denied", func(ctx context.Context, c *client.Client) error {
			return second(c.Lease("k", "concurrency 1 lease=1s", "").Renew(ctx))
		}},
		{"release", int64(1), "done", func(ctx context.Context, c *client.Client) error {
			return second(c.Lease("k", "concurrency 1 lease=1s", "").Release(ctx))
		}},
		{"reset", int64(1), "done", func(ctx context.Context, c *client.Client) error { return second(c.Reset(ctx, "k")) }},
		{"block", int64(1), "done", func(ctx context.Context, c *client.Client) error {
			return c.Block(ctx, client.Block{For: time.Second}, "k")
		}},
		{"unblock", int64(1), "done", func(ctx context.Context, c *client.Client) error { return second(c.Unblock(ctx, "k")) }},
		{"override", int64(1), "done", func(ctx context.Context, c *client.Client) error {
			return c.Override(ctx, perDay, time.Second, "k")
		}},
		{"override_end", int64(1), "done", func(ctx context.Context, c *client.Client) error { return second(c.EndOverride(ctx, "k")) }},
		{"usage", usageReply(), "done", func(ctx context.Context, c *client.Client) error { return second(c.Usage(ctx, "k")) }},
		{"info", infoReply(), "done", func(ctx context.Context, c *client.Client) error { return second(c.Info(ctx)) }},
		{"check", infoReply(), "done", func(ctx context.Context, c *client.Client) error {
			return c.Check(ctx)
		}},
	} {
		t.Run(tt.operation+" "+string(tt.outcome), func(t *testing.T) {
			type mark struct{}
			ctx := context.WithValue(t.Context(), mark{}, tt.operation)
			for _, fails := range []bool{false, true} {
				h, rdb := &heard{}, &fake{reply: tt.reply}
				if fails {
					rdb.err = answered("NOPERM no")
				}
				before := time.Now()
				err := tt.call(ctx, newClient(t, rdb, client.WithObserver(h.observer())))
				if (err != nil) != fails {
					t.Fatal(err)
				}
				if len(h.calls) != 1 {
					t.Fatalf("told of %d calls, want 1: %+v", len(h.calls), h.calls)
				}
				got := h.calls[0]
				want := client.Observation{Op: tt.operation, Outcome: tt.outcome, Source: "server"}
				kind := ""
				if fails {
					want.Outcome, want.Source, want.Err, kind = "error", "", err, "no_permission"
				}
				if got.Began.Before(before) || got.Began.Add(got.Duration).After(time.Now()) || got.Duration <= 0 {
					t.Errorf("began at %v for %v, and the call was from %v on", got.Began, got.Duration, before)
				}
				want.ErrorType = kind
				got.Began, got.Duration = time.Time{}, 0
				if got != want {
					t.Errorf("%+v, want %+v", got, want)
				}
				if h.ctx.Value(mark{}) != tt.operation {
					t.Error("the context is not the caller's")
				}
			}
		})
	}
}

// A call that is not sent is reported exactly once, with its error: a call whose context has ended,
// a call after Close, without a connection or without a key, and one with other bad arguments.
func TestObserverHearsOfRefusedCalls(t *testing.T) {
	refused := map[string]func(ctx context.Context, c *client.Client) error{
		"Block": func(ctx context.Context, c *client.Client) error { return c.Block(ctx, client.Block{For: 0}, "k") },
		"Block with Extend": func(ctx context.Context, c *client.Client) error {
			return c.Block(ctx, client.Block{For: -1, Extend: true}, "k")
		},
		"Override":    func(ctx context.Context, c *client.Client) error { return c.Override(ctx, perDay, 0, "k") },
		"Wait for -1": func(ctx context.Context, c *client.Client) error { return c.Wait(ctx, client.For("k", perDay, -1)) },
		"Wait for two": func(ctx context.Context, c *client.Client) error {
			return c.Wait(ctx, client.Request{Keys: []string{"k"}, Limits: []client.Limit{"@api"}, Force: true})
		},
		"Hold": func(ctx context.Context, c *client.Client) error {
			return second(c.TakeEstimate(ctx, client.For("k", perDay, -1)))
		},
		"Hold {}": func(ctx context.Context, c *client.Client) error {
			return second(c.TakeEstimate(ctx, client.For("{}k", perDay, 1)))
		},
		"Take": func(ctx context.Context, c *client.Client) error {
			return second(c.Take(ctx, client.Request{Keys: []string{"k"}, Limits: []client.Limit{"UPTO"}}))
		},
		"Peek of two": func(ctx context.Context, c *client.Client) error {
			return second(c.Peek(ctx, client.Request{Keys: []string{"k"}, Limits: []client.Limit{perDay}, OnceKey: "o", OnceTTL: 1}))
		},
		"Refund": func(ctx context.Context, c *client.Client) error {
			return second(c.Refund(ctx, client.Request{Keys: []string{"k"}, Limits: []client.Limit{perDay}, UpTo: true}))
		},
		"Lease.Run": func(ctx context.Context, c *client.Client) error { return c.Lease("k", oneJob, "").Run(ctx, nil) },
	}
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	for _, tt := range []struct {
		name  string
		ctx   context.Context
		key   string
		close bool
		err   error // of the Redis client
		calls map[string]func(ctx context.Context, c *client.Client) error
	}{
		{name: "ended", ctx: cancelled, key: "k"},
		{name: "closed", ctx: t.Context(), key: "k", close: true},
		{name: "no connection", ctx: t.Context(), key: "k", err: redis.ErrPoolTimeout},
		{name: "no key", ctx: t.Context()},
		{name: "bad arguments", ctx: t.Context(), calls: refused},
	} {
		h, rdb := &heard{}, &fake{reply: int64(1), err: tt.err}
		c := newClient(t, rdb, client.WithObserver(h.observer()))
		if tt.close {
			check(t, c.Close())
		}
		calls := map[string]func() error{}
		for verb, call := range tt.calls {
			calls[verb] = func() error { return call(tt.ctx, c) }
		}
		if tt.calls == nil {
			calls = everyCall(tt.ctx, c, tt.key)
		}
		for verb, call := range calls {
			h.calls = nil
			err := call()
			if len(rdb.lines) > 0 { // such as Usage, whose key is not empty here
				rdb.lines = nil
				continue
			}
			if err == nil || len(h.calls) != 1 || !errors.Is(err, h.calls[0].Err) || h.calls[0].Outcome != "error" && h.calls[0].Outcome != "misconfigured" {
				t.Errorf("%s, %s: told of %+v, want one call with the error %v", tt.name, verb, h.calls, err)
			}
		}
	}
}

// Calls that need an earlier call, or a Lease with fields, are also reported once if they are refused before
// they are sent.
func TestObserverHearsOfRefusedLaterCalls(t *testing.T) {
	h := &heard{}
	inBubble(t, func(t *testing.T, v *virtual, _ *client.Client) {
		ctx, c := t.Context(), v.client(t, client.WithObserver(h.observer()))
		estimate := must[*client.Estimate](t)(c.TakeEstimate(ctx, client.For("k", "5/m", 5)))
		denied := client.For("k", "5/m")
		res := must[client.Result](t)(c.Take(ctx, denied))
		lease := c.Lease("jobs", oneJob, "")
		shared := c.Lease("jobs", oneJob, "")
		shared.Class, shared.Floor = "batch", 20
		floor := c.Lease("jobs", oneJob, "")
		floor.Floor = 101
		check(t, lease.Run(ctx, func(ctx context.Context) error {
			for name, tt := range map[string]struct {
				operation string
				call      func() error
			}{
				"Settle with -1":                {"take", func() error { return second(estimate.Settle(ctx, -1)) }},
				"Settle with too many units":    {"take", func() error { return second(estimate.Settle(ctx, 1<<53+1)) }},
				"Settle without a number":       {"take", func() error { return second(estimate.Settle(ctx)) }},
				"Settle with a number too many": {"take", func() error { return second(estimate.Settle(ctx, 1, 2)) }},
				"Penalize without For":          {"block", func() error { return second(c.Penalize(ctx, client.Block{Max: 1, Forget: 1}, denied, res)) }},
				"Penalize without Max":          {"block", func() error { return second(c.Penalize(ctx, client.Block{For: 1, Forget: 1}, denied, res)) }},
				"Penalize without Forget":       {"block", func() error { return second(c.Penalize(ctx, client.Block{For: 1, Max: 1}, denied, res)) }},
				"Penalize with Extend": {"block", func() error {
					return second(c.Penalize(ctx, client.Block{For: 1, Max: 1, Forget: 1, Extend: true}, denied, res))
				}},
				"Run in another Run":           {"acquire", func() error { return lease.Run(ctx, func(context.Context) error { return nil }) }},
				"Acquire with Class and Floor": {"acquire", func() error { return second(shared.Acquire(ctx)) }},
				"Acquire with a Floor of 101":  {"acquire", func() error { return second(floor.Acquire(ctx)) }},
				"Wait with Class and Floor":    {"acquire", func() error { return shared.Wait(ctx) }},
				"Run with Class and Floor":     {"acquire", func() error { return shared.Run(ctx, func(context.Context) error { return nil }) }},
			} {
				h.since()
				sent := v.sent()
				err := tt.call()
				calls := h.since()
				if !errors.Is(err, client.ErrMisconfigured) || len(calls) != 1 || calls[0].Op != tt.operation || calls[0].Outcome != "misconfigured" || calls[0].Source != "" || calls[0].Err != err {
					t.Errorf("%s: told of %+v, want one %s with the error %v", name, calls, tt.operation, err)
				}
				if n := v.sent() - sent; n != 0 {
					t.Errorf("%s: %d calls were sent", name, n)
				}
			}
			return nil
		}))
	})
}

// A wait that ends before its first call is reported once.
func TestObserverHearsOfWaits(t *testing.T) {
	h := &heard{}
	inBubble(t, func(t *testing.T, v *virtual, _ *client.Client) {
		c := v.client(t, client.WithObserver(h.observer()))
		must[client.Result](t)(c.Allow(t.Context(), "k", "1/m"))
		var all sync.WaitGroup
		all.Go(func() { check(t, c.Wait(t.Context(), client.For("k", "1/m"))) })
		synctest.Wait()
		h.since()
		short, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		var limited *client.Error
		if err := c.Wait(short, client.For("k", "1/m")); !asLimited(err, &limited) {
			t.Error(err)
		}
		if calls := h.since(); len(calls) != 1 || calls[0].Outcome != "denied" || calls[0].Source != "memory" || calls[0].Op != "take" || calls[0].Err != nil {
			t.Errorf("refused in the queue: %+v", calls)
		}
		ending, end := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, end)
		err := c.Wait(ending, client.For("k", "1/m"))
		if calls := h.since(); len(calls) != 1 || calls[0].Outcome != "error" || calls[0].ErrorType != "canceled" || calls[0].Err != err || calls[0].Duration != time.Second {
			t.Errorf("cancelled in the queue: %+v, want the error %v", calls, err)
		}
		all.Wait()
		if calls := h.since(); len(calls) != 1 || calls[0].Outcome != "allowed" {
			t.Errorf("the second take of the first in the queue: %+v", calls)
		}
	})
}

func TestObserverWithoutDecision(t *testing.T) {
	for _, tt := range []struct {
		fallback client.Fallback
		outcome  string
		source   string
	}{
		{client.ReturnError, "error", ""},
		{client.FailOpen, "allowed", "fallback"},
		{client.FailClosed, "denied", "fallback"},
	} {
		h, rdb := &heard{}, &fake{err: redis.ErrPoolTimeout}
		c := newClient(t, rdb, client.WithFallback(tt.fallback), client.WithObserver(h.observer()))
		_, _ = c.Allow(t.Context(), "k", perDay)
		if len(h.calls) != 1 || h.calls[0].Outcome != tt.outcome || h.calls[0].Source != tt.source || !errors.Is(h.calls[0].Err, redis.ErrPoolTimeout) {
			t.Errorf("%+v, want one call that is %s by %s, and the error", h.calls, tt.outcome, tt.source)
		}
	}
}

func TestObserverOfBreaker(t *testing.T) { synctest.Test(t, testObserverOfBreaker) }

func testObserverOfBreaker(t *testing.T) {
	h, rdb := &heard{}, &fake{err: io.EOF, sent: true}
	c := newClient(t, rdb, client.WithObserver(h.observer()))
	for range 6 {
		_, _ = c.Allow(t.Context(), "k", perDay)
	}
	if want := changesOf("localhost:6379")[:1]; !slices.Equal(h.changes, want) {
		t.Fatalf("%+v, want %+v", h.changes, want)
	}
	rdb.err, rdb.reply = nil, integers(1, 10, 9, 0, 1, 1)
	eventually(t, "the node is asked again", func() bool {
		_, err := c.Allow(t.Context(), "k", perDay)
		return err == nil
	})
	want := changesOf("localhost:6379")
	if !slices.Equal(h.changes, want) {
		t.Errorf("%+v, want %+v", h.changes, want)
	}
}

// A breaker's event contains the address of the node.
func TestObserverOfBreakerNamesTheNode(t *testing.T) {
	h := &heard{}
	c := must[*client.Client](t)(client.Open("redis://127.0.0.1:1", client.WithObserver(h.observer())))
	defer func() { _ = c.Close() }()
	for range 5 {
		_, _ = c.Allow(t.Context(), "k", perDay)
	}
	if want := []breakerChange{{Node: "127.0.0.1:1", From: "closed", To: "open"}}; !slices.Equal(h.changes, want) {
		t.Errorf("%+v, want %+v", h.changes, want)
	}
	// Close returns the breakers to the closed state, and reports each change only once.
	for range 2 {
		check(t, c.Close())
	}
	last := h.changes[len(h.changes)-1]
	closed := func(change breakerChange) bool { return change.To == "closed" }
	if last.Node != "127.0.0.1:1" || last.From == "closed" || !closed(last) || slices.IndexFunc(h.changes, closed) != len(h.changes)-1 {
		t.Errorf("%+v, want one change to closed, the last", h.changes)
	}
}

func TestWithObserver(t *testing.T) {
	if _, err := client.New((&fake{}).client(), client.WithObserver(client.Observer{})); err == nil || !strings.Contains(err.Error(), "the observer has no function") {
		t.Errorf("error %v", err)
	}
	a, b := &heard{}, &heard{}
	c := newClient(t, &fake{reply: int64(0)}, client.WithObserver(a.observer()), client.WithObserver(b.observer()))
	must[int64](t)(c.Reset(t.Context(), "k"))
	if len(a.calls) != 1 || len(b.calls) != 1 {
		t.Errorf("%d and %d calls, want one for each of two observers", len(a.calls), len(b.calls))
	}
}

func TestErrorType(t *testing.T) {
	for _, tt := range []struct {
		err  error
		want string
	}{
		{nil, ""},
		{context.Canceled, "canceled"},
		{fmt.Errorf("%w: %w", client.ErrUnavailable, context.DeadlineExceeded), "timeout"},
		{errors.Join(client.ErrUnavailable, client.ErrOutcomeUnknown), "outcome_unknown"},
		{errors.Join(client.ErrUnavailable, client.ErrOutcomeUnknown, context.DeadlineExceeded), "outcome_unknown"},
		{client.ErrUnavailable, "unavailable"},
		{errors.Join(client.OfKind("bad_reply"), client.ErrOutcomeUnknown), "bad_reply"},
		{client.OfKind("no_policy"), "no_policy"},
		{io.EOF, "other"},
	} {
		if got := client.ErrorType(tt.err); got != tt.want {
			t.Errorf("%v is %q, want %q", tt.err, got, tt.want)
		}
	}
}
