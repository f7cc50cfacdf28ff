// Package policycalls reads the policies of all primaries, and the calls that each primary has
// counted for them since its library was loaded. It changes nothing.
package policycalls

import (
	"cmp"
	"context"
	"errors"
	"github.com/ratelimit-functions/ratelimit/cmd/ratelimit/internal/scan"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/ratelimit-functions/ratelimit/client"
)

// Node is one primary's reply.
type Node struct {
	Addr string
	Err  error       // why the node did not reply, or nil
	Info client.Info // Info.PolicyCalls is nil if the node's library is too old to count calls
	At   time.Time   // time of the reply, by this machine's clock

	rdb *redis.Client
}

// Nodes calls ratelimit_info on all of rdb's primaries, each with the given timeout. It returns the
// nodes sorted by address. The error joins a [scan.NodeError] for each node that did not reply, and
// the error from listing the primaries.
func Nodes(ctx context.Context, rdb redis.UniversalClient, timeout time.Duration) ([]Node, error) {
	var mu sync.Mutex
	var nodes []Node
	err := scan.EachPrimary(ctx, rdb, func(ctx context.Context, rdb *redis.Client) error {
		c, err := client.New(rdb, client.WithTimeout(timeout))
		if err != nil {
			return err
		}
		node := Node{Addr: rdb.Options().Addr, rdb: rdb}
		node.Info, node.Err = c.Info(ctx)
		node.At = time.Now()
		mu.Lock()
		defer mu.Unlock()
		nodes = append(nodes, node)
		return nil
	})
	slices.SortFunc(nodes, func(a, b Node) int { return cmp.Compare(a.Addr, b.Addr) })
	var failed []error
	for _, node := range nodes {
		if node.Err != nil {
			failed = append(failed, &scan.NodeError{Addr: node.Addr, Err: node.Err})
		}
	}
	return nodes, errors.Join(append(failed, err)...)
}
