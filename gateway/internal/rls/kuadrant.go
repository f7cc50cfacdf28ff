package rls

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	entries "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	pb "google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/ratelimit-functions/ratelimit/client"
	"github.com/ratelimit-functions/ratelimit/gateway/internal/holds"
	"github.com/ratelimit-functions/ratelimit/gateway/internal/kuadrant"
	"github.com/ratelimit-functions/ratelimit/gateway/internal/remedy"
	"github.com/ratelimit-functions/ratelimit/internal/keytext"
)

// defaultTTL is the ttl of a reservation that gives none. It is limitador's.
const defaultTTL = time.Minute

// RegisterKuadrant registers Kuadrant's rate limit service, with the limits of s. Options.Holds must
// be set.
func RegisterKuadrant(server grpc.ServiceRegistrar, s *Server) {
	kuadrant.RegisterRateLimitServiceServer(server, reservations{Server: s})
}

// reservations implements Kuadrant's rate limit service: all four of its methods. If there is no
// decision, they return the same errors as [Server.ShouldRateLimit].
type reservations struct {
	kuadrant.UnimplementedRateLimitServiceServer
	*Server
}

// CheckRateLimit decides on descriptors with 0 hits, whatever the request says.
func (r reservations) CheckRateLimit(ctx context.Context, request *rls.RateLimitRequest) (*rls.RateLimitResponse, error) {
	if list, err := r.read(request); err == nil {
		if err := plainOnly(list); err != nil {
			return nil, r.failed(ctx, request.Domain, nil, err)
		}
	}
	request = pb.CloneOf(request)
	for _, d := range request.Descriptors {
		d.HitsAddend, d.IsNegativeHits = wrapperspb.UInt64(0), false
	}
	return r.ShouldRateLimit(ctx, request)
}

// Report charges the hits of each descriptor by force, or gives them back if they are negative.
func (r reservations) Report(ctx context.Context, request *rls.RateLimitRequest) (*rls.RateLimitResponse, error) {
	return answer(ctx, r.Server, request, func(ctx context.Context, list []question) (*rls.RateLimitResponse, error) {
		var failed error // the other descriptors are still charged, as in Envoy's service
		for i := range list {
			var err error
			switch q := &list[i]; {
			case q.limit == "":
			case q.back:
				var res client.Result
				if res, err = r.Limiter.Refund(ctx, client.For(q.key, q.limit, q.hits)); err == nil && !res.Allowed {
					err = fmt.Errorf("%q is blocked for %v, and nothing was given back to it; send it again after that", q.key, res.RetryAfter)
				}
			default:
				err = r.Holds.Report(ctx, []holds.Part{part(q)}, q.hits, "")
			}
			failed = cmp.Or(failed, err)
		}
		if failed != nil {
			return nil, failed
		}
		r.Metrics.Reservation("reported")
		return &rls.RateLimitResponse{OverallCode: rls.RateLimitResponse_OK}, nil
	})
}

// Reserve charges the amount to each descriptor that has a limit, or to none. An amount of 0 is only a
// query, so there is nothing to commit, and no id.
func (r reservations) Reserve(ctx context.Context, request *kuadrant.ReserveRequest) (*kuadrant.ReserveResponse, error) {
	return answer(ctx, r.Server, plain(request), func(ctx context.Context, list []question) (*kuadrant.ReserveResponse, error) {
		ttl := request.GetTtl()
		if ttl == nil {
			ttl = durationpb.New(defaultTTL)
		}
		switch d := ttl.AsDuration(); {
		case request.Amount > holds.MostUnits:
			return nil, status.Errorf(codes.InvalidArgument, "the amount is %d; give 0 to %d", request.Amount, int64(holds.MostUnits))
		case !ttl.IsValid() || d < holds.ShortestTTL || d > holds.LongestTTL:
			return nil, status.Errorf(codes.InvalidArgument, "the ttl is %v; give %v to %v, or none for %v", d, holds.ShortestTTL, holds.LongestTTL, defaultTTL)
		}
		response := &kuadrant.ReserveResponse{Code: rls.RateLimitResponse_OK}
		for i := range list {
			list[i].hits, list[i].back = int64(request.Amount), false
		}
		var err error
		if request.Amount == 0 {
			err = r.decide(ctx, list)
		} else {
			response.ReservationId, err = r.reserve(ctx, request.Domain, list, ttl.AsDuration())
		}
		for i := range list {
			if q := &list[i]; q.over() && !q.quota {
				response.Code, response.ReservationId = rls.RateLimitResponse_OVER_LIMIT, ""
			}
			if q := &list[i]; err == nil && (q.decided || q.limit == "") { // descriptors after a denied one have no decision
				r.Metrics.Count(source, q.label, q.decision())
			}
		}
		return response, err
	})
}

