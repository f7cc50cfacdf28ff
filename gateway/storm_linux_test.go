package main

import (
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"math"
	mathrand "math/rand/v2"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	entries "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	quota "github.com/envoyproxy/go-control-plane/envoy/service/rate_limit_quota/v3"
	envoytype "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	rlsconf "github.com/envoyproxy/go-control-plane/ratelimit/config/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/ratelimit-functions/ratelimit/gateway/internal/kuadrant"
	"github.com/ratelimit-functions/ratelimit/gateway/internal/xdstest"
)

// freezer is a port whose connections can stop: then nothing that the server writes arrives.
type freezer struct {
	net.Listener
	frozen, garbage atomic.Bool
	turns           atomic.Int64 // of what control does
	mu              sync.Mutex
	conns           []net.Conn
}

func (f *freezer) Accept() (net.Conn, error) {
	conn, err := f.Listener.Accept()
	if err != nil {
		return nil, err
	}
	f.mu.Lock()
	f.conns = append(f.conns, conn)
	f.mu.Unlock()
	if f.garbage.Load() {
		_, _ = io.CopyN(conn, rand.Reader, 1<<10)
	}
	return freezing{conn, f}, nil
}

// cut closes all connections.
func (f *freezer) cut() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, conn := range f.conns {
		_ = conn.Close()
	}
	f.conns = nil
}

type freezing struct {
	net.Conn
	of *freezer
}

func (f freezing) Write(text []byte) (int, error) {
	if f.of.frozen.Load() {
		return len(text), nil
	}
	return f.Conn.Write(text)
}

// flapUnits is the least number of a rule in the domain that comes and goes.
const flapUnits = 1_000_000

// rules returns a set of resources: the domain web always has its rule, and the domain flap has one in
// every other set.
func rules(n int) []*rlsconf.RateLimitConfig {
	domain := func(name string, units uint32) *rlsconf.RateLimitConfig {
		return &rlsconf.RateLimitConfig{Name: name, Domain: name, Descriptors: []*rlsconf.RateLimitDescriptor{
			{Key: "user", RateLimit: &rlsconf.RateLimitPolicy{Unit: rlsconf.RateLimitUnit_YEAR, RequestsPerUnit: units}},
		}}
	}
	list := []*rlsconf.RateLimitConfig{domain("web", perUser)}
	if n%2 == 0 {
		list = append(list, domain("flap", uint32(flapUnits+n)))
	}
	return list
}

// turnsOfControl is how many things control does in turn.
const turnsOfControl = 9

// control misbehaves as an xDS server until ctx is done, and sends many rules. At the end, it works again.
func control(ctx context.Context, server *xdstest.Server, port *freezer, many int) {
	wrong := func(resource *anypb.Any) {
		server.Send(&discovery.DiscoveryResponse{VersionInfo: "bad", TypeUrl: rulesType, Resources: []*anypb.Any{resource}})
	}
	for n := 0; ctx.Err() == nil; n++ {
		switch n % turnsOfControl {
		case 0:
			wrong(&anypb.Any{TypeUrl: rulesType, Value: []byte("garbage")})
		case 1:
			wrong(&anypb.Any{TypeUrl: "type.googleapis.com/envoy.config.cluster.v3.Cluster"})
		case 2:
			server.Set("same domain twice", append(rules(0), rules(0)...)...)
		case 3, 4:
			for k := range 50 {
				server.Set(fmt.Sprint(n, k), rules(n+k)...)
				pause(ctx, time.Millisecond)
			}
		case 5:
			server.End()
		case 6:
			port.frozen.Store(true)
			pause(ctx, 200*time.Millisecond)
			port.frozen.Store(false)
			port.cut()
		case 7:
			port.garbage.Store(true)
			port.cut()
			pause(ctx, 200*time.Millisecond)
			port.garbage.Store(false)
		case 8:
			large(ctx, server, fmt.Sprint("large", n), many)
		}
		pause(ctx, 50*time.Millisecond)
		port.turns.Add(1)
	}
	server.Set("last", rules(0)...)
	port.cut()
}

// large sends a set with many rules, and waits until the gateway uses it.
func large(ctx context.Context, server *xdstest.Server, version string, many int) {
	config := &rlsconf.RateLimitConfig{Name: "large", Domain: "large"}
	for i := range many {
		config.Descriptors = append(config.Descriptors, &rlsconf.RateLimitDescriptor{
			Key: "user", Value: fmt.Sprint(i), RateLimit: &rlsconf.RateLimitPolicy{Unit: rlsconf.RateLimitUnit_YEAR, RequestsPerUnit: uint32(i)},
		})
	}
	server.Set(version, append(rules(0), config)...)
	for ctx.Err() == nil && !slices.ContainsFunc(server.Requests(), func(r *discovery.DiscoveryRequest) bool { return r.VersionInfo == version }) {
		pause(ctx, 20*time.Millisecond)
	}
}

const rulesType = "type.googleapis.com/ratelimit.config.ratelimit.v3.RateLimitConfig"

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// describe returns descriptors with one descriptor.
func describe(pairs ...string) []*entries.RateLimitDescriptor {
	d := &entries.RateLimitDescriptor{}
	for i := 0; i < len(pairs); i += 2 {
		d.Entries = append(d.Entries, &entries.RateLimitDescriptor_Entry{Key: pairs[i], Value: pairs[i+1]})
	}
	return []*entries.RateLimitDescriptor{d}
}

