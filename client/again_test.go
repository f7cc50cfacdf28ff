package client_test

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/ratelimit-functions/ratelimit/client"
	"github.com/ratelimit-functions/ratelimit/client/limits"
	"github.com/ratelimit-functions/ratelimit/embedded"
	"github.com/ratelimit-functions/ratelimit/functions"
)

// withOnceKey returns a request for a take that is charged once, even if it is repeated.
func withOnceKey(id string) client.Request {
	return client.Request{Keys: []string{"{k}"}, Limits: []client.Limit{perDay}, OnceKey: "{k}:once:" + id, OnceTTL: time.Minute, UsageKey: "{k}:usage"}
}

// wantCharged checks that n units were taken from {k}, and that n decisions were counted.
func wantCharged(t *testing.T, c *client.Client, n int64) {
	t.Helper()
	if left := left(t, c, "{k}", perDay); left != 10-n {
		t.Errorf("%d are left of 10, want %d", left, 10-n)
	}
	if usage := must[client.Usage](t)(c.Usage(t.Context(), "{k}:usage")); usage.Allowed != n {
		t.Errorf("%d decisions were counted, want %d", usage.Allowed, n)
	}
}

// However many replies are lost, a take with an OnceKey is charged once.
func TestOnceKeyChargesOnce(t *testing.T) {
	server, direct := deployed(t)
	for _, way := range lossy {
		t.Run(way.name, func(t *testing.T) {
			ctx := t.Context()
			p := startProxy(t, server.Addr)
			way.opt.Addr = p.addr()
			limiter := newClient(t, connect(t, way.opt))
			require(t, direct.FlushAll(ctx).Err())
			want := client.Result{Allowed: true, Limit: 10, Remaining: 9, ResetAfter: 144 * time.Minute, Index: 1, Source: "server"}
			for lost := range 4 {
				p.lose(lost, false)
				got, err := limiter.Take(ctx, withOnceKey("a"))
				wantResult(t, "with lost replies", got, err, want)
				if n := p.seen(); n != lost+1 {
					t.Errorf("%d replies lost: sent %d times, want %d", lost, n, lost+1)
				}
				wantCharged(t, newClient(t, direct), 1)
			}

			p.lose(10, false)
			_, err := limiter.Take(ctx, withOnceKey("b"))
			wantClasses(t, "all lost", err, client.ErrUnavailable, client.ErrOutcomeUnknown)
			if n := p.seen(); n != 4 {
				t.Errorf("sent %d times, want 4", n)
			}
			p.lose(0, false)
			got, err := limiter.Take(ctx, withOnceKey("b")) // the caller repeats the request
			want.Remaining = 8
			want.ResetAfter = got.ResetAfter // time has passed between the two calls
			wantResult(t, "after all were lost", got, err, want)
			wantCharged(t, newClient(t, direct), 2)
		})
	}
}

// Within OnceTTL, requests with the same OnceKey are charged once. After OnceTTL, a request with
// that OnceKey is charged again.
func TestOnceKeyExpires(t *testing.T) {
	server, c := atNoon(t)
	take := func() { must[client.Result](t)(c.Take(t.Context(), withOnceKey("a"))) }
	take()
	server.Advance(time.Minute - time.Millisecond)
	take()
	wantCharged(t, c, 1)
	server.Advance(2 * time.Millisecond)
	take()
	wantCharged(t, c, 2)
}

func TestOnceKeyInCluster(t *testing.T) {
	c := startCluster(t)
	direct := flushCluster(t, c)
	rdb, proxies := proxied(t, c)
	limiter := newClient(t, rdb)
	must[client.Result](t)(limiter.Peek(t.Context(), client.For(lowKey, perDay))) // makes the client load the slots
	req := client.Request{Keys: []string{lowKey}, Limits: []client.Limit{perDay}, OnceKey: lowKey + ":once", OnceTTL: time.Minute}
	proxies[0].lose(2, false)
	if got := must[client.Result](t)(limiter.Take(t.Context(), req)); got.Remaining != 9 || proxies[0].seen() != 3 {
		t.Errorf("%+v after %d calls, want 9 remaining after 3", got, proxies[0].seen())
	}
	if got := must[client.Result](t)(newClient(t, direct[0]).Peek(t.Context(), client.For(lowKey, perDay))); got.Remaining != 8 {
		t.Errorf("a further call would leave %d, want 8", got.Remaining)
	}
}

