package client_test

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/ratelimit-functions/ratelimit/client"
	"github.com/ratelimit-functions/ratelimit/functions"
	"github.com/ratelimit-functions/ratelimit/internal/freeport"
)

// dialing is a goroutine of go-redis: a pool that could not dial tries again once a second until it is closed, and notices
// that within one.
const dialing = "github.com/redis/go-redis/v9/internal/pool.(*ConnPool).tryDial"

func TestMain(m *testing.M) {
	code := m.Run()
	stopCluster()
	if code == 0 {
		if err := goleak.Find(goleak.IgnoreAnyFunction(dialing)); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

// eventually waits for a condition that another process makes true.
func eventually(t testing.TB, what string, condition func() bool) {
	t.Helper()
	if !within(longest, condition) {
		t.Fatalf("waited %v in vain: %s", longest, what)
	}
}

// longest is how long a condition is waited for, however busy the machine is.
const longest = 2 * time.Minute

// within asks for a condition again and again, and tells whether it came true.
func within(d time.Duration, condition func() bool) bool {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for began := time.Now(); !condition(); <-tick.C {
		if time.Since(began) > d {
			return false
		}
	}
	return true
}

func must[T any](t testing.TB) func(T, error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// process is a redis-server of its own.
type process struct {
	addr string
	stop func()
}

func startProcess(args ...string) (*process, error) {
	bin, err := exec.LookPath("redis-server")
	if err != nil {
		return nil, fmt.Errorf("these tests need a redis-server (Debian, Ubuntu: apt-get install redis-server): %w", err)
	}
	port, err := freeport.Find()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "client-test-")
	if err != nil {
		return nil, err
	}
	args = append(args, // a file of configuration would be the first
		"--port", strconv.Itoa(port), "--bind", "127.0.0.1", "--save", "", "--dir", dir,
		"--repl-diskless-sync-delay", "0", "--repl-ping-replica-period", "1", "--cluster-node-timeout", "60000")
	cmd := exec.Command(bin, args...)
	var log strings.Builder
	cmd.Stdout, cmd.Stderr = &log, &log
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	p := &process{addr: "127.0.0.1:" + strconv.Itoa(port), stop: func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		_ = os.RemoveAll(dir)
	}}
	if !within(longest, func() bool {
		conn, err := net.Dial("tcp", p.addr)
		if err == nil {
			_ = conn.Close()
		}
		return err == nil
	}) {
		p.stop()
		return nil, fmt.Errorf("redis-server %v does not answer: %s", args, log.String())
	}
	return p, nil
}

func startRedis(t testing.TB, args ...string) *process {
	t.Helper()
	p, err := startProcess(args...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.stop)
	return p
}

func connect(t testing.TB, opt redis.Options) *redis.Client {
	t.Helper()
	rdb := redis.NewClient(&opt)
	t.Cleanup(func() { _ = rdb.Close() })
	return rdb
}

func deploy(t testing.TB, rdb redis.UniversalClient) {
	t.Helper()
	if err := rdb.FunctionLoadReplace(t.Context(), functions.Source()).Err(); err != nil {
		t.Fatal(err)
	}
}

func newClient(t testing.TB, rdb redis.UniversalClient, opts ...client.Option) *client.Client {
	t.Helper()
	return must[*client.Client](t)(client.New(rdb, opts...))
}

// cluster is two primaries with half of the slots each and a replica of the first, shared by the tests that need one.
type cluster struct {
	nodes [3]*process
	ids   [3]string
}

var (
	clusterOnce sync.Once
	shared      *cluster
	sharedErr   error
)

func stopCluster() {
	if shared != nil {
		for _, node := range shared.nodes {
			if node != nil {
				node.stop()
			}
		}
	}
}

func startCluster(t *testing.T) *cluster {
	t.Helper()
	clusterOnce.Do(func() {
		shared = &cluster{}
		for i := range shared.nodes {
			if shared.nodes[i], sharedErr = startProcess("--cluster-enabled", "yes"); sharedErr != nil {
				return
			}
		}
	})
	if sharedErr != nil {
		t.Fatal(sharedErr)
	}
	c := shared
	if c.ids[0] != "" {
		return c
	}
	ctx := t.Context()
	var direct [3]*redis.Client
	for i, node := range c.nodes {
		direct[i] = connect(t, redis.Options{Addr: node.addr})
		if i < 2 {
			deploy(t, direct[i])
			if err := direct[i].ClusterAddSlotsRange(ctx, i*8192, i*8192+8191).Err(); err != nil {
				t.Fatal(err)
			}
		}
		for _, other := range c.nodes[:i] { // all pairs: word of mouth takes seconds
			host, port, _ := net.SplitHostPort(other.addr)
			if err := direct[i].ClusterMeet(ctx, host, port).Err(); err != nil {
				t.Fatal(err)
			}
		}
		c.ids[i] = must[string](t)(direct[i].ClusterMyID(ctx).Result())
	}
	eventually(t, "the third node is a replica of the first", func() bool {
		return direct[2].ClusterReplicate(ctx, c.ids[0]).Err() == nil
	})
	for _, rdb := range direct {
		eventually(t, "every node sees the whole cluster", func() bool {
			info, err := rdb.ClusterInfo(ctx).Result()
			slots, err2 := rdb.Do(ctx, "cluster", "slots").Slice()
			if err != nil || err2 != nil || !strings.Contains(info, "cluster_state:ok") || len(slots) != 2 {
				return false
			}
			nodes := 0
			for _, slot := range slots {
				nodes += len(slot.([]any)) - 2 // after the first and the last slot
			}
			return nodes == 3
		})
	}
	eventually(t, "the replica has the library", func() bool {
		libraries, err := direct[2].FunctionList(ctx, redis.FunctionListQuery{}).Result()
		return err == nil && len(libraries) == 1
	})
	return c
}