// reserve makes a reservation, and sets the results of the questions. It returns no id if the
// reservation is denied or charges nothing.
func (s *Server) reserve(ctx context.Context, domain string, list []question, ttl time.Duration) (string, error) {
	var together, alone []*question
	for i := range list {
		switch q := &list[i]; {
		case q.limit == "":
		case q.shadow || q.quota:
			alone = append(alone, q)
		default:
			together = append(together, q)
		}
	}
	if len(together)+len(alone) == 0 {
		return "", nil
	}
	oneCall := len(together) > 1 && !s.clustered.Load() && distinct(together)
	var parts []holds.Part
	var of [][]*question // the questions of each part
	if oneCall {
		whole := holds.Part{}
		for _, q := range together {
			whole.Keys, whole.Limits = append(whole.Keys, q.key), append(whole.Limits, q.limit)
		}
		parts, of, together = []holds.Part{whole}, [][]*question{together}, nil
	}
	for _, q := range append(together, alone...) {
		parts, of = append(parts, part(q)), append(of, []*question{q})
	}
	made, err := s.Holds.Reserve(ctx, owner(domain), parts, list[0].hits, ttl)
	if oneCall && remedy.Code(err) == "CROSSSLOT" {
		s.clustered.Store(true)
		return s.reserve(ctx, domain, list, ttl)
	}
	for i, res := range made.Results {
		for k, q := range of[i] {
			q.result, q.decided = of1(res, k), true
		}
	}
	return made.ID, err
}

// of1 returns the result of one key of a part. In an allowed part, every key is allowed, even if a
// shadow policy would deny it.
func of1(res client.Result, key int) client.Result {
	one := of(&res)
	if key < len(res.Each) {
		one = res.Each[key]
	}
	one.Allowed = one.Allowed || res.Allowed
	return one
}

// Commit replaces what a reservation has charged with the actual amount. Without a reservation, it
// charges the amount as Report does.
func (r reservations) Commit(ctx context.Context, request *kuadrant.CommitRequest) (*kuadrant.CommitResponse, error) {
	actual, id := request.ActualAmount, request.ReservationId
	if actual > holds.MostUnits {
		return nil, status.Errorf(codes.InvalidArgument, "the actual_amount is %d; give 0 to %d", actual, int64(holds.MostUnits))
	}
	if id != "" && request.Domain != "" { // the descriptors are not read, because their rules may have changed since
		began := time.Now()
		defer r.Metrics.Took(source, began)
		limited, cancel := r.bounded(ctx, began)
		defer cancel()
		made, err := r.Holds.Commit(limited, owner(request.Domain), id, int64(actual))
		switch {
		case errors.Is(err, holds.ErrDomain):
			return nil, status.Errorf(codes.InvalidArgument, "the reservation %s was not made in the domain %q; commit it in its own domain", id, remedy.Cut(request.Domain))
		case errors.Is(err, holds.ErrUnknown):
		case err != nil:
			return nil, r.failed(ctx, request.Domain, nil, refusal(err))
		default:
			return &kuadrant.CommitResponse{ReservationReleased: !made.Late}, nil
		}
	}
	return answer(ctx, r.Server, plain(request), func(ctx context.Context, list []question) (*kuadrant.CommitResponse, error) {
		if id == "" {
			r.Metrics.Reservation("reported")
		}
		var parts []holds.Part
		for i := range list {
			if q := &list[i]; q.limit != "" {
				parts = append(parts, part(q))
			}
		}
		return &kuadrant.CommitResponse{}, r.Holds.Report(ctx, parts, int64(actual), id)
	})
}

// owner returns who may commit the reservations of a domain. It is never empty, as for the JSON API.
func owner(domain string) string { return keytext.Escape(domain) }

func part(q *question) holds.Part {
	return holds.Part{Keys: []string{q.key}, Limits: []client.Limit{q.limit}, Optional: q.shadow || q.quota}
}

// plain returns a request with the domain and the descriptors of a request of Kuadrant's service.
func plain(request interface {
	GetDomain() string
	GetDescriptors() []*entries.RateLimitDescriptor
}) *rls.RateLimitRequest {
	return &rls.RateLimitRequest{Domain: request.GetDomain(), Descriptors: request.GetDescriptors()}
}

// plainOnly returns an error if a question has a class or a pool, because a reservation keeps neither. All
// methods of the service refuse them, so that a check is not about other units than the reservation after it.
func plainOnly(list []question) error {
	for i := range list {
		if q := &list[i]; q.class != "" || q.pool != "" {
			return badDescriptor(i, "it has the entry class or pool, which this service does not take; leave it out, or call Envoy's service")
		}
	}
	return nil
}

// answer reads a request, and answers it within its deadline.
func answer[A any](ctx context.Context, s *Server, request *rls.RateLimitRequest, do func(context.Context, []question) (*A, error)) (*A, error) {
	began := time.Now()
	defer s.Metrics.Took(source, began)
	list, err := s.read(request)
	if err = cmp.Or(err, plainOnly(list)); err != nil {
		return nil, s.failed(ctx, request.Domain, nil, err)
	}
	limited, cancel := s.bounded(ctx, began)
	defer cancel()
	if s.Timeout > 0 { // for the whole request, which may make several calls
		limited, cancel = context.WithTimeout(limited, s.Timeout)
		defer cancel()
	}
	response, err := do(limited, list)
	if err == nil {
		return response, nil
	}
	if status.Code(err) == codes.Unknown { // it is not yet a gRPC error
		err = refusal(err)
	}
	return nil, s.failed(ctx, request.Domain, list, err)
}