// If replies are lost, a read is retried, and so is a call that acquires or renews a lease. Other
// calls without an OnceKey are sent once.
func TestLostRepliesOfOtherCalls(t *testing.T) {
	ctx := t.Context()
	server := embedded.Run(t, embedded.WithLibrary(functions.Source()), embedded.WithTime(noon))
	p := startProxy(t, server.Addr())
	c := newClient(t, connect(t, redis.Options{Addr: p.addr()}))
	lease := c.Lease("jobs", limits.Concurrency(2, time.Minute), "")
	for _, tt := range []struct {
		name  string
		call  func() error
		calls int
		lost  bool
	}{
		{"acquire", func() error { return second(lease.Acquire(ctx)) }, 4, false},
		{"renew", func() error { return second(lease.Renew(ctx)) }, 4, false},
		{"release", func() error { return second(lease.Release(ctx)) }, 1, true},
		{"refund", func() error { return second(c.Refund(ctx, client.For("k", perDay, 1))) }, 1, true},
		{"block", func() error { return c.Block(ctx, client.Block{For: time.Minute}, "k") }, 1, true},
		{"unblock", func() error { return second(c.Unblock(ctx, "k")) }, 1, true},
		{"peek", func() error { return second(c.Peek(ctx, client.For("k", perDay))) }, 4, false},
		{"override", func() error { return c.Override(ctx, perDay, time.Minute, "k") }, 1, true},
		{"override_end", func() error { return second(c.EndOverride(ctx, "k")) }, 1, true},
		{"reset", func() error { return second(c.Reset(ctx, "k")) }, 1, true},
		{"usage", func() error { return second(c.Usage(ctx, "u")) }, 4, false},
		{"info", func() error { return second(c.Info(ctx)) }, 4, false},
	} {
		p.lose(3, false)
		err := tt.call()
		if errors.Is(err, client.ErrOutcomeUnknown) != tt.lost || (err == nil) == tt.lost {
			t.Errorf("%s: %v", tt.name, err)
		}
		if n := p.seen(); n != tt.calls {
			t.Errorf("%s: sent %d times, want %d", tt.name, n, tt.calls)
		}
		p.lose(0, false)
		if tt.name == "renew" {
			other := must[client.Result](t)(c.Lease("jobs", limits.Concurrency(2, time.Minute), "other").Acquire(ctx))
			if !other.Allowed || other.Remaining != 0 {
				t.Errorf("a lease acquired and renewed 8 times holds another number of places than one: %+v", other)
			}
		}
	}
	if must[bool](t)(lease.Release(ctx)) {
		t.Error("a release whose reply was lost did not take effect")
	}
	p.lose(10, false)
	wantClasses(t, "a peek whose replies are all lost", second(c.Peek(ctx, client.For("k", perDay))), client.ErrUnavailable)
}

// After a lost reply, the call may have been counted, so the error from a retry does not say that
// nothing was counted.
func TestErrorsAfterALostReply(t *testing.T) {
	const began = `ratelimit: take "{k}" "{k}:once:a" "{k}:usage": sent, but the reply was lost; it was counted once or not at all (`
	readonly := answered("READONLY You can't write against a read only replica.")
	denied := answered("NOPERM no")
	for _, tt := range []struct {
		name string
		ends int     // number of the call during which the context is canceled; 0: never
		errs []error // one for each call; the last applies to all further calls
		ttl  time.Duration
		want string
		sent int
		is   []error
	}{
		{"lost four times", 0, []error{io.EOF}, time.Minute, "EOF; asked again 3 times, at last: EOF)", 4, []error{io.EOF}},
		{"no connection then", 0, []error{io.EOF, redis.ErrPoolTimeout}, time.Minute,
			"EOF; asked again 3 times, at last: redis: connection pool timeout)", 4, []error{io.EOF, redis.ErrPoolTimeout}},
		{"a replica then", 0, []error{io.EOF, readonly}, time.Minute,
			"EOF; asked again 3 times, at last: READONLY You can't write against a read only replica.)", 4, []error{io.EOF, readonly}},
		{"refused then", 0, []error{io.EOF, denied}, time.Minute, "EOF; asked again once, at last: NOPERM no)", 2, []error{io.EOF, denied}},
		{"no time to ask again", 0, []error{io.EOF}, time.Millisecond, "EOF)", 1, []error{io.EOF}},
		{"the context has ended", 1, []error{io.EOF}, time.Minute, "context canceled: EOF)", 1, []error{io.EOF, context.Canceled}},
		{"the context ends later", 2, []error{io.EOF}, time.Minute, "EOF; asked again once, at last: context canceled: EOF)", 2, []error{io.EOF, context.Canceled}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { // where the call takes no time
				req := withOnceKey("a")
				req.OnceTTL = tt.ttl
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				f := &fake{sent: true, errs: tt.errs, after: func(n int) {
					if n == tt.ends {
						cancel()
					}
				}}
				_, err := newClient(t, f).Take(ctx, req)
				if err == nil || err.Error() != began+tt.want || len(f.lines) != tt.sent {
					t.Errorf("%v, sent %d times\nwant %s, %d times", err, len(f.lines), began+tt.want, tt.sent)
				}
				wantClasses(t, tt.name, err, client.ErrUnavailable, client.ErrOutcomeUnknown)
				for _, cause := range tt.is {
					if !errors.Is(err, cause) {
						t.Errorf("errors.Is does not reach %v", cause)
					}
				}
				var e *client.Error
				if !errors.As(err, &e) || e.Op != "take" || e.Code != "" || len(e.Keys) != 3 {
					t.Errorf("%+v", e)
				}
			})
		})
	}
}

