package rlqs

import (
	"context"
	"log/slog"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	quota "github.com/envoyproxy/go-control-plane/envoy/service/rate_limit_quota/v3"
	envoytype "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/protobuf/proto"

	"github.com/ratelimit-functions/ratelimit/client"
	"github.com/ratelimit-functions/ratelimit/embedded"
	"github.com/ratelimit-functions/ratelimit/functions"
	"github.com/ratelimit-functions/ratelimit/gateway/internal/envoyconfig"
	"github.com/ratelimit-functions/ratelimit/gateway/internal/metrics"
	"github.com/ratelimit-functions/ratelimit/internal/redistest"
)

var start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

const step = 50 * time.Millisecond

// world is a service and its Envoys, with a clock that the test moves.
type world struct {
	t        *testing.T
	now      time.Time
	redis    *embedded.Server
	limiter  *faulty
	servers  []*Server // gateways
	log      *redistest.Output
	registry *prometheus.Registry
	envoys   []*envoy
	random   *rand.Rand
	passed   map[string][]int64 // requests that passed, by bucket and step
	steps    int
	worked   time.Time // last tick of the servers
}

// faulty is a client whose server can be down, or lose replies.
type faulty struct {
	*client.Client
	take func(client.Request) error
}

func (f *faulty) Take(ctx context.Context, r client.Request) (client.Result, error) {
	if f.take != nil {
		if err := f.take(r); err != nil {
			return client.Result{}, err
		}
	}
	return f.Client.Take(ctx, r)
}

func (f *faulty) Peek(ctx context.Context, r client.Request) (client.Result, error) {
	if f.take != nil {
		if err := f.take(r); err != nil {
			return client.Result{}, err
		}
	}
	return f.Client.Peek(ctx, r)
}

func newWorld(t *testing.T, gateways int, config string, policies ...functions.Policy) *world {
	build := redistest.Must[functions.Build](t)(functions.New(functions.WithPolicies(policies...)))
	w := &world{t: t, now: start, random: rand.New(rand.NewPCG(1, 2)), passed: map[string][]int64{}, log: &redistest.Output{}, registry: prometheus.NewRegistry()}
	w.redis = embedded.Run(t, embedded.WithLibrary(build.Text()), embedded.WithTime(start))
	limiter := redistest.Must[*client.Client](t)(client.Open("redis://"+w.redis.Addr(), client.WithTimeout(time.Minute)))
	t.Cleanup(func() { _ = limiter.Close() })
	w.limiter = &faulty{Client: limiter}
	counts := metrics.NewQuotas(w.registry)
	for range gateways {
		s := New(Options{Limiter: w.limiter, Metrics: counts, Log: slog.New(slog.NewTextHandler(w.log, nil)), Now: func() time.Time { return w.now }})
		if config != "" {
			dir := t.TempDir()
			redistest.Require(t, os.WriteFile(filepath.Join(dir, "config.yaml"), []byte(config), 0o600))
			s.Use(redistest.Must[*envoyconfig.Config](t)(envoyconfig.Load(dir, false)))
		}
		w.servers = append(w.servers, s)
	}
	return w
}

// envoy is an Envoy with the behavior of Envoy's filter: it reports when a bucket is first used, and then
// all buckets in each interval.
type envoy struct {
	*world
	stream  *stream
	buckets map[string]*envoyBucket
	next    time.Time // of the report
	pass    bool      // whether requests without an assignment pass
	silent  bool      // sends no reports
}

type envoyBucket struct {
	id              *quota.BucketId
	bucket          *envoytype.TokenBucket
	tokens          int64
	rule            *envoytype.RateLimitStrategy_BlanketRule
	until           time.Time
	allowed, denied uint64
}

// connect adds an Envoy of a gateway. Its reports begin at a random time.
func (w *world) connect(gateway int) *envoy {
	e := &envoy{world: w, stream: w.servers[gateway].newStream(), buckets: map[string]*envoyBucket{}}
	e.next = w.now.Add(time.Duration(w.random.Int64N(int64(interval/step))) * step)
	w.envoys = append(w.envoys, e)
	return e
}

// request sends n requests, and counts those that pass.
func (e *envoy) request(n int, id map[string]string) {
	name := bucketID{&quota.BucketId{Bucket: id}}.key("")
	b := e.buckets[name]
	first := b == nil && n > 0
	if first {
		b = &envoyBucket{id: &quota.BucketId{Bucket: id}}
		e.buckets[name] = b
	}
	for range n {
		if b.allows(e.now, e.pass) {
			b.allowed++
			e.count(name)
		} else {
			b.denied++
		}
		if first && !e.silent {
			e.report(b)
			first = false
		}
	}
}

func (b *envoyBucket) allows(now time.Time, otherwise bool) bool {
	switch {
	case !now.Before(b.until):
		return otherwise
	case b.rule != nil:
		return *b.rule == envoytype.RateLimitStrategy_ALLOW_ALL
	}
	b.tokens--
	return b.tokens >= 0
}

