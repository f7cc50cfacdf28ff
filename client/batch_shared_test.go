package client_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"pgregory.net/rapid"

	"github.com/ratelimit-functions/ratelimit/client"
)

// If an observer panics during a request, no caller keeps waiting for that request.
func TestBatchAfterAnObserverPanics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClient(t, &fake{err: io.EOF}, client.WithBatches(16, ttl),
			client.WithObserver(client.Observer{Breaker: func(_, _, _ string) { panic("of an observer") }}))
		panics := 0
		call := func() (err error) {
			defer func() {
				if recover() != nil {
					panics++
				}
			}()
			_, err = c.Allow(t.Context(), "k", wide)
			return err
		}
		for panics == 0 {
			_ = call()
		}
		began := time.Now()
		if err := call(); panics != 1 || time.Since(began) != 0 {
			t.Errorf("%d panics, and the next call took %v: %v", panics, time.Since(began), err)
		}
	})
}

// Callers that arrive during a request wait for it, and share the next one.
func TestBatchIsShared(t *testing.T) {
	s := newTestbed(t)
	c := s.client(t, client.WithBatches(64, ttl), client.WithTimeout(patient))
	leader, others, release := s.together(t, c, t.Context(), 40, wide)
	release()
	wantAllowed(t, others, 40)
	if o := <-leader; o.err != nil || !o.res.Allowed || o.res.Source != "server" {
		t.Error(o)
	}
	sent := s.sent()
	if len(sent) != 2 || !slices.Contains(sent[1], any("40")) {
		t.Errorf("sent %v, want one for the first and one for the 40 who waited", sent)
	}
}

// A denial applies to all callers that arrived before the denied request was sent, and to no
// others.
func TestBatchDenialIsShared(t *testing.T) {
	s := newTestbed(t)
	other := s.client(t)
	allow(t, other, tight, 10)
	s.sent()
	c := s.client(t, client.WithBatches(64, ttl), client.WithTimeout(patient))
	leader, others, release := s.together(t, c, t.Context(), 40, tight)
	release()
	for range 40 {
		if o := <-others; o.err != nil || o.res.Allowed || o.res.RetryAfter != 6*time.Second || o.res.Source != "server" {
			t.Error(o)
		}
	}
	if o := <-leader; o.err != nil || o.res.Allowed {
		t.Error(o)
	}
	s.wantSent(t, "=1 40")
}

// All callers that waited for a request get its error, so none waits twice. An error that concerns
// only the caller that sent the request, such as the end of its context, is not shared.
func TestBatchErrorIsShared(t *testing.T) {
	s := newTestbed(t)
	c := s.client(t, client.WithBatches(64, ttl), client.WithTimeout(patient))
	s.lose = func(redis.Cmder) bool { return true }
	leader, others, release := s.together(t, c, t.Context(), 10, wide)
	release()
	for range 10 {
		if o := <-others; !errors.Is(o.err, client.ErrOutcomeUnknown) {
			t.Error(o)
		}
	}
	if o := <-leader; !errors.Is(o.err, client.ErrOutcomeUnknown) {
		t.Error(o)
	}
	s.wantSent(t, "=1")
	s.mu.Lock()
	s.lose = nil
	s.mu.Unlock()
	ctx, cancel := context.WithCancel(t.Context())
	leader, others, release = s.together(t, c, ctx, 10, wide)
	cancel()
	release()
	if o := <-leader; o.err == nil && !o.res.Allowed {
		t.Error(o)
	}
	wantAllowed(t, others, 10)
}

