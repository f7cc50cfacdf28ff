package cli

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/ratelimit-functions/ratelimit/functions"
)

// TestSentinel connects through Sentinels to the primary that they name, and to its successor after
// a failover.
func TestSentinel(t *testing.T) {
	primary := startRedis(t)
	host, port, _ := strings.Cut(primary, ":")
	replica := startRedis(t, "--replicaof", host+" "+port)
	config := filepath.Join(t.TempDir(), "sentinel.conf")
	text := "sentinel monitor mymaster " + host + " " + port + " 1\nsentinel down-after-milliseconds mymaster 500\nsentinel failover-timeout mymaster 3000\n"
	require(t, os.WriteFile(config, []byte(text), 0o666))
	sentinel := startRedis(t, config, "--sentinel")
	watching := admin(t, sentinel)
	eventually(t, "the Sentinel knows the replica", func() bool {
		state, err := watching.Do(t.Context(), "SENTINEL", "CKQUORUM", "mymaster").Text()
		list, _ := watching.Do(t.Context(), "SENTINEL", "REPLICAS", "mymaster").Slice()
		return err == nil && strings.HasPrefix(state, "OK") && len(list) == 1
	})
	servers := []string{"--redis", "redis-sentinel://" + sentinel + "/mymaster"}
	if got := run(t, nil, append([]string{"deploy"}, servers...)...); got.code != exitFine || !strings.Contains(got.stdout, primary+"  primary") {
		t.Errorf("%+v", got)
	}
	if got := run(t, nil, append([]string{"take", "a", "100/m"}, servers...)...); got.code != exitFine {
		t.Errorf("%+v", got)
	}
	following := admin(t, replica)
	eventually(t, "the replica has the library", func() bool {
		list, err := following.FunctionList(t.Context(), redis.FunctionListQuery{LibraryNamePattern: functions.Name}).Result()
		return err == nil && len(list) == 1
	})
	eventually(t, "the replica takes over", func() bool {
		// The Sentinel might not accept the replica yet, or might abort the failover. Repeat the
		// request until a failover succeeds.
		if reply, err := watching.Do(t.Context(), "SENTINEL", "GET-MASTER-ADDR-BY-NAME", "mymaster").StringSlice(); err == nil && net.JoinHostPort(reply[0], reply[1]) == primary {
			_ = watching.Do(t.Context(), "SENTINEL", "FAILOVER", "mymaster").Err()
		}
		got := run(t, nil, append([]string{"status"}, servers...)...)
		return got.code == exitFine && strings.Contains(got.stdout, replica+"  primary")
	})
	plain := startRedis(t)
	do(t, watching, "SENTINEL", "MONITOR", "gone", "127.0.0.1", "1", "1")
	m := newMessages(t, "Sentinels", sentinel, "SENTINEL", plain, "PLAIN")
	m.fails(nil, "status", "--redis", "redis-sentinel://"+sentinel)
	for _, args := range [][]string{
		{"--redis", "redis-sentinel://" + sentinel + "/nobody"},
		{"--redis", "redis-sentinel://" + plain + "/mymaster"},
		{"--redis", "redis-sentinel://127.0.0.1:1/mymaster"},
		{"--redis", "redis-sentinel://" + sentinel + "/gone"},
		{"--redis", "redis://" + sentinel},
	} {
		m.fails(nil, append([]string{"take", "a", "1/s"}, args...)...)
		m.fails(nil, append([]string{"deploy"}, args...)...)
	}
}
