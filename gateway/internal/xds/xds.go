// Package xds receives the rules of the rate limit service from an xDS server: the state of the world
// over ADS. docs/envoy.md describes it for operators.
package xds

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"strconv"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	rlsconf "github.com/envoyproxy/go-control-plane/ratelimit/config/ratelimit/v3"
	"golang.org/x/time/rate"
	status "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/keepalive"
	rpcstatus "google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/ratelimit-functions/ratelimit/gateway/internal/metrics"
	"github.com/ratelimit-functions/ratelimit/internal/printable"
	"github.com/ratelimit-functions/ratelimit/internal/sleep"
)

// TypeURL is the type of the resources.
const TypeURL = "type.googleapis.com/ratelimit.config.ratelimit.v3.RateLimitConfig"

const (
	connectTime = 5 * time.Second  // maximum time to connect, with TLS and HTTP/2
	firstDelay  = time.Second      // longest delay after a stream that had a good answer
	longDelay   = 30 * time.Second // longest delay between two streams
	afterGood   = 100 * time.Millisecond
	afterBad    = time.Second // some servers send a refused set again at once
	mostAnswer  = 64 << 20    // maximum size of an answer; 100,000 rules take a tenth of it
	mostReason  = 4 << 10     // maximum length of the reason that the server gets

	// A server that is gone without closing the connection is noticed by TCP after about 30 s. One
	// that hangs with an open connection is noticed by gRPC: many servers close connections that ping
	// more often than each 5 minutes.
	tcpIdle, tcpEvery, tcpProbes = 15 * time.Second, 5 * time.Second, 3
	pingEvery, pingTime          = 6 * time.Minute, 20 * time.Second
)

// Options configures a [Client]. All but TLS and Dial are required.
type Options struct {
	Server  string // HOST:PORT
	Node    string // the ID of the node
	TLS     TLS
	Log     *slog.Logger
	Metrics *metrics.XDS

	// Use replaces the rules. If it returns an error, the server gets the error, and the previous rules
	// must stay in use.
	Use func(version string, list []*rlsconf.RateLimitConfig) error

	Dial func(ctx context.Context, addr string) (net.Conn, error) // nil for TCP
}

// Client follows an xDS server.
type Client struct {
	Options
	version string            // of the last good answer
	used    [sha256.Size]byte // hash of the resources in use; zero before the first
	bad     [sha256.Size]byte // hash of the last refused resources
	reason  error             // why they were refused
	said    string            // last logged reason of a disconnect
	others  rate.Sometimes    // limits the logging of other types
}

// New returns a Client, or an error if the options are wrong. It opens no connection.
func New(o Options) (*Client, error) {
	host, port, err := net.SplitHostPort(o.Server)
	if _, number := strconv.ParseUint(port, 10, 16); err != nil || host == "" || number != nil {
		return nil, fmt.Errorf("--xds %q is not HOST:PORT; write an address such as envoy-gateway:18001", o.Server)
	}
	if o.Node == "" {
		return nil, errors.New("--xds-node is empty; write the ID for which the xDS server has resources")
	}
	if _, err := o.TLS.credentials(); err != nil {
		return nil, err
	}
	if o.Dial == nil {
		d := &net.Dialer{KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: tcpIdle, Interval: tcpEvery, Count: tcpProbes}}
		o.Dial = func(ctx context.Context, addr string) (net.Conn, error) { return d.DialContext(ctx, "tcp", addr) }
	}
	return &Client{Options: o, others: rate.Sometimes{Interval: time.Minute}}, nil
}

// Run follows the server until ctx is done. After a stream ends, it opens another one.
func (c *Client) Run(ctx context.Context) {
	delay := firstDelay
	for ctx.Err() == nil {
		good, err := c.stream(ctx)
		c.Metrics.Connected(false)
		if ctx.Err() != nil {
			return
		}
		if good {
			delay, c.said = firstDelay, ""
		}
		if reason := rpcstatus.Convert(err).Message(); reason != c.said {
			c.said = reason
			c.Log.Warn("no stream from the xDS server, so the rules in use stay; check --xds and its TLS flags", "server", c.Server, "error", reason)
		}
		_ = sleep.For(ctx, delay/2+rand.N(delay/2)) // not in step with other replicas
		delay = min(2*delay, longDelay)
	}
}

