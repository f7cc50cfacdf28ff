package cli

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"

	"github.com/ratelimit-functions/ratelimit/cmd/ratelimit/internal/dashboard"
	"github.com/ratelimit-functions/ratelimit/internal/printable"
	"github.com/ratelimit-functions/ratelimit/loader"
)

const (
	dashboardAddr = "127.0.0.1:8088"
	shortestToken = 16
	tokenVariable = "RATELIMIT_DASHBOARD_TOKEN"
)

func (a *app) dashboardCommand() *cobra.Command {
	var listen, tokenFile string
	var behindTLS bool
	cmd := a.serverFlags(&cobra.Command{
		Use:   "dashboard",
		Short: "Show keys, policies and servers in a browser, live",
		Long: `Serve a page that shows calls allowed and denied a second, the most used keys, the state of a limiter, the calls
of policies, and which library each server runs, like top, usage, policies and status. It changes nothing, loads
nothing from elsewhere, and asks the servers once at the start and then only while the page is open, for at most 5 %
of their time. If a server does not answer, stderr says so at the start, and the page says so and keeps trying. Ctrl-C
ends it.

/metrics has the calls of policies for Prometheus, which sends the token as a bearer token. A scrape asks each primary
once.

It listens on this machine only, unless --listen says otherwise; then the page needs a token: that of the variable
` + tokenVariable + ` or of --token-file, or else a random one that is printed. It has no TLS: use a proxy for
that, and --behind-tls.

The user needs the rights of top, and those of "ratelimit acl peek"; for the servers' libraries +function|list
+function|stats, in a cluster also +cluster|shards.`,
		Example: `  ratelimit dashboard
  ratelimit dashboard --policies policies.yaml --listen 0.0.0.0:8088`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			host, _, err := net.SplitHostPort(listen)
			if err != nil {
				return fmt.Errorf("--listen %q is not host:port; give one such as %s", listen, dashboardAddr)
			}
			token, err := a.dashboardToken(tokenFile)
			if err != nil {
				return err
			}
			if token == "" && host != "localhost" && !net.ParseIP(host).IsLoopback() {
				token = rand.Text()
			}
			source, err := a.dashboardSource()
			if err != nil {
				return err
			}
			return a.dashboard(cmd.Context(), listen, token, behindTLS, source)
		},
	})
	cmd.Flags().StringVar(&listen, "listen", dashboardAddr, "host and port to listen on; port 0 takes a free one")
	cmd.Flags().StringVar(&tokenFile, "token-file", "", fmt.Sprintf("file with the token that a browser must give, at least %d characters (default: none on this machine, else a random one)", shortestToken))
	cmd.Flags().BoolVar(&behindTLS, "behind-tls", false, "a proxy with TLS is in front of the dashboard: browsers send its cookie over TLS only")
	a.libraryFlags(cmd)
	return cmd
}

// dashboardToken returns the token of a file, or of the environment if name is "". A flag for the
// token itself would show it in the list of processes.
func (a *app) dashboardToken(name string) (string, error) {
	token, from := a.env(tokenVariable), tokenVariable
	if name != "" {
		text, err := os.ReadFile(name)
		if err != nil {
			return "", fmt.Errorf("--token-file: %w; name another file", err)
		}
		token, from = strings.TrimRight(string(text), "\r\n"), "--token-file "+name
	}
	if len(token) < shortestToken && (token != "" || name != "") {
		return "", fmt.Errorf("%s has a token of %d characters, which can be guessed; give at least %d, or leave it out", from, len(token), shortestToken)
	}
	return token, nil
}

