package client_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/ratelimit-functions/ratelimit/client"
)

// If an observer panics during a request, no caller keeps waiting for that request.
func TestBatchAfterAnObserverPanics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClient(t, &fake{err: io.EOF}, client.WithBatches(16, ttl),
			client.WithObserver(client.Observer{Breaker: func(client.BreakerChange) { panic("of an observer") }}))
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
	if o := <-leader; o.err != nil || !o.res.Allowed || o.res.Source != client.SourceServer {
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
		if o := <-others; o.err != nil || o.res.Allowed || o.res.RetryAfter != 6*time.Second || o.res.Source != client.SourceServer {
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
		if res := allow(t, c, wide, 1); res.Source != client.SourceBatch {
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
		if res := allow(t, c, wide, 1); (res.Source == client.SourceBatch) != (i < 5) {
			t.Errorf("%d: %+v", i, res)
		}
	}
	for range 10 {
		if o := <-others; o.err != nil || o.res.Source != client.SourceBatch {
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
	if o := <-leader; o.err != nil || o.res.Source != client.SourceServer {
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
		wantClasses(t, "panic", err, client.ErrBadReply, client.ErrOutcomeUnknown)
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

// If the client is closed, or the key is reset or blocked, during a request, the units of its reply
// are not spent.
func TestBatchArrivesTooLate(t *testing.T) {
	for name, act := range map[string]func(ctx context.Context, c *client.Client) error{
		"reset": func(ctx context.Context, c *client.Client) error { return second(c.Reset(ctx, "k")) },
		"block": func(ctx context.Context, c *client.Client) error { return c.Block(ctx, time.Millisecond, "k") },
		"close": func(_ context.Context, c *client.Client) error { return c.Close() },
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
			if res, err := c.Allow(t.Context(), "k", wide); err == nil && res.Source == client.SourceBatch {
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
		if res := must[client.Result](t)(client.TakeLate(c, "k", wide)); res.Source != client.SourceBatch {
			t.Errorf("%+v", res)
		}
	}
	s.wantSent(t, "")
	if res := must[client.Result](t)(client.TakeLate(c, "k", wide)); res.Source != client.SourceServer {
		t.Errorf("the 16th of 15: %+v", res)
	}
}

// A caller that waited for a request uses the key's current state. If a later request replaced the
// batch in the meantime and was denied, the caller is denied too.
func TestBatchReplacedInTheMeantime(t *testing.T) {
	s := newTestbed(t)
	c := s.client(t, client.WithBatches(64, ttl), client.WithTimeout(patient))
	leader, others, release := s.together(t, c, t.Context(), 1, wide)
	require(t, c.Block(t.Context(), time.Minute, "k"))
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
