// Package rlqs implements Envoy's rate limit quota service: an Envoy reports how many requests it
// allowed, and gets units in advance, so that no request of a client waits for the gateway or Redis.
// docs/envoy.md describes it.
//
// # How units get to Envoys
//
// A unit is charged in Redis before an Envoy gets it. An Envoy's assignment is a token bucket that
// starts with these units and does not refill. It lasts for ttl. After it, or after the next
// assignment, the rest of its units cannot be spent.
//
// With its report of every interval, an Envoy says how many units it spent. The others are worth what
// they would be after a refund: they are part of its next assignment, which is sent at once, or of
// another Envoy's, or they are refunded. If Redis has refilled the limit in the meantime, they are
// refunded, because Redis then ignores what does not fit. If a limit refills its burst in less than
// two intervals, the Envoys also get units between their reports, and units of these assignments that
// were not spent come back with the report.
//
// # The bound
//
// A unit is spent within ttl after its assignment. When it was assigned, it had just been charged, or
// it was charged at most one interval (and late, the time that a late report gets) before and not
// spent. So what all Envoys let pass in any time span L is at most the limit in L + interval + ttl,
// however many gateways take part. The following comes on top:
//   - Requests that pass while a report and the assignment after it are on their way. They are charged
//     with the next report, with Force.
//   - Requests that pass without units, because the configuration of Envoy allows them before the first
//     assignment or after the end of one. They are charged in the same way.
//
// If a stream ends, its Envoy keeps its units until ttl. So they are not given back. Reports on another
// stream of this gateway spend them.
//
// # Without Redis
//
// If Redis does not answer, Envoys get no new assignments, and the present ones end after ttl. Nothing
// is assigned whose charge is uncertain. A charge, or a refund, whose outcome is unknown is not
// repeated.
package rlqs

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"github.com/ratelimit-functions/ratelimit/client"
	"github.com/ratelimit-functions/ratelimit/gateway/internal/envoyconfig"
	"github.com/ratelimit-functions/ratelimit/gateway/internal/metrics"
	"github.com/ratelimit-functions/ratelimit/gateway/internal/remedy"
)

const (
	interval = 5 * time.Second        // of Envoy's reports; fixed in Envoy
	ttl      = 2 * interval           // of an assignment; Envoy ignores fractions of a second
	late     = time.Second            // a report that is later than this does not give back units
	quick    = 250 * time.Millisecond // the shortest time between two assignments for a bucket
	workers  = 32                     // number of calls to Redis at the same time
)

// Bounds on what Envoys can make the gateway store. A bucket takes about 1 KB with a short ID, and 270
// bytes for each further Envoy, so the most take about 350 MB.
const (
	mostBuckets   = 100_000   // in the process
	mostShares    = 1_000_000 // buckets of all streams in the process
	mostEntries   = 20        // in a bucket ID
	mostID        = 4 << 10   // bytes of a bucket ID
	mostPerSecond = 1_000_000 // requests of a bucket and an Envoy
)

// Limiter is what the service needs of a [*client.Client].
type Limiter interface {
	client.Limiter
	Peek(context.Context, client.Request) (client.Result, error)
	Refund(context.Context, client.Request) (client.Result, error)
}

// Options configures a [Server]. Limiter, Metrics and Log are required.
type Options struct {
	Limiter Limiter
	Metrics *metrics.Quotas
	Log     *slog.Logger
	Now     func() time.Time // time.Now if nil

	// NeedsConfig: before the first [Server.Use], streams get the error UNAVAILABLE.
	NeedsConfig bool
}

// Server is the rate limit quota service. Its methods may be called concurrently.
type Server struct {
	Options
	config atomic.Pointer[envoyconfig.Config]
	logs   rate.Sometimes
	queue  chan *bucket // buckets to process; each at most once, so that it never blocks
	swept  time.Time    // last call of sweep; belongs to tick

	mu      sync.Mutex
	buckets map[string]*bucket
	shares  int // number of shares of all buckets

	ticks   sync.Mutex
	ticking map[*bucket]bool // buckets that need assignments between reports; belongs to ticks

	reports sync.WaitGroup // goroutines that receive reports
}

