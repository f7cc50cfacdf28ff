package redisurl_test

import (
	"context"
	"fmt"
	"net"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/ratelimit-functions/ratelimit/internal/redistest"
	"github.com/ratelimit-functions/ratelimit/internal/redisurl"
)

func TestParse(t *testing.T) {
	for _, tt := range []struct {
		given, name string
		addrs       []string
		user, pass  string
		network     string
		tls         bool
		cluster     bool
		db          int
	}{
		{given: "redis://h", name: "redis://h", addrs: []string{"h:6379"}, network: "tcp"},
		{given: "h:7000", name: "redis://h:7000", addrs: []string{"h:7000"}, network: "tcp"},
		{given: "redis://ann:p%40ss@h:1/3?read_timeout=1s", name: "redis://ann:xxxxx@h:1/3", addrs: []string{"h:1"}, network: "tcp", user: "ann", pass: "p@ss", db: 3},
		{given: "rediss://h", name: "rediss://h", addrs: []string{"h:6379"}, network: "tcp", tls: true},
		{given: "unix:///run/redis.sock", name: "unix:///run/redis.sock", addrs: []string{"/run/redis.sock"}, network: "unix"},
		{given: "redis+cluster://h:1", name: "redis://h:1", addrs: []string{"h:1"}, network: "tcp", cluster: true},
		{given: "rediss+cluster://:p@h:1", name: "rediss://:xxxxx@h:1", addrs: []string{"h:1"}, network: "tcp", pass: "p", tls: true, cluster: true},
		{given: "redis://ann:p@h:1, h:2,redis://ann:p@h:3", name: "redis://ann:xxxxx@h:1,h:2,h:3", addrs: []string{"h:1", "h:2", "h:3"}, network: "tcp", user: "ann", pass: "p", cluster: true},
		{given: "redis://[::1]:7", name: "redis://[::1]:7", addrs: []string{"[::1]:7"}, network: "tcp"},
	} {
		t.Run(tt.given, func(t *testing.T) {
			s := redistest.Must[redisurl.Servers](t)(redisurl.Parse(tt.given))
			o := s.Options
			if s.Name != tt.name || !slices.Equal(s.Addrs, tt.addrs) || s.Cluster != tt.cluster || o.DB != tt.db ||
				o.Username != tt.user || o.Password != tt.pass || o.Network != tt.network || (o.TLSConfig != nil) != tt.tls {
				t.Errorf("got %s, addresses %q, cluster %v, %s, user %q, password %q, db %d, tls %v",
					s.Name, s.Addrs, s.Cluster, o.Network, o.Username, o.Password, o.DB, o.TLSConfig != nil)
			}
		})
	}
}

func TestOpen(t *testing.T) {
	s := redistest.Must[redisurl.Servers](t)(redisurl.Parse("redis://h?read_timeout=1s"))
	s.Punctual(3 * time.Second)
	for _, cluster := range []bool{false, true} {
		s.Cluster = cluster
		rdb := s.Open()
		var dial, read, write time.Duration
		var mode maintnotifications.Mode
		var bounded bool
		switch c := rdb.(type) {
		case *redis.Client:
			o := c.Options()
			dial, read, write, mode, bounded = o.DialTimeout, o.ReadTimeout, o.WriteTimeout, o.MaintNotificationsConfig.Mode, o.ContextTimeoutEnabled
		case *redis.ClusterClient:
			o := c.Options()
			dial, read, write, mode, bounded = o.DialTimeout, o.ReadTimeout, o.WriteTimeout, o.MaintNotificationsConfig.Mode, o.ContextTimeoutEnabled
		}
		if dial != 3*time.Second || read != time.Second || write != 3*time.Second || mode != maintnotifications.ModeDisabled || !bounded {
			t.Errorf("cluster %v: dial %v, read %v, write %v, maintenance notifications %s, bounded by the context %v", cluster, dial, read, write, mode, bounded)
		}
		if err := rdb.Close(); err != nil {
			t.Error(err)
		}
	}
}

// No kind of client allocates memory for a huge reply that a server announces.
func TestRepliesAreLimited(t *testing.T) {
	ln := redistest.Must[net.Listener](t)(net.Listen("tcp", "127.0.0.1:0"))
	defer func() { _ = ln.Close() }()
	go func() {
		for conn, err := ln.Accept(); err == nil; conn, err = ln.Accept() {
			_, _ = conn.Write([]byte("*1000000000\r\n"))
			defer func() { _ = conn.Close() }()
		}
	}()
	for _, url := range []string{"redis://%s", "redis+cluster://%s", "redis-sentinel://%s/name"} {
		s := redistest.Must[redisurl.Servers](t)(redisurl.Parse(fmt.Sprintf(url, ln.Addr())))
		s.Punctual(time.Minute)
		rdb := s.Open()
		err := rdb.Do(t.Context(), "GET", "k").Err()
		if err == nil || !strings.Contains(err.Error(), "the server announces a reply of more than") {
			t.Errorf("%s: %v", url, err)
		}
		_ = rdb.Close()
	}
}

