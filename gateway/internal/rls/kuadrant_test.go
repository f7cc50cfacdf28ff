package rls_test

import (
	"bytes"
	"context"
	"math"
	"strings"
	"testing"
	"time"

	api "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	protocodec "google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/ratelimit-functions/ratelimit/embedded"
	"github.com/ratelimit-functions/ratelimit/gateway/internal/kuadrant"
)

func TestReserveAndCommit(t *testing.T) {
	for name, options := range map[string][]embedded.Option{"one server": nil, "a cluster": {embedded.WithClusterRules()}} {
		b := newKuadrant(t, options...)
		id := b.reserve(60, "user=a", "team=t", "other=x", "free=y")
		b.left("user=a", 40)
		b.left("team=t", 90)
		b.equal(b.reserve(95, "user=b", "team=t"), "OVER_LIMIT") // the team has no room, so the user is not charged
		require(t, b.holds.Sweep(t.Context()))                   // only after a slow denial
		b.left("user=b", 100)
		for _, actual := range []uint64{10, 10, 70} { // the first one counts, for the descriptors of the reservation
			b.equal(b.commit("web", id, actual, "user=z"), "true")
		}
		b.left("user=a", 90)
		b.left("team=t", 140)
		b.left("user=z", 100)
		b.equal(b.commit("web", b.reserve(10, "user=b"), 30, "user=b"), "true")
		b.left("user=b", 70)
		b.equal(b.reserve(5, "other=x", "free=y"), "OK") // nothing to reserve
		b.equal(b.reserve(60, "user=c", "user=c"), "OVER_LIMIT")
		require(t, b.holds.Sweep(t.Context()))
		b.left("user=c", 100)
		if t.Failed() {
			t.Fatal(name)
		}
	}
}

func TestEndOfAReservation(t *testing.T) {
	b := newKuadrant(t)
	id := b.reserve(60, "user=a")
	b.server.Advance(2 * time.Hour)
	require(t, b.holds.Sweep(t.Context()))
	b.left("user=a", 100)
	for range 2 {
		b.equal(b.commit("web", id, 25, "user=a"), "false")
		b.left("user=a", 75)
	}
	b.wantMetric(`reservations_total{event="given_back"} 1`)
	b.wantMetric(`reservations_total{event="late"} 2`)
}

// TestCommitWithoutAReservation checks that the units are reported: each time if there is no id, and
// once for an id that is unknown.
func TestCommitWithoutAReservation(t *testing.T) {
	b := newKuadrant(t)
	for i := range uint32(2) {
		b.equal(b.commit("web", "", 10, "user=a", "other=x"), "false")
		b.left("user=a", 90-10*i)
	}
	for _, id := range []string{"aAAAAAAAAAAAAAAAAAAAAAAAAAA", "6f9619ff-8b86-d011-b42d-00cf4fc964ff", "*", strings.Repeat("x", 5000)} {
		for range 2 {
			b.equal(b.commit("web", id, 5, "user=b"), "false")
		}
	}
	b.left("user=b", 80)
	b.wantMetric(`reservations_total{event="unknown"} 8`)
	b.wantMetric(`reservations_total{event="reported"} 2`)
}

// TestReportOfSeveral checks that a descriptor without a decision does not prevent the charge of the others, and that a
// commit with an id reads no descriptors.
func TestReportOfSeveral(t *testing.T) {
	b := newKuadrant(t)
	_, err := b.client.Report(t.Context(), &api.RateLimitRequest{Domain: "llms", HitsAddend: 5, Descriptors: descriptors("policy=llm user=1", "policy=none user=1", "policy=llm user=2")})
	if status.Code(err) != codes.Unavailable {
		t.Errorf("%v", err)
	}
	for _, key := range []string{"llm|user=1", "llm|user=2"} {
		left := must[any](t)(b.server.Do("FCALL_RO", "ratelimit_peek", 1, key, "fixed_window 100/d", "COST", 0)).([]any)[2]
		if left != int64(95) {
			t.Errorf("%s has %v left", key, left)
		}
	}
	id := b.reserve(60, "user=c")
	b.equal(b.commit("web", id, 10), "true")
	b.left("user=c", 90)
}

