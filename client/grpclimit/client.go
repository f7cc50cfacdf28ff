package grpclimit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/ratelimit-functions/ratelimit/client"
	"github.com/ratelimit-functions/ratelimit/client/internal/adapter"
)

// Client keeps outgoing calls of a process within a limit. Make one with [NewClient]. It is safe
// for concurrent use.
type Client struct {
	limiter    *client.Client
	name       string
	limit      client.Limit
	key        func(ctx context.Context, target, method string) (string, error)
	change     func(ctx context.Context, method string, req *client.Request) error
	perMessage bool
	wait       time.Duration
	block      time.Duration
	onError    func(ctx context.Context, method string, err error)
}

// ClientOption sets how a Client behaves. [NewClient] returns an error if an option is invalid.
type ClientOption func(*Client) error

// CountBy counts calls under the result of key, for example the account that they are for, instead
// of the target of the connection. method is the full method name. If key returns an error or an
// empty string, the call fails.
func CountBy(key func(ctx context.Context, target, method string) (string, error)) ClientOption {
	return func(c *Client) error {
		if key == nil {
			return errors.New("CountBy(nil); give a function, or leave it out for the target")
		}
		c.key = key
		return nil
	}
}

// Change calls change to modify the limiter's request, for example with a cost, another limit or a
// [client.Request.Fallback]. req has one key and one limit. If change removes all keys, the call is
// not limited; if it returns an error, the call fails.
func Change(change func(ctx context.Context, method string, req *client.Request) error) ClientOption {
	return func(c *Client) error {
		if change == nil {
			return errors.New("Change(nil); give a function, or leave it out")
		}
		c.change = change
		return nil
	}
}

// PerMessageSent also counts each message sent on a stream, except the first, which is included in
// the opening. SendMsg waits for its turn as a call does. If it fails with a
// [*client.LimitedError], the message was not sent and the stream is still open.
func PerMessageSent() ClientOption {
	return func(c *Client) error {
		c.perMessage = true
		return nil
	}
}

// WithLongestWait sets how long a call waits for its turn in total. The default is a minute. With
// 0, a call that would have to wait fails at once.
func WithLongestWait(d time.Duration) ClientOption {
	return func(c *Client) error {
		if d < 0 {
			return fmt.Errorf("WithLongestWait(%v); give 0 to refuse at once, or more", d)
		}
		c.wait = d
		return nil
	}
}

// WithLongestBlock sets how long a RetryInfo can block a key at most. The default is ten minutes.
// With 0, a RetryInfo does not block.
func WithLongestBlock(d time.Duration) ClientOption {
	return func(c *Client) error {
		if d < 0 {
			return fmt.Errorf("WithLongestBlock(%v); give 0 to block nothing, or more", d)
		}
		c.block = d
		return nil
	}
}

// OnCallError calls f, instead of logging, if a block that a RetryInfo asked for could not be
// stored on the server.
func OnCallError(f func(ctx context.Context, method string, err error)) ClientOption {
	return func(c *Client) error {
		if f == nil {
			return errors.New("OnCallError(nil); give a function, or leave it out for the log")
		}
		c.onError = f
		return nil
	}
}

// NewClient returns a Client that takes 1 unit from limit for each call. The key is name, a |, and
// the target of the connection or the result of [CountBy]: "partner|dns:///api.example.com:443".
// Processes that use the same name share the limit.
func NewClient(limiter *client.Client, name string, limit client.Limit, opts ...ClientOption) (*Client, error) {
	c := &Client{
		limiter: limiter, name: name, limit: limit, wait: time.Minute, block: 10 * time.Minute,
		key: func(_ context.Context, target, _ string) (string, error) { return target, nil },
		onError: func(ctx context.Context, method string, err error) {
			slog.WarnContext(ctx, "the limit of calls to another service", "method", method, "error", err)
		},
	}
	if err := cmp.Or(adapter.Given(limiter, name, limit), adapter.Apply(c, opts)); err != nil {
		return nil, fmt.Errorf("ratelimit: grpclimit.NewClient: %w", err)
	}
	return c, nil
}

// Unary is a [grpc.UnaryClientInterceptor].
func (c *Client) Unary(ctx context.Context, method string, req, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	ask, err := c.request(ctx, conn.Target(), method)
	if err != nil {
		return err
	}
	if err := c.admit(ctx, ask); err != nil {
		return err
	}
	err = invoke(ctx, method, req, reply, conn, opts...)
	c.heed(ctx, method, ask, err)
	return err
}

// Stream is a [grpc.StreamClientInterceptor].
func (c *Client) Stream(ctx context.Context, desc *grpc.StreamDesc, conn *grpc.ClientConn, method string, open grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	ask, err := c.request(ctx, conn.Target(), method)
	if err != nil {
		return nil, err
	}
	if err := c.admit(ctx, ask); err != nil {
		return nil, err
	}
	stream, err := open(ctx, desc, conn, method, opts...)
	if err != nil {
		c.heed(ctx, method, ask, err)
		return nil, err
	}
	return &clientStream{ClientStream: stream, client: c, ask: ask, method: method}, nil
}

// clientStream counts the messages that it sends, and blocks keys according to its final error.
type clientStream struct {
	grpc.ClientStream
	client *Client
	ask    client.Request
	method string
	n      int // messages sent; gRPC allows one sending goroutine at a time
}

func (s *clientStream) SendMsg(m any) error {
	if s.client.perMessage && s.n > 0 {
		ask := s.ask
		ask.OnceKey, ask.OnceTTL = "", 0
		if err := s.client.admit(s.Context(), ask); err != nil {
			return err
		}
	}
	s.n++
	return s.ClientStream.SendMsg(m)
}

func (s *clientStream) RecvMsg(m any) error {
	err := s.ClientStream.RecvMsg(m)
	if err != nil {
		s.client.heed(s.Context(), s.method, s.ask, err)
	}
	return err
}

// request returns the request for the limiter.
func (c *Client) request(ctx context.Context, target, method string) (client.Request, error) {
	key, err := c.key(ctx, target, method)
	ask := client.Request{Keys: []string{c.name + "|" + key}, Limits: []client.Limit{c.limit}}
	switch {
	case err != nil:
	case key == "":
		err = errors.New("the key of the call is empty; have CountBy return one, or an error")
	case c.change != nil:
		err = c.change(ctx, method, &ask)
	}
	if err != nil {
		return ask, fmt.Errorf("ratelimit: grpclimit: %w", err)
	}
	return ask, nil
}

// heed blocks the keys if err comes from the server and asks to wait.
func (c *Client) heed(ctx context.Context, method string, ask client.Request, err error) {
	var own *client.LimitedError // from another Client further in the chain
	if err == nil || len(ask.Keys) == 0 || errors.As(err, &own) {
		return
	}
	if err := adapter.Block(ctx, c.limiter, min(told(err), c.block), ask.Keys); err != nil {
		c.onError(ctx, method, err)
	}
}

// told returns how long the server asks to wait, or 0.
func told(err error) time.Duration {
	st, ok := status.FromError(err)
	if !ok || st.Code() != codes.ResourceExhausted && st.Code() != codes.Unavailable {
		return 0
	}
	for _, detail := range st.Details() {
		if info, ok := detail.(*errdetails.RetryInfo); ok && info.GetRetryDelay().CheckValid() == nil {
			return info.GetRetryDelay().AsDuration()
		}
	}
	return 0
}
