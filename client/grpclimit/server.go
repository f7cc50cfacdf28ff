package grpclimit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/ratelimit-functions/ratelimit/client"
	"github.com/ratelimit-functions/ratelimit/client/grpclimit/internal/retryinfo"
	"github.com/ratelimit-functions/ratelimit/client/internal/adapter"
	"github.com/ratelimit-functions/ratelimit/client/key"
	"github.com/ratelimit-functions/ratelimit/internal/keytext"
)

// Interceptor keeps incoming calls of a gRPC server within a limit. Make one with [New]. It is
// safe for concurrent use.
type Interceptor struct {
	requests            adapter.Requests[call]
	skips               []func(ctx context.Context, method string) bool
	perMessage          bool
	refuse              time.Duration // 0: allow
	refuseMisconfigured bool
	onError             func(ctx context.Context, method string, err error)
}

// An Option configures an Interceptor. [New] returns an error if an option is invalid, or if one other
// than [WithSkip] is given twice.
type Option func(*Interceptor) error

// once returns an Option that may be given once. values are its arguments that an error can show.
func once(name string, set Option, values ...any) Option {
	return func(s *Interceptor) error { return cmp.Or(s.requests.Once(name, values...), set(s)) }
}

// WithSkip excludes calls for which skip returns true: they are not counted, and always allowed. method
// is the full method name. If WithSkip is given several times, a call is excluded if any of the
// functions returns true.
func WithSkip(skip func(ctx context.Context, method string) bool) Option {
	return func(s *Interceptor) error {
		if skip == nil {
			return errors.New("WithSkip(nil); give a function, or leave it out")
		}
		s.skips = append(s.skips, skip)
		return nil
	}
}

// WithRequest sets a function that modifies the request to the limiter, for example to set another
// limit for paying users, a cost, a [client.Request.Class], or a [client.Request.UsageKey]. When change is called, req has
// one key, and the limit that was passed to [New]. If change removes all keys, the call is
// not limited. An error is treated as an error from the limiter, unless it is [key.ErrMissing].
func WithRequest(change func(ctx context.Context, method string, req *client.Request) error) Option {
	return once("WithRequest", func(s *Interceptor) error {
		s.requests.Change = func(c call, req *client.Request) error { return change(c.ctx, c.method, req) }
		return adapter.Set(&change, change, "WithRequest(nil); give a function, or leave it out")
	})
}

// WithPenalty blocks the key of a denied call: first for first, each next time for twice as long, and
// for at most longest. A block is forgotten forget after its end. Calls during a block are denied, and do
// not make it longer. The RetryInfo is the end of the block. See [client.Client.Penalize] for the
// denials that are no offence. All times are whole milliseconds, up to 36500 days.
//
// Without WithPenalty, a denial by a policy that has a penalty of its own gets that.
//
// The key must be the caller's: its address or its API key. Whoever can name another's key, such as an
// account at a login, could lock the other out.
func WithPenalty(first, longest, forget time.Duration) Option {
	return once("WithPenalty", func(s *Interceptor) error { return s.requests.SetPenalty(first, longest, forget) }, first, longest, forget)
}

// WithPerMessage also counts each message that a stream receives, except the first: the charge for
// opening the stream includes it. A message over the limit does not reach the handler: RecvMsg
// returns the error that ends the call. An OnceKey and the Charge of package charge apply only to the
// opening of the stream.
func WithPerMessage() Option {
	return once("WithPerMessage", func(s *Interceptor) error { return adapter.On(&s.perMessage) })
}

// WithRefuseOnError ends a call with UNAVAILABLE and a RetryInfo if there is no decision. Without this
// option, the call is allowed, unless its context has ended. retryAfter must be above 0.
func WithRefuseOnError(retryAfter time.Duration) Option {
	return once("WithRefuseOnError", func(s *Interceptor) error {
		if retryAfter <= 0 {
			return fmt.Errorf("WithRefuseOnError(%v); give a time above 0, such as a second", retryAfter)
		}
		s.refuse = retryAfter
		return nil
	}, retryAfter)
}

// WithRefuseMisconfigured ends a call with INTERNAL if there is no decision because of a
// [client.ErrMisconfigured], such as a wrong limit, which no retry can fix. Without this option, a
// call whose limit is wrong is treated as in an outage. [Interceptor.Check] finds a wrong limit when the
// program starts.
func WithRefuseMisconfigured() Option {
	return once("WithRefuseMisconfigured", func(s *Interceptor) error { return adapter.On(&s.refuseMisconfigured) })
}

// WithOnError calls f for each call without a decision, instead of logging. It does not change the
// outcome of the call; see [WithRefuseOnError]. f is not called if a [Key] or [WithRequest] fails only
// because the context of the call has ended.
func WithOnError(f func(ctx context.Context, method string, err error)) Option {
	return once("WithOnError", func(s *Interceptor) error {
		return adapter.Set(&s.onError, f, "WithOnError(nil); give a function, or leave it out for the log")
	})
}

