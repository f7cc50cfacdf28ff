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

// Through Sentinels: the primary that they name, and its successor after a failover.
func TestSentinel(t *testing.T) {
	primary := startRedis(t)
	host, port, _ := strings.Cut(primary, ":")
	replica := startRedis(t, "--replicaof", host+" "+port)
	config := filepath.Join(t.TempDir(), "sentinel.conf")
	text := "sentinel monitor mymaster " + host + " " + port + " 1\nsentinel down-after-milliseconds mymaster 500\nsentinel failover-timeout mymaster 3000\n"
	if err := os.WriteFile(config, []byte(text), 0o666); err != nil {
		t.Fatal(err)
	}
	sentinel := startRedis(t, config, "--sentinel")
	watching := admin(t, sentinel)
	eventually(t, "the Sentinel knows the replica", func() bool {
		state, err := watching.Do(t.Context(), "SENTINEL", "CKQUORUM", "mymaster").Text()
		list, _ := watching.Do(t.Context(), "SENTINEL", "REPLICAS", "mymaster").Slice()
		return err == nil && strings.HasPrefix(state, "OK") && len(list) == 1
	})
	for _, servers := range [][]string{{"--redis", "redis-sentinel://" + sentinel + "/mymaster"}, {"--redis", "redis://" + sentinel, "--sentinel", "mymaster"}} {
		if got := run(t, nil, append([]string{"deploy"}, servers...)...); got.code != exitFine || !strings.Contains(got.stdout, primary+"  primary") {
			t.Errorf("%v: %+v", servers, got)
		}
		if got := run(t, nil, append([]string{"take", "a", "100/m"}, servers...)...); got.code != exitFine {
			t.Errorf("%v: %+v", servers, got)
		}
	}
	servers := []string{"--redis", "redis-sentinel://" + sentinel + "/mymaster"}
	following := admin(t, replica)
	eventually(t, "the replica has the library", func() bool {
		list, err := following.FunctionList(t.Context(), redis.FunctionListQuery{LibraryNamePattern: functions.Name}).Result()
		return err == nil && len(list) == 1
	})
	eventually(t, "the replica takes over", func() bool {
		// A Sentinel may not accept the replica yet, or abort a failover: ask until one succeeds.
		if reply, err := watching.Do(t.Context(), "SENTINEL", "GET-MASTER-ADDR-BY-NAME", "mymaster").StringSlice(); err == nil && net.JoinHostPort(reply[0], reply[1]) == primary {
			_ = watching.Do(t.Context(), "SENTINEL", "FAILOVER", "mymaster").Err()
		}
		got := run(t, nil, append([]string{"status"}, servers...)...)
		return got.code == exitFine && strings.Contains(got.stdout, replica+"  primary")
	})
	run(t, nil, "status", "--redis", "redis-sentinel://"+sentinel).want(t, exitError, "",
		"ratelimit: --redis does not name the primary that the Sentinels watch; give one such as redis-sentinel://host:26379,host:26379/name\n")
	run(t, nil, "status", "--redis", "redis-sentinel://"+sentinel+"/mymaster", "--sentinel", "other").want(t, exitError, "",
		"ratelimit: --sentinel other and mymaster, the name in the URL, contradict each other; leave one out\n")
	run(t, nil, "status", "--redis", "redis://"+sentinel, "--sentinel", "x", "--cluster").want(t, exitError, "",
		"ratelimit: --cluster and Sentinels contradict each other: Sentinels watch a primary that is no cluster; leave one out\n")
	// Every command reports it in one sentence.
	plain, nowhere := startRedis(t), "127.0.0.1:1"
	do(t, watching, "SENTINEL", "MONITOR", "gone", "127.0.0.1", "1", "1")
	const none = "; check the URL and that the server runs, or start one that needs no Redis with: ratelimit dev"
	for _, tt := range []struct {
		args           []string
		want, fleetful string
	}{
		{[]string{"--redis", "redis://" + sentinel, "--sentinel", "nobody"},
			`cannot reach the primary "nobody" of redis://` + sentinel + ": the Sentinels watch no primary of this name; give the name that they know with --sentinel", ""},
		{[]string{"--redis", "redis://" + plain, "--sentinel", "mymaster"},
			`cannot reach the primary "mymaster" of redis://` + plain + ": it is no Sentinel; give the addresses of the Sentinels, whose port is usually 26379, or leave out --sentinel (redis-sentinel://)", ""},
		{[]string{"--redis", "redis-sentinel://" + nowhere + "/mymaster"},
			`cannot reach the primary "mymaster" of redis-sentinel://` + nowhere + "/mymaster: no Sentinel answers: connection refused" + none,
			"cannot reach the primary: no Sentinel answers: connection refused; check the address, and that the server runs"},
		{[]string{"--redis", "redis-sentinel://" + sentinel + "/gone"},
			`cannot reach the primary "gone" of redis-sentinel://` + sentinel + "/gone, at " + nowhere + ": connection refused" + none,
			"cannot reach " + nowhere + ": connection refused; check the address, and that the server runs"},
		{[]string{"--redis", "redis://" + sentinel},
			"redis://" + sentinel + " is a Sentinel, which holds no data; name the primary that it watches with --sentinel, or connect to that primary",
			sentinel + " is a Sentinel, which holds no data; name the primary that it watches with --sentinel, or connect to that primary"},
	} {
		if tt.fleetful == "" {
			tt.fleetful = tt.want
		}
		run(t, nil, append([]string{"take", "a", "1/s"}, tt.args...)...).want(t, exitError, "", "ratelimit: "+tt.want+"\n")
		run(t, nil, append([]string{"deploy"}, tt.args...)...).want(t, exitError, "", "ratelimit: "+tt.fleetful+"\n")
	}
}