// TestOptionsOfURLs checks that every option that go-redis takes from a URL has an effect on clients
// of every kind, or is refused.
func TestOptionsOfURLs(t *testing.T) {
	word := regexp.MustCompile("([a-z])([A-Z])")
	fields, found := reflect.TypeFor[redis.Options](), 0
	for i := range fields.NumField() {
		field, value := fields.Field(i), "7"
		if field.Type.Kind() == reflect.Bool {
			value = "1"
		}
		option := "?conn_max_lifetime=9&" + strings.ToLower(word.ReplaceAllString(field.Name, "${1}_$2")) + "=" + value
		o, err := redis.ParseURL("redis://h" + option)
		if !field.IsExported() || err != nil {
			continue // the field cannot be set in a URL
		}
		found++
		want := reflect.ValueOf(*o).Field(i).Interface()
		for _, given := range []string{"redis://h", "redis+cluster://h", "redis-sentinel://h/name"} {
			s, err := redisurl.Parse(given + option)
			if err != nil {
				continue
			}
			rdb := s.Open()
			got := reflect.ValueOf(rdb).MethodByName("Options").Call(nil)[0].Elem().FieldByName(field.Name)
			if !got.IsValid() || got.Interface() != want {
				t.Errorf("%s%s is ignored", given, option)
			}
			if err := rdb.Close(); err != nil {
				t.Error(err)
			}
		}
	}
	if found < 20 {
		t.Errorf("%d options were found", found)
	}
}

func TestTwoPortsAreRefused(t *testing.T) {
	for _, given := range []string{"h:26379:9", "redis://h:26379:9", "rediss://ann:sekret@h:1:2/3", "h:1,i:2:3", "redis://::1"} {
		s, err := redisurl.Parse(given)
		if err == nil || err.Error() != "has a host with more than one colon; write one port, and an IPv6 address as in [::1]:6379; give one such as redis://user:password@host:6379" {
			t.Errorf("%s: %v, %v", given, s.Addrs, err)
		}
	}
}

func TestSentinelsOfAClusterAreRefused(t *testing.T) {
	_, err := redisurl.Parse("redis+cluster-sentinel://u:sekret@h/name")
	if err == nil || err.Error() != "names Sentinels and a cluster, but Sentinels watch no cluster; give one such as redis-sentinel://host:26379,host:26379/name" {
		t.Error(err)
	}
}

// TestPasswordsAreNotShown checks that no part of a password appears in an error, in the name or in
// the URL for suggested commands, even if a special character splits the password.
func TestPasswordsAreNotShown(t *testing.T) {
	for _, special := range []string{"", "/", "?", "#", ",", "@", ":", " ", "%", "%zz", "[", "&", "=", "\\", "\x7f", "//", "?a=b&", "/1?"} {
		for _, first := range []string{"sekret", "4711"} { // the second could be a port
			password := first + special + "hidden"
			for _, form := range []string{"redis://u:%s@h", "redis://:%s@h:1/2", "rediss://%s@h", "%s@h", "u:%s@h", "redis:/u:%s@h", "redis:u:%s@h", "u//:%s@h",
				"redis+cluster://u:%s@h:1,i:2", "h:1,redis://u:%s@i:2", "h:1,u:%s@i", "redis-sentinel://u:%s@h,i/name", "redis-sentinel://h/name?sentinel_password=%s",
				"http://u:%s@h", "redis://u:%s@h/x", "redis://u:%s@h?colour=red", "redis://u:%s@h:port"} {
				if special == ":" && strings.Contains(" rediss://%s@h %s@h ", " "+form+" ") {
					continue // the part before the colon is a user, not a password
				}
				s, err := redisurl.Parse(strings.Replace(form, "%s", password, 1))
				shown := s.Name + " " + s.URL
				if err != nil {
					shown = err.Error()
				}
				if strings.Contains(shown, first) || strings.Contains(shown, "hidden") {
					t.Errorf("%s with %q shows %s", form, password, shown)
				}
			}
		}
	}
}

// TestPasswordFromElsewhere checks that ann in redis://ann@h is the user name if the password is
// set separately.
func TestPasswordFromElsewhere(t *testing.T) {
	for _, given := range []string{"redis://ann@h", "redis-sentinel://ann@h/name"} {
		s := redistest.Must[redisurl.Servers](t)(redisurl.Parse(given))
		provided := s
		s.SetPassword("p")
		if s.Options.Username != "ann" || s.Options.Password != "p" || !strings.Contains(s.URL, "//USER@h") {
			t.Errorf("%s: user %q, password %q, %s", given, s.Options.Username, s.Options.Password, s.URL)
		}
		provided.SetProvider(func(context.Context) (string, string, error) { return "", "q", nil })
		rdb := provided.Open().(*redis.Client)
		user, password, err := rdb.Options().CredentialsProviderContext(t.Context())
		if user != "ann" || password != "q" || err != nil {
			t.Errorf("%s: user %q, password %q, %v", given, user, password, err)
		}
		_ = rdb.Close()
	}
	s := redistest.Must[redisurl.Servers](t)(redisurl.Parse("redis://ann@h:1,i:2"))
	s.SetProvider(func(context.Context) (string, string, error) { return "bob", "q", nil })
	rdb := s.Open().(*redis.ClusterClient)
	if user, _, err := rdb.Options().CredentialsProviderContext(t.Context()); user != "bob" || err != nil {
		t.Errorf("in a cluster: user %q, %v", user, err)
	}
	_ = rdb.Close()
}