func TestPolicyInAReservation(t *testing.T) {
	b := newKuadrant(t)
	response, err := b.client.Reserve(t.Context(), &kuadrant.ReserveRequest{Domain: "llms", Descriptors: descriptors("policy=llm user=a"), Amount: 60}) // with the default ttl
	require(t, err)
	b.equal(b.commit("llms", response.ReservationId, 10, "policy=llm user=a"), "true")
	again, err := b.client.Reserve(t.Context(), &kuadrant.ReserveRequest{Domain: "llms", Descriptors: descriptors("policy=llm user=a"), Amount: 90})
	if err != nil || again.Code != api.RateLimitResponse_OK {
		t.Errorf("%v, %v", again, err)
	}
	full, err := b.client.Reserve(t.Context(), &kuadrant.ReserveRequest{Domain: "llms", Descriptors: descriptors("policy=llm user=a"), Amount: 1})
	if err != nil || full.Code != api.RateLimitResponse_OVER_LIMIT {
		t.Errorf("%v, %v", full, err)
	}
	_, err = b.client.Reserve(t.Context(), &kuadrant.ReserveRequest{Domain: "llms", Descriptors: descriptors("policy=llm user=a class=batch"), Amount: 1})
	if status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), "descriptor 1: it has the entry class or pool") {
		t.Errorf("%v", err)
	}
	for _, descriptor := range []string{"policy=llm user=b class=batch", "policy=llm user=b pool=p"} {
		ask := &api.RateLimitRequest{Domain: "llms", Descriptors: descriptors("user=b", descriptor)}
		_, checked := b.client.CheckRateLimit(t.Context(), ask)
		_, reported := b.client.Report(t.Context(), ask)
		for name, err := range map[string]error{"CheckRateLimit": checked, "Report": reported} {
			if status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), "descriptor 2: it has the entry class or pool") {
				t.Errorf("%s of %s: %v", name, descriptor, err)
			}
		}
	}
	b.wantMetric(`requests_total{decision="allowed",name="@llm",source="grpc"} 2`)
	b.wantMetric(`requests_total{decision="denied",name="@llm",source="grpc"} 1`)
}

func TestCheckAndReport(t *testing.T) {
	b := newKuadrant(t)
	for _, tt := range []struct {
		report bool
		hits   uint32
		code   api.RateLimitResponse_Code
		left   uint32
	}{
		{false, 1000, api.RateLimitResponse_OK, 100},
		{true, 60, api.RateLimitResponse_OK, 40},
		{true, 0, api.RateLimitResponse_OK, 39},
		{true, 60, api.RateLimitResponse_OK, 0}, // charged, although 39 are left
		{false, 0, api.RateLimitResponse_OVER_LIMIT, 0},
	} {
		call := b.client.CheckRateLimit
		if tt.report {
			call = b.client.Report
		}
		response, err := call(t.Context(), request(tt.hits, "user=a", "other=x"))
		if err != nil || response.OverallCode != tt.code {
			t.Errorf("%+v: %v, %v", tt, response, err)
		}
		b.left("user=a", tt.left)
	}
	back := request(0, "user=b")
	back.Descriptors[0].HitsAddend, back.Descriptors[0].IsNegativeHits = wrapperspb.UInt64(30), true
	_, err := b.client.Report(t.Context(), request(50, "user=b"))
	require(t, err)
	_, err = b.client.Report(t.Context(), back)
	require(t, err)
	b.left("user=b", 80)
}

// TestShadowRuleInAReservation checks that a rule in shadow mode denies nothing, and that only what it
// was charged is corrected.
func TestShadowRuleInAReservation(t *testing.T) {
	b := newKuadrant(t)
	id := b.reserve(20, "user=a", "trial=x")
	b.equal(b.commit("web", id, 2, "user=a", "trial=x"), "true")
	b.left("user=a", 98)
	b.left("trial=x", 5)
	b.equal(b.commit("web", b.reserve(4, "user=a", "trial=x"), 1, "user=a"), "true")
	b.left("trial=x", 4)
	b.wantMetric(`requests_total{decision="shadow_denied",name="web.trial",source="grpc"} 1`)
}

func TestReserveOfNothing(t *testing.T) {
	b := newKuadrant(t)
	b.equal(b.reserve(0, "user=a"), "OK")
	b.left("user=a", 100)
	_, err := b.client.Report(t.Context(), request(100, "user=a"))
	require(t, err)
	b.equal(b.reserve(0, "user=a"), "OVER_LIMIT")
}

