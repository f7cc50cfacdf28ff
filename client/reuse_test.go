package client_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/ratelimit-functions/ratelimit/client"
	"github.com/ratelimit-functions/ratelimit/internal/redistest"
)

// A caller may write into the slices of its Request, and into the keys that it gave to a call, once the
// call has returned: no error and no Estimate changes with them.
func TestSlicesMayBeReused(t *testing.T) {
	failing := func(err error) *client.Client { return newClient(t, &fake{err: err}) }
	closed := newClient(t, &fake{})
	require(t, closed.Close())
	lost := failing(context.DeadlineExceeded)
	for range 10 { // until the breaker opens
		_, _ = lost.Allow(t.Context(), "other", "1/s")
	}
	done, cancel := context.WithCancel(t.Context())
	cancel()
	take := func(c *client.Client) func(context.Context, client.Request) error {
		return func(ctx context.Context, req client.Request) error { return second(c.Take(ctx, req)) }
	}
	for name, tt := range map[string]struct {
		ctx  context.Context
		call func(context.Context, client.Request) error
	}{
		"refused by the server": {call: take(failing(answered("RATELIMIT BADLIMIT no")))},
		"lost":                  {call: take(failing(context.DeadlineExceeded))},
		"left alone":            {call: take(lost)},
		"a bad reply":           {call: take(newClient(t, &fake{reply: "no"}))},
		"the context has ended": {ctx: done, call: take(failing(nil))},
		"closed":                {call: take(closed)},
		"refused": {call: func(ctx context.Context, req client.Request) error {
			req.Costs = []int64{-1}
			return take(closed)(ctx, req)
		}},
		"a wait":                {call: newClient(t, &fake{reply: integers(0, 1, 0, 9000, 9000, 1)}).Wait},
		"a wait that is closed": {call: closed.Wait},
		"a reset":               {call: func(ctx context.Context, req client.Request) error { return second(closed.Reset(ctx, req.Keys...)) }},
		"a block": {call: func(ctx context.Context, req client.Request) error {
			return closed.Block(ctx, client.Block{}, req.Keys...)
		}},
	} {
		req := client.For("k", "1/s")
		req.WaitUntil = time.Now()
		if tt.ctx == nil {
			tt.ctx = t.Context()
		}
		err := tt.call(tt.ctx, req)
		e, ok := errors.AsType[*client.Error](err)
		if !ok {
			t.Errorf("%s: %v", name, err)
			continue
		}
		text := err.Error()
		req.Keys[0], req.Limits[0] = "reused", "9/s"
		if !slices.Equal(e.Keys, []string{"k"}) || err.Error() != text {
			t.Errorf("%s: the error was %q, and has become %q with the keys %q", name, text, err, e.Keys)
		}
	}

	s := newTestbed(t)
	c := s.client(t)
	req := client.For("k", "10/h", 5)
	hold := must[*client.Estimate](t)(c.TakeEstimate(t.Context(), req))
	req.Keys[0], req.Limits[0], req.Costs[0] = "reused", "9/s", 1
	must[client.Result](t)(hold.Settle(t.Context(), 2))
	wantLeft(t, "settled", c, "k", "10/h", 8)
	wantLeft(t, "reused", c, "reused", "10/h", 10)
}

// A caller that leaves a queue may reuse its keys while others wait in it.
func TestKeysOfAQueueMayBeReused(t *testing.T) {
	c := newClient(t, &fake{reply: integers(0, 1, 0, 9000, 9000, 1)})
	var leave [2]func()
	var reqs [2]client.Request
	for i := range reqs {
		ctx, cancel := context.WithCancel(t.Context())
		left := make(chan error)
		reqs[i] = client.For("k", "1/s")
		go func() { left <- c.Wait(ctx, reqs[i]) }()
		leave[i] = func() { cancel(); <-left; reqs[i].Keys[0] = "reused" }
		redistest.Eventually(t, "it waits", func() bool { return client.Waiters(c) == i+1 })
	}
	leave[0]()
	leave[1]()
	if n := client.WaitingKeys(c); n != 0 {
		t.Errorf("%d keys are left that nobody waits for", n)
	}
}

// The same for callers that share round trips, requests for batches and their errors, with the race
// detector.
func TestSlicesAreReusedWhileCallsAreInFlight(t *testing.T) {
	s := newTestbed(t)
	s.lose = func(redis.Cmder) bool { return rand.IntN(3) == 0 }
	c := s.client(t, client.WithBatches(8, ttl), client.WithDenialMemory(time.Second))
	shared := s.client(t)
	var all sync.WaitGroup
	for range 16 {
		all.Go(func() {
			req := client.For("", "", 1)
			for i := range 40 {
				req.Keys[0], req.Limits[0], req.Costs[0] = "k", "1000/h", 1
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration(rand.IntN(2000))*time.Microsecond)
				limiter := []*client.Client{c, shared}[i%2]
				err := second(limiter.Take(ctx, req))
				cancel()
				req.Keys[0], req.Limits[0], req.Costs[0] = "reused", "1/s", 1000
				if e, ok := errors.AsType[*client.Error](err); ok && (len(err.Error()) == 0 || !slices.Equal(e.Keys, []string{"k"})) {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	if n := must[int64](t)(s.rdb.Exists(t.Context(), "reused").Result()); n != 0 {
		t.Error("a call was counted under a key that the caller wrote after it")
	}
}
