package redisurl

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"
)

// parseSentinels parses
// redis-sentinel://user:password@host:26379,host:26379/name?db=0&sentinel_password=... The user and
// the password are for the primary.
func parseSentinels(given string) (Servers, error) {
	scheme, rest, _ := strings.Cut(given, "://")
	scheme, ok := strings.CutSuffix(scheme, "-sentinel")
	if !ok || strings.Contains(rest, "://") {
		return Servers{}, errors.New("has more than one redis-sentinel:// scheme")
	}
	if strings.HasSuffix(scheme, "+cluster") {
		return Servers{}, errors.New("names Sentinels and a cluster, but Sentinels watch no cluster")
	}
	where, options, _ := strings.Cut(rest, "?")
	where, name, _ := strings.Cut(where, "/")
	user, hosts := "", where
	if at := strings.LastIndex(where, "@"); at >= 0 {
		user, hosts = where[:at+1], where[at+1:]
	}
	name, err := url.PathUnescape(name)
	if strings.Contains(name, "@") || splitOption(options) {
		return Servers{}, fmt.Errorf("is not a URL (%w)", errEscape)
	}
	if err != nil || name == "" || strings.Contains(name, "/") {
		return Servers{}, errors.New("does not name the primary that the Sentinels watch")
	}
	query, err := url.ParseQuery(options)
	if err != nil {
		return Servers{}, fmt.Errorf("has invalid options (%w)", err)
	}
	sentinelUser, sentinelPassword := query.Get("sentinel_username"), query.Get("sentinel_password")
	query.Del("sentinel_username")
	query.Del("sentinel_password")
	var s Servers
	for i, host := range strings.Split(hosts, ",") {
		if host = strings.TrimSpace(host); host == "" {
			return Servers{}, errors.New("has an empty host between two commas")
		}
		if _, _, err := net.SplitHostPort(host); err != nil {
			host = net.JoinHostPort(strings.Trim(host, "[]"), "26379")
		}
		if i == 0 {
			if s, err = parseURLs(scheme + "://" + user + host + "?" + query.Encode()); err != nil {
				return Servers{}, err
			}
			s.Addrs = nil
		}
		s.Addrs = append(s.Addrs, host)
	}
	s.Master, s.SentinelUser, s.SentinelPassword = name, sentinelUser, sentinelPassword
	s.Name = scheme + "-sentinel://" + strings.Join(s.Addrs, ",") + "/" + name
	u, err := url.Parse(s.URL)
	if err != nil {
		return Servers{}, withoutURL(err)
	}
	if sentinelUser != "" {
		query.Set("sentinel_username", sentinelUser)
	}
	if sentinelPassword != "" {
		query.Set("sentinel_password", placeholder)
	}
	u.Scheme, u.Host, u.Path, u.RawQuery = scheme+"-sentinel", strings.Join(s.Addrs, ","), "/"+name, query.Encode()
	s.URL = u.String()
	return s, nil
}