// New returns a Server that has no configuration yet; see [Server.Use].
func New(options Options) *Server {
	if options.Now == nil {
		options.Now = time.Now
	}
	return &Server{Options: options, logs: rate.Sometimes{Interval: time.Second}, queue: make(chan *bucket, mostBuckets), buckets: map[string]*bucket{}, ticking: map[*bucket]bool{}}
}

// Use replaces the configuration. A bucket uses it from the next report on.
func (s *Server) Use(config *envoyconfig.Config) { s.config.Store(config) }

// Run assigns units until ctx is done. What has been reported by then may not be charged yet: call
// [Server.Settle].
func (s *Server) Run(ctx context.Context) {
	var all sync.WaitGroup
	for range workers {
		all.Go(func() {
			for ctx.Err() == nil {
				select {
				case b := <-s.queue:
					b.process(context.WithoutCancel(ctx))
				case <-ctx.Done():
				}
			}
		})
	}
	ticker := time.NewTicker(quick)
	defer ticker.Stop()
	for ctx.Err() == nil {
		select {
		case <-ticker.C:
			s.tick()
		case <-ctx.Done():
		}
	}
	all.Wait()
}

// Settle charges what Envoys have used without units and have reported, because they do not report it
// again to another gateway. Call it when Run has returned and all streams have ended. It stops when ctx is
// done.
func (s *Server) Settle(ctx context.Context) {
	s.reports.Wait()
	s.mu.Lock()
	list := slices.Collect(maps.Values(s.buckets))
	s.mu.Unlock()
	rest := make(chan *bucket, len(list))
	for _, b := range list {
		rest <- b
	}
	close(rest)
	var all sync.WaitGroup
	for range min(workers, len(list)) {
		all.Go(func() {
			for b := range rest {
				if ctx.Err() == nil {
					b.settle(ctx)
				}
			}
		})
	}
	all.Wait()
}

// tick queues the buckets that need units between two reports. Once in an interval, it ends what is over.
func (s *Server) tick() {
	s.ticks.Lock()
	list := slices.Collect(maps.Keys(s.ticking))
	s.ticks.Unlock()
	now := s.Now()
	for _, b := range list {
		b.tick(now)
	}
	if now.Sub(s.swept) >= interval {
		s.swept = now
		s.sweep(now)
	}
}

// failed counts and logs a bucket that gets no assignment, at most once a second.
func (s *Server) failed(what string, b *bucket, err error) {
	s.Metrics.Assigned("error")
	s.logs.Do(func() {
		s.Log.Error(what, "source", "rlqs", "domain", remedy.Cut(b.domain), "limit", remedy.Cut(string(b.limit)), "error", remedy.For(err))
	})
}

// join returns the share of a stream in a bucket. It returns nil if there are too many.
func (s *Server) join(st *stream, key string, id bucketID) *share {
	s.mu.Lock()
	defer s.mu.Unlock()
	b := s.buckets[key]
	if s.shares >= mostShares || b == nil && len(s.buckets) >= mostBuckets {
		return nil
	}
	if b == nil {
		b = &bucket{server: s, text: key, domain: st.domain, id: id, period: interval}
		s.buckets[key] = b
		s.Metrics.Buckets(len(s.buckets))
	}
	s.shares++
	sh := &share{bucket: b, stream: st}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.shares = append(b.shares, sh)
	return sh
}

// left is called without locks when shares of a bucket have ended. It drops a bucket that has none.
func (s *Server) left(b *bucket, n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.shares -= n
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.shares) == 0 && s.buckets[b.text] == b && !b.owes(s.Now()) {
		delete(s.buckets, b.text)
		b.ticks(false)
		s.Metrics.Buckets(len(s.buckets))
	}
}

// sweep ends the shares of Envoys that no longer report, and drops buckets whose Envoys are gone.
func (s *Server) sweep(now time.Time) {
	s.mu.Lock()
	list := slices.Collect(maps.Values(s.buckets))
	s.mu.Unlock()
	for _, b := range list {
		if n, empty := b.silent(now); n > 0 || empty {
			s.left(b, n)
		}
	}
}