// New returns an Interceptor that takes 1 unit from limit for each call, under key, and denies the
// call if none is left.
//
// name is the prefix of the key on the server, and identifies the limit in errors. Use a different
// name for each Interceptor, or the same one if several share a limit. limit is text, such as "100/m",
// or a policy, such as "@api". New does not check whether limit is valid; [Interceptor.Check]
// does. A call that leaky_bucket allows is handled immediately, not at its turn.
//
// The call to the limiter uses the values of the context, but not its deadline or cancellation; the
// timeout of limiter bounds it ([client.WithTimeout]). So a caller that cancels, or sets a short
// deadline, is still counted.
func New(limiter client.Limiter, name string, limit client.Limit, key Key, opts ...Option) (*Interceptor, error) {
	s := &Interceptor{
		requests: adapter.Requests[call]{Limiter: limiter, Name: name, Limit: limit, Key: key.key.Of},
	}
	log := s.requests.Log("no decision on a call")
	s.onError = func(ctx context.Context, method string, err error) { log(ctx, err, "method", method) }
	if err := cmp.Or(s.requests.Given(), keys.Check("New", key.key), adapter.Apply(s, opts)); err != nil {
		return nil, fmt.Errorf("ratelimit: grpclimit.New: %w", err)
	}
	return s, nil
}

// Check returns nil if the servers are ready and accept the limit of New, as
// [client.Client.Check] does. Call it when the program starts. Limits that only [WithRequest] sets
// are not checked: pass them to client.Client.Check.
func (s *Interceptor) Check(ctx context.Context) error { return s.requests.Check(ctx) }

// Unary is a [grpc.UnaryServerInterceptor].
func (s *Interceptor) Unary(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	ctx, _, err := s.admit(ctx, info.FullMethod)
	if err != nil {
		return nil, err
	}
	return handler(ctx, req)
}

// Stream is a [grpc.StreamServerInterceptor].
func (s *Interceptor) Stream(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	ctx, req, err := s.admit(stream.Context(), info.FullMethod)
	if err != nil {
		return err
	}
	req.OnceKey, req.OnceTTL = "", 0
	return handler(srv, &serverStream{ServerStream: stream, ctx: ctx, server: s, req: req, method: info.FullMethod})
}

// serverStream has the charge in its context, and counts the messages that it receives.
type serverStream struct {
	grpc.ServerStream
	ctx    context.Context
	server *Interceptor
	req    client.Request
	method string
	n      int // messages received; gRPC allows one receiving goroutine at a time
}

func (s *serverStream) Context() context.Context { return s.ctx }

func (s *serverStream) RecvMsg(m any) error {
	if err := s.ServerStream.RecvMsg(m); err != nil {
		return err
	}
	if s.n++; s.n == 1 || !s.server.perMessage || len(s.req.Keys) == 0 {
		return nil
	}
	_, err := s.server.take(s.ctx, s.method, s.req)
	return err
}

// admit returns the context for the handler, the request that admit sent to the limiter, and a nil
// error if the call may proceed. If admit sent nothing, the returned request has no keys.
func (s *Interceptor) admit(ctx context.Context, method string) (context.Context, client.Request, error) {
	for _, skip := range s.skips {
		if skip(ctx, method) {
			return ctx, client.Request{}, nil
		}
	}
	req, err := s.requests.Request(call{ctx: ctx, method: method})
	switch {
	case errors.Is(err, key.ErrMissing), errors.Is(err, keytext.ErrDiffer):
		return ctx, client.Request{}, status.Error(codes.InvalidArgument, err.Error())
	case err != nil:
		if !errors.Is(err, ctx.Err()) { // not reported if the caller has given up
			s.onError(ctx, method, err)
		}
		return ctx, client.Request{}, s.undecided(ctx, s.refuse, err)
	case len(req.Keys) == 0:
		return ctx, req, nil
	}
	result, err := s.take(ctx, method, req)
	if err == nil && result.Allowed {
		charge := adapter.NewCharge(s.requests.Limiter, req, result, func(client.Request, client.Result) {})
		ctx = adapter.WithCharge(ctx, s.requests.Name, charge)
	}
	return ctx, req, err
}

// take returns the decision, or the zero Result if there is none. A non-nil error ends the call.
func (s *Interceptor) take(ctx context.Context, method string, req client.Request) (client.Result, error) {
	result, err := s.requests.Take(ctx, req) // charge callers that give up, too
	switch {
	case err != nil:
		s.onError(ctx, method, err)
		return client.Result{}, s.undecided(ctx, s.refuse, err)
	case result.Source == "fallback":
		s.onError(ctx, method, result.Err)
		return client.Result{}, s.undecided(ctx, adapter.Refusal(result), result.Err)
	case result.Allowed:
		return result, nil
	case result.RetryAfter == client.Never:
		return result, status.Errorf(codes.ResourceExhausted, "%s: the call asks for more than its limit ever allows", s.requests.Name)
	}
	text := fmt.Sprintf("%s: over its limit; try again in %v", s.requests.Name, result.RetryAfter)
	return result, retryinfo.New(codes.ResourceExhausted, text, result.RetryAfter).Err()
}

// undecided returns the error for a call without a decision, or nil if the call is allowed. err is
// the reason why there is no decision. The call fails if WithRefuseMisconfigured applies, or if refuse,
// the retry delay, is above 0. It also fails if ctx is done, because the caller may have canceled
// it to avoid the limit.
func (s *Interceptor) undecided(ctx context.Context, refuse time.Duration, err error) error {
	switch {
	case s.refuseMisconfigured && errors.Is(err, client.ErrMisconfigured):
		return status.Error(codes.Internal, s.requests.Name+": the rate limit of this service is misconfigured; its log says what to correct")
	case refuse > 0:
		return retryinfo.New(codes.Unavailable, s.requests.Name+": whether the call is within its limit could not be found out", refuse).Err()
	case adapter.Ended(ctx):
		return status.FromContextError(cmp.Or(ctx.Err(), context.DeadlineExceeded)).Err()
	}
	return nil
}
