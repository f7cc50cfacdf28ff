package main

import (
	"context"
	"fmt"
	"math"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	quota "github.com/envoyproxy/go-control-plane/envoy/service/rate_limit_quota/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/ratelimit-functions/ratelimit/internal/redistest"
)

const (
	perUser   = 100       // requests a year, of each user of the domain web
	perTenant = 1_000_000 // units a day, for reservations
	quotaStep = 100 * time.Millisecond

	quotaRate, quotaBurst = 100, 200 // requests a second, of each bucket of the Envoys
)

// storm is a gateway in a process of its own, and everything that calls it at the same time.
type storm struct {
	*testing.T
	ctx     context.Context // done when the callers must end
	conns   []*grpc.ClientConn
	http    string
	web     *http.Client
	pid     int
	began   time.Time
	readers sync.WaitGroup

	slowest            atomic.Int64 // time of an answer, in ns
	unavailable        atomic.Int64
	committed, left    atomic.Int64       // units that were committed, and reservations that nobody committed
	allowed, undecided [64]atomic.Int64   // requests by user
	entered, unknown   [64]atomic.Int64   // those of forward auth
	passed             [4096]atomic.Int32 // requests that the Envoys with one bucket let pass, by quotaStep
}

func (s *storm) conn(n int) *grpc.ClientConn { return s.conns[n%len(s.conns)] }

// call makes a call whose deadline is so long that the gateway must answer before it.
func (s *storm) call(do func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	began := time.Now()
	err := do(ctx)
	s.took(began)
	switch code := status.Code(err); code {
	case codes.Unavailable:
		s.unavailable.Add(1)
	case codes.OK, codes.InvalidArgument:
	default:
		s.Errorf("an answer has the code %v: %v", code, err)
	}
	return err
}

// took notes the time of an answer.
func (s *storm) took(began time.Time) {
	for took := int64(time.Since(began)); ; {
		if most := s.slowest.Load(); took <= most || s.slowest.CompareAndSwap(most, took) {
			break
		}
	}
}

// ask asks for a user of a domain.
func (s *storm) ask(n int, domain, user string) (answer *rls.RateLimitResponse, err error) {
	err = s.call(func(ctx context.Context) (err error) {
		answer, err = rls.NewRateLimitServiceClient(s.conn(n)).ShouldRateLimit(ctx, &rls.RateLimitRequest{Domain: domain, Descriptors: describe("user", user)})
		return err
	})
	return answer, err
}

// traffic sends one request for a user of the domain web, and one for the domain that comes and goes.
func (s *storm) traffic(n, user int) (denied bool) {
	answer, err := s.ask(n, "web", strconv.Itoa(user))
	switch {
	case err != nil:
		s.undecided[user].Add(1)
	case answer.Statuses[0].GetCurrentLimit().GetRequestsPerUnit() != perUser:
		s.Errorf("a rule that is in every good set was not used: %v", answer)
	case answer.OverallCode == rls.RateLimitResponse_OK:
		s.allowed[user].Add(1)
	default:
		denied = true
	}
	if answer, err := s.ask(n, "flap", "a"); err == nil {
		if units := answer.Statuses[0].GetCurrentLimit().GetRequestsPerUnit(); units != 0 && units < flapUnits {
			s.Errorf("a rule that no set had was used: %v", answer)
		}
	}
	return denied
}

// envoys lets Envoys with the same bucket come and go: some report as they should, some never again
// after their first report, and some connect again and again.
func (s *storm) envoys(all *sync.WaitGroup, each time.Duration) {
	for i := range 15 {
		e := &envoy{storm: s, id: &quota.BucketId{Bucket: map[string]string{"policy": "quota", "tenant": "a"}}}
		e.connect(s.conn(i))
		e.report(1, 0) // the configuration of these Envoys denies the first request, and some say otherwise
		all.Go(func() {
			defer func() { e.stop() }()
			last := time.Now()
			for s.ctx.Err() == nil {
				pause(s.ctx, 10*time.Millisecond)
				s.passed[time.Since(s.began)/quotaStep].Add(int32(e.pass(5)))
				switch {
				case i%3 == 0 && time.Since(last) >= 5*time.Second:
					e.report(e.allowed, e.denied)
				case i%3 == 1 && time.Since(last) >= each:
					e.report(e.allowed, e.denied)
					e.stop()
					e.connect(s.conn(i))
					e.report(0, 1)
				default:
					continue
				}
				e.allowed, e.denied, last = 0, 0, time.Now()
			}
		})
	}
	for i, lie := range []uint64{math.MaxUint64, 1 << 63, 1 << 53, 1e9} { // -1 and -2^63 arrive as the first two
		e := &envoy{storm: s, id: &quota.BucketId{Bucket: map[string]string{"policy": "quota", "tenant": "liar"}}}
		e.connect(s.conn(i))
		all.Go(func() {
			defer e.stop()
			for s.ctx.Err() == nil {
				e.report(lie, lie)
				pause(s.ctx, 10*time.Millisecond)
			}
		})
	}
}

