// Command ratelimit-gateway decides for proxies whether a request is allowed. It serves Envoy's
// rate limit service over gRPC, and forward auth over HTTP. docs/gateway.md describes it.
package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"

	"github.com/ratelimit-functions/ratelimit/functions"
	"github.com/ratelimit-functions/ratelimit/gateway/internal/environ"
	"github.com/ratelimit-functions/ratelimit/gateway/internal/process"
	"github.com/ratelimit-functions/ratelimit/gateway/internal/remedy"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // a second Ctrl-C ends the process at once, even while requests are in progress
	if err := command().ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, shown(err))
		stop()
		os.Exit(1)
	}
}

// problems are what --check-config has found.
type problems struct{ error }

// shown returns err with the name of the program before each line. Problems have none, so that each of
// their lines begins with the position in a file.
func shown(err error) string {
	if _, ok := errors.AsType[problems](err); ok {
		return err.Error()
	}
	const name = "ratelimit-gateway: "
	return name + strings.ReplaceAll(err.Error(), "\n", "\n"+name)
}

func command() *cobra.Command {
	var o process.Options
	var level string
	var health, check bool
	cmd := &cobra.Command{
		Use:   "ratelimit-gateway --redis URL",
		Short: "Limit requests in Envoy, nginx, Caddy, HAProxy, Apache and Traefik, without code",
		Example: `  ratelimit-gateway --dev --policies policies.yaml
  ratelimit-gateway --redis redis://127.0.0.1:6379 --envoy-config /etc/ratelimit`,
		Version: functions.Version(),
		Args: func(cmd *cobra.Command, args []string) error {
			if slices.Equal(args, []string{"/bin/ratelimit"}) { // the command in the compose example of envoyproxy/ratelimit
				return nil
			}
			return cobra.NoArgs(cmd, args)
		},
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			usual, err := environ.Read(os.Environ())
			if err == nil {
				err = apply(cmd.Flags(), usual)
			}
			if err != nil {
				return err
			}
			if health {
				return running(cmd.Context(), o.HTTP)
			}
			var threshold slog.Level
			if err := threshold.UnmarshalText([]byte(level)); err != nil {
				return fmt.Errorf("--log %q is not a level; write debug, info, warn or error", level)
			}
			if url := os.Getenv("REDIS_URL"); usual == nil && url != "" && !cmd.Flags().Changed("redis") {
				o.Redis = url
			}
			o.Log = slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), &slog.HandlerOptions{Level: threshold, ReplaceAttr: advise}))
			slog.SetDefault(o.Log) // package httplimit logs there
			redis.SetLogger(driver{o.Log})
			list(o.Log, usual, environ.Misspelled(os.Environ()))
			o.AdminToken = os.Getenv("RATELIMIT_ADMIN_TOKEN")
			if check {
				if !named(cmd.Flags()) {
					return errors.New("--check-config has nothing to check; name what the gateway gets, such as --envoy-config DIR or --policies FILE")
				}
				if err := process.Check(o, cmd.OutOrStdout()); err != nil {
					return problems{err}
				}
				return nil
			}
			return process.Run(cmd.Context(), o, func(grpc, http, admin net.Addr) {
				at := []any{"grpc", grpc, "http", http}
				if admin != nil {
					at = append(at, "admin", admin)
				}
				o.Log.Info("listening", at...)
			})
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&o.Redis, "redis", "redis://127.0.0.1:6379", "URL of the servers; rediss, redis+cluster and redis-sentinel too; REDIS_URL if absent")
	flags.StringVar(&o.RedisTLS.CA, "redis-tls-ca", "", "authorities of the servers' certificates, in PEM form; those of the system if absent")
	flags.StringVar(&o.RedisTLS.Cert, "redis-tls-cert", "", "certificate for the servers, in PEM form, if they require one")
	flags.StringVar(&o.RedisTLS.Key, "redis-tls-key", "", "its key")
	flags.StringVar(&o.GRPC, "grpc", "127.0.0.1:8081", "address for Envoy's rate limit service and quota service; unix:/path for a socket")
	flags.StringVar(&o.HTTP, "http", "127.0.0.1:8080", "address for forward auth, the plain API, health and metrics; unix:/path for a socket")
	flags.StringVar(&o.Admin, "admin", "", "address for block, override, reset and so on, such as 127.0.0.1:8082; other machines need a token")
	flags.StringVar(&o.AdminTokenFile, "admin-token-file", "", "file with the token for --admin; RATELIMIT_ADMIN_TOKEN if absent")
	flags.StringSliceVar(&o.Hosts, "hosts", nil, "names under which programs call the plain API; addresses and localhost are always allowed")
	flags.IntVar(&o.Connections, "max-connections", 1024, "most open connections of each port")
	flags.BoolVar(&o.Reflection, "reflection", false, "serve gRPC reflection, for tools such as grpcurl")
	flags.StringVar(&o.EnvoyConfig, "envoy-config", "", "folder with the files of envoyproxy/ratelimit")
	flags.StringVar(&o.XDS.Server, "xds", "", "address of an xDS server with the rules, HOST:PORT, in place of --envoy-config")
	flags.StringVar(&o.XDS.Node, "xds-node", "", "ID under which the xDS server has this gateway's resources")
	flags.BoolVar(&o.XDSOptional, "xds-optional", false, "be ready even before the first rules from --xds")
	flags.BoolVar(&o.XDS.TLS.On, "xds-tls", false, "connect to --xds with TLS")
	flags.StringVar(&o.XDS.TLS.CA, "xds-tls-ca", "", "authorities of the xDS server's certificate, in PEM form; those of the system if absent")
	flags.StringVar(&o.XDS.TLS.Cert, "xds-tls-cert", "", "certificate for the xDS server, in PEM form")
	flags.StringVar(&o.XDS.TLS.Key, "xds-tls-key", "", "its key")
	flags.StringVar(&o.XDS.TLS.Name, "xds-tls-name", "", "name in the xDS server's certificate; the host of --xds if absent")
	flags.BoolVar(&o.MergeDomains, "merge-domains", false, "several files or resources may have the same domain")
	flags.BoolVar(&o.AllOrNone, "all-or-none", false, "if one descriptor of a request is denied by a file's rule, charge none of the others")
	flags.DurationVar(&o.Timeout, "timeout", 15*time.Millisecond, "longest time for a decision")
	flags.StringSliceVar(&o.TrustedProxies, "trusted-proxies", nil, "networks of proxies whose X-Forwarded-For is read, such as 10.0.0.0/8")
	flags.IntVar(&o.IPv6Prefix, "ipv6-prefix", 64, "prefix length of the IPv6 networks that count as one address")
	flags.StringArrayVar(&o.Policies, "policies", nil, "policies.yaml, for --deploy, --dev and --check-config; several are one set")
	flags.BoolVar(&o.Deploy, "deploy", false, "put the library on servers that lack it")
	flags.BoolVar(&o.Dev, "dev", false, "run an embedded server in place of Redis")
	flags.StringVar(&o.Batches, "batches", "", "n,ttl: take n units of a hot key at once and spend them within ttl, as in 100,100ms")
	flags.BoolVar(&o.Headers, "headers", false, "add X-RateLimit-Limit, -Remaining and -Reset to gRPC responses")
	flags.StringVar(&o.TLS.Cert, "tls-cert", "", "certificate of both ports, in PEM form")
	flags.StringVar(&o.TLS.Key, "tls-key", "", "its key")
	flags.StringVar(&o.TLS.ClientCA, "tls-client-ca", "", "authorities of client certificates; clients then need one")
	flags.BoolVar(&o.TLS.GRPCOnly, "tls-grpc-only", false, "the HTTP port has no TLS, for probes without it")
	flags.BoolVar(&check, "check-config", false, "check the other flags and the files that they name, and end: for CI; it asks no server")
	flags.BoolVar(&health, "health", false, "ask the gateway at --http whether it is running, and end: for HEALTHCHECK of containers")
	flags.StringVar(&level, "log", "info", "level of the log: debug, info, warn or error")
	cmd.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error { return suggest(cmd.Flags(), err) })
	cmd.MarkFlagsMutuallyExclusive("redis", "dev")
	return cmd
}

// driver logs what go-redis writes, which is often one line for each attempt to connect. The gateway
// reports every error itself.
type driver struct{ log *slog.Logger }

func (d driver) Printf(ctx context.Context, format string, values ...any) {
	d.log.DebugContext(ctx, "go-redis", "text", fmt.Sprintf(format, values...))
}

// advise replaces the advice for programmers in logged errors with advice for the operator. Package
// httplimit logs such errors.
func advise(_ []string, a slog.Attr) slog.Attr {
	if err, ok := a.Value.Any().(error); ok {
		a.Value = slog.AnyValue(remedy.For(err))
	}
	return a
}
