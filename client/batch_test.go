package client_test

import (
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/ratelimit-functions/ratelimit/client"
)

// The fields of a decision from a batch are computed from the last reply.
func TestBatchResult(t *testing.T) {
	s := newTestbed(t)
	c := s.client(t, client.WithBatches(16, ttl))
	s.calls(t, c, 1+2+4+8, 0)
	if asked, left := allow(t, c, wide, 1), left(t, c, "k", wide); asked.Remaining != left+15 {
		t.Errorf("remaining %d with 15 in the batch and %d on the server", asked.Remaining, left)
	}
	s.pass(5 * time.Millisecond)
	got := allow(t, c, wide, 1)
	s.pass(-5 * time.Millisecond)
	server := must[client.Result](t)(c.Peek(t.Context(), client.For("k", wide, 0)))
	want := client.Result{Allowed: true, Limit: 100000, Remaining: server.Remaining + 14, ResetAfter: server.ResetAfter - 5*time.Millisecond, Index: 1, Source: "batch"}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	if before := allow(t, c, wide, 1); before.Remaining != got.Remaining-1 {
		t.Errorf("remaining %d after %d", before.Remaining, got.Remaining)
	}
}

// A batch expires ttl after its request was sent, even if the reply was slow.
func TestBatchIsLetGo(t *testing.T) {
	s := newTestbed(t)
	c := s.warm(t)
	s.pass(ttl - 1)
	wantSource(t, c, wide, 1, "batch")
	s.pass(1)
	wantSource(t, c, wide, 1, "server")
	for _, late := range []time.Duration{ttl - 1, ttl} { // how long the request takes
		s.pass(time.Minute)
		s.calls(t, c, 3, 0) // batches of 1 and 2, all spent
		s.hook = func(redis.Cmder) { s.pass(late) }
		s.calls(t, c, 1, 0)
		s.hook = nil
		if res := allow(t, c, wide, 1); (res.Source == "batch") != (late < ttl) {
			t.Errorf("after a request of %v by %v", late, res.Source)
		}
	}
}

func TestBatchServesACostOrLeavesItToTheServer(t *testing.T) {
	s := newTestbed(t)
	c := s.warm(t) // has 15 units
	for _, tt := range []struct {
		cost int64
		from string
	}{{16, "server"}, {17, "server"}, {10, "batch"}, {6, "server"}, {5, "batch"}, {2, "server"}} {
		if res := allow(t, c, wide, tt.cost); res.Source != tt.from || !res.Allowed {
			t.Errorf("cost %d: %+v, want it from the %v", tt.cost, res, tt.from)
		}
	}
	s.wantSent(t, "=16 =17 =6 =2")
}

func TestNotBatched(t *testing.T) {
	s := newTestbed(t)
	one := client.Request{Keys: []string{"k"}, Limits: []client.Limit{wide}}
	with := func(change func(*client.Request)) client.Request {
		req := one
		change(&req)
		return req
	}
	for name, req := range map[string]client.Request{
		"several keys":  with(func(r *client.Request) { r.Keys = []string{"k", "l"}; r.Limits = []client.Limit{wide, wide} }),
		"once":          with(func(r *client.Request) { r.OnceKey, r.OnceTTL = "o", time.Millisecond }),
		"usage":         with(func(r *client.Request) { r.UsageKey = "u" }),
		"up to":         with(func(r *client.Request) { r.UpTo, r.Costs = true, []int64{1} }),
		"force":         with(func(r *client.Request) { r.Force = true }),
		"cost 0":        with(func(r *client.Request) { r.Costs = []int64{0} }),
		"cost above n":  with(func(r *client.Request) { r.Costs = []int64{17} }),
		"leaky_bucket":  with(func(r *client.Request) { r.Limits = []client.Limit{"leaky_bucket 100000/m"} }),
		"leaky, spaces": with(func(r *client.Request) { r.Limits = []client.Limit{"  leaky_bucket 100000/m"} }),
	} {
		t.Run(name, func(t *testing.T) {
			s.clear(t)
			c := s.client(t, client.WithBatches(16, ttl))
			for range 5 {
				if res, err := c.Take(t.Context(), req); err == nil && res.Source != "server" {
					t.Errorf("by %v", res.Source)
				}
			}
			if n := len(s.sent()); n != 5 {
				t.Errorf("%d requests for 5 calls", n)
			}
			if n := client.Kept(c).Batches; n != 0 {
				t.Errorf("%d batches are kept", n)
			}
		})
	}
}

// While a batch holds units of one limit, calls on the same key with another limit go to the
// server.
func TestBatchIsOfOneLimit(t *testing.T) {
	s := newTestbed(t)
	c := s.warm(t)
	for range 3 {
		wantSource(t, c, "90000/m", 1, "server")
	}
	wantSource(t, c, wide, 1, "batch")
	s.wantSent(t, "=1 =1 =1")
	s.pass(ttl) // the units of the first limit expire
	for range 1 + 2 + 4 {
		if res := allow(t, c, "90000/m", 1); !res.Allowed {
			t.Error(res)
		}
	}
	s.wantSent(t, "=1 2 4")
}

// If the reply to a request for units is lost, the client spends none of these units. The call
// returns the error or the result of the fallback.
func TestBatchOfALostReply(t *testing.T) {
	s := newTestbed(t)
	c := s.warm(t, client.WithFallback(client.ReturnError))
	s.calls(t, c, 15, 0)
	s.lose = func(redis.Cmder) bool { return true }
	if _, err := c.Allow(t.Context(), "k", wide); !errors.Is(err, client.ErrOutcomeUnknown) {
		t.Error(err)
	}
	s.wantSent(t, "16")
	if res := must[client.Result](t)(c.Take(t.Context(), client.Request{Keys: []string{"k"}, Limits: []client.Limit{wide}, Fallback: client.FailClosed})); res.Allowed || res.Source != "fallback" {
		t.Errorf("%+v", res)
	}
	s.lose = nil
	wantSource(t, c, wide, 1, "server")
}

// If a client resets or blocks a key, it drops the key's batch.
func TestBatchEndsWithTheKey(t *testing.T) {
	s := newTestbed(t)
	c := s.warm(t, client.WithPrefix("p:"))
	must[int64](t)(c.Reset(t.Context(), "k"))
	wantSource(t, c, wide, 1, "server")
	s = newTestbed(t)
	c = s.warm(t)
	require(t, c.Block(t.Context(), client.Block{For: time.Minute}, "k"))
	if res := allow(t, c, wide, 1); res.Allowed {
		t.Errorf("after a block %+v", res)
	}
}

func TestBatchOptions(t *testing.T) {
	for want, opt := range map[string]client.Option{
		"batches of 1 units":          client.WithBatches(1, ttl),
		"batches of -3 units":         client.WithBatches(-3, ttl),
		"batches that last 0s":        client.WithBatches(8, 0),
		"batches that last 999.999µs": client.WithBatches(8, time.Millisecond-1),
		"remembered for 0s":           client.WithDenialMemory(0),
		"remembered for 1.001s":       client.WithDenialMemory(1001 * time.Millisecond),
	} {
		if _, err := client.New((&fake{}).client(), opt); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "; give With") {
			t.Errorf("got %v, want %q", err, want)
		}
	}
	for _, opt := range []client.Option{
		client.WithBatches(2, time.Millisecond), client.WithBatches(1<<53, time.Hour), client.WithDenialMemory(1), client.WithDenialMemory(time.Second),
	} {
		check(t, second(client.New((&fake{}).client(), opt)))
	}
}
