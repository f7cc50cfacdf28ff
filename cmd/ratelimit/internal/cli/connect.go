package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
	"github.com/spf13/cobra"

	"github.com/ratelimit-functions/ratelimit/cmd/ratelimit/internal/shell"
	"github.com/ratelimit-functions/ratelimit/internal/dialing"
	"github.com/ratelimit-functions/ratelimit/internal/redisurl"
	"github.com/ratelimit-functions/ratelimit/internal/respmap"
	"github.com/ratelimit-functions/ratelimit/loader/nodes"
)

const defaultURL = "redis://127.0.0.1:6379"

// serverFlags select the servers of a command.
type serverFlags struct {
	url     string
	timeout time.Duration

	caFile, certFile, keyFile string // for TLS

	askPassword bool
	authCommand string
}

func (a *app) serverFlags(cmd *cobra.Command) *cobra.Command {
	f := cmd.Flags()
	f.StringVar(&a.servers.url, "redis", "", "`URL` of the server or cluster (default: REDIS_URL, else "+defaultURL+")")
	spanVar(cmd, &a.servers.timeout, "timeout", a.timeout, "timeout of each step on a server, and of --auth-command")
	f.BoolVar(&a.servers.askPassword, "askpass", false, "ask for the password on the terminal (default: the URL, else REDISCLI_AUTH)")
	f.StringVar(&a.servers.authCommand, "auth-command", "", "shell `command` that prints a password, or a user and a password on two lines; runs again for new connections")
	f.StringVar(&a.servers.caFile, "tls-ca", "", "`file` with the certificates to trust (rediss://)")
	f.StringVar(&a.servers.certFile, "tls-cert", "", "`file` with the client certificate, if the server requires one")
	f.StringVar(&a.servers.keyFile, "tls-key", "", "`file` with the key of that certificate")
	cmd.MarkFlagsRequiredTogether("tls-cert", "tls-key")
	cmd.PreRunE = func(cmd *cobra.Command, _ []string) error { return a.findPassword(cmd.Context()) }
	inGroup(cmd, connectGroup, "redis", "timeout", "askpass", "auth-command", "tls-ca", "tls-cert", "tls-key")
	return cmd
}

// servers holds the servers that a URL names, and the flags that select them in suggested commands.
type servers struct {
	redisurl.Servers
	again string // flags that select these servers in a suggested command
}

// parseServers parses --redis or, without that flag, REDIS_URL or the default URL.
func (a *app) parseServers() (servers, error) {
	given, from := a.servers.url, "--redis"
	if given == "" {
		given, from = a.env("REDIS_URL"), "REDIS_URL"
	}
	if given == "" {
		given, from = defaultURL, "--redis"
	}
	if a.servers.timeout <= 0 {
		return servers{}, fmt.Errorf("--timeout %v is not above 0; give one such as 5s", a.servers.timeout)
	}
	named, err := redisurl.Parse(given)
	if err != nil {
		return servers{}, fmt.Errorf("%s %w", from, err)
	}
	s := servers{Servers: named}
	if err := a.tlsFiles(&s.Options); err != nil {
		return servers{}, err
	}
	if err := a.setPassword(&s.Servers, from); err != nil {
		return servers{}, err
	}
	s.Punctual(a.servers.timeout)
	s.again = a.serversAgain(s, from == "REDIS_URL")
	a.named = s
	return s, nil
}

// serversAgain returns the flags that name s, as a user would type them. inherited means that the
// URL comes from the environment, so the suggested command does not need --redis.
func (a *app) serversAgain(s servers, inherited bool) string {
	flags := ""
	if !inherited {
		flags = " " + shell.Line("--redis", s.URL)
	}
	f := a.servers
	for _, flag := range [][2]string{{"tls-ca", f.caFile}, {"tls-cert", f.certFile}, {"tls-key", f.keyFile}} {
		if flag[1] != "" {
			flags += " " + shell.Line("--"+flag[0], flag[1])
		}
	}
	if f.askPassword {
		flags += " --askpass"
	} else if f.authCommand != "" {
		flags += " --auth-command COMMAND" // the command itself may contain a secret
	}
	return flags
}

