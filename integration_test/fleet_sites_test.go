package integration_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/ratelimit-functions/ratelimit/integration_test/backend"
	"github.com/ratelimit-functions/ratelimit/internal/redistest"
)

// site is a set of servers on which a proof runs.
type site struct {
	url       string
	nodes     []*redis.Client                 // all servers
	primaries func() ([]*redis.Client, error) // those that take writes; an error if some server is not ready
	faults    []fault                         // of one primary each; they take turns
}

// fault is what happens to one primary in a round. prepare runs before the deployments of the round.
// strike runs during them or, if there is only one primary, after them. It returns when the servers
// take writes again.
type fault struct {
	name            string
	prepare, strike func(round int) error
}

var noFault = fault{"no fault", func(int) error { return nil }, func(int) error { return nil }}

// proofOfServer runs on one server.
func proofOfServer(t *testing.T, b *backend.Backend) site {
	forgetFiles(t, b)
	n := b.Nodes[0]
	return site{
		url: "redis://" + n.Addr, nodes: []*redis.Client{n.Client()},
		primaries: func() ([]*redis.Client, error) { return []*redis.Client{n.Client()}, nil },
		faults:    []fault{noFault, noFault, restartOf(func(int) *backend.Node { return n }), noFault},
	}
}

// restartOf is a restart with the file from before the deployments of the round.
func restartOf(victim func(round int) *backend.Node) fault {
	ctx := context.Background()
	return fault{"a restart with old data", func(i int) error { return victim(i).Client().Save(ctx).Err() }, func(i int) error {
		n := victim(i)
		return errors.Join(n.Kill(ctx), n.Restart(ctx))
	}}
}

// forgetFiles lets the servers save that they are empty when the test has ended.
func forgetFiles(t *testing.T, b *backend.Backend) {
	t.Cleanup(func() {
		ctx := context.Background()
		if err := b.Restore(ctx); err != nil {
			t.Error(err)
		}
		for _, n := range b.Nodes {
			if err := n.Client().Save(ctx).Err(); err != nil {
				t.Errorf("%s: %v", n, err)
			}
		}
	})
}

// proofOfCluster runs on three primaries with a replica each.
func proofOfCluster(t *testing.T, b *backend.Backend) site {
	forgetFiles(t, b)
	ctx := context.Background()
	victims := map[int]*backend.Node{} // by round
	var clients []*redis.Client
	for _, n := range b.Nodes {
		clients = append(clients, n.Client())
	}
	// ready waits until the cluster has three primaries with a replica each.
	ready := func() (primaries []*backend.Node, err error) {
		err = backend.Until(testContext(t), "three primaries with replicas", func() error {
			if primaries, err = b.Primaries(ctx); err != nil {
				return err
			}
			for _, n := range primaries {
				if followers(n.Client()) != 1 {
					return fmt.Errorf("%s has no replica", n)
				}
			}
			if len(primaries) != 3 {
				return fmt.Errorf("there are %d", len(primaries))
			}
			return nil
		})
		return primaries, err
	}
	victim := func(i int) *backend.Node { return victims[i] }
	replicaOf := func(n *backend.Node) (*backend.Node, error) {
		for _, other := range b.Nodes {
			role, err := other.Client().Do(ctx, "ROLE").Slice()
			if err == nil && role[0] == "slave" && fmt.Sprintf("%v:%v", role[1], role[2]) == n.Addr {
				return other, nil
			}
		}
		return nil, fmt.Errorf("%s has no replica", n)
	}
	var successor *backend.Node
	faults := []fault{noFault, restartOf(victim), {"FUNCTION FLUSH", noFault.prepare, func(i int) error { return victim(i).Client().FunctionFlush(ctx).Err() }}, {
		"a failover to a replica without the last writes", func(i int) (err error) {
			if successor, err = replicaOf(victim(i)); err != nil {
				return err
			}
			return cutOff(ctx, successor.Client(), victim(i).Client())
		}, func(i int) error {
			if err := successor.Client().Do(ctx, "CLUSTER", "FAILOVER", "TAKEOVER").Err(); err != nil {
				return err
			}
			return letIn(ctx, successor.Client())
		},
	}}
	for i := range faults {
		prepare, strike := faults[i].prepare, faults[i].strike
		faults[i].prepare = func(round int) error {
			primaries, err := ready()
			if err == nil {
				victims[round] = primaries[round%3]
				err = prepare(round)
			}
			return err
		}
		faults[i].strike = func(round int) error {
			err := strike(round)
			if err == nil {
				_, err = ready()
			}
			return err
		}
	}
	var urls []string
	for _, addr := range b.Addrs() {
		urls = append(urls, "redis+cluster://"+addr)
	}
	return site{url: strings.Join(urls, ","), nodes: clients, faults: faults, primaries: func() (list []*redis.Client, err error) {
		nodes, err := ready()
		for _, n := range nodes {
			list = append(list, n.Client())
		}
		return list, err
	}}
}

