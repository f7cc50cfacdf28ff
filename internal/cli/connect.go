package cli

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
	"github.com/spf13/cobra"

	"github.com/ratelimit-functions/ratelimit/internal/dialing"
	"github.com/ratelimit-functions/ratelimit/internal/shell"
)

const defaultURL = "redis://127.0.0.1:6379"

// serverFlags say which servers a command talks to.
type serverFlags struct {
	url      string
	sentinel string
	cluster  bool
	timeout  time.Duration

	caFile, certFile, keyFile string // of TLS
}

func (a *app) serverFlags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&a.servers.url, "redis", "", "URL of the server, or of cluster nodes, comma-separated (default: REDIS_URL, else "+defaultURL+")")
	f.BoolVar(&a.servers.cluster, "cluster", false, "the servers are a cluster; needed only where they do not say so (or redis+cluster://)")
	f.StringVar(&a.servers.sentinel, "sentinel", "", "the addresses are Sentinels, which watch the primary of this name (or redis-sentinel://host:26379,host:26379/name)")
	f.StringVar(&a.servers.caFile, "tls-ca", "", "file with the certificates to trust (rediss://)")
	f.StringVar(&a.servers.certFile, "tls-cert", "", "file with our own certificate, where the server asks for one")
	f.StringVar(&a.servers.keyFile, "tls-key", "", "file with the key of that certificate")
	spanVar(cmd, &a.servers.timeout, "timeout", defaultTimeout, "how long each step on a server may take")
}

// servers is what a URL names: where to connect, and how.
type servers struct {
	name    string // the URL for people to read: without its password
	addrs   []string
	options redis.Options // those of every address
	cluster bool          // known to be a cluster
	url     string        // the URL to type again: with PASSWORD in the place of a password
	again   string        // the flags that name them again, for a command that we suggest
	alone   bool          // the URL names a user without a password, who cannot log in

	master           string // addrs are Sentinels that watch the primary of this name
	sentinelUser     string // at the Sentinels
	sentinelPassword string
}

// parseServers reads --redis, or what stands in for it.
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
	parse, such := parseURLs, "redis://user:password@host:6379"
	if strings.Contains(given, "-sentinel://") {
		parse, such = parseSentinels, "redis-sentinel://host:26379,host:26379/name"
	}
	s, err := parse(given)
	if err != nil {
		return servers{}, fmt.Errorf("%s %w; give one such as %s", from, err, such)
	}
	if a.servers.sentinel != "" {
		if s.master != "" && s.master != a.servers.sentinel {
			return servers{}, fmt.Errorf("--sentinel %s and %s, the name in the URL, contradict each other; leave one out", a.servers.sentinel, s.master)
		}
		s.master = a.servers.sentinel
		s.cluster = false // several addresses, of Sentinels
	}
	if s.cluster = s.cluster || a.servers.cluster; s.cluster && s.master != "" {
		return servers{}, errors.New("--cluster and Sentinels contradict each other: Sentinels watch a primary that is no cluster; leave one out")
	}
	if err := a.tlsFiles(&s.options); err != nil {
		return servers{}, err
	}
	s.limit(a.servers.timeout)
	s.again = a.serversAgain(s, from == "REDIS_URL")
	a.named = s
	return s, nil
}

// serversAgain are the flags that name s, as a person would type them; inherited: the URL stands in the environment, and is
// there for the next command too.
func (a *app) serversAgain(s servers, inherited bool) string {
	flags := ""
	if !inherited {
		flags = " " + shell.Line("--redis", s.url)
	}
	if s.cluster && len(s.addrs) == 1 {
		flags += " --cluster"
	}
	f := a.servers
	for _, flag := range [][2]string{{"sentinel", f.sentinel}, {"tls-ca", f.caFile}, {"tls-cert", f.certFile}, {"tls-key", f.keyFile}} {
		if flag[1] != "" {
			flags += " " + shell.Line("--"+flag[0], flag[1])
		}
	}
	return flags
}

