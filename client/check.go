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

	"github.com/ratelimit-functions/ratelimit/client/internal/limittext"
	"github.com/ratelimit-functions/ratelimit/internal/respmap"
)

// contract is the version of the wire contract that this package supports.
const contract = 1

// Check returns nil if all servers are ready for this program. Each must be reachable, have the
// library, use this package's version of the wire contract, and accept the given limits, such as
// "100/m", "@login" or "concurrency 3 lease=30s". Call it when the program starts, with every limit
// of the program, because a call with a wrong limit returns an error and limits nothing. A program
// that should start even during an outage can go on if the error is ErrUnavailable. Any other error,
// such as a missing library, does not end by itself.
//
// In a cluster, Check needs one round trip to every primary. The error names the server, each wrong
// limit with the server's error, and the command to run. It is [ErrUnavailable], [ErrNotDeployed] or,
// for wrong limits, [ErrMisconfigured], or another [*Error] if the user lacks a right or the reply is not the library's. Like any call,
// it returns within the client's timeout.
func (c *Client) Check(ctx context.Context, limits ...Limit) (err error) {
	defer c.observers.report(ctx, "check", time.Now(), nil, nil, &err)
	if err := c.server.ready(ctx, &call{verb: "check"}); err != nil {
		return err
	}
	limited := c.bounded(ctx)
	defer limited.release()
	var mu sync.Mutex
	var faults []*Error
	err = c.server.eachPrimary(limited, func(ctx context.Context, name string, rdb redis.UniversalClient) {
		fault := checkOne(ctx, rdb, limits)
		if _, single := c.server.rdb.(*redis.Client); single && fault == nil {
			fault = inCluster(ctx, rdb)
		}
		if fault != nil {
			fault.Op = "check"
			fault.sentence = name + fault.sentence
			mu.Lock()
			defer mu.Unlock()
			faults = append(faults, fault)
		}
	})
	switch {
	case len(faults) > 0:
		return slices.MinFunc(faults, func(a, b *Error) int { return cmp.Compare(a.sentence, b.sentence) })
	case err != nil:
		return newError(limited, "check", nil, err, false)
	}
	return nil
}

// eachPrimary calls f for every primary, concurrently. name is the beginning of errors about the
// server: its address and a colon, or "" without a cluster or a ring.
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

// inCluster returns an error if node is one of several primaries of a cluster: such a node rejects
// the keys of the others. It returns nil if the user may not send CLUSTER SHARDS; HELLO needs no
// permission.
func inCluster(ctx context.Context, node redis.UniversalClient) *Error {
	hello, err := node.Do(ctx, "HELLO").Result()
	if err != nil || respmap.Of(hello)["mode"] != "cluster" {
		return nil
	}
	shards, err := node.ClusterShards(ctx).Result()
	if err != nil {
		return nil
	}
	shards = slices.DeleteFunc(shards, func(shard redis.ClusterShard) bool { return len(shard.Slots) == 0 })
	if len(shards) > 1 {
		return fault(typeUnavailable, "the server has only part of the keys of a cluster of %d shards; %s", len(shards), useCluster)
	}
	return nil
}

// checkOne returns nil if the server that rdb connects to is ready.
func checkOne(ctx context.Context, rdb redis.UniversalClient, limits []Limit) *Error {
	calls := []*command{infoCommand(ctx)}
	for _, limit := range limits {
		calls = append(calls, infoCommand(ctx, string(limit)))
	}
	if err := sendTogether(ctx, rdb, calls); err != nil {
		return newError(ctx, "info", nil, err, false)
	}
	reply, err := calls[0].Result()
	if err != nil {
		return newError(ctx, "info", nil, err, false)
	}
	got, ok := parseInfo(reply)
	if !ok {
		return badReply("info", nil, infoFields, reply)
	}
	switch {
	case got.Contract < contract:
		return fault(typeNotDeployed, "the library speaks contract %d, and this client contract %d; deploy the library of this client's version", got.Contract, contract)
	case got.Contract > contract:
		return fault(typeBadReply, "the library speaks contract %d, and this client contract %d; build the program with a newer client", got.Contract, contract)
	}
	var wrong []*Error
	for i, limit := range limits {
		if err := checkLimit(ctx, limit, got, calls[i+1]); err != nil {
			wrong = append(wrong, err)
		}
	}
	if len(wrong) < 2 {
		return slices.Concat(wrong, []*Error{nil})[0]
	}
	all, texts := make([]error, len(wrong)), make([]string, len(wrong))
	for i, err := range wrong {
		all[i], texts[i] = err, err.sentence
	}
	return &Error{Code: wrong[0].Code, Err: errors.Join(all...), kind: wrong[0].kind, sentence: strings.Join(texts, "; and ")}
}

func infoCommand(ctx context.Context, args ...any) *command {
	cmd := &command{}
	cmd.fill(ctx, &call{verb: "info", args: args, mode: readOnly})
	return cmd
}

// sendTogether sends calls in one round trip. Each call then has a reply or an error, unless
// sendTogether returns an error.
func sendTogether(ctx context.Context, rdb redis.UniversalClient, calls []*command) (err error) {
	if len(calls) == 1 {
		_, err = calls[0].send(ctx, rdb)
		return err
	}
	defer recovered(&err)
	cmds := make([]redis.Cmder, len(calls))
	for i, cmd := range calls {
		cmds[i] = cmd
	}
	pipe := rdb.Pipeline()
	_ = pipe.BatchProcess(ctx, cmds...)
	_, _ = pipe.Exec(ctx)
	return nil
}

// checkLimit returns the error for a wrong limit, or nil. info is the reply to ratelimit_info
// without a limit. asked is the completed call to ratelimit_info with limit.
func checkLimit(ctx context.Context, limit Limit, info Info, asked *command) *Error {
	name, isPolicy := strings.CutPrefix(string(limit), "@")
	if isPolicy && !slices.Contains(info.Policies, name) {
		return fault(typeNoPolicy, "the library has no policy %s, it has %s; deploy a build that has it", limit, listed(info.Policies))
	}
	err := asked.Err()
	if err == nil {
		return nil
	}
	e := newError(ctx, "info", nil, err, false)
	switch {
	case e.kind == typeBadLimit && strings.HasSuffix(e.sentence, forLeases):
		// ratelimit_info rejects every limit for leases, even a valid one.
		if key, err := readLimit(string(limit)); isPolicy || err == nil && key.algorithm == limittext.Leases {
			return nil
		} else if err != nil {
			return fault(typeBadLimit, "BADLIMIT %q: %v", string(limit), err)
		}
	case e.kind == typeBadArgs: // an older library, whose ratelimit_info does not accept a limit
		if isPolicy {
			return nil
		}
		return fault(typeNotDeployed, "the library is too old to check %q; deploy the library of this client's version", string(limit))
	}
	return e
}

// forLeases is the end of the library's error for a limit that only leases can use.
const forLeases = "concurrency is for ratelimit_acquire, ratelimit_renew and ratelimit_release"

// listed returns the names of policies for an error, at most ten.
func listed(names []string) string {
	const most = 10
	switch {
	case len(names) == 0:
		return "none"
	case len(names) > most:
		return fmt.Sprintf("@%s and %d more", strings.Join(names[:most], ", @"), len(names)-most)
	}
	return "@" + strings.Join(names, ", @")
}

func fault(kind string, format string, args ...any) *Error {
	text := fmt.Sprintf(format, args...)
	codes := map[string]string{typeNoPolicy: "NOPOLICY", typeBadLimit: "BADLIMIT"}
	return &Error{Code: codes[kind], Err: errors.New(text), kind: kind, sentence: text}
}
