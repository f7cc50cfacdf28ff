package client_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/ratelimit-functions/ratelimit/client"
)

func TestSettle(t *testing.T) {
	ctx := t.Context()
	for _, tt := range []struct {
		name           string
		actual         int64
		want           client.Result
		remaining, all int64 // units left, and number of requests sent
	}{
		{"less", 2, client.Result{Allowed: true, Limit: 10, Remaining: 8, ResetAfter: 12 * time.Second, Index: 1, Source: "server"}, 8, 2},
		{"nothing", 0, client.Result{Allowed: true, Limit: 10, Remaining: 10, Index: 1, Source: "server"}, 10, 2},
		{"as estimated", 6, client.Result{Allowed: true, Limit: 10, Remaining: 4, ResetAfter: 36 * time.Second, Index: 1, Source: "server"}, 4, 1},
		{"more", 9, client.Result{Allowed: true, Limit: 10, Remaining: 1, ResetAfter: 54 * time.Second, RetryAfter: 0, Index: 1, Source: "server"}, 1, 2},
		{"more than fits", 15, client.Result{Allowed: true, Limit: 10, RetryAfter: 36 * time.Second, ResetAfter: 90 * time.Second, Index: 1, Source: "server"}, 0, 2},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := newTestbed(t)
			c := s.client(t)
			hold := must[*client.Estimate](t)(c.TakeEstimate(ctx, client.For("k", tight, 6)))
			if !hold.Result.Allowed || hold.Result.Remaining != 4 {
				t.Errorf("%+v", hold.Result)
			}
			var all sync.WaitGroup
			for range 10 {
				all.Go(func() {
					got, err := hold.Settle(ctx, tt.actual)
					wantResult(t, "settle", got, err, tt.want)
				})
			}
			all.Wait()
			got, err := hold.Settle(ctx, tt.actual+1)
			wantResult(t, "later, with another number", got, err, tt.want)
			if n := len(s.sent()); int64(n) != tt.all {
				t.Errorf("%d requests, want %d", n, tt.all)
			}
			if n := left(t, c, "k", tight); n != tt.remaining {
				t.Errorf("%d are left, want %d", n, tt.remaining)
			}
		})
	}
}

// One settlement gives units back to some keys and charges others more.
func TestSettleSeveralKeys(t *testing.T) {
	ctx := t.Context()
	c := newTestbed(t).client(t)
	hold := must[*client.Estimate](t)(c.TakeEstimate(ctx, client.Request{
		Keys: []string{"{u}a", "{u}b", "{u}c"}, Limits: []client.Limit{tight, tight, tight}, Costs: []int64{1, 5, 5}, UsageKey: "{u}usage"}))
	must[client.Result](t)(hold.Settle(ctx, 1, 2, 8))
	for key, want := range map[string]int64{"{u}a": 9, "{u}b": 8, "{u}c": 2} {
		if n := left(t, c, key, tight); n != want {
			t.Errorf("%d are left of %s, want %d", n, key, want)
		}
	}
	if usage := must[client.Usage](t)(c.Usage(ctx, "{u}usage")); usage.Allowed != 2 {
		t.Errorf("%+v, want the estimate and what was used in addition", usage)
	}
}

// However many replies are lost, the estimate is corrected once.
func TestSettleLostReplies(t *testing.T) {
	server, direct := deployed(t)
	for _, way := range lossy {
		for _, actual := range []int64{2, 9} {
			for _, lost := range []int{3, 4} { // with 4, all retries of the first Settle fail too
				t.Run(fmt.Sprintf("%s, %d used, %d lost", way.name, actual, lost), func(t *testing.T) {
					ctx := t.Context()
					p := startProxy(t, server.Addr)
					way.opt.Addr = p.addr()
					c := newClient(t, connect(t, way.opt))
					require(t, direct.FlushAll(ctx).Err())
					hold := must[*client.Estimate](t)(c.TakeEstimate(ctx, client.For("k", perDay, 6)))
					p.lose(lost, false)
					if _, err := hold.Settle(ctx, actual); errors.Is(err, client.ErrOutcomeUnknown) != (lost == 4) {
						t.Error(err)
					}
					for range 3 { // later calls change nothing, even with a different cost
						got := must[client.Result](t)(hold.Settle(ctx, 5))
						if !got.Allowed || got.Remaining != 10-actual {
							t.Errorf("%+v, want %d remaining", got, 10-actual)
						}
					}
					if n := left(t, c, "k", perDay); n != 10-actual {
						t.Errorf("%d are left, want %d", n, 10-actual)
					}
				})
			}
		}
	}
}

