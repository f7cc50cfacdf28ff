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
	URL     string        // the URL for suggested commands, with PASSWORD instead of a password

	// Alone is the user name in a URL without a password. It may be a misplaced password, because a
	// user name alone cannot log in. Print it only after SetPassword or SetProvider.
	Alone string

	Master           string // name of the primary if Addrs are Sentinels, otherwise ""
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

// parseURLs parses one URL, or the URLs of several nodes of one cluster, separated by commas. All
// settings except the addresses come from the first URL.
func parseURLs(given string) (Servers, error) {
	var s Servers
	var names, urls []string
	parts := strings.Split(given, ",")
	for _, part := range parts[1:] {
		if strings.Contains(part, "@") && !strings.Contains(part, "://") {
			return s, fmt.Errorf("is not a URL (%w)", errEscape) // a comma in the password
		}
	}
	for i, part := range parts {
		part = strings.TrimSpace(part)
		scheme, rest, hasScheme := strings.Cut(part, "://")
		if !hasScheme {
			scheme, rest = "redis", part
		}
		scheme, named := strings.CutSuffix(scheme, clusterSuffix)
		s.Cluster = s.Cluster || named
		if rest == "" {
			return s, errors.New("has no host")
		}
		u, err := url.Parse(scheme + "://" + rest)
		if scheme != "unix" && splitPassword(rest) {
			err = errEscape
		}
		if err != nil {
			return s, fmt.Errorf("is not a URL (%w)", withoutURL(err))
		}
		if strings.Count(u.Host, ":") > 1 && !strings.HasPrefix(u.Host, "[") {
			return s, errors.New("has a host with more than one colon; write one port, and an IPv6 address as in [::1]:6379")
		}
		o, err := redis.ParseURL(u.String())
		if err != nil {
			return s, fmt.Errorf("%s is not usable (%s)", shown(u), strings.TrimPrefix(err.Error(), "redis: "))
		}
		alone := ""
		if o.Password == "" {
			alone, o.Username = o.Username, "" // so that nothing can print the name
		}
		if i == 0 {
			s.Options, s.Alone = *o, alone
			names, urls = append(names, shown(u)), append(urls, typed(u, named))
		} else {
			if hasScheme && (alone != s.Alone || o.Username != s.Options.Username || o.Password != s.Options.Password ||
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

// typed returns u for suggested commands, with PASSWORD instead of its password. If u has a user
// without a password, PASSWORD replaces the user. cluster reports whether u was written with
// +cluster.
func typed(u *url.URL, cluster bool) string {
	c := *u
	if cluster {
		c.Scheme += clusterSuffix
	}
	if password, _ := c.User.Password(); password != "" {
		c.User = url.UserPassword(c.User.Username(), placeholder)
	} else if c.User.Username() != "" {
		c.User = url.UserPassword("", placeholder)
	}
	return c.String()
}

const (
	placeholder   = "PASSWORD"
	clusterSuffix = "+cluster" // of the scheme of a cluster's URL
)

var errEscape = errors.New("write special characters of the password as %xx, such as %2F for / and %2C for a comma")

// splitPassword reports whether the password seems to contain an unescaped /, ? or #. rest is a URL
// without its scheme. The text after such a character would be parsed as a path, an option or a
// fragment, and printed.
func splitPassword(rest string) bool {
	end := strings.IndexAny(rest, "/?#")
	if end < 0 {
		return false
	}
	host := rest[:end]
	path, query, _ := strings.Cut(rest[end:], "?")
	return strings.ContainsAny(path, "@#") || splitOption(query) || strings.Contains(query, "@") && !strings.Contains(host, "@")
}

// splitOption reports whether query has an option that looks like part of an unescaped password: an
// option without =, with @ in its name, or with # in its value.
func splitOption(query string) bool {
	for option := range strings.SplitSeq(query, "&") {
		name, value, ok := strings.Cut(option, "=")
		if option != "" && (!ok || strings.Contains(name, "@") || strings.Contains(value, "#")) {
			return true
		}
	}
	return false
}

// withoutURL returns an error from url.Parse without the URL, which may contain a password. It also
// removes an invalid port, which may be part of a password.
func withoutURL(err error) error {
	if at, ok := errors.AsType[*url.Error](err); ok {
		err = at.Err
	}
	switch {
	case strings.Contains(err.Error(), "userinfo"):
		return errEscape
	case strings.HasPrefix(err.Error(), "invalid port"):
		return errors.New("the port is not a number; special characters of a password are written as %xx")
	}
	return err
}
