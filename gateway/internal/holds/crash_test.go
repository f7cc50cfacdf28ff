package holds

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ratelimit-functions/ratelimit/client"
)

var errDied = fmt.Errorf("the gateway died: %w", client.ErrOutcomeUnknown)

// faulty is the Limiter and the Store of a gateway whose steps can fail. fault is called for each step,
// and reports whether the step is executed, and the error that the gateway gets in place of its result.
type faulty struct {
	limiter Limiter
	store   Store
	fault   func() (execute bool, err error)
}

func try[A any](f *faulty, step func() (A, error)) (A, error) {
	execute, err := f.fault()
	var none A
	if !execute {
		return none, err
	}
	result, stepErr := step()
	if err != nil {
		return none, err
	}
	return result, stepErr
}

func tryNone(f *faulty, step func() error) error {
	_, err := try(f, func() (struct{}, error) { return struct{}{}, step() })
	return err
}

func (f *faulty) Take(ctx context.Context, r client.Request) (client.Result, error) {
	return try(f, func() (client.Result, error) { return f.limiter.Take(ctx, r) })
}

func (f *faulty) Refund(ctx context.Context, r client.Request) (client.Result, error) {
	return try(f, func() (client.Result, error) { return f.limiter.Refund(ctx, r) })
}

func (f *faulty) Add(ctx context.Context, id string, record []byte, end time.Time, life time.Duration) error {
	return tryNone(f, func() error { return f.store.Add(ctx, id, record, end, life) })
}

func (f *faulty) Record(ctx context.Context, id string) ([]byte, error) {
	return try(f, func() ([]byte, error) { return f.store.Record(ctx, id) })
}

func (f *faulty) Decide(ctx context.Context, id, decision string, now time.Time, life time.Duration) (string, error) {
	return try(f, func() (string, error) { return f.store.Decide(ctx, id, decision, now, life) })
}

func (f *faulty) Finish(ctx context.Context, id, decision string) (bool, error) {
	return try(f, func() (bool, error) { return f.store.Finish(ctx, id, decision) })
}

func (f *faulty) Drop(ctx context.Context, id string) error {
	return tryNone(f, func() error { return f.store.Drop(ctx, id) })
}

func (f *faulty) Ended(ctx context.Context, shard string, now time.Time, n int64) ([]string, error) {
	return try(f, func() ([]string, error) { return f.store.Ended(ctx, shard, now, n) })
}

func (f *faulty) Postpone(ctx context.Context, id string, end time.Time) error {
	return tryNone(f, func() error { return f.store.Postpone(ctx, id, end) })
}

func (f *faulty) Wait(ctx context.Context, id string, end time.Time, life time.Duration) error {
	return tryNone(f, func() error { return f.store.Wait(ctx, id, end, life) })
}

func (f *faulty) Expire(ctx context.Context, life time.Duration, keys ...string) error {
	return tryNone(f, func() error { return f.store.Expire(ctx, life, keys...) })
}

func (f *faulty) Now(ctx context.Context) (time.Time, error) {
	return try(f, func() (time.Time, error) { return f.store.Now(ctx) })
}

// dying returns a gateway that dies at step n, counted from 0: before it is executed or, if after is
// true, before its result arrives. died reports whether it has died.
func (b *testbed) dying(n int, after bool) (h *Holds, died func() bool) {
	f := &faulty{limiter: b.limiter, store: Redis{b.db}}
	var mu sync.Mutex
	f.fault = func() (bool, error) {
		mu.Lock()
		defer mu.Unlock()
		n--
		switch {
		case n >= 0:
			return true, nil
		case n == -1:
			return after, errDied
		}
		return false, errDied
	}
	return b.gateway(f, f), func() bool { return n < 0 }
}