// After 10 minutes, a correction whose outcome is unknown is not repeated.
func TestSettleRepeatsFor10Minutes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{reply: integers(1, 10, 4, 0, 36000, 1)}
		c := newClient(t, f)
		hold := must[*client.Estimate](t)(c.TakeEstimate(t.Context(), client.For("k", tight, 6)))
		f.sent, f.err = true, redis.ErrClosed
		_, err := hold.Settle(t.Context(), 9)
		if err == nil || errors.Is(err, client.ErrOutcomeUnknown) {
			t.Fatal(err)
		}
		f.err = context.DeadlineExceeded
		began := time.Now()
		_, first := hold.Settle(t.Context(), 8)
		wantClasses(t, "lost", first, client.ErrUnavailable, client.ErrOutcomeUnknown)
		f.err = answered("LOADING not yet")
		_, err = hold.Settle(t.Context(), 7)
		wantClasses(t, "then not executed", err, client.ErrUnavailable, client.ErrOutcomeUnknown)
		time.Sleep(10*time.Minute - time.Since(began))
		sent := len(f.lines)
		_, err = hold.Settle(t.Context(), 7)
		wantClasses(t, "after 10 minutes", err, client.ErrUnavailable, client.ErrOutcomeUnknown)
		if len(f.lines) == sent {
			t.Error("not repeated after 10 minutes")
		}
		lines := f.lines[1:]
		// The server did not execute the first correction, so the second may charge a different number of
		// units, here 2. All later requests repeat the second.
		for _, line := range lines[1:] {
			if line[7] != "2" || line[4] != lines[0][4] {
				t.Errorf("%v is not the correction of %v", line, lines[1])
			}
		}
		time.Sleep(time.Second)
		sent = len(f.lines)
		if _, err = hold.Settle(t.Context(), 8); err != first || len(f.lines) != sent {
			t.Errorf("%v after %d more requests, want the first error", err, len(f.lines)-sent)
		}
	})
}

// While a key is blocked, Settle corrects nothing. A later Settle can correct the charge.
func TestSettleWhileBlocked(t *testing.T) {
	ctx := t.Context()
	c := newTestbed(t).client(t)
	hold := must[*client.Estimate](t)(c.TakeEstimate(ctx, client.For("k", tight, 6)))
	require(t, c.Block(ctx, client.Block{For: time.Minute}, "k"))
	for _, actual := range []int64{2, 9} {
		if res := must[client.Result](t)(hold.Settle(ctx, actual)); res.Allowed || res.RetryAfter != time.Minute {
			t.Errorf("%+v", res)
		}
	}
	must[int64](t)(c.Unblock(ctx, "k"))
	if res := must[client.Result](t)(hold.Settle(ctx, 7)); res.Remaining != 3 {
		t.Errorf("%+v, want 3 remaining", res)
	}
}

// If the estimate was not charged on a server, Settle corrects nothing. If no server replies to
// Settle, no fallback applies.
func TestSettleWithoutAServer(t *testing.T) {
	ctx := t.Context()
	s := newTestbed(t)
	denied := must[*client.Estimate](t)(s.client(t).TakeEstimate(ctx, client.For("k", tight, 11)))
	if res, err := denied.Settle(ctx, 9); err != nil || denied.Result.Allowed || res.RetryAfter != client.Never {
		t.Errorf("denied: %+v, %v", res, err)
	}
	f := &fake{err: redis.ErrPoolTimeout, sent: true}
	c := newClient(t, f, client.WithFallback(client.FailOpen))
	local := must[*client.Estimate](t)(c.TakeEstimate(ctx, client.For("k", tight, 6)))
	if res, err := local.Settle(ctx, 9); err != nil || res.Source != "fallback" || len(f.lines) != 1 {
		t.Errorf("by a fallback: %+v, %v, %d requests", res, err, len(f.lines))
	}
	f.err, f.reply = nil, integers(1, 10, 4, 0, 36000, 1)
	hold := must[*client.Estimate](t)(c.TakeEstimate(ctx, client.For("k", tight, 6)))
	f.err = redis.ErrPoolTimeout
	for _, actual := range []int64{2, 9} {
		_, err := hold.Settle(ctx, actual)
		wantClasses(t, "without a server", err, client.ErrUnavailable)
	}
}

