package process_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	entries "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/redis/go-redis/v9"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/ratelimit-functions/ratelimit/embedded"
	"github.com/ratelimit-functions/ratelimit/gateway/internal/kuadrant"
	"github.com/ratelimit-functions/ratelimit/gateway/internal/process"
	"github.com/ratelimit-functions/ratelimit/gateway/internal/xds"
	"github.com/ratelimit-functions/ratelimit/internal/redistest"
)

const reserveBody = `{"keys":["u"],"limits":["fixed_window 100/d"],"amount":60,"ttl_ms":60000}`

// reserve makes a reservation of 60 units of u, and returns its id.
func (g *gateway) reserve(t *testing.T) string {
	t.Helper()
	status, body := g.send(t, "POST", "/v1/reserve", reserveBody)
	var made struct {
		ID string `json:"reservation_id"`
	}
	if err := json.Unmarshal([]byte(body), &made); err != nil || status != http.StatusOK || made.ID == "" {
		t.Fatalf("%d %s", status, body)
	}
	return made.ID
}

// left reports whether u has this many units left.
func (g *gateway) left(t *testing.T, units string) bool {
	t.Helper()
	_, body := g.send(t, "POST", "/v1/peek", `{"keys":["u"],"limits":["fixed_window 100/d"],"cost":0}`)
	return strings.Contains(body, `"remaining":`+units+`,`)
}

// TestReservationsOfReplicas checks that one gateway commits what another has reserved, and gives back
// what another has left behind.
func TestReservationsOfReplicas(t *testing.T) {
	t.Parallel()
	s := server(t, embedded.WithTime(time.Unix(1_800_000_000, 0)))
	a, b := start(t, process.Options{Redis: "redis://" + s.Addr()}), start(t, process.Options{Redis: "redis://" + s.Addr()})
	a.ready(t)
	b.ready(t)
	id := a.reserve(t)
	if !b.left(t, "40") {
		t.Error("the reservation charges nothing")
	}
	if status, body := b.send(t, "POST", "/v1/commit", `{"reservation_id":"`+id+`","actual":10}`); body != "{\"actual\":10,\"late\":false}\n" || !b.left(t, "90") {
		t.Errorf("%d %s", status, body)
	}
	late := a.reserve(t)
	if status, body := b.send(t, "POST", "/v1/reserve", reserveBody); status != http.StatusTooManyRequests {
		t.Errorf("%d %s", status, body)
	}
	require(t, a.stop())
	s.Advance(time.Hour)
	redistest.Eventually(t, "the other gateway gives it back", func() bool { return b.left(t, "90") })
	if status, body := b.send(t, "POST", "/v1/commit", `{"reservation_id":"`+late+`","actual":30}`); body != "{\"actual\":30,\"late\":true}\n" || !b.left(t, "60") {
		t.Errorf("%d %s", status, body)
	}
}

// TestReservationsEndWithoutRules checks that a gateway which waits for its first rules gives back what
// others have left behind.
func TestReservationsEndWithoutRules(t *testing.T) {
	t.Parallel()
	s := server(t, embedded.WithTime(time.Unix(1_800_000_000, 0)))
	a := start(t, process.Options{Redis: "redis://" + s.Addr()})
	a.ready(t)
	a.reserve(t)
	if !a.left(t, "40") {
		t.Error("the reservation charges nothing")
	}
	require(t, a.stop())
	s.Advance(time.Hour)
	_, at, stop := control(t, "127.0.0.1:0")
	stop()
	start(t, process.Options{Redis: "redis://" + s.Addr(), XDS: xds.Options{Server: at, Node: "me"}})
	db := open(t, s.Addr())
	redistest.Eventually(t, "the gateway without rules gives it back", func() bool {
		reply := must[[]any](t)(db.FCall(t.Context(), "ratelimit_peek", []string{"u"}, "fixed_window 100/d", "COST", 0).Slice())
		return reply[2] == int64(100)
	})
}

