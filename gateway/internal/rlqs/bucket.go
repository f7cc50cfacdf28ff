package rlqs

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ratelimit-functions/ratelimit/client"
	"github.com/ratelimit-functions/ratelimit/gateway/internal/envoyconfig"
)

// bucket is a bucket of a domain, with the Envoys that have requests in it. The order of locks is
// Server.mu, bucket.mu, stream.mu.
type bucket struct {
	server *Server
	text   string // in Server.buckets
	domain string
	id     bucketID

	mu      sync.Mutex
	shares  []*share
	queued  bool // in Server.queue
	busy    bool // process runs
	ticked  bool // all Envoys are due
	config  *envoyconfig.Config
	read    bool         // whether config was read for limit
	limit   client.Limit // "" for none
	key     string       // on the server
	class   string       // of the policy; may be empty
	shadow  bool         // by a rule in shadow mode: count, and allow everything
	trial   bool         // the same, by a shadow policy as of its last reply
	excess  int64        // units that were used, and must be charged with Force
	orphans []orphan
	turn    int // the first of the Envoys to get what is left of a division

	known     bool          // whether the fields below have a reply
	remaining int64         // units at the server
	capacity  int64         // burst of the limit, without what the class leaves to others
	kept      float64       // the part of the burst that the class leaves to others
	unsure    bool          // whether kept was not seen, because the class had no units
	refill    time.Duration // in which the limit refills its capacity; 0 if unknown
	period    time.Duration // between two assignments: interval, or less if the limit refills faster
	next      time.Time     // time of the next tick, if period is below interval
	ticking   bool          // in Server.ticking
}

// orphan is units of a stream that has ended. Its Envoy may report them as used on another stream.
type orphan struct {
	units int64
	until time.Time
}

// share is what an Envoy has of a bucket. Its fields belong to bucket.mu.
type share struct {
	bucket   *bucket
	stream   *stream
	open     int64   // units that the Envoy got and has not reported as used
	demand   float64 // requests a second
	carry    float64 // part of a unit that the Envoy did not get
	due      bool    // has reported, and must get an assignment
	idle     int     // reports without a request since the last request
	reported time.Time
	assigned time.Time   // of the last assignment with units
	gone     atomic.Bool // no longer in bucket.shares

	action action // of the next message; belongs to stream.mu
	out    bool   // in stream.out; belongs to stream.mu
}

// report records what an Envoy did since its last report, and queues the bucket. It returns false if the
// share has ended.
func (b *bucket) report(sh *share, allowed, denied uint64, now time.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if sh.gone.Load() {
		return false
	}
	first := sh.reported.IsZero()
	elapsed := now.Sub(sh.reported)
	if first {
		elapsed = interval // the report of the first request
	}
	elapsed = max(elapsed, time.Second)
	most := uint64(mostPerSecond * min(elapsed, ttl).Seconds())
	if most < allowed || most < denied {
		b.server.Metrics.Refused("usage")
		b.server.logs.Do(func() {
			b.server.Log.Warn("a report has more requests than an Envoy can serve, and was cut", "source", "rlqs", "domain", b.domain, "allowed", allowed, "denied", denied, "most", most)
		})
		allowed, denied = min(allowed, most), min(denied, most)
	}
	// The more requests there were, or should have been, the less does chance explain a change. So a busy Envoy
	// that gets no more requests loses nearly all units with its first report without one.
	if seen, n := float64(allowed+denied)/elapsed.Seconds(), max(float64(allowed+denied), sh.demand*elapsed.Seconds()); first {
		sh.demand = seen
	} else {
		sh.demand += (seen - sh.demand) * max(0.5, n/(n+10))
	}
	if sh.idle++; allowed+denied > 0 {
		sh.idle = 0
	}
	used := int64(allowed)
	b.server.Metrics.Units("used", used)
	rest := min(sh.open, used)
	sh.open -= rest
	b.excess += b.adopted(used-rest, now)
	if !first && elapsed > interval+late {
		sh.open = 0
	}
	sh.reported, sh.due = now, true
	b.enqueue()
	return true
}

// adopted pays units with those of streams that have ended, and returns how many are left.
func (b *bucket) adopted(units int64, now time.Time) int64 {
	b.orphans = slices.DeleteFunc(b.orphans, func(o orphan) bool { return !now.Before(o.until) })
	for i := range b.orphans {
		n := min(units, b.orphans[i].units)
		b.orphans[i].units -= n
		units -= n
	}
	return units
}

// orphaned returns the units of streams that have ended.
func (b *bucket) orphaned(now time.Time) (units int64) {
	for _, o := range b.orphans {
		if now.Before(o.until) {
			units += o.units
		}
	}
	return units
}

