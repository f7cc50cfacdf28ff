package xds_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	rlsconf "github.com/envoyproxy/go-control-plane/ratelimit/config/ratelimit/v3"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/test/bufconn"

	"github.com/ratelimit-functions/ratelimit/gateway/internal/metrics"
	"github.com/ratelimit-functions/ratelimit/gateway/internal/xds"
	"github.com/ratelimit-functions/ratelimit/gateway/internal/xdstest"
	"github.com/ratelimit-functions/ratelimit/internal/redistest"
)

// bed is a client and its server, in a synctest bubble: the network is in memory.
type bed struct {
	server *xdstest.Server
	log    *redistest.Output
	stop   func() // stops the server
	dials  int

	mu    sync.Mutex
	port  *bufconn.Listener
	conns []*conn
	used  []string // what Use got: names, joined
	fail  error    // what Use returns
}

// conn is a connection that can freeze: then nothing arrives any more, and no end either.
type conn struct {
	net.Conn
	frozen chan struct{}
	closed chan struct{}
	once   sync.Once
}

func (c *conn) Write(text []byte) (int, error) {
	select {
	case <-c.frozen:
		return len(text), nil
	default:
		return c.Conn.Write(text)
	}
}

func (c *conn) Read(text []byte) (int, error) {
	n, err := c.Conn.Read(text)
	select {
	case <-c.frozen:
		<-c.closed
		return 0, net.ErrClosed
	default:
		return n, err
	}
}

func (c *conn) Close() error {
	c.once.Do(func() { close(c.closed) })
	return c.Conn.Close()
}

// run runs test in a bubble, with a client that follows a server.
func run(t *testing.T, test func(t *testing.T, b *bed)) {
	synctest.Test(t, func(t *testing.T) {
		b := &bed{server: xdstest.New(), log: &redistest.Output{}}
		b.start()
		client, err := xds.New(xds.Options{
			Server: "control:18001", Node: "me", Log: slog.New(slog.NewTextHandler(b.log, nil)), Metrics: metrics.NewXDS(prometheus.NewRegistry()),
			Use: b.use, Dial: b.dial,
		})
		redistest.Require(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { client.Run(ctx); close(ended) }()
		test(t, b)
		cancel()
		<-ended
		b.stop()
		if t.Failed() {
			t.Logf("the log:\n%s", b.log)
		}
	})
}

// start starts the server at a new port.
func (b *bed) start() {
	port := bufconn.Listen(64 << 10)
	server := grpc.NewServer()
	discovery.RegisterAggregatedDiscoveryServiceServer(server, b.server)
	go func() { _ = server.Serve(port) }()
	b.mu.Lock()
	defer b.mu.Unlock()
	b.port, b.stop = port, server.Stop
}

func (b *bed) dial(ctx context.Context, addr string) (net.Conn, error) {
	b.mu.Lock()
	port := b.port
	b.dials++
	b.mu.Unlock()
	if addr != "control:18001" {
		return nil, errors.New("dialed " + addr)
	}
	plain, err := port.DialContext(ctx)
	if err != nil {
		return nil, err
	}
	c := &conn{Conn: plain, frozen: make(chan struct{}), closed: make(chan struct{})}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.conns = append(b.conns, c)
	return c, nil
}

func (b *bed) use(_ string, list []*rlsconf.RateLimitConfig) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.fail != nil {
		return b.fail
	}
	var names []string
	for _, config := range list {
		names = append(names, config.Name)
	}
	b.used = append(b.used, strings.Join(names, "+"))
	return nil
}

// got compares everything that was used so far.
func (b *bed) got(t *testing.T, want ...string) {
	t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	if fmt.Sprint(b.used) != fmt.Sprint(want) {
		t.Errorf("used %q, want %q", b.used, want)
	}
}

// last returns the last request.
func (b *bed) last() *discovery.DiscoveryRequest {
	list := b.server.Requests()
	if len(list) == 0 {
		return &discovery.DiscoveryRequest{}
	}
	return list[len(list)-1]
}

func config(name string) *rlsconf.RateLimitConfig {
	return &rlsconf.RateLimitConfig{Name: name, Domain: name}
}
