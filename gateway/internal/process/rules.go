package process

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"

	rlsconf "github.com/envoyproxy/go-control-plane/ratelimit/config/ratelimit/v3"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/ratelimit-functions/ratelimit/client"
	"github.com/ratelimit-functions/ratelimit/gateway/internal/envoyconfig"
	"github.com/ratelimit-functions/ratelimit/gateway/internal/metrics"
	"github.com/ratelimit-functions/ratelimit/gateway/internal/remedy"
	"github.com/ratelimit-functions/ratelimit/gateway/internal/xds"
	"github.com/ratelimit-functions/ratelimit/internal/sleep"
)

// source loads the rules from files, or prepares to get them over xDS. It returns a function that
// follows their changes until its context is done.
func (g *Gateway) source(registry prometheus.Registerer) (follow func(context.Context), err error) {
	server, err := g.server()
	switch o := g.options; {
	case err != nil:
		return nil, err
	case server != nil:
		server.Metrics = metrics.NewXDS(registry)
		return server.Run, nil
	case o.EnvoyConfig != "":
		watcher := envoyconfig.NewWatcher(o.EnvoyConfig, o.MergeDomains)
		return func(ctx context.Context) { g.follow(ctx, watcher) }, g.reload(watcher)
	}
	return func(context.Context) {}, nil
}

// server returns the client for the xDS server, or nil if there is none.
func (g *Gateway) server() (*xds.Client, error) {
	switch o := g.options; {
	case o.EnvoyConfig != "" && o.XDS.Server != "":
		return nil, errors.New("--envoy-config and --xds are two sources of the same rules; give one of them")
	case o.XDS.Server != "":
		settings := o.XDS
		settings.Log, settings.Use = o.Log, g.useResources
		return xds.New(settings)
	case o.XDSOptional || o.XDS.Node != "" || o.XDS.TLS != xds.TLS{}:
		return nil, errors.New("--xds-node, --xds-optional and the flags --xds-tls are for --xds; give --xds HOST:PORT, or leave them out")
	}
	return nil, nil
}

// load returns the rules in the files, or nil if there are none, for [Check].
func (g *Gateway) load() (*envoyconfig.Config, error) {
	if _, err := g.server(); err != nil || g.options.EnvoyConfig == "" {
		return nil, err
	}
	return envoyconfig.Load(g.options.EnvoyConfig, g.options.MergeDomains)
}

// useResources puts the resources of an xDS server into use.
func (g *Gateway) useResources(version string, list []*rlsconf.RateLimitConfig) error {
	config, err := envoyconfig.LoadResources(list, g.options.MergeDomains)
	return g.use(config, err, "rules loaded", "xds", g.options.XDS.Server, "version", version, "resources", len(list))
}

// needsXDS reports whether the gateway decides nothing before it has rules from the xDS server.
func (o Options) needsXDS() bool { return o.XDS.Server != "" && !o.XDSOptional }

// waits returns an error if there are no rules yet and the gateway needs them.
func (g *Gateway) waits() error {
	if g.options.needsXDS() && g.rules.Load() == nil {
		return fmt.Errorf("there are no rules yet from --xds %s for the node %q; check that the server has resources for it, or add --xds-optional", g.options.XDS.Server, g.options.XDS.Node)
	}
	return nil
}

// follow reloads the Envoy configuration files when they change, until ctx is done.
func (g *Gateway) follow(ctx context.Context, watcher *envoyconfig.Watcher) {
	used := g.rules.Load()
	for sleep.For(ctx, pollEvery) == nil {
		err := g.reload(watcher)
		switch {
		case err != nil:
			g.options.Log.Error("the files were not loaded; the previous ones stay in use", "error", err)
		case g.rules.Load() != used && g.ready.Load() == ready:
			g.lookUp(ctx)
		}
		used = g.rules.Load()
	}
}

// lookUp logs each policy that a rule names and that the servers do not have, or that does not take
// one key. A server may get it later, so the rules stay in use.
func (g *Gateway) lookUp(ctx context.Context) {
	config := g.rules.Load()
	if config == nil {
		return
	}
	for _, policy := range config.Policies() {
		_, err := g.checker.Peek(ctx, client.For("|", policy, 0))
		switch {
		case remedy.Code(err) == "NOPOLICY" || remedy.Code(err) == "BADKEYS" || remedy.Code(err) == "BADLIMIT":
			g.options.Log.Error("a rule in the files gets no decision", "limit", policy, "error", remedy.For(err))
		case err != nil: // for example, because the user may not use this key
			g.options.Log.Warn("a rule in the files was not checked", "limit", policy, "error", remedy.For(err))
		}
	}
}

// reload loads the files if they have changed.
func (g *Gateway) reload(watcher *envoyconfig.Watcher) error {
	config, err := watcher.Reload()
	if config == nil && err == nil {
		return nil
	}
	return g.use(config, err, "files loaded", "folder", g.options.EnvoyConfig)
}

// use puts rules into use that were loaded without an error. It logs said, attributes and the notices.
func (g *Gateway) use(config *envoyconfig.Config, err error, said string, attributes ...any) error {
	g.metrics.Reloaded(err)
	if err != nil {
		return err
	}
	g.service.Use(config)
	g.quotas.Use(config)
	g.rules.Store(config)
	debug.FreeOSMemory() // parsing large files takes ten times as much memory as the parsed rules
	g.options.Log.Info(said, append(attributes, "rules", config.Rules())...)
	for _, notice := range config.Notices() {
		g.options.Log.Warn(notice)
	}
	return nil
}
