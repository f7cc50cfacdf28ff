package grpccall

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/ratelimit-functions/ratelimit/client"
	"github.com/ratelimit-functions/ratelimit/client/grpclimit/internal/retryinfo"
	"github.com/ratelimit-functions/ratelimit/client/internal/adapter"
	"github.com/ratelimit-functions/ratelimit/client/internal/outgoing"
)

// call is an outgoing call.
type call struct {
	ctx    context.Context
	target string // of the connection
	method string
}

// Interceptor keeps a process's outgoing calls within a limit. Make one with [New]. It is safe for
// concurrent use.
type Interceptor struct {
	calls      outgoing.Calls[call]
	key        func(ctx context.Context, target, method string) (string, error)
	onError    func(ctx context.Context, method string, err error)
	perMessage bool
}

// An Option configures an Interceptor. [New] returns an error if an option is invalid,
// or given twice.
type Option func(*Interceptor) error

// once returns an Option that may be given once. values are its arguments that an error can show.
func once(name string, set Option, values ...any) Option {
	return func(c *Interceptor) error { return cmp.Or(c.calls.Once(name, values...), set(c)) }
}

// WithKey counts calls by the result of key, for example the account that a call is for, instead
// of the target of the connection. method is the full method name. If key returns an error or an
// empty string, the call fails.
func WithKey(key func(ctx context.Context, target, method string) (string, error)) Option {
	return once("WithKey", func(c *Interceptor) error {
		return adapter.Set(&c.key, key, "WithKey(nil); give a function, or leave it out for the target")
	})
}

// WithRequest sets a function that modifies the request to the limiter, for example to set a cost,
// a [client.Request.Class], another limit or a [client.Request.Fallback]. req has one key and one limit. If change removes
// all keys, the call is not limited; if it returns an error, the call fails.
func WithRequest(change func(ctx context.Context, method string, req *client.Request) error) Option {
	return once("WithRequest", func(c *Interceptor) error {
		c.calls.Change = func(o call, req *client.Request) error { return change(o.ctx, o.method, req) }
		return adapter.Set(&change, change, "WithRequest(nil); give a function, or leave it out")
	})
}

// WithPerMessage also counts each message sent on a stream, except the first: the charge for
// opening the stream includes it. SendMsg waits for its turn as a call does. If SendMsg fails with
// a [client.ErrLimited], the message was not sent and the stream is still open.
func WithPerMessage() Option {
	return once("WithPerMessage", func(c *Interceptor) error { return adapter.On(&c.perMessage) })
}

// WithLongestWait sets the longest total time that a call waits for its turn. The default is a
// minute. With 0, a call that would have to wait fails immediately.
func WithLongestWait(d time.Duration) Option {
	return once("WithLongestWait", func(c *Interceptor) error { return c.calls.LongestWait(d) }, d)
}

// WithLongestBlock sets the longest time for which a RetryInfo can block a key. The default is ten
// minutes. With 0, a RetryInfo does not block.
func WithLongestBlock(d time.Duration) Option {
	return once("WithLongestBlock", func(c *Interceptor) error { return c.calls.LongestBlock(d) }, d)
}

// WithOnError calls f, instead of logging the error, if the client could not block a key for the
// time in a RetryInfo.
func WithOnError(f func(ctx context.Context, method string, err error)) Option {
	return once("WithOnError", func(c *Interceptor) error {
		return adapter.Set(&c.onError, f, "WithOnError(nil); give a function, or leave it out for the log")
	})
}

// New returns an Interceptor that takes 1 unit from limit for each call. The key consists of name,
// the character | and the target of the connection or the result of [WithKey], as in
// "partner|dns:///api.example.com:443". Processes that use the same name share the limit.
func New(limiter client.Limiter, name string, limit client.Limit, opts ...Option) (*Interceptor, error) {
	c := &Interceptor{
		calls: outgoing.New[call](limiter, name, limit, "the key of the call is empty; have WithKey return one, or an error"),
		key:   func(_ context.Context, target, _ string) (string, error) { return target, nil },
		onError: func(ctx context.Context, method string, err error) {
			slog.WarnContext(ctx, "the limit of calls to another service", "method", method, "error", err)
		},
	}
	c.calls.Key = func(o call) (string, error) { return c.key(o.ctx, o.target, o.method) }
	c.calls.OnError = func(o call, err error) { c.onError(o.ctx, o.method, err) }
	if err := cmp.Or(c.calls.Given(), adapter.Apply(c, opts)); err != nil {
		return nil, fmt.Errorf("ratelimit: grpccall.New: %w", err)
	}
	return c, nil
}

