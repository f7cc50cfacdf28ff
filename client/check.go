package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// contract is the version of the wire contract that this package supports.
const contract = 1

// Check returns nil if all servers are ready for this program: each is reachable, has the library,
// uses this package's contract, and has the given policies, such as "@login". It is meant for
// program start and health checks. In a cluster it asks every primary. The error names the server
// and the command to run; it is [ErrUnavailable], [ErrNotDeployed], [ErrNoPolicy] or
// [ErrNoPermission]. Like any call, it returns within the client's timeout.
func (c *Client) Check(ctx context.Context, policies ...Limit) (err error) {
	defer c.observers.report(ctx, "check", time.Now(), nil, nil, &err)
	for _, policy := range policies {
		if name, ok := strings.CutPrefix(string(policy), "@"); !ok || name == "" {
			return refused("check", nil, fmt.Errorf("BADARGS %q is not the name of a policy; give those that are deployed with the library, such as @login", string(policy)))
		}
	}
	info := call{verb: "info", mode: readOnly}
	if err := c.server.ready(ctx, call{verb: "check"}); err != nil {
		return err
	}
	limited := c.server.bounded(ctx)
	defer limited.release()
	found := make(chan error, 1)
	// Some Redis clients ignore deadlines. Check is rarely called, so an extra goroutine is cheap
	// enough.
	if !c.server.lifetime.run(func() {
		var mu sync.Mutex
		var faults []*Error
		err := c.server.eachPrimary(limited, func(ctx context.Context, name string, rdb redis.UniversalClient) {
			if fault := checkOne(ctx, rdb, info, policies); fault != nil {
				fault.Op = "check"
				fault.sentence = name + fault.sentence
				mu.Lock()
				defer mu.Unlock()
				faults = append(faults, fault)
			}
		})
		switch {
		case len(faults) > 0:
			found <- slices.MinFunc(faults, func(a, b *Error) int { return cmp.Compare(a.sentence, b.sentence) })
		case err != nil:
			found <- newError(limited, "check", nil, err, false)
		default:
			found <- nil
		}
	}) {
		return afterClose("check", nil)
	}
	select {
	case err := <-found:
		return err
	case <-limited.wait():
		return newError(limited, "check", nil, ended(limited), false)
	}
}

// eachPrimary calls f for every server that holds keys, several at a time. name is the beginning of
// a sentence about the server.
func (s *server) eachPrimary(ctx context.Context, f func(ctx context.Context, name string, rdb redis.UniversalClient)) error {
	each := func(ctx context.Context, node *redis.Client) error {
		f(ctx, node.Options().Addr+": ", node)
		return nil
	}
	switch rdb := s.rdb.(type) {
	case *redis.ClusterClient:
		return rdb.ForEachMaster(ctx, each)
	case *redis.Ring:
		if up, all := len(rdb.GetShardClients()), len(rdb.Options().Addrs); up < all {
			return fmt.Errorf("%d of the %d shards of the ring do not reply", all-up, all)
		}
		return rdb.ForEachShard(ctx, each)
	}
	f(ctx, "", s.rdb)
	return nil
}

// checkOne returns nil if the server that rdb connects to is ready.
func checkOne(ctx context.Context, rdb redis.UniversalClient, info call, policies []Limit) *Error {
	var cmd command
	cmd.fill(ctx, info)
	reply, err := cmd.send(ctx, rdb)
	if err != nil {
		return newError(ctx, "info", nil, err, false)
	}
	got, ok := parseInfo(reply)
	if !ok {
		return badReply("info", nil, infoFields, reply)
	}
	fault := func(class error, format string, args ...any) *Error {
		text := fmt.Sprintf(format, args...)
		return &Error{Err: errors.New(text), class: class, sentence: text}
	}
	switch {
	case got.Contract < contract:
		return fault(ErrNotDeployed, "the library speaks contract %d, and this client contract %d; deploy the library of this client's version", got.Contract, contract)
	case got.Contract > contract:
		return fault(ErrBadReply, "the library speaks contract %d, and this client contract %d; build the program with a newer client", got.Contract, contract)
	}
	for _, policy := range policies {
		if !slices.Contains(got.Policies, string(policy[1:])) {
			has := "none"
			if len(got.Policies) > 0 {
				has = "@" + strings.Join(got.Policies, ", @")
			}
			return fault(ErrNoPolicy, "the library has no policy %s, it has %s; deploy a build that has it", policy, has)
		}
	}
	return nil
}