// TakeEstimate asks for Each only if it needs it, because an old library does not know it.
func TestHoldAsksForEach(t *testing.T) {
	for n := 1; n <= 2; n++ {
		f := &fake{reply: append(integers(1, 10, 4, 0, 36000, 1), []any{})}
		req := client.Request{Keys: []string{"{k}1", "{k}2"}[:n], Limits: []client.Limit{"@a", "@b"}[:n]}
		_, _ = newClient(t, f).TakeEstimate(t.Context(), req)
		if asks := slices.Contains(f.lines[0], any("EACH")); asks != (n == 2) {
			t.Errorf("%d policies: %v", n, f.lines)
		}
	}
}

// The key of a settlement is in the slot of the first key.
func TestSettleKeys(t *testing.T) {
	for _, tt := range []struct{ prefix, key, begins string }{
		{"", "user:42", "{user:42}:hold:"},
		{"", "{user:42}:tokens", "{user:42}:tokens:hold:"},
		{"", "a{b", "{a{b}:hold:"},
		{"rl:", "user:42", "rl:{rl:user:42}:hold:"},
		{"rl:", "a{b}", "rl:a{b}:hold:"},
		{"{rl}:", "user:42", "{rl}:user:42:hold:"},
		{"", "{}x", ""}, {"", "a}", ""}, {"a{", "b", ""},
		{"", strings.Repeat("a", 65536-39), "{aaa"}, {"", strings.Repeat("a", 65536-38), ""}, {"r:", strings.Repeat("a", 65536-42), ""},
	} {
		f := &fake{reply: integers(1, 10, 4, 0, 36000, 1)}
		c := newClient(t, f, client.WithPrefix(tt.prefix))
		hold, err := c.TakeEstimate(t.Context(), client.For(tt.key, tight, 6))
		if tt.begins == "" {
			wantClasses(t, tt.key, err, typed("bad_keys"))
			continue
		}
		require(t, err)
		must[client.Result](t)(hold.Settle(t.Context(), 9))
		if got := f.lines[1][4].(string); !strings.HasPrefix(got, tt.begins) {
			t.Errorf("the key %q has the settlement %q, want it to begin with %q", tt.prefix+tt.key, got, tt.begins)
		}
	}
}

func TestSettleInCluster(t *testing.T) {
	c := startCluster(t)
	flushCluster(t, c)
	rdb, proxies := proxied(t, c)
	limiter := newClient(t, rdb)
	for i, key := range []string{lowKey, highKey} {
		hold := must[*client.Estimate](t)(limiter.TakeEstimate(t.Context(), client.For(key, perDay, 6)))
		proxies[i].lose(2, false)
		if res := must[client.Result](t)(hold.Settle(t.Context(), 9)); res.Remaining != 1 {
			t.Errorf("%+v, want 1 remaining", res)
		}
	}
}

func TestSettleBadRequests(t *testing.T) {
	c := newTestbed(t).client(t)
	once := withOnceKey("a")
	for _, req := range []client.Request{
		once,
		{Keys: []string{"k"}, Limits: []client.Limit{tight}, Costs: []int64{1}, UpTo: true},
		{Keys: []string{"k"}, Limits: []client.Limit{tight}, Costs: []int64{1}, Force: true},
	} {
		_, err := c.TakeEstimate(t.Context(), req)
		wantClasses(t, "request", err, typed("bad_args"))
	}
	_, err := c.TakeEstimate(t.Context(), client.Request{})
	wantClasses(t, "no key", err, typed("bad_keys"))
	hold := must[*client.Estimate](t)(c.TakeEstimate(t.Context(), client.For("k", tight, 6)))
	for _, actual := range [][]int64{nil, {1, 2}} {
		_, err := hold.Settle(t.Context(), actual...)
		wantClasses(t, "numbers", err, typed("bad_args"))
	}
	_, err = hold.Settle(t.Context(), -1)
	wantClasses(t, "below 0", err, typed("bad_cost"))
}
