// Package process runs the gateway, from its start to its shutdown.
package process

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"golang.org/x/time/rate"
	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/keepalive"

	"github.com/ratelimit-functions/ratelimit/client"
	"github.com/ratelimit-functions/ratelimit/functions"
	"github.com/ratelimit-functions/ratelimit/gateway/internal/envoyconfig"
	"github.com/ratelimit-functions/ratelimit/gateway/internal/holds"
	"github.com/ratelimit-functions/ratelimit/gateway/internal/metrics"
	"github.com/ratelimit-functions/ratelimit/gateway/internal/remedy"
	"github.com/ratelimit-functions/ratelimit/gateway/internal/rlqs"
	"github.com/ratelimit-functions/ratelimit/gateway/internal/rls"
	"github.com/ratelimit-functions/ratelimit/gateway/internal/xds"
	"github.com/ratelimit-functions/ratelimit/internal/sleep"
)

// Options configures the gateway. Main sets the options from flags.
type Options struct {
	Redis          string        // URL of the servers; ignored if Dev
	GRPC, HTTP     string        // addresses, host:port or unix:/path
	Admin          string        // address of the admin port; "" for none
	AdminToken     string        // token of the admin port; "" for none
	AdminTokenFile string        // file with the token of the admin port; "" for none
	Hosts          []string      // names under which clients call the API, besides localhost and addresses
	Connections    int           // maximum number of connections of each port
	Reflection     bool          // serve gRPC reflection
	XDS            xds.Options   // where the rules come from in place of EnvoyConfig; only Server, Node and TLS are read. No Server for none
	XDSOptional    bool          // be ready even before the first rules from XDS
	EnvoyConfig    string        // folder of configuration files in the format of envoyproxy/ratelimit; "" for none
	AllOrNone      bool          // if one descriptor with a limit from EnvoyConfig is denied, the others are not charged
	MergeDomains   bool          // several files may have the same domain
	Timeout        time.Duration // timeout of a decision
	TrustedProxies []string      // networks of the proxies in front of the HTTP port
	IPv6Prefix     int           // prefix length of the IPv6 networks that count as one address
	Policies       []string      // policies files to load with Deploy or Dev, merged into one set
	Deploy         bool          // load the library on servers that lack it
	Dev            bool          // run an embedded server
	Batches        string        // arguments of client.WithBatches as "n,ttl"; empty for no batches
	Headers        bool          // add X-RateLimit fields to gRPC responses
	TLS            TLSFiles
	RedisTLS       RedisTLS
	Log            *slog.Logger

	checks      bool                       // nothing runs: the options are only checked
	step        func(step string)          // called before each step of the shutdown; nil except in tests
	connections keepalive.ServerParameters // bounds of gRPC connections; lifetimes except in tests
}

const (
	drain      = 10 * time.Second     // maximum time for requests in progress during a shutdown
	settle     = 5 * time.Second      // maximum time for charging what Envoys have reported, after that
	checkEvery = time.Second          // interval of readiness checks until one succeeds
	pollEvery  = time.Second          // interval of checks for changed files
	margin     = 2 * time.Millisecond // time left before the deadline of a gRPC request
	clientTime = 5 * time.Second      // maximum time for a client to connect, to send a request, or to receive the response
	idleTime   = 2 * time.Minute      // maximum idle time of a connection

	// streamWorkers is the number of goroutines that serve gRPC requests one after another. A new
	// goroutine for each request would have to grow its stack each time. More than 64 workers take
	// more memory and save no processor time.
	streamWorkers = 64

	// ballast is the size of a block of memory that is allocated but never written. The block takes
	// no resident memory, but makes the heap look larger, so the garbage collector runs less often.
	// Without the block, the heap is so small that collections take a fifth of the processor time.
	// A higher GOGC would also save this time, but take more memory with large configuration files.
	ballast = 4 << 20
)

// Gateway is a running gateway.
type Gateway struct {
	options Options
	limiter *client.Client
	checker *client.Client // for checks of the servers, which are no decisions
	holds   *holds.Holds
	metrics *metrics.Metrics
	service *rls.Server
	quotas  *rlqs.Server
	health  *health.Server
	ready   atomic.Int32   // notReady, ready or ending
	open    atomic.Int64   // gRPC requests and streams in progress
	full    rate.Sometimes // limits the logging of refused connections and requests
	rules   atomic.Pointer[envoyconfig.Config]
	grpc    *grpc.Server
	http    []*http.Server
	build   functions.Build             // the library, with Options.Policies
	deploy  func(context.Context) error // nil unless Options.Deploy is set
	streams context.Context             // context of gRPC streams, canceled when the drain begins
	cut     context.CancelFunc
	close   []func()
}