// TestBytesInAReservation checks that a value that is not UTF-8 has a limit of its own.
func TestBytesInAReservation(t *testing.T) {
	b := newKuadrant(t)
	for _, value := range []string{"\xff", "\xfe", "}", "{}", "|a=b"} {
		request := must[[]byte](t)(proto.Marshal(&kuadrant.ReserveRequest{Domain: "web", Descriptors: descriptors("user=@@"), Amount: 60}))
		request = bytes.Replace(request, []byte("@@"), []byte((value + "xx")[:2]), 1)
		response := &kuadrant.ReserveResponse{}
		require(t, b.conn.Invoke(t.Context(), kuadrant.RateLimitService_Reserve_FullMethodName, request, response, grpc.ForceCodecV2(rawCodec{encoding.GetCodecV2(protocodec.Name)})))
		if response.Code != api.RateLimitResponse_OK || response.ReservationId == "" {
			t.Errorf("%q: %v", value, response)
		}
	}
}

// TestBadReservations checks that each bad request names its value, and changes nothing.
func TestBadReservations(t *testing.T) {
	b := newKuadrant(t)
	id := b.reserve(60, "user=a")
	for _, tt := range []struct {
		domain string
		amount uint64
		ttl    time.Duration
		texts  []string
		want   string
	}{
		{"", 1, time.Hour, []string{"user=b"}, "the domain is empty; set it"},
		{"web", 1, time.Hour, nil, "the request has no descriptor; give at least one"},
		{"web", math.MaxUint64, time.Hour, []string{"user=b"}, "the amount is 18446744073709551615; give 0 to 9007199254740992"},
		{"web", 1<<53 + 1, time.Hour, []string{"user=b"}, "the amount is 9007199254740993;"},
		{"web", 1, 0, []string{"user=b"}, "the ttl is 0s; give 1s to 24h0m0s, or none for 1m0s"},
		{"web", 1, -time.Hour, []string{"user=b"}, "the ttl is -1h0m0s;"},
		{"web", 1, 36500 * 24 * time.Hour, []string{"user=b"}, "the ttl is 876000h0m0s;"},
		{"web", 1, time.Hour, make([]string, 51), "the request has 51 descriptors; the most is 50"},
		{"policies", 1, time.Hour, []string{"policy=none user=b"}, "none"},
	} {
		response, err := b.client.Reserve(t.Context(), &kuadrant.ReserveRequest{Domain: tt.domain, Descriptors: descriptors(tt.texts...), Amount: tt.amount, Ttl: durationpb.New(tt.ttl)})
		if text := status.Convert(err).Message(); !strings.Contains(text, tt.want) {
			t.Errorf("%+v: %v %v", tt, response, err)
		} else if code := status.Code(err); code != codes.InvalidArgument && tt.domain != "policies" {
			t.Errorf("%+v: %v", tt, code)
		}
	}
	invalid := &durationpb.Duration{Seconds: math.MaxInt64, Nanos: -1}
	if _, err := b.client.Reserve(t.Context(), &kuadrant.ReserveRequest{Domain: "web", Descriptors: descriptors("user=b"), Amount: 1, Ttl: invalid}); status.Code(err) != codes.InvalidArgument {
		t.Errorf("an invalid ttl: %v", err)
	}
	for _, tt := range []struct {
		domain, id string
		actual     uint64
		want       string
	}{
		{"other", id, 1, "InvalidArgument: the reservation " + id + ` was not made in the domain "other"; commit it in its own domain`},
		{"web", id, math.MaxUint64, "InvalidArgument: the actual_amount is 18446744073709551615; give 0 to 9007199254740992"},
		{"", id, 1, "InvalidArgument: the domain is empty; set it in the proxy's rate limit filter"},
	} {
		b.equal(b.commit(tt.domain, tt.id, tt.actual, "user=b"), tt.want)
	}
	b.left("user=b", 100)
	b.left("user=a", 40)
	b.equal(b.commit("web", id, 0, "user=a"), "true")
}

// TestReservationsWithoutRedis checks that no answer comes after its deadline.
func TestReservationsWithoutRedis(t *testing.T) {
	b := newKuadrant(t)
	id := b.reserve(60, "user=a")
	require(t, b.server.Close())
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	_, reserve := b.client.Reserve(ctx, &kuadrant.ReserveRequest{Domain: "web", Descriptors: descriptors("user=a"), Amount: 1})
	_, commit := b.client.Commit(ctx, &kuadrant.CommitRequest{Domain: "web", Descriptors: descriptors("user=a"), ReservationId: id})
	_, report := b.client.Report(ctx, request(1, "user=a"))
	for name, err := range map[string]error{"reserve": reserve, "commit": commit, "report": report} {
		if status.Code(err) != codes.Unavailable {
			t.Errorf("%s: %v", name, err)
		}
	}
}