// Check returns nil if the servers are ready and accept the limit passed to New, as
// [client.Client.Check] does. Call it when the program starts, because New does not contact a
// server. Check does not check limits that only [WithRequest] sets: pass them to client.Client.Check.
func (c *Interceptor) Check(ctx context.Context) error { return c.calls.Check(ctx) }

// Unary is a [grpc.UnaryClientInterceptor].
func (c *Interceptor) Unary(ctx context.Context, method string, req, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	o := call{ctx, conn.Target(), method}
	limited, err := c.admit(o)
	if err != nil {
		return err
	}
	err = invoke(ctx, method, req, reply, conn, opts...)
	c.block(o, limited, err)
	return err
}

// Stream is a [grpc.StreamClientInterceptor].
func (c *Interceptor) Stream(ctx context.Context, desc *grpc.StreamDesc, conn *grpc.ClientConn, method string, open grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	o := call{ctx, conn.Target(), method}
	limited, err := c.admit(o)
	if err != nil {
		return nil, err
	}
	stream, err := open(ctx, desc, conn, method, opts...)
	if err != nil {
		c.block(o, limited, err)
		return nil, err
	}
	return &clientStream{ClientStream: stream, client: c, call: o, req: limited}, nil
}

// clientStream counts the messages that it sends, and blocks keys according to its final error.
type clientStream struct {
	grpc.ClientStream
	client *Interceptor
	call   call
	req    client.Request
	n      int // messages sent; gRPC allows one sending goroutine at a time
}

func (s *clientStream) SendMsg(m any) error {
	if s.client.perMessage && s.n > 0 {
		req := s.req
		req.OnceKey, req.OnceTTL = "", 0
		if err := s.client.wait(s.Context(), req); err != nil {
			if s.Context().Err() != nil && !adapter.Ended(s.call.ctx) { // the server has ended the stream, and RecvMsg has the status
				return io.EOF
			}
			return err
		}
	}
	s.n++
	return s.ClientStream.SendMsg(m)
}

func (s *clientStream) RecvMsg(m any) error {
	err := s.ClientStream.RecvMsg(m)
	if err != nil {
		s.client.block(call{s.Context(), s.call.target, s.call.method}, s.req, err)
	}
	return err
}

// admit waits until the call may be made, and returns the request sent to the limiter.
func (c *Interceptor) admit(o call) (client.Request, error) {
	req, err := c.calls.Request(o)
	if err != nil {
		return req, fmt.Errorf("ratelimit: grpccall: %w", err)
	}
	return req, c.wait(o.ctx, req)
}

// notMade is the error, with its gRPC status, for a call or a message that was not sent.
type notMade struct {
	error
	status *status.Status
}

func (e notMade) Unwrap() error { return e.error }

// GRPCStatus returns the status that package status uses for the error.
func (e notMade) GRPCStatus() *status.Status { return e.status }

// wait waits until the limiter allows req, and then returns nil.
func (c *Interceptor) wait(ctx context.Context, req client.Request) error {
	err := c.calls.Wait(ctx, req, c.calls.Until())
	var limited *client.Error
	switch {
	case err == nil:
		return nil
	case adapter.Ended(ctx):
		return notMade{err, status.FromContextError(cmp.Or(ctx.Err(), context.DeadlineExceeded))}
	case errors.Is(err, client.ErrMisconfigured):
		return notMade{err, status.New(codes.Internal, err.Error())}
	case !errors.Is(err, client.ErrLimited), !errors.As(err, &limited), errors.Is(err, client.ErrOutcomeUnknown):
		return notMade{err, status.New(codes.Unavailable, err.Error())}
	case limited.RetryAfter == client.Never:
		return notMade{err, status.New(codes.ResourceExhausted, err.Error())}
	}
	return notMade{err, retryinfo.New(codes.ResourceExhausted, err.Error(), limited.RetryAfter)}
}

// block blocks the keys of req if err comes from the server and asks the client to wait.
func (c *Interceptor) block(o call, req client.Request, err error) {
	// An ErrLimited came from another Interceptor rather than from the server.
	if err != nil && !errors.Is(err, client.ErrLimited) {
		c.calls.Block(o.ctx, o, req, retryinfo.Of(err))
	}
}