// A caller that waits for another caller's request stops waiting when its own context is done.
func TestBatchWaitEnds(t *testing.T) {
	s := newTestbed(t)
	c := s.client(t, client.WithBatches(64, ttl), client.WithTimeout(patient))
	leader, _, release := s.together(t, c, t.Context(), 0, wide)
	ctx, cancel := context.WithCancel(t.Context())
	waiter := make(chan outcome, 1)
	go func() {
		res, err := c.Allow(ctx, "k", wide)
		waiter <- outcome{res, err}
	}()
	eventually(t, "it waits", func() bool { return client.WaitingForBatch(c, "k") == 1 })
	cancel()
	if o := <-waiter; !errors.Is(o.err, context.Canceled) || !errors.Is(o.err, client.ErrUnavailable) || errors.Is(o.err, client.ErrOutcomeUnknown) {
		t.Error(o)
	}
	if n := client.WaitingForBatch(c, "k"); n != 0 {
		t.Errorf("%d wait", n)
	}
	release()
	if o := <-leader; o.err != nil {
		t.Error(o)
	}
}

// A call that a batch could serve returns an error if its context has ended or the client is
// closed.
func TestBatchNeedsALiveContext(t *testing.T) {
	s := newTestbed(t)
	c := s.warm(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := c.Allow(ctx, "k", wide); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	check(t, c.Close())
	if _, err := c.Allow(t.Context(), "k", wide); err == nil || !strings.Contains(err.Error(), "closed") {
		t.Error(err)
	}
}

// Even if more callers wait than a batch has units, the client never hands out more units than it
// took from the server.
func TestBatchHandsOutNothingTwice(t *testing.T) {
	s := newTestbed(t)
	c := s.client(t, client.WithBatches(16, ttl), client.WithTimeout(patient))
	leader, others, release := s.together(t, c, t.Context(), 40, wide)
	release()
	wantAllowed(t, others, 40)
	wantAllowed(t, leader, 1)
	asked, allowed := 0, 41
	for size := range strings.FieldsSeq(s.sizes()) {
		asked += must[int](t)(strconv.Atoi(strings.TrimPrefix(size, "=")))
	}
	for range asked { // the remaining units
		if res := allow(t, c, wide, 1); res.Source != "batch" {
			break
		}
		allowed++
	}
	if allowed > asked {
		t.Errorf("%d calls were allowed, and %d units asked for", allowed, asked)
	}
}

// Units reserved for waiting callers are not spent by later ones.
func TestBatchIsReservedForWaitingCallers(t *testing.T) {
	s := newTestbed(t)
	c := s.warm(t, client.WithTimeout(patient))
	s.calls(t, c, 15, 0)
	leader, others, release := s.together(t, c, t.Context(), 10, wide)
	release()
	<-leader
	for i := range 6 { // the first caller and the ten waiting callers get 11 of 16 units
		if res := allow(t, c, wide, 1); (res.Source == "batch") != (i < 5) {
			t.Errorf("%d: %+v", i, res)
		}
	}
	for range 10 {
		if o := <-others; o.err != nil || o.res.Source != "batch" {
			t.Error(o)
		}
	}
	s.wantSent(t, "16 16")
}

// Units reserved for waiting callers also expire after ttl; those callers then send another
// request.
func TestReservedUnitsExpire(t *testing.T) {
	s := newTestbed(t)
	c := s.warm(t, client.WithTimeout(patient))
	s.calls(t, c, 15, 0)
	leader, others, release := s.together(t, c, t.Context(), 10, wide)
	s.pass(ttl) // the reply takes ttl to arrive
	release()
	if o := <-leader; o.err != nil || o.res.Source != "server" {
		t.Error(o)
	}
	wantAllowed(t, others, 10)
	if n := len(s.sent()); n < 2 {
		t.Errorf("%d requests", n)
	}
}

// If a hook of the Redis client panics, the caller of the request and the callers that wait for it
// get an error.
func TestBatchAfterAPanic(t *testing.T) {
	s := newTestbed(t)
	var text bytes.Buffer
	log := client.LogTo(slog.New(slog.NewJSONHandler(&text, nil)))
	c := s.client(t, client.WithBatches(16, ttl), client.WithTimeout(patient), client.WithObserver(log))
	waiting, ended := make(chan struct{}), make(chan error, 1)
	s.hook = func(redis.Cmder) {
		close(waiting)
		eventually(t, "it waits", func() bool { return client.WaitingForBatch(c, "k") == 1 })
		panic("of a hook")
	}
	go func() {
		<-waiting
		_, err := c.Allow(t.Context(), "k", wide)
		ended <- err
	}()
	_, err := c.Allow(t.Context(), "k", wide)
	for _, err := range []error{err, <-ended} {
		wantClasses(t, "panic", err, typed("bad_reply"), client.ErrOutcomeUnknown)
		if err == nil || !strings.Contains(err.Error(), "panicked: of a hook") {
			t.Error(err)
		}
	}
	if !strings.Contains(text.String(), "TestBatchAfterAPanic") {
		t.Errorf("the log lacks the stack of the panic: %s", text.String())
	}
	s.hook = nil
	s.calls(t, c, 3, 0)
}

// If the key is reset or blocked during a request, the units of its reply are not spent.
func TestBatchArrivesTooLate(t *testing.T) {
	for name, act := range map[string]func(ctx context.Context, c *client.Client) error{
		"reset": func(ctx context.Context, c *client.Client) error { return second(c.Reset(ctx, "k")) },
		"block": func(ctx context.Context, c *client.Client) error {
			return c.Block(ctx, client.Block{For: time.Millisecond}, "k")
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newTestbed(t)
			c := s.warm(t, client.WithTimeout(patient))
			s.calls(t, c, 15, 0)
			s.hook = func(cmd redis.Cmder) {
				if cmd.Args()[1] == "ratelimit_take" {
					s.hook = nil
					check(t, act(t.Context(), c))
				}
			}
			_, _ = c.Allow(t.Context(), "k", wide)
			if n := client.Kept(c).Batches; n != 0 {
				t.Errorf("%d batches are kept", n)
			}
			s.pass(2 * time.Millisecond)
			if res, err := c.Allow(t.Context(), "k", wide); err == nil && res.Source == "batch" {
				t.Error("spent what came too late")
			}
		})
	}
}

