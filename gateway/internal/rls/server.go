// Package rls implements Envoy's rate limit service, version 3, with decisions of package client.
// docs/gateway.md describes the descriptors.
package rls

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"sync/atomic"
	"time"

	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"golang.org/x/time/rate"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/ratelimit-functions/ratelimit/client"
	"github.com/ratelimit-functions/ratelimit/gateway/internal/envoyconfig"
	"github.com/ratelimit-functions/ratelimit/gateway/internal/holds"
	"github.com/ratelimit-functions/ratelimit/gateway/internal/metrics"
	"github.com/ratelimit-functions/ratelimit/gateway/internal/remedy"
)

const source = "grpc" // for metrics

// mostDescriptors is the maximum number of descriptors in a request. It equals the maximum number
// of limits in a call to the library. Envoy sends only a few descriptors.
const mostDescriptors = 50

// Options configures a [Server]. Limiter, Metrics and Log are required.
type Options struct {
	Limiter   *client.Client
	Metrics   *metrics.Metrics
	Log       *slog.Logger
	Timeout   time.Duration // timeout of the Limiter; 0 if unknown
	Margin    time.Duration // a call to Redis ends this long before the deadline of the request
	AllOrNone bool          // if a rule denies one descriptor of a request, charge none of them
	Headers   bool          // add X-RateLimit-Limit, -Remaining and -Reset to the response
	Holds     *holds.Holds  // reservations; nil if only Envoy's service is registered

	// NeedsConfig: before the first [Server.Use], requests get the error UNAVAILABLE.
	NeedsConfig bool

	// Begin is called before a request is received, and End after the response. If Begin returns an
	// error, the request gets that error. Both may be nil.
	Begin func() error
	End   func()
}

// Server is the rate limit service. Its methods may be called concurrently.
type Server struct {
	rls.UnimplementedRateLimitServiceServer
	Options
	config    atomic.Pointer[envoyconfig.Config]
	clustered atomic.Bool    // whether a request has failed because its keys are in different slots
	logs      rate.Sometimes // limits the logging of errors
}

// New returns a Server that has no configuration yet; see [Server.Use].
func New(options Options) *Server {
	return &Server{Options: options, logs: rate.Sometimes{Interval: time.Second}}
}

// Use replaces the configuration. Requests that have already begun use the previous configuration.
func (s *Server) Use(config *envoyconfig.Config) { s.config.Store(config) }

// ShouldRateLimit decides on a request. It returns one status for each descriptor, in order. If the
// request is invalid, the error has the code INVALID_ARGUMENT. If there is no decision for another
// reason, the code is UNAVAILABLE. Envoy uses its failure mode for both.
func (s *Server) ShouldRateLimit(ctx context.Context, request *rls.RateLimitRequest) (*rls.RateLimitResponse, error) {
	began := time.Now()
	defer s.Metrics.Took(source, began)
	list, err := s.decided(ctx, request, began)
	if err != nil {
		return nil, s.failed(ctx, request.GetDomain(), list, err)
	}
	response := &rls.RateLimitResponse{OverallCode: rls.RateLimitResponse_OK, Statuses: make([]*rls.RateLimitResponse_DescriptorStatus, len(list))}
	for i := range list {
		q := &list[i]
		s.Metrics.Count(source, q.label, q.decision())
		s.Metrics.Class(source, q.label, q.class, q.decision())
		response.Statuses[i] = q.status()
		if q.over() && !q.quota {
			response.OverallCode = rls.RateLimitResponse_OVER_LIMIT
		}
	}
	if s.Headers {
		response.ResponseHeadersToAdd = headers(response.Statuses)
	}
	if response.OverallCode == rls.RateLimitResponse_OK {
		response.ResponseHeadersToAdd = append(response.ResponseHeadersToAdd, s.warning(ctx, list)...)
	} else {
		s.Log.Debug("denied", "domain", request.Domain, "descriptors", len(list))
	}
	return response, nil
}

