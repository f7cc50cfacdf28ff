package histories

import (
	"context"
	"slices"
	"sync/atomic"
	"time"
)

// This file has the methods that faults use.

// AfterCalls waits until n more calls have returned.
func (r *Run) AfterCalls(ctx context.Context, n int) error { return r.after(ctx, &r.returned, n) }

// AfterFailures waits until n calls have returned without a reply since the begin of the outage. n
// must be below the number of lanes: an actor waits after a failure, and may be the last of its lane.
func (r *Run) AfterFailures(ctx context.Context, n int) error {
	return r.reached(ctx, &r.failed, r.outageFrom+int64(n))
}

func (r *Run) after(ctx context.Context, counter *atomic.Int64, n int) error {
	return r.reached(ctx, counter, counter.Load()+int64(n))
}

func (r *Run) reached(ctx context.Context, counter *atomic.Int64, n int64) error {
	for counter.Load() < n && !r.report.ended(r.Most) {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(time.Millisecond):
		}
	}
	return nil
}

// AfterReplies waits until n more calls on a shard have got a reply.
func (r *Run) AfterReplies(ctx context.Context, shard, n int) error {
	return r.after(ctx, r.repliesOf(shard), n)
}

func (r *Run) repliesOf(shard int) *atomic.Int64 {
	counter, _ := r.replies.LoadOrStore(shard, &atomic.Int64{})
	return counter.(*atomic.Int64)
}

// Outage says that calls fail until the fault in progress is over. Actors whose calls fail then
// wait.
func (r *Run) Outage() {
	over := make(chan struct{})
	r.outageFrom = r.failed.Load()
	r.outage.Store(&over)
}

func (r *Run) recover() {
	if over := r.outage.Swap(nil); over != nil {
		close(*over)
	}
}

// deliver delivers a late request after some other calls have returned.
func (r *Run) deliver(write func() error) {
	for from, i := r.returned.Load(), 0; r.returned.Load() < from+20 && i < 1000; i++ {
		time.Sleep(time.Millisecond)
	}
	r.clock.begin()
	defer r.clock.end()
	if write() == nil {
		_ = r.settle(context.Background())
	}
}

func (r *Run) settle(ctx context.Context) error {
	if r.Servers.Settle == nil {
		return nil
	}
	return r.Servers.Settle(ctx)
}

// barrier waits until the servers have executed all requests that they have received. Calls that
// returned before without a known outcome cannot be executed any more.
func (r *Run) barrier(ctx context.Context) error {
	began := r.stamps.Add(1)
	if err := r.settle(ctx); err != nil {
		return err
	}
	r.close(began, func(int) bool { return true })
	return nil
}

// Dead says that the server of a shard is killed. Calls that have returned without a known outcome
// cannot be executed any more.
func (r *Run) Dead(shard int) {
	r.close(r.stamps.Add(1), func(other int) bool { return other == shard })
}

// close closes the calls that returned before a stamp.
func (r *Run) close(before int64, on func(shard int) bool) {
	ended, last := r.stamps.Add(1), r.clock.last()
	r.mu.Lock()
	defer r.mu.Unlock()
	for one := range r.live {
		if !on(int(one.shard.Load())) {
			continue
		}
		one.mu.Lock()
		for _, op := range one.history.Ops {
			if op.To == open && op.Returned < before {
				op.To, op.UntilClock = ended, last-one.first
			}
		}
		one.mu.Unlock()
	}
}

// Begin records that an event begins on a shard. End records its end.
func (r *Run) Begin(what What, shard, version int) *Event {
	r.mu.Lock()
	defer r.mu.Unlock()
	e := &Event{What: what, Shard: shard, Version: version, Cause: *r.fault.Load(), From: r.stamps.Add(1)}
	r.events = append(r.events, e)
	for one := range r.live {
		if int(one.shard.Load()) == shard {
			one.mu.Lock()
			one.history.Events = append(one.history.Events, e)
			one.mu.Unlock()
		}
	}
	return e
}

// End records the end of an event.
func (r *Run) End(e *Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	e.clock.Store(int64(r.clock.last()))
	e.to.Store(r.stamps.Add(1))
	r.events = slices.DeleteFunc(r.events, func(other *Event) bool { return other == e })
	switch e.What {
	case Deployed, Restored:
		r.versions[e.Shard] = e.Version
	case Replaced:
		r.stale[e.Shard] = true
	case Demoted:
		r.stale[e.Shard] = false
	}
}

// Version returns the version of the build on a shard.
func (r *Run) Version(shard int) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.versions[shard]
}

// Moved records that slots have moved to other shards.
func (r *Run) Moved() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for one := range r.live {
		one.shard.Store(int64(r.Servers.Shard(one.tag)))
	}
}

// Tag returns the hash tag of an episode in progress, or "".
func (r *Run) Tag() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	for one := range r.live {
		return one.tag
	}
	return ""
}

// Still runs f while the clock stands still. advance moves the clock.
func (r *Run) Still(f func(advance func(us int64) error) error) error {
	r.clock.moving.Lock()
	defer r.clock.moving.Unlock()
	return f(r.clock.advance)
}

// Quiet runs f while no call is in progress and the clock stands still.
func (r *Run) Quiet(f func() error) error {
	r.clock.moving.Lock()
	defer r.clock.moving.Unlock()
	r.clock.gate.Lock()
	defer r.clock.gate.Unlock()
	return f()
}

// Cut makes the next requests suffer faults of the network, and waits until they have.
// Requests that are late have then arrived.
func (r *Run) Cut(ctx context.Context, faults ...cut) error {
	r.net.arm(faults...)
	for armed, late := r.net.left(); armed+late > 0 && !r.report.ended(r.Most); armed, late = r.net.left() {
		if err := r.AfterCalls(ctx, 1); err != nil {
			return err
		}
	}
	return nil
}

// Move moves the clock.
func (r *Run) Move(us int64) error {
	return r.Still(func(advance func(us int64) error) error { return advance(us) })
}