// followers returns the number of replicas that are in sync with a primary.
func followers(primary *redis.Client) int {
	role, err := primary.Do(context.Background(), "ROLE").Slice()
	if err != nil || role[0] != "master" {
		return -1
	}
	list, _ := role[2].([]any)
	return len(list)
}

// cutOff lets a replica no longer follow its primary: it keeps what it has, and logs in as nobody.
func cutOff(ctx context.Context, replica, primary *redis.Client) error {
	err := errors.Join(replica.ConfigSet(ctx, "masteruser", "nobody").Err(), replica.ConfigSet(ctx, "masterauth", "x").Err(),
		primary.Do(ctx, "CLIENT", "KILL", "TYPE", "replica").Err())
	if err != nil {
		return err
	}
	return backend.Until(ctx, "the replica to be cut off", func() error {
		if n := followers(primary); n != 0 {
			return fmt.Errorf("%d replicas follow", n)
		}
		return nil
	})
}

// letIn undoes cutOff.
func letIn(ctx context.Context, replica *redis.Client) error {
	return errors.Join(replica.ConfigSet(ctx, "masteruser", "").Err(), replica.ConfigSet(ctx, "masterauth", "").Err())
}

// proofBehindSentinel runs on a primary with a replica and a Sentinel, which are processes on this machine.
func proofBehindSentinel(t *testing.T) site {
	ctx := testContext(t)
	var servers [2]*redistest.Server
	var clients []*redis.Client
	dirs := [2]string{t.TempDir(), t.TempDir()}
	start := func(i int, args ...string) (err error) {
		servers[i], err = redistest.Start("redis-server", append(args, "--dir", dirs[i])...)
		return err
	}
	connect := func(addr string) *redis.Client {
		rdb := redis.NewClient(&redis.Options{Addr: addr})
		t.Cleanup(func() { _ = rdb.Close() })
		return rdb
	}
	require(t, start(0))
	host, port := must2(net.SplitHostPort(servers[0].Addr))
	require(t, start(1, "--replicaof", host+" "+port))
	t.Cleanup(func() { servers[0].Stop(); servers[1].Stop() })
	config := filepath.Join(t.TempDir(), "sentinel.conf")
	require(t, os.WriteFile(config, []byte("sentinel monitor main "+host+" "+port+" 1\nsentinel down-after-milliseconds main 60000\nsentinel failover-timeout main 10000\n"), 0o666))
	sentinel := redistest.Run(t, config, "--sentinel")
	clients = []*redis.Client{connect(servers[0].Addr), connect(servers[1].Addr)}
	asked := connect(sentinel.Addr)
	// primary returns which server is the primary.
	primary := func() (int, error) {
		addr, err := asked.Do(ctx, "SENTINEL", "GET-MASTER-ADDR-BY-NAME", "main").StringSlice()
		for i, s := range servers {
			if err == nil && net.JoinHostPort(addr[0], addr[1]) == s.Addr {
				return i, nil
			}
		}
		return 0, fmt.Errorf("the Sentinel names %v: %w", addr, err)
	}
	// ready waits until the primary has its replica.
	ready := func() (now int, err error) {
		err = backend.Until(ctx, "a primary with a replica", func() error {
			if now, err = primary(); err != nil {
				return err
			}
			if n := followers(clients[now]); n != 1 {
				return fmt.Errorf("%d replicas follow", n)
			}
			return nil
		})
		return now, err
	}
	var before int // the primary at the beginning of the round
	faults := []fault{noFault, {"a restart with old data", func(int) (err error) {
		if before, err = ready(); err != nil {
			return err
		}
		return clients[before].Save(ctx).Err()
	}, func(int) error {
		_, port := must2(net.SplitHostPort(servers[before].Addr))
		servers[before].Stop()
		return start(before, "--port", port)
	}}, noFault, {"a failover to a replica without the last writes", func(int) (err error) {
		if before, err = ready(); err != nil {
			return err
		}
		return cutOff(ctx, clients[1-before], clients[before])
	}, func(int) error {
		err := backend.Until(ctx, "the failover", func() error {
			now, err := primary()
			if err == nil && now == before {
				err = errors.Join(errors.New("not yet"), asked.Do(ctx, "SENTINEL", "FAILOVER", "main").Err()) // "in progress", or "no suitable replica" for a while
			}
			return err
		})
		host, port := must2(net.SplitHostPort(servers[1-before].Addr))
		return errors.Join(err, letIn(ctx, clients[1-before]), clients[before].ReplicaOf(ctx, host, port).Err())
	}}}
	return site{url: "redis-sentinel://" + sentinel.Addr + "/main", nodes: clients, faults: faults, primaries: func() ([]*redis.Client, error) {
		now, err := ready()
		return clients[now : now+1], err
	}}
}

func must2(host, port string, err error) (string, string) {
	if err != nil {
		panic(err)
	}
	return host, port
}