// decided returns the questions of a request with their results. If there is no decision, it returns
// an error, and the questions if the request is valid.
func (s *Server) decided(ctx context.Context, request *rls.RateLimitRequest, began time.Time) ([]question, error) {
	list, err := s.read(request)
	if err != nil {
		return nil, err
	}
	deadline, hurried := ctx.Deadline()
	ctx, cancel := s.bounded(ctx, began)
	defer cancel()
	err = s.decide(ctx, list)
	if denied(list) {
		if hurried { // a block that is too slow must not turn the denial into an error
			var end context.CancelFunc
			ctx, end = context.WithDeadline(ctx, deadline.Add(-s.Margin))
			defer end()
		}
		s.penalize(ctx, list)
	}
	if err != nil {
		for i := range list {
			if remedy.Code(err) == "NOPOLICY" && list[i].together && !list[i].decided {
				list[i].label = unknown // not the name in the request, because a flood of requests could contain many names
			}
		}
		err = refusal(err)
		for i := range list {
			if list[i].over() && !list[i].quota { // the request is denied, whatever the other descriptors would be
				s.report(request.Domain, err)
				return list, nil
			}
		}
		return list, err
	}
	return list, nil
}

// read returns the questions of a request, or an error if the request is invalid.
func (s *Server) read(request *rls.RateLimitRequest) ([]question, error) {
	switch n := len(request.GetDescriptors()); {
	case request.GetDomain() == "":
		return nil, status.Error(codes.InvalidArgument, "the domain is empty; set it in the proxy's rate limit filter")
	case n == 0:
		return nil, status.Error(codes.InvalidArgument, "the request has no descriptor; give at least one")
	case n > mostDescriptors:
		return nil, status.Errorf(codes.InvalidArgument, "the request has %d descriptors; the most is %d", n, mostDescriptors)
	case s.NeedsConfig && s.config.Load() == nil:
		return nil, status.Error(codes.Unavailable, "there are no rules yet; the gateway waits for its xDS server")
	}
	return s.questions(request)
}

func denied(list []question) bool {
	for i := range list {
		if list[i].over() {
			return true
		}
	}
	return false
}

// failed counts and logs a request without a decision, at most once a second, because Envoy may let
// such requests pass. list has its questions, if it could be read. failed returns err.
func (s *Server) failed(ctx context.Context, domain string, list []question, err error) error {
	if status.Code(err) == codes.Canceled && ctx.Err() != nil {
		return err // the caller hung up before its request arrived
	}
	for i := range list {
		s.Metrics.Count(source, list[i].label, "error")
	}
	if len(list) == 0 {
		s.Metrics.Count(source, unknown, "error")
	}
	s.report(domain, err)
	return err
}

// report logs the error of a request, or of some of its descriptors, at most once a second.
func (s *Server) report(domain string, err error) {
	s.logs.Do(func() {
		s.Log.Error("no decision", "source", source, "domain", remedy.Cut(domain), "error", status.Convert(err).Message())
	})
}

// bounded returns the context for the calls to Redis. A caller that hangs up does not cancel this
// context, so it is charged. To save a timer, the context has no deadline if the request has none,
// or if the limiter's timeout ends well before it.
func (s *Server) bounded(ctx context.Context, began time.Time) (context.Context, context.CancelFunc) {
	deadline, ok := ctx.Deadline()
	deadline = deadline.Add(-s.Margin)
	ctx = context.WithoutCancel(ctx)
	if latest := began.Add(s.Timeout + s.Timeout/10); !ok || s.Timeout > 0 && latest.Before(deadline) {
		return ctx, func() {}
	}
	return context.WithDeadline(ctx, deadline)
}

// refusal returns the gRPC error for an error from the client: INVALID_ARGUMENT if the request must be
// corrected, and otherwise UNAVAILABLE. If a retry cannot help, the error says what to correct. Envoy
// treats all codes but OK alike.
func refusal(err error) error {
	code := codes.Unavailable
	if remedy.Code(err) == "BADARGS" || remedy.Code(err) == "BADLIMIT" || remedy.Code(err) == "BADCOST" || remedy.Code(err) == "BADKEYS" {
		code = codes.InvalidArgument
	}
	return status.Error(code, remedy.For(err).Error())
}

// seconds rounds a duration up to whole seconds.
func seconds(d time.Duration) int64 {
	if d < 0 { // client.Never
		return math.MaxInt32
	}
	return int64((d + time.Second - 1) / time.Second)
}

// count returns n as the protocol represents it: at most 2^32 - 1.
func count(n int64) uint32 { return uint32(min(max(n, 0), math.MaxUint32)) }

func badDescriptor(i int, format string, args ...any) error {
	return status.Errorf(codes.InvalidArgument, "descriptor %d: %s", i+1, fmt.Sprintf(format, args...))
}
