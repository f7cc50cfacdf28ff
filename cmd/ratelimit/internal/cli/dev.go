package cli

import (
	"errors"
	"fmt"
	"net"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/ratelimit-functions/ratelimit/embedded"
)

const defaultDevAddr = "127.0.0.1:6379"

func (a *app) devCommand() *cobra.Command {
	var addr string
	cmd := &cobra.Command{
		Use:   "dev",
		Short: "Run a server for development, with the library loaded",
		Long: `Run the embedded server in the foreground, with the library loaded, for clients in any language. It keeps its data in
memory only. DEBUG SET-TIME 1700000000000000 stops its clock at that time (microseconds since the epoch), for tests.
Ctrl-C ends it.`,
		Example: `  ratelimit dev
  ratelimit dev --addr 127.0.0.1:7000 --policies policies.yaml`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			build, err := a.build()
			if err != nil {
				return err
			}
			if _, _, err := net.SplitHostPort(addr); err != nil {
				return fmt.Errorf("--addr %q is not host:port; give one such as %s", addr, defaultDevAddr)
			}
			srv, err := embedded.Start(embedded.WithAddr(addr), embedded.WithLibrary(build.Text()))
			switch {
			case errors.Is(err, syscall.EADDRINUSE):
				return wrongUse("dev --addr 127.0.0.1:6380", "%s is in use, perhaps by a Redis server; choose another port", addr)
			case err != nil:
				return fmt.Errorf("%w; choose another address with --addr", err)
			}
			defer func() { _ = srv.Close() }()
			if err := a.printLines(a.devGreeting(srv.Addr(), about(build))); err != nil {
				return err
			}
			<-cmd.Context().Done()
			if err := srv.Close(); err != nil {
				return fmt.Errorf("the server did not stop cleanly: %w", err)
			}
			return a.printf("\nstopped; what it held is forgotten\n")
		},
	}
	cmd.Flags().StringVar(&addr, "addr", defaultDevAddr, "host and port to listen on; port 0 takes a free one")
	a.policiesFlag(cmd)
	a.namespaceFlag(cmd)
	return cmd
}

func (a *app) devGreeting(addr string, library buildReport) string {
	host, port, _ := net.SplitHostPort(addr)
	local := host
	if net.ParseIP(host).IsUnspecified() {
		local = "127.0.0.1"
	}
	cli, url := "redis-cli", ""
	if local != "127.0.0.1" {
		cli += " -h " + local
	}
	if port != "6379" {
		cli += " -p " + port
	}
	if cli != "redis-cli" {
		url = " --redis redis://" + net.JoinHostPort(local, port)
	}
	var text strings.Builder
	fmt.Fprintf(&text, "listening on %s: an embedded server, in memory\nloaded %s\n", addr, library)
	if !net.ParseIP(host).IsLoopback() {
		text.WriteString("anyone who can reach this address can use it: it asks for no password\n")
	}
	fmt.Fprintf(&text, `
try, in another terminal:
  %s FCALL ratelimit_take 1 user:42 5/10s
  %s take user:42 5/10s%s

Ctrl-C ends it
`, cli, a.program, url)
	return text.String()
}