// Run runs a gateway until ctx is done, and then lets the requests in progress finish. It calls
// listening with the addresses when all ports are open. admin is nil if there is no admin port.
func Run(ctx context.Context, options Options, listening func(grpc, http, admin net.Addr)) error {
	defer runtime.KeepAlive(make([]byte, ballast))
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	g := &Gateway{options: options, metrics: metrics.New(registry), health: health.NewServer(), full: rate.Sometimes{Interval: time.Second}}
	defer g.do(stepClose, g.closeAll)
	if err := g.connect(); err != nil {
		return err
	}
	g.service = rls.New(rls.Options{Limiter: g.limiter, Metrics: g.metrics, Log: options.Log, Timeout: options.Timeout, Margin: margin, Headers: options.Headers, AllOrNone: options.AllOrNone, NeedsConfig: options.needsXDS(), Holds: g.holds, Begin: g.begin, End: g.end})
	g.quotas = rlqs.New(rlqs.Options{Limiter: g.limiter, Metrics: metrics.NewQuotas(registry), Log: options.Log, NeedsConfig: options.needsXDS()})
	follow, err := g.source(registry)
	if err != nil {
		return err
	}
	handler, err := g.routes(registry)
	if err != nil {
		return err
	}
	config, err := options.TLS.config(options.Log)
	if err != nil {
		return err
	}
	ports, err := g.listen(config != nil)
	if err != nil {
		return err
	}
	g.serveGRPC(config)
	webConfig := config
	if options.TLS.GRPCOnly {
		webConfig = nil
	}
	g.http = []*http.Server{g.newHTTP(handler, webConfig)}
	var adminAddr net.Addr
	if ports.admin != nil {
		g.http = append(g.http, g.newHTTP(g.adminRoutes(ports.token), config))
		adminAddr = ports.admin.Addr()
	}
	for _, notice := range options.notices() {
		options.Log.Warn(notice)
	}
	listening(ports.grpc.Addr(), ports.http.Addr(), adminAddr)
	return g.serve(ctx, ports, follow)
}

func (g *Gateway) serve(ctx context.Context, ports ports, follow func(context.Context)) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() { cancel(g.grpc.Serve(ports.grpc)) }()
	for i, server := range g.http {
		port := []net.Listener{ports.http, ports.admin}[i]
		go func() {
			if server.TLSConfig != nil {
				cancel(server.ServeTLS(port, "", ""))
			} else {
				cancel(server.Serve(port))
			}
		}()
	}
	var background sync.WaitGroup
	reached := make(chan bool) // closed when the servers have the library, even if there are no rules yet
	background.Go(func() { g.untilReady(ctx, sync.OnceFunc(func() { close(reached) })) })
	background.Go(func() { follow(ctx) })
	background.Go(func() { g.quotas.Run(ctx) })
	background.Go(func() {
		select {
		case <-reached:
			g.holds.Run(ctx)
		case <-ctx.Done():
		}
	})
	<-ctx.Done()
	g.shutdown(&background)
	if cause := context.Cause(ctx); cause != nil && !errors.Is(cause, context.Canceled) {
		return cause
	}
	return nil
}

// untilReady checks the servers until they are ready or ctx is done. The gateway stays ready during
// a later outage, because the proxies apply their failure mode as soon as they get an error.
func (g *Gateway) untilReady(ctx context.Context, reached func()) {
	said := ""
	for ctx.Err() == nil {
		err := g.checker.Check(ctx)
		if errors.Is(err, client.ErrNotDeployed) && g.deploy != nil {
			if err = g.deploy(ctx); err == nil {
				err = g.checker.Check(ctx)
			}
		}
		if err == nil {
			reached()
			err = g.waits()
		}
		if err == nil {
			_ = g.limiter.Check(ctx) // opens connections for the first decisions
			running := g.onServers(ctx)
			g.setReady()
			g.options.Log.Info("ready", running...)
			g.lookUp(ctx)
			return
		}
		if err = remedy.For(err); err.Error() != said {
			said = err.Error()
			g.options.Log.Warn("not ready", "error", err)
		}
		_ = sleep.For(ctx, checkEvery)
	}
}
