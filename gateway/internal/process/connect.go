package process

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/ratelimit-functions/ratelimit/client"
	"github.com/ratelimit-functions/ratelimit/embedded"
	"github.com/ratelimit-functions/ratelimit/functions"
	"github.com/ratelimit-functions/ratelimit/gateway/internal/holds"
	"github.com/ratelimit-functions/ratelimit/internal/dialing"
	"github.com/ratelimit-functions/ratelimit/internal/redisurl"
	"github.com/ratelimit-functions/ratelimit/loader"
	"github.com/ratelimit-functions/ratelimit/policies"
)

// denialMemory is how long the client remembers a denial, so that repeated requests with a denied
// key put less load on Redis.
const denialMemory = 100 * time.Millisecond

// patience is how long checks of the servers wait. They decide nothing, and the first ones open
// connections, which takes longer than --timeout on a busy machine.
const patience = 5 * time.Second

// longestTimeout is the maximum of --timeout.
const longestTimeout = time.Minute

// mostConnections is the maximum of --max-connections.
const mostConnections = 1_000_000

// mostBatch is the maximum number of units of a batch: that of package client.
const mostBatch = 1 << 53

// connect opens the client. It sends nothing, so the gateway can start without Redis.
func (g *Gateway) connect() error {
	o := g.options
	switch {
	case o.Timeout <= 0:
		return fmt.Errorf("--timeout %v is not above 0; give one such as 15ms", o.Timeout)
	case o.Timeout > longestTimeout:
		return fmt.Errorf("--timeout %v is above %v, the most; a proxy does not wait that long", o.Timeout, longestTimeout)
	case o.Connections < 1:
		return fmt.Errorf("--max-connections %d is not above 0; give one such as 1024", o.Connections)
	case o.Connections > mostConnections: // the product with streamsPerConnection must not overflow
		return fmt.Errorf("--max-connections %d is above %d, the most; give one such as 1024", o.Connections, mostConnections)
	}
	build, err := o.build()
	if err != nil {
		return err
	}
	g.build = build
	url := o.Redis
	if o.Dev && !o.checks {
		server, err := embedded.Start(embedded.WithLibrary(build.Text()))
		if err != nil {
			return err
		}
		g.close = append(g.close, func() { _ = server.Close() })
		url = "redis://" + server.Addr()
		o.Log.Warn("the embedded server asks for no password: every process of this machine can connect to it", "addr", server.Addr())
	}
	settings := []client.Option{
		client.WithTimeout(o.Timeout),
		client.WithDenialMemory(denialMemory),
		client.WithObserver(client.Observer{Breaker: func(node, from, to string) {
			o.Log.Warn("circuit breaker", "node", node, "from", from, "to", to)
			g.metrics.Breaker(node, to == "open")
		}}),
	}
	if o.Deploy {
		settings = append(settings, client.WithHealer(loader.Healer(build, loader.Config{}))) // for a server that loses the library later
		g.deploy = func(ctx context.Context) error { return o.deploy(ctx, url, build) }
	}
	if o.Batches != "" {
		n, ttl, err := batches(o.Batches)
		if err != nil {
			return err
		}
		settings = append(settings, client.WithBatches(n, ttl))
	}
	checks := []client.Option{client.WithTimeout(max(patience, o.Timeout))}
	if o.RedisTLS != (RedisTLS{}) {
		if !strings.HasPrefix(url, "rediss") {
			return errors.New("--redis-tls-ca, --redis-tls-cert and --redis-tls-key need a URL with TLS; write rediss:// in place of redis://, or rediss-sentinel:// in place of redis-sentinel://")
		}
		config, err := o.RedisTLS.files(&tls.Config{MinVersion: tls.VersionTLS12})
		if err != nil {
			return err
		}
		settings, checks = append(settings, client.WithTLS(config)), append(checks, client.WithTLS(config))
	}
	limiter, err := client.Open(url, settings...)
	if err != nil {
		return fmt.Errorf("--redis: %s", strings.TrimPrefix(err.Error(), "ratelimit: client.Open: "))
	}
	g.limiter = limiter
	g.close = append(g.close, func() { _ = limiter.Close() })
	if g.checker, err = client.Open(url, checks...); err != nil {
		return err
	}
	g.close = append(g.close, func() { _ = g.checker.Close() })
	return g.connectHolds(url)
}