func (b *bucket) owes(now time.Time) bool {
	return b.excess > 0 || b.busy || b.queued || b.orphaned(now) > 0
}

// enqueue is called with b.mu.
func (b *bucket) enqueue() {
	if !b.queued && !b.busy {
		b.queued = true
		b.server.queue <- b
	}
}

// tick makes all Envoys due if the time has come.
func (b *bucket) tick(now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case len(b.shares) == 0 || b.period >= interval:
		b.ticks(false)
	case !now.Before(b.next):
		b.next, b.ticked = now.Add(b.period), true
		b.enqueue()
	}
}

// ticks says whether the bucket needs assignments between reports. It is called with b.mu.
func (b *bucket) ticks(on bool) {
	if on == b.ticking {
		return
	}
	b.ticking = on
	b.server.ticks.Lock()
	defer b.server.ticks.Unlock()
	if on {
		b.server.ticking[b] = true
	} else {
		delete(b.server.ticking, b)
	}
}

// leave ends a share, because its stream has ended. The Envoy may spend its units until ttl.
func (b *bucket) leave(sh *share) {
	b.mu.Lock()
	n := 0
	if !sh.gone.Load() {
		n = 1
		b.orphans = append(b.orphans, orphan{sh.open, b.server.Now().Add(ttl)})
		if len(b.orphans) > 100 { // an Envoy that connects again and again
			b.orphans = slices.Delete(b.orphans, 0, 1)
		}
		b.remove(sh)
	}
	b.mu.Unlock()
	b.server.left(b, n)
}

// remove is called with b.mu.
func (b *bucket) remove(sh *share) {
	sh.gone.Store(true)
	sh.stream.ended.Store(true)
	if at := slices.Index(b.shares, sh); at >= 0 {
		last := len(b.shares) - 1
		b.shares[at], b.shares[last] = b.shares[last], nil
		b.shares = b.shares[:last]
	}
}

// silent ends the shares of Envoys that have not reported for two intervals, and returns their number
// and whether no share is left. Nobody knows what these Envoys did with their units.
func (b *bucket) silent(now time.Time) (n int, empty bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, sh := range slices.Clone(b.shares) {
		if now.Sub(sh.reported) > ttl+late && !sh.reported.IsZero() {
			b.remove(sh)
			sh.stream.send(sh, action{kind: abandon, at: now})
			n++
		}
	}
	if len(b.shares) == 0 && b.excess > 0 { // a charge that failed, and no report will bring it again
		b.enqueue()
	}
	return n, len(b.shares) == 0
}

// process gives the Envoys that are due their assignments. Only one worker processes a bucket at a time.
func (b *bucket) process(ctx context.Context) {
	b.mu.Lock()
	b.queued, b.busy = false, true
	b.resolve()
	ended := 0
	if b.limit == "" {
		ended = b.allow(b.dueNow())
		b.excess = 0
	} else {
		ended = b.assign(ctx)
	}
	b.busy = false
	if b.ticked || slices.ContainsFunc(b.shares, func(sh *share) bool { return sh.due }) {
		b.enqueue()
	}
	b.mu.Unlock()
	if ended > 0 {
		b.server.left(b, ended)
	}
}

// settle charges what was used without units, and assigns nothing.
func (b *bucket) settle(ctx context.Context) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.resolve()
	if b.excess == 0 || b.limit == "" {
		return
	}
	if err := b.charge(ctx); err != nil {
		b.server.failed("units that were used were not charged", b, err)
	}
}

// call calls the server without b.mu, which is locked before and after it.
func (b *bucket) call(f func() (client.Result, error)) (client.Result, error) {
	b.mu.Unlock()
	defer b.mu.Lock()
	return f()
}

// charge charges what was used without units. A charge with an unknown outcome is not repeated.
func (b *bucket) charge(ctx context.Context) error {
	request := client.Request{Keys: []string{b.key}, Limits: []client.Limit{b.limit}, Costs: []int64{b.excess}, Force: !b.shadow && !b.trial, UpTo: b.shadow || b.trial}
	b.excess = 0
	result, err := b.call(func() (client.Result, error) { return b.server.Limiter.Take(ctx, request) })
	switch {
	case err == nil && request.UpTo:
		b.server.Metrics.Units("charged", result.Taken)
	case err == nil && result.Allowed: // otherwise, the key is blocked
		b.server.Metrics.Units("charged", request.Costs[0])
	case err == nil:
	case !errors.Is(err, client.ErrOutcomeUnknown) && !errors.Is(err, client.ErrMisconfigured):
		b.excess = min(b.excess+request.Costs[0], mostPerSecond*int64(ttl/time.Second))
	}
	return err
}
