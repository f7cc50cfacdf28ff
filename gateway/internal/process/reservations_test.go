package process_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	entries "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/ratelimit-functions/ratelimit/embedded"
	"github.com/ratelimit-functions/ratelimit/gateway/internal/kuadrant"
	"github.com/ratelimit-functions/ratelimit/gateway/internal/process"
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
