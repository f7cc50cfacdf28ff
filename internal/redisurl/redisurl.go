// Package redisurl reads the URLs that name Redis servers, for the client and for the command line: one server, the nodes of
// a cluster, or Sentinels.
package redisurl

import (
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/redis/go-redis/v9"
)

// Servers is what a URL names: where to connect, and how.
type Servers struct {
	Name    string // the URL for people to read: without its password
	Addrs   []string
	Options redis.Options // those of every address
	Cluster bool          // known to be a cluster
	URL     string        // the URL to type again: with PASSWORD in the place of a password
	Alone   bool          // the URL names a user without a password, who cannot log in

	Master           string // Addrs are Sentinels that watch the primary of this name
	SentinelUser     string // at the Sentinels
	SentinelPassword string
}

// Parse reads a URL. The error says what is wrong with it and gives one that fits; it shows no password.
func Parse(given string) (Servers, error) {
	parse, such := parseURLs, "redis://user:password@host:6379"
	if strings.Contains(given, "-sentinel://") {
		parse, such = parseSentinels, "redis-sentinel://host:26379,host:26379/name"
	}
	s, err := parse(given)
	if err != nil {
		return Servers{}, fmt.Errorf("%w; give one such as %s", err, such)
	}
	return s, nil
}

// parseURLs reads one URL, or several with commas between them: nodes of one cluster, of which the first says all but
// the address.
func parseURLs(given string) (Servers, error) {
	var s Servers
	var names, urls []string
	for i, part := range strings.Split(given, ",") {
		part = strings.TrimSpace(part)
		scheme, rest, hasScheme := strings.Cut(part, "://")
		if !hasScheme {
			scheme, rest = "redis", part
		}
		if plain, ok := strings.CutSuffix(scheme, "+cluster"); ok {
			scheme, s.Cluster = plain, true
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
			o.Username, s.Alone = "", true
		}
		if i == 0 {
			s.Options = *o
			names, urls = append(names, shown(u)), append(urls, typed(u))
		} else {
			if hasScheme && (o.Username != s.Options.Username || o.Password != s.Options.Password ||
				o.Network != s.Options.Network || (o.TLSConfig == nil) != (s.Options.TLSConfig == nil)) {
				return s, fmt.Errorf("names servers with different users, passwords or schemes (%s): the nodes of a cluster share theirs", shown(u))
			}
			names, urls = append(names, o.Addr), append(urls, o.Addr)
		}
		s.Addrs = append(s.Addrs, o.Addr)
	}
	s.Name, s.URL = strings.Join(names, ","), strings.Join(urls, ",")
	if len(s.Addrs) > 1 {
		s.Cluster = true
	}
	if s.Cluster && s.Options.Network == "unix" {
		return s, fmt.Errorf("%s is one unix socket: a cluster needs host and port", s.Name)
	}
	if s.Cluster && s.Options.DB != 0 {
		return s, fmt.Errorf("%s names database %d: a cluster has only database 0", s.Name, s.Options.DB)
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