// connectHolds opens the connections on which reservations are stored. Their commands are not calls to
// the library, so the limiter cannot send them.
func (g *Gateway) connectHolds(url string) error {
	servers, err := g.options.servers(url)
	if err != nil {
		return err
	}
	servers.Punctual(time.Second)
	o := &servers.Options
	o.MaxRetries = 1 // every command can be repeated
	o.Dialer = dialing.Late(redisurl.Dialer(&redis.Options{Addr: servers.Addrs[0], DialTimeout: o.DialTimeout, TLSConfig: o.TLSConfig}))
	db := servers.Open()
	g.close = append(g.close, func() { _ = db.Close() })
	g.holds = holds.New(holds.Options{Limiter: g.limiter, Store: holds.Redis{DB: db}, Metrics: g.metrics, Log: g.options.Log, Timeout: g.options.Timeout})
	return nil
}

// RedisTLS names PEM files for connections to Redis: authorities to trust, and a certificate with its key.
type RedisTLS struct{ CA, Cert, Key string }

func (f RedisTLS) files(config *tls.Config) (*tls.Config, error) {
	return dialing.Files(config, "--redis-tls-", f.CA, f.Cert, f.Key)
}

// servers parses the URL of the servers.
func (o Options) servers(url string) (redisurl.Servers, error) {
	servers, err := redisurl.Parse(url)
	if err != nil {
		return redisurl.Servers{}, fmt.Errorf("--redis: the URL %w", err)
	}
	if servers.Options.TLSConfig != nil {
		servers.Options.TLSConfig, err = o.RedisTLS.files(servers.Options.TLSConfig)
	}
	return servers, err
}

func (o Options) deploy(ctx context.Context, url string, build functions.Build) error {
	servers, err := o.servers(url)
	if err != nil {
		return err
	}
	rdb := servers.Open()
	defer func() { _ = rdb.Close() }()
	l, err := loader.New(rdb, loader.Config{})
	if err != nil {
		return err
	}
	return l.Repair(ctx, build)
}

func (o Options) build() (functions.Build, error) {
	if len(o.Policies) == 0 {
		return functions.New()
	}
	if !o.Deploy && !o.Dev && !o.checks {
		return functions.Build{}, fmt.Errorf("--policies %s is for --deploy and --dev; add one of them, or leave it out", strings.Join(o.Policies, " --policies "))
	}
	file, err := policies.Read(o.Policies...)
	if err != nil {
		return functions.Build{}, err
	}
	if file.Namespace != "" && o.Deploy {
		return functions.Build{}, fmt.Errorf("--policies %s belongs to the namespace %s, and --deploy deploys policies without one; deploy it with: ratelimit deploy --policies %s", file.Name, file.Namespace, file.Name)
	}
	if file, err = file.In(""); err != nil {
		return functions.Build{}, fmt.Errorf("--policies: %w", err)
	}
	build, err := file.Build()
	if err != nil {
		return functions.Build{}, fmt.Errorf("--policies: %w", err)
	}
	return build, nil
}

func batches(text string) (int64, time.Duration, error) {
	first, second, _ := strings.Cut(text, ",")
	n, err := strconv.ParseInt(first, 10, 64)
	ttl, ttlErr := time.ParseDuration(second)
	if err != nil || ttlErr != nil || n < 2 || ttl < time.Millisecond {
		return 0, 0, fmt.Errorf("--batches %q is not of the form n,ttl; write 2 units or more and a time of 1ms or more, as in 100,100ms", text)
	}
	if n > mostBatch {
		return 0, 0, fmt.Errorf("--batches %q takes more than %d units at once, the most; write fewer, as in 100,100ms", text, int64(mostBatch))
	}
	return n, ttl, nil
}