// TestReservationsEndInTime checks that every call ends although the server hangs: the clients of this
// test wait without a limit.
func TestReservationsEndInTime(t *testing.T) {
	t.Parallel()
	r := newRelay(t, server(t).Addr())
	g := start(t, process.Options{Redis: "redis://" + r.addr, Timeout: 100 * time.Millisecond})
	g.ready(t)
	r.hold(true)
	for path, body := range map[string]string{"reserve": reserveBody, "commit": `{"reservation_id":"aAAAAAAAAAAAAAAAAAAAAAAAAAA","actual":1}`} {
		if status, reply := g.send(t, "POST", "/v1/"+path, body); status != http.StatusServiceUnavailable {
			t.Errorf("%s: %d %s", path, status, reply)
		}
	}
	client := kuadrant.NewRateLimitServiceClient(g.dial(t, nil))
	descriptors := []*entries.RateLimitDescriptor{{Entries: []*entries.RateLimitDescriptor_Entry{{Key: "policy", Value: "api"}, {Key: "user", Value: "ann"}}}}
	_, reserve := client.Reserve(t.Context(), &kuadrant.ReserveRequest{Domain: "web", Descriptors: descriptors, Amount: 1})
	_, commit := client.Commit(t.Context(), &kuadrant.CommitRequest{Domain: "web", Descriptors: descriptors, ReservationId: "x", ActualAmount: 1})
	for name, err := range map[string]error{"Reserve": reserve, "Commit": commit} {
		if status.Code(err) != codes.Unavailable {
			t.Errorf("%s: %v", name, err)
		}
	}
	r.hold(false)
}

// TestReservationsInACluster reserves for keys of all shards and nodes. Each reservation has two keys,
// usually on different nodes. Half of them are committed, and the others are given back.
func TestReservationsInACluster(t *testing.T) {
	t.Parallel()
	var nodes []*redis.Client
	for range 2 {
		nodes = append(nodes, open(t, redistest.Run(t, "--cluster-enabled", "yes").Addr))
	}
	redistest.Join(t, nodes, 2)
	g := start(t, process.Options{Redis: "redis+cluster://" + nodes[0].Options().Addr, Deploy: true, EnvoyConfig: rules(t)})
	g.ready(t)
	conn := g.dial(t, nil)
	client, envoy := kuadrant.NewRateLimitServiceClient(conn), rls.NewRateLimitServiceClient(conn)
	user := func(i int) *entries.RateLimitDescriptor {
		return &entries.RateLimitDescriptor{Entries: []*entries.RateLimitDescriptor_Entry{{Key: "user", Value: fmt.Sprint(i)}}}
	}
	left := func(i int) uint32 {
		look := user(i)
		look.HitsAddend = wrapperspb.UInt64(0)
		return must[*rls.RateLimitResponse](t)(envoy.ShouldRateLimit(t.Context(), &rls.RateLimitRequest{Domain: "web", Descriptors: []*entries.RateLimitDescriptor{look}})).Statuses[0].LimitRemaining
	}
	const pairs = 30
	for i := range pairs {
		both := []*entries.RateLimitDescriptor{user(2 * i), user(2*i + 1)}
		commit := i%2 == 0
		ttl := time.Second
		if commit {
			ttl = time.Hour
		}
		made, err := client.Reserve(t.Context(), &kuadrant.ReserveRequest{Domain: "web", Descriptors: both, Amount: 40, Ttl: durationpb.New(ttl)})
		if err != nil || made.ReservationId == "" {
			t.Fatalf("%v, %v", made, err)
		}
		if commit {
			if done, err := client.Commit(t.Context(), &kuadrant.CommitRequest{Domain: "web", Descriptors: both, ReservationId: made.ReservationId, ActualAmount: 10}); err != nil || !done.ReservationReleased {
				t.Errorf("%v, %v", done, err)
			}
		}
	}
	for i := range 2 * pairs {
		want := uint32(perUser - 10)
		if i/2%2 == 1 {
			want = perUser
		}
		redistest.Eventually(t, fmt.Sprintf("user %d has %d left", i, want), func() bool { return left(i) == want })
	}
	for i, node := range nodes {
		if keys := must[[]string](t)(node.Keys(t.Context(), "ratelimit:{holds:*").Result()); len(keys) == 0 {
			t.Errorf("node %d has no reservation", i+1)
		}
	}
}