// Only a call whose reply was lost is retried. If a call was certainly not counted, its caller
// decides whether to retry.
func TestNotAskedAgain(t *testing.T) {
	for _, err := range []error{redis.ErrPoolTimeout, answered("LOADING Redis is loading the dataset in memory"), answered("RATELIMIT BADLIMIT no")} {
		f := &fake{sent: true, errs: []error{err}}
		_, got := newClient(t, f).Take(t.Context(), withOnceKey("a"))
		if !errors.Is(got, err) || errors.Is(got, client.ErrOutcomeUnknown) || len(f.lines) != 1 || strings.Contains(got.Error(), "again once") {
			t.Errorf("%v: %v, sent %d times", err, got, len(f.lines))
		}
	}
	req := withOnceKey("a")
	for _, req.OnceTTL = range []time.Duration{1, time.Millisecond - 1} { // below the minimum of 1 ms
		f := &fake{err: io.EOF, sent: true}
		wantClasses(t, req.OnceTTL.String(), second(newClient(t, f).Take(t.Context(), req)), typed("bad_args"))
	}
}

// A retry that waits for a connection gives up when OnceTTL has passed, because from then on it
// would be charged again.
func TestRepetitionEndsWithOnceTTL(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{err: io.EOF, sent: true}
		f.after = func(n int) { f.hangs = n > 0 } // the retry gets no connection
		c := newClient(t, f)                      // calls may take a minute
		req := withOnceKey("a")
		req.OnceTTL = 100 * time.Millisecond
		began := time.Now()
		_, err := c.Take(t.Context(), req)
		wantClasses(t, "lost", err, client.ErrUnavailable, client.ErrOutcomeUnknown)
		if took := time.Since(began); took < req.OnceTTL || took > 2*req.OnceTTL {
			t.Errorf("the call took %v, want about %v", took, req.OnceTTL)
		}
	})
}

// The time that the first call took counts too.
func TestRepetitionEndsWithOnceTTLOfTheFirstCall(t *testing.T) {
	inBubble(t, func(t *testing.T, v *virtual, _ *client.Client) {
		v.refuse = func(_ string, n int) (before, after error) {
			v.delay = time.Hour
			if n == 1 {
				v.delay, after = 2*time.Second, context.DeadlineExceeded
			}
			return nil, after
		}
		c, req, began := v.client(t, client.WithTimeout(time.Minute)), withOnceKey("a"), time.Now()
		req.OnceTTL = 10 * time.Second
		wantClasses(t, "lost", second(c.Take(t.Context(), req)), client.ErrUnavailable, client.ErrOutcomeUnknown)
		if took := time.Since(began); took != req.OnceTTL || v.seen("take") != 2 {
			t.Errorf("%d calls took %v, want %v", v.seen("take"), took, req.OnceTTL)
		}
	})
}

// A call that the cluster answers with TRYAGAIN is not sent so late that its outcome could be unknown.
func TestMovingKeysUntilTheDeadline(t *testing.T) {
	inBubble(t, func(t *testing.T, v *virtual, c *client.Client) {
		v.set(func() {
			v.delay = 40 * time.Millisecond
			v.refuse = func(string, int) (before, after error) { return nil, answered("TRYAGAIN no") }
		})
		for range 50 { // the pauses are random
			_, err := c.Allow(t.Context(), "k", perDay)
			var e *client.Error
			if !errors.As(err, &e) || e.Code != "TRYAGAIN" || errors.Is(err, client.ErrOutcomeUnknown) {
				t.Fatalf("%v, want TRYAGAIN", err)
			}
		}
	})
}