// A call that found no units, and is about to request some, takes a unit if one has arrived in the
// meantime.
func TestBatchArrivesInTheMeantime(t *testing.T) {
	s := newTestbed(t)
	c := s.warm(t) // has 15 units
	for range 15 {
		if res := must[client.Result](t)(client.TakeLate(c, "k", wide)); res.Source != "batch" {
			t.Errorf("%+v", res)
		}
	}
	s.wantSent(t, "")
	if res := must[client.Result](t)(client.TakeLate(c, "k", wide)); res.Source != "server" {
		t.Errorf("the 16th of 15: %+v", res)
	}
}

// A caller that waited for a request uses the key's current state. If a later request replaced the
// batch in the meantime and was denied, the caller is denied too.
func TestBatchReplacedInTheMeantime(t *testing.T) {
	s := newTestbed(t)
	c := s.client(t, client.WithBatches(64, ttl), client.WithTimeout(patient))
	leader, others, release := s.together(t, c, t.Context(), 1, wide)
	require(t, c.Block(t.Context(), client.Block{For: time.Minute}, "k"))
	if res := allow(t, c, wide, 1); res.Allowed {
		t.Error(res)
	}
	s.sent()
	release()
	for _, from := range []chan outcome{leader, others} {
		if o := <-from; o.err != nil || o.res.Allowed || o.res.RetryAfter != time.Minute {
			t.Error(o)
		}
	}
	s.wantSent(t, "")
}

// A caller that waited gets the result of the request that took its unit, although a later request
// was denied before the caller ran. The later request does not ask for units for it again.
func TestBatchWaiterAfterALaterDenial(t *testing.T) {
	s := newTestbed(t)
	allow(t, s.client(t), tight, 7)
	c := s.client(t, client.WithBatches(64, ttl), client.WithTimeout(patient))
	var waiter *client.BatchCaller
	s.hook = func(redis.Cmder) { s.hook = nil; waiter = client.WaitForBatch(c, "k", tight) }
	s.sent()
	for i, want := range []bool{true, true, false} { // the second call takes a unit for the waiter, too
		if res := allow(t, c, tight, 1); res.Allowed != want {
			t.Errorf("call %d: %+v", i, res)
		}
	}
	s.wantSent(t, "=1 2 =1")
	s.pass(time.Millisecond)
	res, ok, err := waiter.Wake()
	want := client.Result{Allowed: true, Limit: 10, ResetAfter: time.Minute - time.Millisecond, Index: 1, Source: "batch"}
	if !ok || err != nil || !reflect.DeepEqual(res, want) {
		t.Errorf("got  %+v, %v, %v\nwant %+v", res, ok, err, want)
	}
	s.wantSent(t, "")
}

