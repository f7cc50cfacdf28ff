package cli

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"strings"

	"github.com/redis/go-redis/v9"
)

// parseSentinels reads redis-sentinel://user:password@host:26379,host:26379/name?db=0&sentinel_password=..., in which
// user and password are those of the primary.
func parseSentinels(given string) (servers, error) {
	scheme, rest, _ := strings.Cut(given, "://")
	scheme, ok := strings.CutSuffix(scheme, "-sentinel")
	if !ok || strings.Contains(rest, "://") {
		return servers{}, errors.New("names Sentinels more than once")
	}
	where, options, _ := strings.Cut(rest, "?")
	where, name, _ := strings.Cut(where, "/")
	user, hosts := "", where
	if at := strings.LastIndex(where, "@"); at >= 0 {
		user, hosts = where[:at+1], where[at+1:]
	}
	name, err := url.PathUnescape(name)
	if err != nil || name == "" || strings.Contains(name, "/") {
		return servers{}, errors.New("does not name the primary that the Sentinels watch")
	}
	query, err := url.ParseQuery(options)
	if err != nil {
		return servers{}, fmt.Errorf("has options that cannot be read (%w)", err)
	}
	sentinelUser, sentinelPassword := query.Get("sentinel_username"), query.Get("sentinel_password")
	query.Del("sentinel_username")
	query.Del("sentinel_password")
	var s servers
	for i, host := range strings.Split(hosts, ",") {
		if host = strings.TrimSpace(host); host == "" {
			return servers{}, errors.New("has an empty name between two commas")
		}
		if _, _, err := net.SplitHostPort(host); err != nil {
			host = net.JoinHostPort(strings.Trim(host, "[]"), "26379")
		}
		if i == 0 {
			if s, err = parseURLs(scheme + "://" + user + host + "?" + query.Encode()); err != nil {
				return servers{}, err
			}
			s.addrs = nil
		}
		s.addrs = append(s.addrs, host)
	}
	s.master, s.sentinelUser, s.sentinelPassword = name, sentinelUser, sentinelPassword
	s.name = scheme + "-sentinel://" + strings.Join(s.addrs, ",") + "/" + name
	u, err := url.Parse(s.url)
	if err != nil {
		return servers{}, withoutURL(err)
	}
	if sentinelUser != "" {
		query.Set("sentinel_username", sentinelUser)
	}
	if sentinelPassword != "" {
		query.Set("sentinel_password", placeholder)
	}
	u.Scheme, u.Host, u.Path, u.RawQuery = scheme+"-sentinel", strings.Join(s.addrs, ","), "/"+name, query.Encode()
	s.url = u.String()
	return s, nil
}

// failover makes a client that asks the Sentinels for the primary.
func (s servers) failover() redis.UniversalClient {
	o := s.options
	return redis.NewFailoverClient(&redis.FailoverOptions{
		MasterName: s.master, SentinelAddrs: s.addrs, SentinelUsername: s.sentinelUser, SentinelPassword: s.sentinelPassword,
		ClientName: o.ClientName, Protocol: o.Protocol, Username: o.Username, Password: o.Password, DB: o.DB, TLSConfig: o.TLSConfig,
		MaxRetries: o.MaxRetries, MinRetryBackoff: o.MinRetryBackoff, MaxRetryBackoff: o.MaxRetryBackoff,
		DialTimeout: o.DialTimeout, DialerRetries: o.DialerRetries, ReadTimeout: o.ReadTimeout, WriteTimeout: o.WriteTimeout,
		ContextTimeoutEnabled: o.ContextTimeoutEnabled, PoolSize: o.PoolSize,
		DisableIdentity: o.DisableIdentity,
	})
}

// tlsFiles puts what --tls-ca, --tls-cert and --tls-key name into the options.
func (a *app) tlsFiles(o *redis.Options) error {
	f := a.servers
	if f.caFile == "" && f.certFile == "" && f.keyFile == "" {
		return nil
	}
	if o.TLSConfig == nil {
		return errors.New("--tls-ca, --tls-cert and --tls-key are about TLS, and the URL does not ask for it; write rediss:// in place of redis://")
	}
	config := o.TLSConfig.Clone()
	if f.caFile != "" {
		text, err := os.ReadFile(f.caFile)
		if err != nil {
			return fmt.Errorf("--tls-ca: %w; name a file with certificates", err)
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(text) {
			return fmt.Errorf("--tls-ca: %s holds no certificate; name a file in PEM form", f.caFile)
		}
	}
	if (f.certFile == "") != (f.keyFile == "") {
		return errors.New("--tls-cert and --tls-key go together; give both")
	}
	if f.certFile != "" {
		pair, err := tls.LoadX509KeyPair(f.certFile, f.keyFile)
		if err != nil {
			return fmt.Errorf("--tls-cert and --tls-key: %w; name files in PEM form that belong together", err)
		}
		config.Certificates = []tls.Certificate{pair}
	}
	o.TLSConfig = config
	return nil
}