// crowd opens many streams, each with a bucket of its own, which report every 5 s.
func (s *storm) crowd(streams int) {
	list := make([]*envoy, streams)
	for i := range list {
		list[i] = &envoy{storm: s, id: &quota.BucketId{Bucket: map[string]string{"policy": "quota", "tenant": fmt.Sprint("crowd", i)}}}
		list[i].connect(s.conn(i))
	}
	for s.ctx.Err() == nil {
		for _, e := range list {
			e.report(1, 0)
		}
		pause(s.ctx, 5*time.Second)
	}
	for _, e := range list {
		e.stop()
	}
}

// TestAllAtOnce sends everything that is wrong at the same time: an xDS server that sends garbage and
// many rules, flaps and hangs, reservations that are wrong, forged, repeated or never committed, Envoys that
// lie, never report or connect again and again, JSON that is none, and many streams, beside ordinary
// requests over gRPC and forward auth, while Redis stops and continues. No answer may come after the
// caller's deadline of a minute. With RATELIMIT_SOAK, it does so for a minute, with 10,000 streams and
// 100,000 rules, and answers must come much earlier.
func TestAllAtOnce(t *testing.T) {
	streams, many, stops, length, each, most := 200, 2000, 1, time.Duration(0), 100*time.Millisecond, 300 // MB, with room for the race detector
	if os.Getenv("RATELIMIT_SOAK") != "" {
		streams, many, stops, length, each, most = 10_000, 100_000, 4, 8*time.Second, time.Second, 1500 // 545 on a quiet machine, 961 on a busy one
	}
	s, port, xds, redis, log := newStorm(t, streams)
	before := s.metric("go_goroutines")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	s.ctx, s.began = ctx, time.Now()
	var all sync.WaitGroup
	all.Go(func() { control(ctx, xds, port, many) })
	all.Go(func() { s.crowd(streams) })
	s.envoys(&all, each)
	for caller := range 16 {
		all.Go(func() {
			for n := caller; ctx.Err() == nil; n++ {
				user := int(time.Since(s.began).Seconds()) % len(s.allowed) // others each second
				s.traffic(n, user)
				if caller < 4 {
					s.knock(user)
				}
				if caller == 0 {
					s.nonsense()
				}
			}
		})
		all.Go(func() {
			for n := caller; ctx.Err() == nil; n++ {
				s.reserve(n)
			}
		})
	}
	redistest.Eventually(t, "the Envoys and the reservations have begun", func() bool { return s.passing() && s.left.Load() > 0 })
	for range stops {
		committed, turns := s.committed.Load(), port.turns.Load()
		redistest.Eventually(t, "reservations are committed, and the xDS server has done everything", func() bool {
			return s.committed.Load() > committed && port.turns.Load() >= turns+turnsOfControl
		})
		pause(ctx, length)
		unavailable := s.unavailable.Load()
		require(t, redis.Pause())
		redistest.Eventually(t, "requests are answered without Redis", func() bool { return s.unavailable.Load() > unavailable+50 })
		pause(ctx, length)
		require(t, redis.Resume())
	}
	cancel()
	all.Wait()

	// It goes on: users get what is left of their limits, and no more.
	for user := range s.allowed {
		if s.allowed[user].Load() == 0 {
			continue
		}
		for n := 0; !s.traffic(n, user); n++ {
			if n > 10*perUser {
				t.Fatalf("user %d is not denied", user)
			}
		}
		got, unknown := s.allowed[user].Load(), s.undecided[user].Load()
		if got > perUser || got+unknown < perUser {
			t.Errorf("user %d: %d requests were allowed and %d were not decided; the limit is %d", user, got, unknown, perUser)
		}
	}
	s.allKnocked()
	redistest.Eventually(t, "the last rules are in use", func() bool {
		answer, err := s.ask(0, "flap", "a")
		return err == nil && answer.Statuses[0].GetCurrentLimit().GetRequestsPerUnit() == flapUnits
	})
	fresh := &envoy{storm: s, id: &quota.BucketId{Bucket: map[string]string{"policy": "quota", "tenant": "fresh"}}}
	fresh.connect(s.conn(0))
	redistest.Eventually(t, "a new Envoy gets units", func() bool {
		fresh.report(0, 1)
		return fresh.pass(1) == 1
	})
	fresh.stop()
	s.settled()
	s.bounded()

	for _, conn := range s.conns {
		_ = conn.Close()
	}
	s.readers.Wait()
	http.DefaultClient.CloseIdleConnections()
	s.web.CloseIdleConnections()
	redistest.Eventually(t, "all streams have ended", func() bool { return s.metric("ratelimit_gateway_rlqs_streams") == 0 })
	redistest.Eventually(t, "the goroutines have ended", func() bool { return s.metric("go_goroutines") <= before+10 })
	peak := memory(t, s.pid)
	t.Logf("the slowest answer took %v; %d were UNAVAILABLE; memory: %d MB", time.Duration(s.slowest.Load()), s.unavailable.Load(), peak)
	if time.Duration(s.slowest.Load()) > length/2 && length > 0 {
		t.Errorf("an answer took %v; without a decision, it has to come after 250ms", time.Duration(s.slowest.Load()))
	}
	if peak > most {
		t.Errorf("%d MB, want at most %d", peak, most)
	}
	if strings.Contains(log.String(), "panic") {
		t.Error("the gateway panicked")
	}
	if t.Failed() {
		t.Logf("the log:\n%s", log)
	}
}
