package backend

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/ratelimit-functions/ratelimit/integration_test/clock"
)

const (
	// addrEnv has the address of a server to test, or the addresses of all nodes of a cluster,
	// separated by commas.
	addrEnv = "RATELIMIT_TEST_REDIS"
	// clockEnv names the clock's file for the servers at addrEnv, if they run with the clock shim.
	clockEnv = "RATELIMIT_TEST_CLOCK_FILE"
)

// given uses the servers at the addresses. The tests will empty them, so they must be empty before.
func given(ctx context.Context, addrs string) (*Backend, error) {
	b := &Backend{Name: "given", Place: "given by " + addrEnv}
	for addr := range strings.SplitSeq(addrs, ",") {
		addr = strings.TrimSpace(addr)
		if !strings.Contains(addr, ":") {
			return nil, fmt.Errorf("%s holds %q; write host:port, for a cluster all its nodes with commas between them", addrEnv, addr)
		}
		b.Nodes = append(b.Nodes, &Node{Name: addr, Addr: addr})
	}
	err := b.checkGiven(ctx)
	if file := os.Getenv(clockEnv); err == nil && file != "" {
		b.Clock, err = clock.Open(file)
	}
	if err != nil {
		return nil, errors.Join(err, b.stop())
	}
	return b, nil
}

func (b *Backend) checkGiven(ctx context.Context) error {
	if err := b.identify(ctx); err != nil {
		return fmt.Errorf("%s: %w", addrEnv, err)
	}
	if !b.Cluster && len(b.Nodes) > 1 {
		return fmt.Errorf("%s names %d servers, and the first is no node of a cluster; name one server, or a cluster's nodes", addrEnv, len(b.Nodes))
	}
	found := 0
	err := b.onPrimaries(ctx, func(c *redis.Client) error {
		found++
		keys, err := c.DBSize(ctx).Result()
		if err != nil {
			return err
		}
		libraries, err := c.FunctionList(ctx, redis.FunctionListQuery{}).Result()
		if err != nil {
			return err
		}
		if keys > 0 || len(libraries) > 0 {
			return fmt.Errorf("it holds %d keys and %d function libraries, and the tests would remove them; give them an empty server", keys, len(libraries))
		}
		return nil
	})
	if err == nil && found == 0 {
		err = errors.New("none of these is a primary")
	}
	if err != nil {
		return fmt.Errorf("%s: %w", addrEnv, err)
	}
	return nil
}
