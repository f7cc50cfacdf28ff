package redisurl

import (
	"cmp"
	"context"
	"crypto/x509"
	"errors"
	"net"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/ratelimit-functions/ratelimit/internal/dialing"
)

// Punctual makes every command end at the deadline of its context. timeout is used for the timeouts
// that the URL does not set. Punctual also turns off three features of go-redis: CLIENT SETINFO,
// maintenance notifications, and retries of dials.
func (s *Servers) Punctual(timeout time.Duration) {
	o := &s.Options
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

// SetPassword sets the password for a URL without a password. If the URL contains a name, as in
// redis://name@host, this name becomes the user name.
func (s *Servers) SetPassword(password string) {
	s.nameUser()
	s.Options.Username, s.Options.Password = s.Alone, password
	s.Alone = ""
}

// SetProvider sets the function that returns the user and the password for each new connection. If
// it returns no user, the user is the name in the URL.
func (s *Servers) SetProvider(provide func(context.Context) (user, password string, err error)) {
	s.nameUser()
	named := s.Alone
	s.Options.Username, s.Alone = named, ""
	s.Options.CredentialsProviderContext = func(ctx context.Context) (user, password string, err error) {
		user, password, err = provide(ctx)
		return cmp.Or(user, named), password, err
	}
}

// nameUser writes USER into s.URL if the URL has a user name but no password. Parse has written
// PASSWORD there, because that user name may be a misplaced password; see Alone.
func (s *Servers) nameUser() {
	if s.Alone != "" {
		s.URL = strings.Replace(s.URL, ":"+placeholder+"@", "USER@", 1)
	}
}

// Dialer is like redis.NewDialer, with two differences. Its connections limit the size of replies;
// see [dialing.Limited]. And it accepts more certificates: go-redis requires a certificate for the
// host of o.Addr, which comes from the URL. Dialer also accepts a certificate for the dialed
// address, because the nodes of a cluster, and the primary that a Sentinel names, often have their
// own certificates.
func Dialer(o *redis.Options) func(ctx context.Context, network, addr string) (net.Conn, error) {
	return dialing.Limited(dialer(o))
}

func dialer(o *redis.Options) func(ctx context.Context, network, addr string) (net.Conn, error) {
	dial := redis.NewDialer(o)
	host, _, _ := net.SplitHostPort(o.Addr)
	if o.TLSConfig == nil || o.TLSConfig.ServerName != host {
		return dial
	}
	own := *o
	own.TLSConfig = o.TLSConfig.Clone()
	own.TLSConfig.ServerName = "" // check the host of the dialed address instead
	dialOwn := redis.NewDialer(&own)
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := dial(ctx, network, addr)
		var other x509.HostnameError
		if at, _, _ := net.SplitHostPort(addr); at != host && errors.As(err, &other) {
			return dialOwn(ctx, network, addr)
		}
		return conn, err
	}
}

// Open makes a client for the server, the cluster, or the primary that the Sentinels name. It sends
// nothing to a server.
func (s Servers) Open() redis.UniversalClient {
	o := s.Options
	o.Addr = s.Addrs[0]
	if o.Dialer == nil {
		own := o
		o.Dialer = Dialer(&own)
	}
	if s.Master == "" && !s.Cluster {
		return redis.NewClient(&o)
	}
	if s.Master != "" {
		// go-redis limits the dial of a primary, in which it asks Sentinels, to DialTimeout. So a
		// quarter leaves time to ask a second Sentinel.
		o.Dialer = dialing.Sentinels(o.Dialer, s.Addrs, cmp.Or(o.DialTimeout, 5*time.Second)/4)
	}
	return redis.NewUniversalClient(&redis.UniversalOptions{
		Addrs: s.Addrs, IsClusterMode: s.Master == "",
		MasterName: s.Master, SentinelUsername: s.SentinelUser, SentinelPassword: s.SentinelPassword,
		ClientName: o.ClientName, Protocol: o.Protocol, Username: o.Username, Password: o.Password, CredentialsProviderContext: o.CredentialsProviderContext, DB: o.DB, TLSConfig: o.TLSConfig,
		MaxRetries: o.MaxRetries, MinRetryBackoff: o.MinRetryBackoff, MaxRetryBackoff: o.MaxRetryBackoff,
		DialTimeout: o.DialTimeout, DialerRetries: o.DialerRetries, ReadTimeout: o.ReadTimeout, WriteTimeout: o.WriteTimeout,
		ContextTimeoutEnabled: o.ContextTimeoutEnabled, Dialer: o.Dialer,
		PoolSize: o.PoolSize, PoolTimeout: o.PoolTimeout, PoolFIFO: o.PoolFIFO, MinIdleConns: o.MinIdleConns, MaxIdleConns: o.MaxIdleConns,
		MaxActiveConns: o.MaxActiveConns, MaxConcurrentDials: o.MaxConcurrentDials,
		ConnMaxIdleTime: o.ConnMaxIdleTime, ConnMaxLifetime: o.ConnMaxLifetime, ConnMaxLifetimeJitter: o.ConnMaxLifetimeJitter,
		PipelinePoolSize: o.PipelinePoolSize, PipelineReadBufferSize: o.PipelineReadBufferSize, PipelineWriteBufferSize: o.PipelineWriteBufferSize,
		DisableIdentity: o.DisableIdentity, MaintNotificationsConfig: o.MaintNotificationsConfig,
	})
}