// parseURLs reads one URL, or several with commas between them: nodes of one cluster, of which the first says all but
// the address.
func parseURLs(given string) (servers, error) {
	var s servers
	var names, urls []string
	for i, part := range strings.Split(given, ",") {
		part = strings.TrimSpace(part)
		scheme, rest, hasScheme := strings.Cut(part, "://")
		if !hasScheme {
			scheme, rest = "redis", part
		}
		if plain, ok := strings.CutSuffix(scheme, "+cluster"); ok {
			scheme, s.cluster = plain, true
		}
		if rest == "" {
			return s, errors.New("names no server")
		}
		u, err := url.Parse(scheme + "://" + rest)
		if err != nil {
			return s, fmt.Errorf("is not a URL (%w)", withoutURL(err))
		}
		o, err := redis.ParseURL(u.String())
		if err != nil {
			return s, fmt.Errorf("%s is not usable (%s)", shown(u), strings.TrimPrefix(err.Error(), "redis: "))
		}
		if o.Password == "" && o.Username != "" {
			// Nobody logs in without a password, and this may be one: it is not kept, so that nothing can show it.
			o.Username, s.alone = "", true
		}
		if i == 0 {
			s.options = *o
			names, urls = append(names, shown(u)), append(urls, typed(u))
		} else {
			if hasScheme && (o.Username != s.options.Username || o.Password != s.options.Password ||
				o.Network != s.options.Network || (o.TLSConfig == nil) != (s.options.TLSConfig == nil)) {
				return s, fmt.Errorf("names servers with different users, passwords or schemes (%s): the nodes of a cluster share theirs", shown(u))
			}
			names, urls = append(names, o.Addr), append(urls, o.Addr)
		}
		s.addrs = append(s.addrs, o.Addr)
	}
	s.name, s.url = strings.Join(names, ","), strings.Join(urls, ",")
	if len(s.addrs) > 1 {
		s.cluster = true
	}
	if s.cluster && s.options.Network == "unix" {
		return s, fmt.Errorf("%s is one unix socket: a cluster needs host and port", s.name)
	}
	if s.cluster && s.options.DB != 0 {
		return s, fmt.Errorf("%s names database %d: a cluster has only database 0", s.name, s.options.DB)
	}
	return s, nil
}

// shown is u without its password and its options. A user without a password is masked: it may be one.
func shown(u *url.URL) string {
	c := *u
	c.RawQuery = ""
	if password, _ := c.User.Password(); password == "" && c.User.Username() != "" {
		c.User = url.User("xxxxx")
	}
	return c.Redacted()
}

// typed is u to be typed again, with PASSWORD in the place of its password, or of a user without one, which may be one.
func typed(u *url.URL) string {
	c := *u
	if password, _ := c.User.Password(); password != "" {
		c.User = url.UserPassword(c.User.Username(), placeholder)
	} else if c.User.Username() != "" {
		c.User = url.UserPassword("", placeholder)
	}
	return c.String()
}

const placeholder = "PASSWORD"

// withoutURL is what url.Parse found wrong, without the URL, which may hold a password.
func withoutURL(err error) error {
	var at *url.Error
	if errors.As(err, &at) {
		err = at.Err
	}
	if strings.Contains(err.Error(), "userinfo") {
		return errors.New("write special characters of the password as %xx")
	}
	return err
}

// limit sets what every connection of the command line has in common.
func (s *servers) limit(timeout time.Duration) {
	o := &s.options
	for _, d := range []*time.Duration{&o.DialTimeout, &o.ReadTimeout, &o.WriteTimeout} {
		if *d <= 0 {
			*d = timeout
		}
	}
	o.DialerRetries = 1
	o.ContextTimeoutEnabled = true
	o.DisableIdentity = true
	o.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
}

var silence = sync.OnceFunc(func() { redis.SetLogger(nowhere{}) })

// nowhere drops what go-redis would write to stderr: every failure ends in an error that we report ourselves.
type nowhere struct{}

func (nowhere) Printf(context.Context, string, ...any) {}

// open makes a client; it sends nothing. This is the one place where the command line makes one.
func (s servers) open() redis.UniversalClient {
	silence()
	o := s.options
	o.Addr = s.addrs[0]
	if s.master != "" {
		return s.failover()
	}
	if !s.cluster {
		return redis.NewClient(&o)
	}
	return redis.NewClusterClient(&redis.ClusterOptions{
		Addrs: s.addrs, ClientName: o.ClientName, Protocol: o.Protocol,
		Username: o.Username, Password: o.Password, TLSConfig: o.TLSConfig,
		MaxRetries: o.MaxRetries, MinRetryBackoff: o.MinRetryBackoff, MaxRetryBackoff: o.MaxRetryBackoff,
		DialTimeout: o.DialTimeout, DialerRetries: o.DialerRetries, ReadTimeout: o.ReadTimeout, WriteTimeout: o.WriteTimeout,
		ContextTimeoutEnabled: o.ContextTimeoutEnabled, PoolSize: o.PoolSize,
		DisableIdentity: o.DisableIdentity, MaintNotificationsConfig: o.MaintNotificationsConfig,
	})
}