func (w *world) count(name string) {
	list := w.passed[name]
	for len(list) <= w.steps {
		list = append(list, 0)
	}
	list[w.steps]++
	w.passed[name] = list
}

// report sends the usage of buckets, and lets the gateway work.
func (e *envoy) report(list ...*envoyBucket) {
	reports := &quota.RateLimitQuotaUsageReports{Domain: "web"}
	for _, b := range list {
		reports.BucketQuotaUsages = append(reports.BucketQuotaUsages, &quota.RateLimitQuotaUsageReports_BucketQuotaUsage{BucketId: b.id, NumRequestsAllowed: b.allowed, NumRequestsDenied: b.denied})
		b.allowed, b.denied = 0, 0
	}
	redistest.Require(e.t, e.send(reports))
}

func (e *envoy) send(reports *quota.RateLimitQuotaUsageReports) error {
	message := new(usages)
	redistest.Require(e.t, message.Decode(redistest.Must[[]byte](e.t)(proto.Marshal(reports))))
	err := e.stream.handle(message)
	e.work()
	return err
}

// work does what the workers of the gateways do, and delivers the assignments.
func (w *world) work() {
	w.redis.SetTime(w.now)
	for _, s := range w.servers {
		for len(s.queue) > 0 {
			(<-s.queue).process(w.t.Context())
		}
	}
	for _, e := range w.envoys {
		for response := e.stream.next(w.now); response != nil; response = e.stream.next(w.now) {
			for _, a := range response.BucketAction {
				e.apply(a)
			}
		}
	}
}

func (e *envoy) apply(a *quota.RateLimitQuotaResponse_BucketAction) {
	name := bucketID{a.BucketId}.key("")
	b := e.buckets[name]
	switch {
	case b == nil:
		return
	case a.GetAbandonAction() != nil:
		delete(e.buckets, name)
		return
	}
	assignment := a.GetQuotaAssignmentAction()
	b.until = e.now.Add(time.Duration(assignment.AssignmentTimeToLive.Seconds) * time.Second)
	switch strategy := assignment.RateLimitStrategy.Strategy.(type) {
	case *envoytype.RateLimitStrategy_BlanketRule_:
		b.rule, b.bucket = &strategy.BlanketRule, nil
	case *envoytype.RateLimitStrategy_TokenBucket:
		// Envoy keeps the tokens if these fields are equal.
		is, was := strategy.TokenBucket, b.bucket
		if was == nil || is.MaxTokens != was.MaxTokens || is.TokensPerFill.GetValue() != was.TokensPerFill.GetValue() || is.FillInterval.Nanos != was.FillInterval.Nanos {
			b.tokens = int64(is.MaxTokens)
		}
		b.rule, b.bucket = nil, is
		if refill := float64(is.TokensPerFill.Value) / float64(is.FillInterval.Seconds) * ttl.Seconds(); refill > 0.01 {
			e.t.Fatalf("a token bucket refills %v within its time", refill)
		}
	default:
		e.t.Fatalf("Envoy does not know %T", strategy)
	}
}

// run lets time pass. In each step, load sends requests.
func (w *world) run(d time.Duration, load func()) {
	w.t.Helper()
	for end := w.now.Add(d); w.now.Before(end); w.steps++ {
		w.now = w.now.Add(step)
		w.redis.SetTime(w.now)
		for _, e := range w.envoys {
			if !w.now.Before(e.next) && !e.silent {
				e.next = e.next.Add(interval)
				e.report(slices.Collect(maps.Values(e.buckets))...)
			}
		}
		if w.now.Sub(w.worked) >= quick {
			w.worked = w.now
			for _, s := range w.servers {
				s.tick()
			}
			w.work()
		}
		load()
	}
}

// poisson returns a random number of requests in a step, at a rate for each second.
func (w *world) poisson(rate float64) (n int) {
	for at := w.random.ExpFloat64(); at < rate*step.Seconds(); at += w.random.ExpFloat64() {
		n++
	}
	return n
}

// bounded checks that in each span L, at most burst + rate * (L + interval + ttl) passed. It returns how
// many passed since a time.
func (w *world) bounded(name string, burst, rate float64, since time.Duration) int64 {
	w.t.Helper()
	list := w.passed[name]
	sums := make([]int64, len(list)+1)
	for i, n := range list {
		sums[i+1] = sums[i] + n
	}
	for from := range sums {
		for to := from + 1; to < len(sums); to++ {
			span := time.Duration(to-from)*step + interval + ttl
			if most := burst + rate*span.Seconds(); float64(sums[to]-sums[from]) > most {
				w.t.Fatalf("%s: %d passed in %v, from %v; the most is %.1f", name, sums[to]-sums[from], time.Duration(to-from)*step, time.Duration(from)*step, most)
			}
		}
	}
	return sums[len(sums)-1] - sums[min(int(since/step), len(sums)-1)]
}

func named(id map[string]string) string { return bucketID{&quota.BucketId{Bucket: id}}.key("") }
