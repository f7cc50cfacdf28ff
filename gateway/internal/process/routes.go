package process

import (
	"fmt"
	"net/http"
	"path"
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/ratelimit-functions/ratelimit/gateway/internal/api"
	"github.com/ratelimit-functions/ratelimit/gateway/internal/check"
	"github.com/ratelimit-functions/ratelimit/internal/problem"
)

func (g *Gateway) routes(registry *prometheus.Registry) (http.Handler, error) {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	for _, path := range []string{"/readyz", "/healthcheck"} { // the second is envoyproxy/ratelimit's
		mux.HandleFunc("GET "+path, func(w http.ResponseWriter, _ *http.Request) {
			if g.ready.Load() != ready {
				http.Error(w, "not ready; see the log", http.StatusServiceUnavailable)
				return
			}
			fmt.Fprintln(w, "ready")
		})
	}
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	if err := g.options.wrongHosts(); err != nil {
		return nil, err
	}
	plain := api.New(g.api(g.options.HTTP))
	if bits := g.options.IPv6Prefix; bits < 1 || bits > 128 {
		return nil, fmt.Errorf("--ipv6-prefix %d is not the length of an IPv6 prefix; write 1 to 128, such as 64", bits)
	}
	trusted := g.options.TrustedProxies
	if strings.HasPrefix(g.options.HTTP, unixPrefix) { // a Unix socket has no client address, so only the header has one
		trusted = append(slices.Clone(trusted), unixPrefix)
	}
	forward, err := check.New(check.Options{Limiter: g.limiter, Metrics: g.metrics, Log: g.options.Log, TrustedProxies: trusted, IPv6Prefix: g.options.IPv6Prefix})
	if err != nil {
		_, reason, _ := strings.Cut(err.Error(), "WithTrustedProxies: ") // the other options were checked
		return nil, fmt.Errorf("--trusted-proxies: %s", reason)
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch at := r.URL.Path; {
		case check.Matches(at):
			forward.ServeHTTP(w, r)
		case strings.HasPrefix(at, api.Prefix):
			plain.ServeHTTP(w, r)
		case at != path.Clean(at): // mux would redirect, and some proxies treat a redirect as permission
			problem.Details{Status: http.StatusNotFound, Detail: "the path has // or . or .. in it, or ends with /; write it without"}.Write(w)
		default:
			mux.ServeHTTP(w, r)
		}
	}), nil
}

// api returns the options for the API on the port at addr.
func (g *Gateway) api(addr string) api.Options {
	return api.Options{
		Limiter: g.limiter, Holds: g.holds, Metrics: g.metrics, Log: g.options.Log, Hosts: g.options.Hosts,
		AnyHost: strings.HasPrefix(addr, unixPrefix), // browsers do not connect to Unix sockets
	}
}

// adminRoutes returns the handler of the admin port.
func (g *Gateway) adminRoutes(token string) http.Handler {
	options := g.api(g.options.Admin)
	options.Admin, options.Token = true, token
	return api.New(options)
}