// connect finds out what the URL names, and opens a client that fits: of one server or of a cluster.
func (a *app) connect(ctx context.Context) (redis.UniversalClient, servers, error) {
	s, err := a.parseServers()
	if err != nil {
		return nil, s, err
	}
	if err := s.find(ctx); err != nil {
		return nil, s, err
	}
	return s.open(), s, nil
}

// find asks the servers in turn, until one answers, whether they are a cluster; or the Sentinels for their primary. An
// unreachableError says that none did, or that the Sentinels do not know it.
func (s *servers) find(ctx context.Context) error {
	if s.master != "" {
		return s.findPrimary(ctx)
	}
	var last error
	for _, addr := range s.addrs {
		kind, err := s.ask(ctx, addr)
		if err != nil {
			last = err
			continue
		}
		if kind == "sentinel" {
			return errors.New(s.name + " " + dialing.Sentinel)
		}
		// A cluster client would go on asking a single server for the map of its cluster.
		if s.cluster && kind == "standalone" {
			return fmt.Errorf("%s is no cluster: %s is a server of its own; name one server, without --cluster", s.name, addr)
		}
		s.cluster = s.cluster || kind == "cluster"
		return nil
	}
	return s.unreachable(last)
}

// findPrimary asks the Sentinels. It fails only if they do not name a primary that answers: what that refuses, the command
// itself will meet and explain.
func (s servers) findPrimary(ctx context.Context) error {
	s.options.MaxRetries = -1
	rdb := s.open()
	defer func() { _ = rdb.Close() }()
	ctx, cancel := context.WithTimeout(ctx, s.options.DialTimeout)
	defer cancel()
	err := rdb.Ping(ctx).Err()
	var refusal redis.Error
	if err == nil || errors.As(err, &refusal) && !dialing.AtSentinels(err) {
		return nil
	}
	return s.unreachable(err)
}

// ask finds out whether the server at addr is "standalone", part of a "cluster" or a "sentinel"; "" if it does not say. It fails only
// if the server does not answer: what it refuses, the command itself will meet and explain.
func (s servers) ask(ctx context.Context, addr string) (string, error) {
	one := s
	one.addrs, one.cluster = []string{addr}, false
	one.options.MaxRetries = -1
	one.options.PoolSize = 1
	rdb := one.open()
	defer func() { _ = rdb.Close() }()
	ctx, cancel := context.WithTimeout(ctx, one.options.DialTimeout)
	defer cancel()
	protocol := one.options.Protocol
	if protocol == 0 {
		protocol = 3
	}
	reply, err := rdb.Do(ctx, "HELLO", protocol).Result() // every user may send it
	var refusal redis.Error
	if err != nil && !errors.As(err, &refusal) {
		return "", err
	}
	if kind := mode(reply); kind != "" {
		return kind, nil
	}
	// No HELLO, as behind some proxies: the server's own account, if we may read it.
	about, _ := rdb.Info(ctx, "cluster").Result()
	switch {
	case strings.Contains(about, "cluster_enabled:1"):
		return "cluster", nil
	case strings.Contains(about, "cluster_enabled:0"):
		return "standalone", nil
	}
	return "", nil
}

// mode reads the field of HELLO's reply, which is a map or the same flat.
func mode(reply any) string {
	var found any
	switch fields := reply.(type) {
	case map[any]any:
		found = fields["mode"]
	case []any:
		for i := 0; i+1 < len(fields); i += 2 {
			if fields[i] == "mode" {
				found = fields[i+1]
			}
		}
	}
	text, _ := found.(string)
	return text
}

// unreachable is the error of servers that do not answer.
func (s servers) unreachable(err error) error {
	name := s.name
	if s.master != "" {
		name = fmt.Sprintf("the primary %q of %s", s.master, s.name)
		if at := dialing.Addr(err); at != "" {
			name += ", at " + at
		}
	}
	sentence := dialing.Sentence(name, err, s.options.TLSConfig, s.options.DialTimeout,
		"check the URL and that the server runs, or start one that needs no Redis with: ratelimit dev")
	if errors.Is(err, context.Canceled) {
		sentence += "; nothing was sent"
	}
	return &unreachableError{sentence, err}
}

type unreachableError struct {
	sentence string
	err      error
}

func (e *unreachableError) Error() string { return e.sentence }

func (e *unreachableError) Unwrap() error { return e.err }