// stream receives answers from one stream until it ends. good reports whether there was a good one.
func (c *Client) stream(ctx context.Context) (good bool, err error) {
	secure, err := c.TLS.credentials() // again for each connection, because certificates are renewed
	if err != nil {
		return false, err
	}
	conn, err := grpc.NewClient("passthrough:///"+c.Server, grpc.WithTransportCredentials(secure), grpc.WithContextDialer(c.Dial),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: backoff.DefaultConfig, MinConnectTimeout: connectTime}),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: pingEvery, Timeout: pingTime}),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(mostAnswer)), grpc.WithDisableServiceConfig())
	if err != nil {
		return false, err
	}
	defer func() { _ = conn.Close() }()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := discovery.NewAggregatedDiscoveryServiceClient(conn).StreamAggregatedResources(ctx)
	if err != nil {
		return false, err
	}
	// Without a version, the server sends everything. A restarted server may count its versions from 1
	// again, so the version of another stream would not say what the rules are.
	request := &discovery.DiscoveryRequest{Node: &core.Node{Id: c.Node, UserAgentName: "ratelimit-gateway"}, TypeUrl: TypeURL}
	if err := stream.Send(request); err != nil {
		_, err = stream.Recv() // which returns why; the error of Send is only EOF
		return false, fmt.Errorf("the stream ended at once: %w", err)
	}
	c.Metrics.Connected(true)
	c.Log.Info("connected to the xDS server", "server", c.Server, "node", c.Node)
	answers := make(chan *discovery.DiscoveryResponse, 1)
	go c.receive(stream, answers, func(cause error) {
		err = cause
		close(answers)
	})
	for answer := range answers {
		request.ResponseNonce, request.ErrorDetail = answer.Nonce, nil
		pause := afterGood
		if err := c.use(answer); err != nil {
			request.ErrorDetail = &status.Status{Code: int32(codes.InvalidArgument), Message: printable.Cut(err.Error(), mostReason)}
			pause = afterBad
		} else {
			good, c.version = true, answer.VersionInfo
		}
		c.Metrics.Answered(request.ErrorDetail == nil)
		request.VersionInfo = c.version
		_ = stream.Send(request) // if the stream has ended, receive knows why
		_ = sleep.For(ctx, pause)
	}
	return good, err
}

// receive puts answers into the channel until the stream ends, and then calls ended. The channel has
// room for one: a newer answer replaces an older one that nobody has taken.
func (c *Client) receive(stream discovery.AggregatedDiscoveryService_StreamAggregatedResourcesClient, answers chan *discovery.DiscoveryResponse, ended func(error)) {
	for {
		answer, err := stream.Recv()
		switch {
		case errors.Is(err, io.EOF):
			ended(errors.New("the server ended the stream"))
			return
		case err != nil:
			ended(err)
			return
		case answer.TypeUrl != TypeURL:
			c.others.Do(func() {
				c.Log.Warn("the xDS server sent another type; it is ignored", "type", printable.Cut(answer.TypeUrl, 60))
			})
			continue
		}
		select {
		case <-answers:
		default:
		}
		answers <- answer
	}
}

// use puts the resources of an answer into use. All of them are used, or none.
func (c *Client) use(answer *discovery.DiscoveryResponse) error {
	sum := digest(answer.Resources)
	switch sum {
	case c.used:
		return nil
	case c.bad:
		return c.reason
	}
	list, err := decode(answer.Resources)
	if err == nil {
		err = c.Use(answer.VersionInfo, list)
	}
	if err != nil {
		c.Log.Error("the xDS server's resources were refused; the previous ones stay in use", "version", answer.VersionInfo, "error", err)
		c.bad, c.reason = sum, err
		return err
	}
	c.used = sum
	return nil
}

func decode(resources []*anypb.Any) ([]*rlsconf.RateLimitConfig, error) {
	list := make([]*rlsconf.RateLimitConfig, len(resources))
	for i, r := range resources {
		if r.GetTypeUrl() != TypeURL {
			return nil, fmt.Errorf("resource %d has the type %q; send %s", i+1, printable.Cut(r.GetTypeUrl(), 60), TypeURL)
		}
		list[i] = &rlsconf.RateLimitConfig{}
		if err := r.UnmarshalTo(list[i]); err != nil {
			return nil, fmt.Errorf("resource %d cannot be read: %w", i+1, err)
		}
	}
	return list, nil
}

// digest returns a hash of the resources. It is never zero.
func digest(resources []*anypb.Any) (sum [sha256.Size]byte) {
	hash := sha256.New()
	for _, r := range resources {
		fmt.Fprintf(hash, "%q %d ", r.GetTypeUrl(), len(r.GetValue()))
		hash.Write(r.GetValue())
	}
	hash.Sum(sum[:0])
	return sum
}