func (a *app) dashboard(ctx context.Context, listen, token string, behindTLS bool, source dashboard.Source) error {
	listener, err := net.Listen("tcp", listen)
	if errors.Is(err, syscall.EADDRINUSE) {
		return wrongUse("dashboard --listen 127.0.0.1:8089", "%s is in use; choose another port", listen)
	} else if err != nil {
		return fmt.Errorf("cannot listen on %s: %w; choose another address with --listen", listen, err)
	}
	board := dashboard.New(source)
	server := &http.Server{
		Handler: board.Handler(token, behindTLS), ReadHeaderTimeout: 10 * time.Second, IdleTimeout: time.Minute, MaxHeaderBytes: 64 << 10,
		ErrorLog: log.New(io.Discard, "", 0),
	}
	host, port, _ := net.SplitHostPort(listener.Addr().String())
	if net.ParseIP(host).IsUnspecified() {
		host = "127.0.0.1"
	}
	at, note := "http://"+net.JoinHostPort(host, port)+"/", ""
	if token != "" {
		at += "?token=" + url.QueryEscape(token)
		note = "anyone with the token can use it; from another machine, put the name of this one in the address\n"
	}
	if err := a.printf("%s\nshows %s, and changes nothing\n"+note+"\nCtrl-C ends it\n", at, source.Name); err != nil {
		_ = listener.Close()
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	looked := make(chan struct{})
	go func() {
		defer close(looked)
		if _, err := source.Nodes(ctx); err != nil && ctx.Err() == nil {
			fmt.Fprintf(a.stderr, "ratelimit: %s; the dashboard tries again while a page is open\n", source.Explain(err))
		}
		board.Run(ctx)
	}()
	ended := context.AfterFunc(ctx, func() { _ = server.Close() })
	err = server.Serve(listener)
	ended()
	stop()
	<-looked
	if !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

func (a *app) dashboardSource() (dashboard.Source, error) {
	s, err := a.parseServers()
	if err != nil {
		return dashboard.Source{}, err
	}
	build, err := a.wanted()
	if err != nil {
		return dashboard.Source{}, err
	}
	a.reads = true
	var mu sync.Mutex // protects a, which is not safe for concurrent use
	return dashboard.Source{
		Name: s.Name, Timeout: s.Options.ReadTimeout,
		Connect: func(ctx context.Context) (redis.UniversalClient, error) {
			found := s
			if err := a.find(ctx, &found); err != nil {
				return nil, err
			}
			return found.open(), nil
		},
		Nodes: func(ctx context.Context) ([]dashboard.Node, error) {
			mu.Lock()
			defer mu.Unlock()
			return a.dashboardNodes(ctx, build)
		},
		NodeName: s.nodeName,
		Faults: func(err error) string {
			mu.Lock()
			defer mu.Unlock()
			if err = a.faults(s, err, topRights); err == nil {
				return "the look was interrupted"
			}
			return oneLine(err.Error())
		},
		Explain: func(err error) string {
			mu.Lock()
			defer mu.Unlock()
			return oneLine(a.explained(err))
		},
	}, nil
}

// dashboardNodes returns the servers, with the library that each runs. A server is good if it runs
// the build that the flags name. Without such flags, a server is good if it runs the same library
// as most servers.
func (a *app) dashboardNodes(ctx context.Context, build loader.Build) ([]dashboard.Node, error) {
	report, failed, err := onFleet(ctx, a, func(ctx context.Context, l *loader.Loader) (loader.Report, error) { return l.Status(ctx, build) })
	if err != nil {
		return nil, err
	}
	named := a.library != "" || len(a.policies) > 0
	run, most := map[string]int{}, ""
	for _, n := range report.Nodes {
		if run[n.Running.Digest]++; n.Running.Digest != "" && run[n.Running.Digest] > run[most] {
			most = n.Running.Digest
		}
	}
	var nodes []dashboard.Node
	for _, n := range report.Nodes {
		shown := dashboard.Node{
			Addr: n.Addr, Role: n.Role, Server: dash(n.Engine + " " + n.ServerVersion), Library: name(n.Running), Digest: n.Running.Digest[:min(12, len(n.Running.Digest))],
			State: inStep(n, report.Wanted), Good: n.State == loader.Same, Dead: n.State == loader.Unreachable,
		}
		if !named && n.State == loader.Different && len(n.Taken) == 0 {
			if shown.Good = n.Running.Digest == most; shown.Good {
				shown.State = "loaded"
				if len(report.Nodes) > 1 {
					shown.State = fmt.Sprintf("the same on %d of %d servers", run[most], len(report.Nodes))
				}
			} else {
				shown.State = "differs from the others"
			}
		}
		for _, text := range []*string{&shown.Addr, &shown.Server, &shown.Library, &shown.State} {
			*text = printable.Line(*text)
		}
		nodes = append(nodes, shown)
	}
	return nodes, failed
}
