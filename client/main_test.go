package client_test

import (
	"flag"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/ratelimit-functions/ratelimit/client"
	"github.com/ratelimit-functions/ratelimit/functions"
	"github.com/ratelimit-functions/ratelimit/internal/redistest"
)

// dialing is the function in which go-redis dials again, once a second, after a pool failed to
// dial. Its goroutine ends up to a second after the pool is closed, so the leak check ignores it.
const dialing = "github.com/redis/go-redis/v9/internal/pool.(*ConnPool).tryDial"

func TestMain(m *testing.M) {
	_ = flag.Set("test.parallel", "16") // parallel tests spend their time waiting for timeouts
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

var eventually = redistest.Eventually

func must[T any](t testing.TB) func(T, error) T { return redistest.Must[T](t) }

func second[T any](_ T, err error) error { return err }

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Error(err)
	}
}

var require = redistest.Require

func wantText(t testing.TB, err error, want string) {
	t.Helper()
	if err == nil || err.Error() != want {
		t.Errorf("%v\nwant %s", err, want)
	}
}

func wantNoQueue(t testing.TB, c *client.Client) {
	t.Helper()
	if n := client.Waiting(c); n != 0 {
		t.Errorf("%d queues are left", n)
	}
}

// left returns how many units of a key are left.
func left(t testing.TB, c *client.Client, key string, limit client.Limit) int64 {
	t.Helper()
	return must[client.Result](t)(c.Peek(t.Context(), client.For(key, limit, 0))).Remaining
}

// connect returns a client for opt that honours deadlines. The default ReadTimeout is long enough for a busy machine.
func connect(t testing.TB, opt redis.Options) *redis.Client {
	t.Helper()
	if opt.ReadTimeout == 0 {
		opt.ReadTimeout = slow
	}
	opt.ContextTimeoutEnabled = true
	rdb := redis.NewClient(&opt)
	t.Cleanup(func() { _ = rdb.Close() })
	return rdb
}

func deploy(t testing.TB, rdb redis.UniversalClient) {
	t.Helper()
	require(t, rdb.FunctionLoadReplace(t.Context(), functions.Source()).Err())
}

// deployed returns a server with the library, and a client for it.
func deployed(t testing.TB) (*redistest.Server, *redis.Client) {
	t.Helper()
	server := redistest.Run(t)
	rdb := connect(t, redis.Options{Addr: server.Addr})
	deploy(t, rdb)
	return server, rdb
}

func newClient(t testing.TB, rdb redis.UniversalClient, opts ...client.Option) *client.Client {
	t.Helper()
	switch rdb.(type) {
	case *redis.Client, *redis.ClusterClient, *redis.Ring:
	default: // a type of these tests
		rdb, opts = answers(rdb.Process).client(), append(opts, client.Alone())
	}
	return must[*client.Client](t)(client.New(rdb, append(opts, client.DefaultTimeout(time.Minute))...))
}

// cluster is two primaries with half of the slots each and a replica of the first. Tests share it.
type cluster struct {
	nodes [3]*redistest.Server
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
				node.Stop()
			}
		}
	}
}

func startCluster(t *testing.T) *cluster {
	t.Helper()
	clusterOnce.Do(func() {
		shared = &cluster{}
		for i := range shared.nodes {
			if shared.nodes[i], sharedErr = redistest.Start("redis-server", "--cluster-enabled", "yes"); sharedErr != nil {
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
		direct[i] = connect(t, redis.Options{Addr: node.Addr})
		c.ids[i] = must[string](t)(direct[i].ClusterMyID(ctx).Result())
	}
	redistest.Join(t, direct[:], 2)
	deploy(t, direct[0])
	deploy(t, direct[1])
	eventually(t, "the third node is a replica of the first", func() bool {
		return direct[2].ClusterReplicate(ctx, c.ids[0]).Err() == nil
	})
	for _, rdb := range direct {
		eventually(t, "every node sees the whole cluster", func() bool {
			shards := rdb.ClusterShards(ctx).Val()
			return len(shards) == 2 && len(shards[0].Nodes)+len(shards[1].Nodes) == 3
		})
	}
	eventually(t, "the replica has the library", func() bool {
		libraries, err := direct[2].FunctionList(ctx, redis.FunctionListQuery{}).Result()
		return err == nil && len(libraries) == 1
	})
	return c
}