// connect determines whether the URL names one server or a cluster, and opens a client for it.
func (a *app) connect(ctx context.Context) (redis.UniversalClient, servers, error) {
	s, err := a.parseServers()
	if err != nil {
		return nil, s, err
	}
	if err := a.find(ctx, &s); err != nil {
		return nil, s, err
	}
	return s.open(), s, nil
}

// open makes a client without sending anything. All clients of the command line are made here.
func (s servers) open() redis.UniversalClient {
	logging.Disable() // go-redis would write to stderr; the command line reports every error itself
	return s.Open()
}

// find determines whether the servers are a cluster: it asks the servers one after another until
// one replies. If they are Sentinels, find asks them for the primary instead. The error is a
// *dialing.Error if no server replies, or if the Sentinels do not know the primary.
func (a *app) find(ctx context.Context, s *servers) error {
	if s.Master != "" {
		return a.findPrimary(ctx, *s)
	}
	var last error
	for _, addr := range s.Addrs {
		kind, err := s.kind(ctx, addr)
		if err != nil {
			last = err
			continue
		}
		if kind == "sentinel" {
			return &nodes.Error{Class: nodes.ErrSentinel, Addr: addr, Problem: s.Name + " is a Sentinel, which holds no data", Remedy: "connect to the primary"}
		}
		// A cluster client would ask a standalone server for the cluster's slots again and again.
		if s.Cluster && kind == "standalone" {
			remedy := "name one server"
			if len(s.Addrs) == 1 {
				remedy = "leave out +cluster in the URL"
			}
			return fmt.Errorf("%s is not a cluster: %s is a standalone server; %s", s.Name, addr, remedy)
		}
		s.Cluster = s.Cluster || kind == "cluster"
		a.clustered.Store(s.Cluster)
		return nil
	}
	return a.unreachable(*s, last)
}

// findPrimary asks the Sentinels for the primary. It fails only if the Sentinels do not name a
// primary, or if the primary does not reply. It ignores an error reply from the primary: the
// command will get the same reply, and explain it.
func (a *app) findPrimary(ctx context.Context, s servers) error {
	s.Options.MaxRetries = -1
	rdb := s.open()
	defer func() { _ = rdb.Close() }()
	ctx, cancel := context.WithTimeout(ctx, s.Options.DialTimeout)
	defer cancel()
	err := rdb.Ping(ctx).Err()
	var refusal redis.Error
	if err == nil || errors.As(err, &refusal) && !dialing.AtSentinels(err) {
		return nil
	}
	return a.unreachable(s, err)
}

// kind returns "standalone", "cluster" or "sentinel", or "" if the server at addr does not report
// what it is. kind fails only if the server does not reply. It ignores error replies: the command
// will get the same reply, and explain it.
func (s servers) kind(ctx context.Context, addr string) (string, error) {
	one := s
	one.Addrs, one.Cluster = []string{addr}, false
	one.Options.MaxRetries = -1
	one.Options.PoolSize = 1
	rdb := one.open()
	defer func() { _ = rdb.Close() }()
	ctx, cancel := context.WithTimeout(ctx, one.Options.DialTimeout)
	defer cancel()
	reply, err := rdb.Do(ctx, "HELLO", cmp.Or(one.Options.Protocol, 3)).Result() // every user may send HELLO
	var refusal redis.Error
	if err != nil && !errors.As(err, &refusal) {
		return "", err
	}
	if kind, _ := respmap.Of(reply)["mode"].(string); kind != "" {
		return kind, nil
	}
	// Some proxies do not support HELLO. Try INFO instead.
	about, _ := rdb.Info(ctx, "cluster").Result()
	switch {
	case strings.Contains(about, "cluster_enabled:1"):
		return "cluster", nil
	case strings.Contains(about, "cluster_enabled:0"):
		return "standalone", nil
	}
	return "", nil
}

func (a *app) unreachable(s servers, err error) error {
	name := s.Name
	if s.Master != "" {
		name = fmt.Sprintf("the primary %q of %s", s.Master, s.Name)
		if at := dialing.Addr(err); at != "" {
			name += ", at " + at
		}
	}
	e := dialing.New(name, err, s.Options.TLSConfig, s.Options.DialTimeout,
		"check the URL and that the server runs, or start an embedded server with: "+a.program+" dev")
	if errors.Is(err, context.Canceled) {
		e.Problem += "; nothing was sent"
	}
	return e
}