// TestEachCrash lets a gateway die at each step of each method. Afterwards, other gateways must leave
// what the protocol promises, and nothing else.
func TestEachCrash(t *testing.T) {
	const limit = "fixed_window 100/30d"
	b := newTestbed(t)
	two := func(key string) []Part { return append(part("{"+key+"}1", limit), part(key, limit)...) }
	scenarios := map[string]struct {
		estimate, actual int64
		late             bool // the reservation ends before the commit
		repeat           bool // another gateway repeats the commit
		full             bool // the second part has no room
	}{
		"reserve":             {estimate: 60},
		"denied":              {estimate: 60, full: true},
		"commit less":         {estimate: 60, actual: 25},
		"commit less, repeat": {estimate: 60, actual: 25, repeat: true},
		"commit more":         {estimate: 60, actual: 70},
		"commit more, repeat": {estimate: 60, actual: 70, repeat: true},
		"commit the same":     {estimate: 60, actual: 60},
		"commit nothing":      {estimate: 60, actual: 0, repeat: true},
		"late":                {estimate: 60, actual: 25, late: true, repeat: true},
	}
	for name, s := range scenarios {
		steps := 0
		for n := 0; ; n++ {
			finished := false
			for _, after := range []bool{false, true} {
				key := fmt.Sprintf("%s/%d/%v", name, n, after)
				parts := two(key)
				before := int64(0)
				if s.full {
					before = 50
					must[client.Result](t)(b.limiter.AllowN(ctx, key, limit, before))
				}
				h, died := b.dying(n, after)
				var made Reservation
				var err error
				committing := strings.HasPrefix(name, "commit") || s.late
				if !committing {
					if made, err = h.Reserve(ctx, "web", parts, s.estimate, time.Minute); err != nil && made.ID != "" {
						t.Errorf("%s: an id beside an error", key)
					}
				} else {
					made.ID = b.reserve(parts, s.estimate, time.Minute)
					if s.late {
						b.advance(time.Minute)
						_ = h.Sweep(ctx)
						b.sweep()
					}
					_, err = h.Commit(ctx, "web", made.ID, s.actual)
				}
				_ = h.Sweep(ctx) // a dead gateway changes nothing
				want := int64(0)
				if committing {
					decided := must[string](t)(b.db.Do(ctx, "GETRANGE", decisionKey(made.ID), 0, -1).Text())
					if err == nil || s.repeat || strings.HasPrefix(decided, "commit") {
						want = s.actual
					}
				}
				if s.repeat {
					if got, again := b.Commit(ctx, "web", made.ID, s.actual); again != nil || got.Actual != s.actual {
						t.Errorf("%s: the second commit returns %v, %v", key, got, again)
					}
				}
				b.advance(time.Minute)
				b.sweep()
				b.sweep()
				b.left("{"+key+"}1", limit, 100-want)
				b.left(key, limit, 100-want-before)
				finished = finished || !died()
			}
			steps = n
			if finished {
				break
			}
		}
		t.Logf("%s: %d steps", name, steps)
		if steps < 3 {
			t.Errorf("%s died at only %d steps", name, steps)
		}
	}
	b.empty()
}

// TestDelayedTake checks that a take that arrives after the end charges nothing: the sweep could not
// give it back any more.
func TestDelayedTake(t *testing.T) {
	b := newTestbed(t)
	var delayed client.Request
	f := &faulty{store: Redis{b.db}, limiter: takeFunc{b.limiter, func(ctx context.Context, r client.Request) (client.Result, error) {
		if strings.HasSuffix(r.OnceKey, ":take") && !r.UpTo {
			delayed = r
			return client.Result{}, errDied // the reply is lost
		}
		return b.limiter.Take(ctx, r)
	}}, fault: func() (bool, error) { return true, nil }}
	if _, err := b.gateway(f, f).Reserve(ctx, "web", part("u", "fixed_window 100/d"), 60, time.Minute); !errors.Is(err, client.ErrOutcomeUnknown) {
		t.Errorf("%v", err)
	}
	b.advance(time.Minute)
	b.sweep()
	must[client.Result](t)(b.limiter.Take(ctx, delayed))
	b.left("u", "fixed_window 100/d", 100)
	b.sweep()
	b.left("u", "fixed_window 100/d", 100)
	b.wantEvents() // nothing was given back
}

// TestSlowReserve checks that a gateway that stands still for longer than the ttl returns no id for
// units that are not charged.
func TestSlowReserve(t *testing.T) {
	b := newTestbed(t)
	slow := takeFunc{b.limiter, func(ctx context.Context, r client.Request) (client.Result, error) {
		b.advance(time.Minute)
		b.sweep()
		return b.limiter.Take(ctx, r)
	}}
	made, err := b.gateway(slow, Redis{b.db}).Reserve(ctx, "web", part("u", "fixed_window 100/d"), 60, time.Minute)
	if err == nil || !strings.Contains(err.Error(), "longer than its ttl, 1m0s") || made.ID != "" {
		t.Errorf("%v, %v", made, err)
	}
	b.left("u", "fixed_window 100/d", 100)
	b.sweep()
	b.left("u", "fixed_window 100/d", 100)
	b.empty()
}

// takeFunc is a Limiter with another Take.
type takeFunc struct {
	Limiter
	take func(context.Context, client.Request) (client.Result, error)
}

func (f takeFunc) Take(ctx context.Context, r client.Request) (client.Result, error) {
	return f.take(ctx, r)
}