var tokens = describe("policy", "tokens", "tenant", "a") // all reservations are for this key

// reserve makes a reservation, and commits it, or does not, in one of several ways. The sum of what was
// committed is in s.committed.
func (s *storm) reserve(n int) {
	service := kuadrant.NewRateLimitServiceClient(s.conn(n))
	ask := func(domain string, amount uint64, ttl *durationpb.Duration) (*kuadrant.ReserveResponse, codes.Code) {
		var made *kuadrant.ReserveResponse
		err := s.call(func(ctx context.Context) (err error) {
			made, err = service.Reserve(ctx, &kuadrant.ReserveRequest{Domain: domain, Descriptors: tokens, Amount: amount, Ttl: ttl})
			return err
		})
		return made, status.Code(err)
	}
	for what, refused := range map[string]struct {
		amount uint64
		ttl    *durationpb.Duration
	}{
		"2^64-1 units":    {math.MaxUint64, nil},
		"a ttl of 0":      {1, durationpb.New(0)},
		"a negative ttl":  {1, &durationpb.Duration{Seconds: -1}},
		"a ttl of 100 y":  {1, &durationpb.Duration{Seconds: 100 * 365 * 86400}},
		"a ttl of 2^63 s": {1, &durationpb.Duration{Seconds: math.MaxInt64}},
	} {
		if _, code := ask("llm", refused.amount, refused.ttl); code != codes.InvalidArgument {
			s.Errorf("a reservation with %s: %v", what, code)
		}
	}
	if made, code := ask("llm", 0, nil); code != codes.Unavailable && made.GetReservationId() != "" {
		s.Errorf("a reservation of 0 units: %v, %v", made, code)
	}
	made, _ := ask("llm", 10, durationpb.New(time.Second))
	id, actual := made.GetReservationId(), uint64(mathrand.N(20))
	switch n % 4 {
	case 0: // nobody commits it
		if id != "" {
			s.left.Add(1)
		}
		return
	case 1: // a forged ID is an unknown one, whose amount is a report
		id = "a" + rand.Text()
	case 2: // so late that the reservation has perhaps ended
		pause(s.ctx, time.Second)
	}
	if id == "" {
		return
	}
	commit := func(domain string, actual uint64) codes.Code {
		return status.Code(s.call(func(ctx context.Context) error {
			_, err := service.Commit(ctx, &kuadrant.CommitRequest{Domain: domain, Descriptors: tokens, ReservationId: id, ActualAmount: actual})
			return err
		}))
	}
	if n%4 != 1 {
		if code := commit("shop", actual); code != codes.InvalidArgument && code != codes.Unavailable {
			s.Errorf("a commit in another domain: %v", code)
		}
	}
	for code := commit("llm", actual); code != codes.OK; code = commit("llm", actual) { // until it is known to be made
		if code != codes.Unavailable {
			s.Errorf("a commit: %v", code)
			return
		}
		pause(context.Background(), 10*time.Millisecond)
	}
	s.committed.Add(int64(actual))
	commit("llm", actual) // replayed
}

// envoy is an Envoy with one bucket, which lets requests pass as long as it has units.
type envoy struct {
	storm           *storm
	id              *quota.BucketId
	stream          quota.RateLimitQuotaService_StreamRateLimitQuotasClient
	stop            context.CancelFunc
	units           atomic.Int64
	until           atomic.Int64
	allowed, denied uint64
}

func (e *envoy) connect(conn *grpc.ClientConn) {
	ctx, stop := context.WithCancel(context.Background())
	stream, err := quota.NewRateLimitQuotaServiceClient(conn).StreamRateLimitQuotas(ctx)
	e.stop = stop
	if err != nil {
		e.stream = nil
		return
	}
	e.stream = stream
	e.storm.readers.Go(func() {
		for {
			response, err := stream.Recv()
			if err != nil {
				return
			}
			for _, action := range response.BucketAction {
				units := int64(0)
				if bucket, ok := action.GetQuotaAssignmentAction().GetRateLimitStrategy().GetStrategy().(*envoytype.RateLimitStrategy_TokenBucket); ok {
					units = int64(bucket.TokenBucket.MaxTokens)
				}
				e.until.Store(time.Now().Add(action.GetQuotaAssignmentAction().GetAssignmentTimeToLive().AsDuration()).UnixNano())
				e.units.Store(units)
			}
		}
	})
}

func (e *envoy) report(allowed, denied uint64) {
	if e.stream != nil {
		_ = e.stream.Send(&quota.RateLimitQuotaUsageReports{Domain: "quotas", BucketQuotaUsages: []*quota.RateLimitQuotaUsageReports_BucketQuotaUsage{
			{BucketId: e.id, NumRequestsAllowed: allowed, NumRequestsDenied: denied},
		}})
	}
}

// pass lets up to n requests pass, and returns how many.
func (e *envoy) pass(n int64) (passed int64) {
	for ; passed < n && time.Now().UnixNano() < e.until.Load(); passed++ {
		if e.units.Add(-1) < 0 {
			break
		}
	}
	e.allowed, e.denied = e.allowed+uint64(passed), e.denied+uint64(n-passed)
	return passed
}
