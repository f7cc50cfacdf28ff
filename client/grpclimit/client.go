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

// Client keeps the calls that a process makes of others within a limit. Make one with [NewClient]. It is safe for
// concurrent use.
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

// ClientOption sets how a Client behaves. An option that cannot be met makes [NewClient] fail.
type ClientOption func(*Client) error

// CountBy counts calls under what key returns, such as the account that they are made for, in place of the target of the
// connection. method is the full one. An error, or an empty text, fails the call.
func CountBy(key func(ctx context.Context, target, method string) (string, error)) ClientOption {
	return func(c *Client) error {
		if key == nil {
			return errors.New("CountBy(nil); give a function, or leave it out for the target")
		}
		c.key = key
		return nil
	}
}

// Change lets change complete what is asked of the limiter: a cost, another limit, a [client.Request.Fallback]. req has one
// key and one limit. A change that leaves no key leaves the call out; an error fails it.
func Change(change func(ctx context.Context, method string, req *client.Request) error) ClientOption {
	return func(c *Client) error {
		if change == nil {
			return errors.New("Change(nil); give a function, or leave it out")
		}
		c.change = change
		return nil
	}
}

// PerMessageSent counts also each message that is sent on a stream, but for the first, which the opening paid for. SendMsg
// waits for its turn as a call does; if it fails with a [*client.LimitedError], the message was not sent and the stream is still open.
func PerMessageSent() ClientOption {
	return func(c *Client) error {
		c.perMessage = true
		return nil
	}
}

// WithLongestWait bounds how long a call waits for its turn in all; a minute without it, and 0 refuses at once what would
// have to wait.
func WithLongestWait(d time.Duration) ClientOption {
	return func(c *Client) error {
		if d < 0 {
			return fmt.Errorf("WithLongestWait(%v); give 0 to refuse at once, or more", d)
		}
		c.wait = d
		return nil
	}
}

// WithLongestBlock bounds for how long a RetryInfo can block a key, whatever it says; ten minutes without it. With 0 nothing
// blocks.
func WithLongestBlock(d time.Duration) ClientOption {
	return func(c *Client) error {
		if d < 0 {
			return fmt.Errorf("WithLongestBlock(%v); give 0 to block nothing, or more", d)
		}
		c.block = d
		return nil
	}
}

// OnCallError has f called where what a RetryInfo says could not be kept on the server, in place of the log.
func OnCallError(f func(ctx context.Context, method string, err error)) ClientOption {
	return func(c *Client) error {
		if f == nil {
			return errors.New("OnCallError(nil); give a function, or leave it out for the log")
		}
		c.onError = f
		return nil
	}
}

// NewClient returns a Client that takes 1 from limit for each call, under the name, a | and the target of the connection, or
// what [CountBy] says: "partner|dns:///api.example.com:443". Processes that use the same name share the limit.
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

// clientStream counts the messages that it sends, and heeds the error that it ends with.
type clientStream struct {
	grpc.ClientStream
	client *Client
	ask    client.Request
	method string
	n      int // sent; gRPC has one goroutine at a time send
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

// request is what is asked of the limiter.
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

// heed blocks the keys if err is of the other side and says to stay away.
func (c *Client) heed(ctx context.Context, method string, ask client.Request, err error) {
	var own *client.LimitedError // of another Client, further in
	if err == nil || len(ask.Keys) == 0 || errors.As(err, &own) {
		return
	}
	if err := adapter.Block(ctx, c.limiter, min(told(err), c.block), ask.Keys); err != nil {
		c.onError(ctx, method, err)
	}
}

// told is for how long the other side says to stay away, or 0.
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
