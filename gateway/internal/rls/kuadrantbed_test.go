package rls_test

import (
	"fmt"
	"testing"
	"time"

	entries "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	api "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/ratelimit-functions/ratelimit/embedded"
	"github.com/ratelimit-functions/ratelimit/functions"
	"github.com/ratelimit-functions/ratelimit/gateway/internal/kuadrant"
)

const tokens = `
domain: web
descriptors:
  - {key: user, rate_limit: {unit: day, requests_per_unit: 100}}
  - {key: team, rate_limit: {unit: day, requests_per_unit: 150}}
  - {key: trial, rate_limit: {unit: day, requests_per_unit: 5}, shadow_mode: true}
  - {key: free, rate_limit: {unlimited: true}}
`

// kuadrantTestbed is a testbed whose client calls Kuadrant's service.
type kuadrantTestbed struct {
	*testbed
	client kuadrant.RateLimitServiceClient
}

func newKuadrant(t *testing.T, options ...embedded.Option) kuadrantTestbed {
	t.Helper()
	build := must[functions.Build](t)(functions.New(functions.WithPolicies(functions.Policy{Name: "llm", Limits: []functions.PolicyLimit{{Limit: "fixed_window 100/d"}}})))
	b := runTestbed(t, tokens, append(options, embedded.WithLibrary(build.Text()), embedded.WithTime(start))...)
	return kuadrantTestbed{b, kuadrant.NewRateLimitServiceClient(b.conn)}
}

func descriptors(texts ...string) (list []*entries.RateLimitDescriptor) {
	for _, text := range texts {
		list = append(list, descriptor(text))
	}
	return list
}

// reserve returns the id, or a short form of the response.
func (b kuadrantTestbed) reserve(amount uint64, texts ...string) string {
	b.t.Helper()
	response, err := b.client.Reserve(b.t.Context(), &kuadrant.ReserveRequest{Domain: "web", Descriptors: descriptors(texts...), Amount: amount, Ttl: durationpb.New(time.Hour)})
	switch {
	case err != nil:
		return status.Code(err).String() + ": " + status.Convert(err).Message()
	case response.Code != api.RateLimitResponse_OK || response.ReservationId == "":
		return response.Code.String() + response.ReservationId
	}
	return response.ReservationId
}

func (b kuadrantTestbed) commit(domain, id string, actual uint64, texts ...string) string {
	b.t.Helper()
	response, err := b.client.Commit(b.t.Context(), &kuadrant.CommitRequest{Domain: domain, Descriptors: descriptors(texts...), ReservationId: id, ActualAmount: actual})
	if err != nil {
		return status.Code(err).String() + ": " + status.Convert(err).Message()
	}
	return fmt.Sprint(response.ReservationReleased)
}

// left checks how many units Envoy's service says are left.
func (b kuadrantTestbed) left(text string, want uint32) {
	b.t.Helper()
	r := request(0, text)
	r.Descriptors[0].HitsAddend = wrapperspb.UInt64(0)
	response, err := b.testbed.client.ShouldRateLimit(b.t.Context(), r)
	if err != nil || response.Statuses[0].LimitRemaining != want {
		b.t.Errorf("%s has %v left (%v), want %d", text, response.GetStatuses(), err, want)
	}
}

func (b kuadrantTestbed) equal(got, want string) {
	b.t.Helper()
	if got != want {
		b.t.Errorf("%s, want %s", got, want)
	}
}
