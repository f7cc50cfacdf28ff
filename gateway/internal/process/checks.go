package process

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ratelimit-functions/ratelimit/gateway/internal/metrics"
	"github.com/ratelimit-functions/ratelimit/internal/printable"
	"github.com/ratelimit-functions/ratelimit/internal/yamlfile"
)

// Check checks the options and the files that they name, without a network. It writes what is valid to
// out. The error has a line for each problem, with the position if the problem is in a file.
func Check(o Options, out io.Writer) error {
	o.checks, o.Log = true, slog.New(slog.DiscardHandler)
	g := &Gateway{options: o, metrics: metrics.New(prometheus.NewRegistry())}
	defer g.closeAll()
	wrong := []error{g.connect()}
	config, err := g.load()
	wrong = append(wrong, err)
	if g.limiter != nil {
		_, err = g.routes(prometheus.NewRegistry())
		wrong = append(wrong, err)
	}
	_, err = o.TLS.config(o.Log)
	wrong = append(wrong, err)
	token, err := o.adminToken()
	wrong = append(wrong, err, address("--grpc", o.GRPC), address("--http", o.HTTP), distinct("--grpc", o.GRPC, "--http", o.HTTP))
	if o.Admin != "" {
		wrong = append(wrong, address("--admin", o.Admin), distinct("--grpc", o.GRPC, "--admin", o.Admin), distinct("--http", o.HTTP, "--admin", o.Admin))
	}
	if host, port, ok := o.adminHost(); ok && err == nil {
		wrong = append(wrong, o.adminExposed(host, port, token))
	}
	var lines []error
	for _, err := range wrong {
		lines = append(lines, problems(err)...)
	}
	if len(lines) > 0 {
		return errors.Join(lines...)
	}
	if config != nil {
		fmt.Fprintf(out, "--envoy-config: %d rules\n", config.Rules())
		for _, notice := range config.Notices() {
			fmt.Fprintln(out, notice)
		}
		if names := config.Policies(); len(names) > 0 {
			fmt.Fprintf(out, "these rules need policies on the servers, which were not asked: %v\n", names)
		}
	}
	if len(o.Policies) > 0 {
		fmt.Fprintf(out, "--policies: %d policies, build %s\n", len(g.build.Policies()), g.build.ID())
	}
	if config == nil && len(o.Policies) == 0 {
		fmt.Fprintln(out, "only flags were checked: neither --envoy-config nor --policies names files")
	}
	for _, notice := range o.notices() {
		fmt.Fprintln(out, notice)
	}
	fmt.Fprintln(out, "the configuration is valid")
	return nil
}

// problems returns the problems in an error one by one: those of a file are joined.
func problems(err error) []error {
	if err == nil {
		return nil
	}
	if _, files := errors.AsType[yamlfile.Mistakes](err); !files {
		return []error{err}
	}
	switch inner := err.(type) {
	case interface{ Unwrap() []error }:
		var list []error
		for _, err := range inner.Unwrap() {
			list = append(list, problems(err)...)
		}
		return list
	case interface{ Unwrap() error }:
		return problems(inner.Unwrap())
	}
	return []error{err}
}

// address checks the form of an address to listen on.
func address(flag, addr string) error {
	if path, ok := strings.CutPrefix(addr, unixPrefix); ok && path != "" {
		return nil
	}
	_, port, err := net.SplitHostPort(addr)
	if err != nil {
		return fmt.Errorf("%s %q names no port; write an address such as 127.0.0.1:8080, or unix:/path", flag, addr)
	}
	if _, err := net.LookupPort("tcp", port); err != nil { // a name may be a service, such as http
		return fmt.Errorf("%s %q has the port %s; write one from 0 to 65535, such as 8080", flag, addr, port)
	}
	return nil
}

// distinct returns an error if two flags have the same address. The port 0 is another one each time.
func distinct(a, addr, b, other string) error {
	if _, port, err := net.SplitHostPort(addr); addr != other || err == nil && port == "0" {
		return nil
	}
	return fmt.Errorf("%s and %s are both %s; give each its own address", a, b, addr)
}

// onServers returns attributes for the log: the build and the policies that the servers run. It warns
// if they are not those of --policies. In a cluster it asks one server.
func (g *Gateway) onServers(ctx context.Context) []any {
	const longest = 1000 // bytes of policy names
	info, err := g.checker.Info(ctx)
	if err != nil {
		return []any{"build", "unknown", "error", err}
	}
	var differ []string
	for _, policy := range g.build.Policies() {
		if !slices.Contains(info.Policies, policy.Name) {
			differ = append(differ, policy.Name)
		}
	}
	named := strings.Contains(strings.Join(info.Policies, " "), "/") // policies of namespaces, which are in the same build
	if len(g.options.Policies) > 0 && (len(differ) > 0 || !named && info.BuildID != g.build.ID()) {
		g.options.Log.Warn("the servers do not run --policies, and the gateway does not replace them; deploy them with: ratelimit deploy --policies "+strings.Join(g.options.Policies, " --policies "),
			"servers", info.BuildID, "policies", g.build.ID(), "missing", differ)
	}
	if rules := g.rules.Load(); len(info.Policies) == 0 && g.options.XDS.Server == "" && (rules == nil || rules.Rules() == 0) {
		g.options.Log.Warn("there are no rules and no policies, so only a request with a limit of its own is limited; give --envoy-config or --xds, or deploy policies with: ratelimit deploy --policies FILE")
	}
	return []any{"library", info.Version, "build", info.BuildID, "policies", printable.Cut(strings.Join(info.Policies, ","), longest)}
}