// While a leaky_bucket decides on a key, no call waits for another: each has its own place in the
// queue. Once the last reply is ttl old, calls share requests again.
func TestBatchAfterALeakyBucket(t *testing.T) {
	s := newTestbed(t)
	c := s.client(t, client.WithBatches(64, ttl), client.WithTimeout(patient))
	require(t, s.client(t).Override(t.Context(), "leaky_bucket 600/m burst=9", time.Hour, "k"))
	allow(t, c, wide, 1)
	if res := allow(t, c, wide, 1); res.RetryAfter != ttl {
		t.Fatalf("%+v", res)
	}
	s.pass(ttl)
	var waiter *client.BatchCaller
	s.hook = func(redis.Cmder) { s.hook = nil; waiter = client.WaitForBatch(c, "k", wide) } // panics if there is no request to wait for
	allow(t, c, wide, 1)
	if _, _, err := waiter.Wake(); err != nil {
		t.Error(err)
	}
}

// TestBatchWaitersInAnyOrder lets callers wait for requests and continue in any order, and checks
// that each unit that the server charged admits a call, expires, or is left in the batch.
func TestBatchWaitersInAnyOrder(t *testing.T) {
	s := newTestbed(t)
	run := 0
	rapid.Check(t, func(r *rapid.T) {
		run++
		key, n := "k"+strconv.Itoa(run), rapid.Int64Range(1, 60).Draw(r, "n")
		limit := client.Limit("fixed_window " + strconv.FormatInt(n, 10) + "/d")
		expire := rapid.Bool().Draw(r, "units expire")
		c := s.client(t, client.WithBatches(rapid.Int64Range(2, 16).Draw(r, "most"), ttl), client.WithTimeout(patient))
		var waiting []*client.BatchCaller
		var admitted, denied int64
		s.hook = func(redis.Cmder) {
			for range rapid.IntRange(0, 4).Draw(r, "callers that join") {
				waiting = append(waiting, client.WaitForBatch(c, key, limit))
			}
			if expire && rapid.Bool().Draw(r, "the reply is slow") {
				s.pass(ttl)
			}
		}
		count := func(res client.Result, err error) {
			switch {
			case err != nil:
				r.Fatal(err)
			case res.Allowed:
				admitted++
			default:
				denied++
			}
		}
		wake := func() {
			i := rapid.IntRange(0, len(waiting)-1).Draw(r, "waiter")
			w := waiting[i]
			waiting = slices.Delete(waiting, i, i+1)
			if res, ok, err := w.Wake(); ok {
				count(res, err)
			} else {
				r.Fatal("it waits again, although no request is in progress")
			}
		}
		defer func() { s.hook = nil }()
		for range rapid.IntRange(1, 30).Draw(r, "steps") {
			if len(waiting) > 0 && rapid.Bool().Draw(r, "wake") {
				wake()
			} else {
				count(c.Allow(t.Context(), key, limit))
			}
		}
		for len(waiting) > 0 {
			s.hook = nil
			wake()
		}
		s.hook = nil
		if n := client.WaitingForBatch(c, key); n != 0 {
			r.Fatalf("%d still wait", n)
		}
		charged := n - must[client.Result](t)(c.Peek(t.Context(), client.For(key, limit, 0))).Remaining
		left := int64(0)
		for {
			res := must[client.Result](t)(c.Allow(t.Context(), key, limit))
			if res.Source != "batch" {
				break
			}
			left++
		}
		if admitted+left > charged || !expire && admitted+left < charged {
			r.Fatalf("%d charged, %d admitted, %d left, %d denied", charged, admitted, left, denied)
		}
	})
}
