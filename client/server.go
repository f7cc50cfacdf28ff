package client

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"
)

// server sends calls to the Redis server that holds their keys. It is the last layer, which gets a
// take only if no other layer decides. All other calls go to it directly. The way of a call:
//
//	Take     converts a request into a call, and its reply into a result
//	do       sets the deadline, and sends the call again if that is safe (again.go)
//	through  skips a server that does not reply (breaker.go)
//	send     sends the call alone or with others (shared.go), and follows redirections (redirect.go)
//
// All these functions run in the goroutine of the call.
type server struct {
	*common
	rdb      redis.UniversalClient
	breakers *breakers
	healer   func(context.Context, redis.UniversalClient) error // nil: no healer is set

	// shareAbove is the number of calls in progress for a node above which calls share round trips.
	shareAbove int64
}

// Take implements [Limiter].
func (s *server) Take(ctx context.Context, req Request) (Result, error) {
	call, err := s.callOf("take", &req)
	if err != nil {
		return Result{}, err
	}
	reply, err := s.do(ctx, &call)
	if err != nil {
		return Result{}, err
	}
	if result, ok := parseResult(reply, &req); ok {
		return result, nil
	}
	return Result{}, badReply(call.verb, call.keys, aDecision, reply)
}

// callOf returns the call that sends req as a take, peek or refund.
func (s *server) callOf(verb string, req *Request) (call, error) {
	call := call{verb: verb, keys: s.keys(req.keys(verb)), with: req.with}
	switch {
	case verb == "peek":
		call.mode = readOnly
	case req.OnceKey != "":
		call.mode, call.within = repeatable, req.OnceTTL/2
	}
	var err error
	if call.args, err = req.args(verb); err != nil {
		return call, refused(verb, call.keys, err)
	}
	return call, nil
}

// aDecision describes a valid reply to a take, peek, refund, acquire or renew.
const aDecision = "an array of at least 6 integers"

// ask sends a call and parses its reply. want describes a valid reply in errors.
func ask[T any](ctx context.Context, s *server, call *call, want string, parse func(reply any) (T, bool)) (T, error) {
	var none T
	reply, err := s.do(ctx, call)
	if err != nil {
		return none, err
	}
	if parsed, ok := parse(reply); ok {
		return parsed, nil
	}
	return none, badReply(call.verb, call.keys, want, reply)
}

// do sends a call to a server, and returns within the client's timeout.
func (s *server) do(ctx context.Context, call *call) (any, error) {
	if err := s.ready(ctx, call); err != nil {
		return nil, err
	}
	limited := s.bounded(ctx)
	defer limited.release()
	for tried := (attempts{}); ; {
		reply, err := s.through(limited, call)
		if err == nil {
			return reply, nil
		}
		if err = s.again(limited, call, &tried, err); err != nil {
			return nil, err
		}
	}
}

// ready returns the error for a call that cannot be sent, or nil. A call with an empty key is not
// sent. The server would accept it, and all callers that leave the key empty by mistake would share
// one limit.
func (s *server) ready(ctx context.Context, call *call) error {
	if _, ring := s.rdb.(*redis.Ring); ring {
		for _, key := range call.keys[min(1, len(call.keys)):] {
			if hashTag(key) != hashTag(call.keys[0]) {
				return crossShard(call, key)
			}
		}
	}
	return s.common.ready(ctx, call)
}

func (c *common) ready(ctx context.Context, call *call) error {
	if i := slices.Index(call.keys, c.prefix); i >= 0 {
		return refused(call.verb, call.keys, fmt.Errorf("BADKEYS key %d is empty; give what is to be limited a key of its own, such as user:42", i+1))
	}
	if c.lifetime.closed.Load() && ctx.Value(returning{}) == nil {
		return afterClose(call.verb, call.keys)
	}
	return notSent(call, ended(ctx)) // some Redis clients send commands even if ctx is done
}

// crossShard returns the error for a call whose keys a Ring may keep on different shards. go-redis
// would send the call to the shard of the first key, and the other keys would be counted there too.
func crossShard(call *call, key string) *Error {
	e := refused(call.verb, call.keys, fmt.Errorf("CROSSSLOT the keys %q and %q may be on different shards of the Ring", call.keys[0], key))
	e.kind, e.Remedy = typeCrossSlot, sameTag
	return e
}

// hashTag returns the part of key that a cluster and a ring hash.
func hashTag(key string) string {
	if _, rest, ok := strings.Cut(key, "{"); ok {
		if tag, _, ok := strings.Cut(rest, "}"); ok && tag != "" {
			return tag
		}
	}
	return key
}
