package client_test

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/sony/gobreaker/v2"

	"github.com/ratelimit-functions/ratelimit/client"
	"github.com/ratelimit-functions/ratelimit/internal/redistest"
)

// startSentinels starts three Sentinels that watch the primary at addr, which has one replica, and
// waits until they would fail over.
func startSentinels(t *testing.T, addr string) (sentinels [3]*redistest.Server, addrs []string) {
	t.Helper()
	host, port, _ := net.SplitHostPort(addr)
	text := fmt.Sprintf("sentinel monitor main %s %s 2\nsentinel down-after-milliseconds main 500\nsentinel failover-timeout main 2000\n", host, port)
	for i := range sentinels {
		config := filepath.Join(t.TempDir(), "sentinel.conf")
		check(t, os.WriteFile(config, []byte(text), 0o600))
		sentinels[i] = redistest.Run(t, config, "--sentinel")
		addrs = append(addrs, sentinels[i].Addr)
	}
	for _, addr := range addrs {
		rdb := connect(t, redis.Options{Addr: addr})
		eventually(t, "the Sentinel knows the others and the replica", func() bool {
			others, _ := rdb.Do(t.Context(), "SENTINEL", "SENTINELS", "main").Slice()
			replicas, _ := rdb.Do(t.Context(), "SENTINEL", "REPLICAS", "main").Slice()
			return len(others) == 2 && len(replicas) == 1
		})
	}
	return sentinels, addrs
}

// If the primary and the Sentinel that the client talks to fail together, the client asks the other
// Sentinels for the new primary.
func TestPrimaryAndSentinelFailTogether(t *testing.T) {
	for name, fail := range map[string]func(*redistest.Server) error{
		"stopped": (*redistest.Server).Pause,
		"killed":  func(s *redistest.Server) error { s.Stop(); return nil },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			primary, _ := deployed(t)
			host, port, _ := net.SplitHostPort(primary.Addr)
			replica := redistest.Run(t, "--replicaof", host+" "+port)
			second := connect(t, redis.Options{Addr: replica.Addr})
			eventually(t, "the replica has the library", func() bool {
				list, err := second.FunctionList(t.Context(), redis.FunctionListQuery{}).Result()
				return err == nil && len(list) > 0
			})
			sentinels, addrs := startSentinels(t, primary.Addr)
			c := open(t, urlOf(addrs)+"?client_name=watched")
			must[client.Result](t)(c.Allow(t.Context(), "k", plenty))
			var talksTo *redistest.Server
			var others []string
			for _, s := range sentinels {
				if others = append(others, s.Addr); strings.Contains(connect(t, redis.Options{Addr: s.Addr}).ClientList(t.Context()).Val(), "name=watched") {
					talksTo = s
				}
			}
			others = slices.DeleteFunc(others, func(addr string) bool { return addr == talksTo.Addr })
			check(t, fail(primary))
			check(t, fail(talksTo))
			// Wall time would depend on how busy the machine is. So a new client of the other Sentinels
			// finds out when they name a primary that answers, and only calls that are sent then count.
			// The breaker sends the first within a second, and it should succeed. More time out on a
			// very busy machine. A client that keeps the hung Sentinel never succeeds.
			const patience = 30
			behind := 0
			eventually(t, "the client finds the new primary", func() bool {
				_, err := c.Allow(t.Context(), "k", plenty)
				if err != nil && !errors.Is(err, gobreaker.ErrOpenState) && answersNewClient(t, others) {
					if behind++; behind > patience {
						t.Fatalf("a new client got an answer after each of %d calls that failed, the last one with: %v", behind, err)
					}
				}
				return err == nil
			})
			t.Logf("%d calls failed after which a new client got an answer", behind)
		})
	}
}

func urlOf(sentinels []string) string {
	return "redis-sentinel://" + strings.Join(sentinels, ",") + "/main"
}

func answersNewClient(t *testing.T, sentinels []string) bool {
	c := must[*client.Client](t)(client.Open(urlOf(sentinels)))
	_, err := c.Allow(t.Context(), "new", plenty)
	check(t, c.Close())
	return err == nil
}

// An error says what the Sentinels replied in place of an address, and what to do.
func TestSentinelsThatRefuse(t *testing.T) {
	server, _ := deployed(t)
	sentinel := startSentinel(t, server.Addr)
	admin := connect(t, redis.Options{Addr: sentinel})
	for _, tt := range []struct{ password, at, want string }{
		{"", sentinel + "/other", "the Sentinels do not watch a primary of this name; write the name that they know in redis-sentinel://HOST:26379/NAME"},
		{"", server.Addr + "/main", "it is not a Sentinel; give the addresses of the Sentinels, whose port is usually 26379, or write redis:// in place of redis-sentinel://"},
		{"secret", sentinel + "/main", "the Sentinels require a password; write redis-sentinel://HOST:26379/NAME?sentinel_password=PASSWORD"},
		{"secret", sentinel + "/main?sentinel_password=x", "the Sentinels refuse the login; check sentinel_username and sentinel_password in the URL"},
	} {
		if tt.password != "" {
			require(t, admin.Do(t.Context(), "ACL", "SETUSER", "default", ">"+tt.password, "resetpass", ">"+tt.password).Err())
		}
		_, err := open(t, "redis-sentinel://"+tt.at).Allow(t.Context(), "k", perDay)
		if want := `ratelimit: take "k": no connection, nothing was counted: ` + tt.want; !errors.Is(err, client.ErrUnavailable) || errors.Is(err, client.ErrOutcomeUnknown) || err.Error() != want {
			t.Errorf("%s: %v\nwant %s", tt.at, err, want)
		}
	}
}
