// Package redisurl parses the URLs of Redis servers, for the client and for the command line. A URL
// names one server, the nodes of a cluster, or Sentinels.
package redisurl

import (
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/redis/go-redis/v9"
)

// Servers describes the servers that a URL names, and how to connect to them.
type Servers struct {
	Name    string // the URL for display, without its password
	Addrs   []string
	Options redis.Options // options for every address
	Cluster bool          // whether the URL names a cluster
	URL     string        // the URL for suggested commands, with PASSWORD in place of a password
	Alone   bool          // whether the URL has a user but no password, so that it cannot log in

	Master           string // if not "", Addrs are Sentinels that watch the primary of this name
	SentinelUser     string // login for the Sentinels
	SentinelPassword string
}

// Parse parses a URL. Its errors say what is wrong with the URL and give a valid example, and never
// contain the password.
func Parse(given string) (Servers, error) {
	parse, such := parseURLs, "redis://user:password@host:6379"
	if given == "" {
		return Servers{}, errors.New("is empty; give one such as " + such)
	}
	if strings.Contains(given, "-sentinel://") {
		parse, such = parseSentinels, "redis-sentinel://host:26379,host:26379/name"
	}
	s, err := parse(given)
	if err != nil {
		return Servers{}, fmt.Errorf("%w; give one such as %s", err, such)
	}
	return s, nil
}

// parseURLs parses one URL, or several separated by commas that name nodes of one cluster. All
// settings except the addresses come from the first URL.
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
			return s, errors.New("has no host")
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
			// A user without a password cannot log in, and the name may be a misplaced password.
			// Drop it, so that nothing can print it.
			o.Username, s.Alone = "", true
		}
		if i == 0 {
			s.Options = *o
			names, urls = append(names, shown(u)), append(urls, typed(u))
		} else {
			if hasScheme && (o.Username != s.Options.Username || o.Password != s.Options.Password ||
				o.Network != s.Options.Network || (o.TLSConfig == nil) != (s.Options.TLSConfig == nil)) {
				return s, fmt.Errorf("has different users, passwords or schemes (%s): the nodes of a cluster share theirs", shown(u))
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
		return s, fmt.Errorf("%s is a unix socket: a cluster needs hosts and ports", s.Name)
	}
	if s.Cluster && s.Options.DB != 0 {
		return s, fmt.Errorf("%s selects database %d: a cluster has only database 0", s.Name, s.Options.DB)
	}
	return s, nil
}

// shown returns u without its password and options. It masks the user if there is no password,
// because the user may be a misplaced password.
func shown(u *url.URL) string {
	c := *u
	c.RawQuery = ""
	if password, _ := c.User.Password(); password == "" && c.User.Username() != "" {
		c.User = url.User("xxxxx")
	}
	return c.Redacted()
}

// typed returns u for suggested commands, with PASSWORD in place of its password. If u has a user
// without a password, PASSWORD replaces the user.
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

// withoutURL returns an error from url.Parse without the URL, which may contain a password.
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
