package client

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// server sends calls to the Redis server that holds their keys. It is the last decider, which gets
// a take only if no other decider decides. All other calls go to it directly. Its functions:
//
//	decide, execute   convert a request into a call, and its reply into a result
//	do                starts the timeout; repeats a call whose reply was lost, if that is safe (repeat.go)
//	attempt           reinstalls a missing library (heal.go)
//	try               skips a server that does not reply (breaker.go)
//	send              sends the call alone or with others (shared.go)
//
// All these functions run in the goroutine of the call.
type server struct {
	rdb      redis.UniversalClient
	prefix   string
	prefixed bool // WithPrefix was given
	timeout  time.Duration
	now      func() time.Time // the clock for decisions without a server
	opened   bool             // rdb was made by Open
	punctual bool             // rdb ends every call at its context's deadline
	unshared bool             // calls do not share round trips
	timers   sharedTimers
	breakers *breakers
	healer   func(context.Context, redis.UniversalClient) error // nil: no healer is set
	lifetime *lifetime
}

func (s *server) start(rdb redis.UniversalClient, onBreaker []func(BreakerChange)) {
	s.rdb = rdb
	s.punctual = punctual(rdb)
	s.breakers = newBreakers(rdb, onBreaker)
	s.lifetime = newLifetime()
}

func (s *server) keys(given []string) []string {
	if s.prefix == "" {
		return given
	}
	keys := make([]string, len(given))
	for i, key := range given {
		keys[i] = s.prefix + key
	}
	return keys
}

// refused returns the error for a take rejected before sending.
func (s *server) refused(req *Request, err error) error {
	return refused("take", s.keys(req.keys("take")), err)
}

func (s *server) decide(ctx context.Context, req *Request) (Result, error) {
	return s.execute(ctx, "take", req)
}

func (s *server) execute(ctx context.Context, verb string, req *Request) (Result, error) {
	call := call{verb: verb, keys: s.keys(req.keys(verb))}
	switch {
	case verb == "peek":
		call.mode = readOnly
	case req.OnceKey != "":
		call.mode, call.within = repeatable, req.OnceTTL/2
	}
	var err error
	if call.args, err = req.args(verb); err != nil {
		return Result{}, refused(verb, call.keys, err)
	}
	return s.decision(ctx, &call, req)
}

// aDecision describes a valid reply to a take, peek, refund, acquire or renew.
const aDecision = "an array of at least 6 integers"

// decision sends a take, peek or refund. It does what ask does, with fewer copies of the result.
func (s *server) decision(ctx context.Context, call *call, req *Request) (Result, error) {
	reply, err := s.do(ctx, call)
	if err != nil {
		return Result{}, err
	}
	if result, ok := parseResult(reply, req); ok {
		return result, nil
	}
	return Result{}, badReply(call.verb, call.keys, aDecision, reply)
}

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
	if call.mode == repeatable {
		return s.repeat(limited, call)
	}
	return s.attempt(limited, call)
}

// ready returns the error for a call that cannot be sent, or nil. A call with an empty key is not
// sent. The server would accept it, and all callers that leave the key empty by mistake would share
// one limit.
func (s *server) ready(ctx context.Context, call *call) error {
	if i := slices.Index(call.keys, s.prefix); i >= 0 {
		return refused(call.verb, call.keys, fmt.Errorf("BADKEYS key %d is empty; give what is to be limited a key of its own, such as user:42", i+1))
	}
	if _, ring := s.rdb.(*redis.Ring); ring {
		for _, key := range call.keys[min(1, len(call.keys)):] {
			if hashTag(key) != hashTag(call.keys[0]) {
				return crossShard(call, key)
			}
		}
	}
	if s.lifetime.closed.Load() && ctx.Value(returning{}) == nil {
		return afterClose(call.verb, call.keys)
	}
	return notSent(call, ended(ctx)) // some Redis clients send commands even if ctx is done
}

// crossShard returns the error for a call whose keys a Ring may keep on different shards. go-redis
// would send the call to the shard of the first key, and the other keys would be counted there too.
func crossShard(call *call, key string) *Error {
	err := fmt.Errorf("CROSSSLOT the keys %q and %q may be on different shards of the Ring", call.keys[0], key)
	e := refused(call.verb, call.keys, err)
	e.class, e.Remedy = ErrCrossSlot, "give all keys of one call the same hash tag, such as {user:42}"
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

// attempt executes a call at most once. If the library was missing and the healer installed it, the
// call is sent again.
func (s *server) attempt(ctx *bounded, call *call) (any, error) {
	if s.healer == nil || len(call.keys) == 0 {
		return s.try(ctx, call)
	}
	began := time.Now()
	reply, err := s.try(ctx, call)
	if !notFound(err) {
		return reply, err
	}
	if why := s.heal(ctx, ctx.sent.at, began); why != nil {
		return nil, unhealed(err, why)
	}
	return s.try(ctx, call)
}

// sent is the outcome of an attempt.
type sent struct {
	reply   any
	err     error
	at      *breaker // the node that executed the call, or failed to
	stopped bool     // the call was redirected to that node, but the node is left alone
}

// try sends a call, unless the breaker of its node is open. It sends the call again while a cluster
// is moving its keys. A call without keys has no known
// node and no breaker. A node of a cluster may redirect the call to another node, whose breaker then
// counts.
func (s *server) try(ctx *bounded, call *call) (any, error) {
	for n := 0; ; n++ {
		reply, err := s.tryOnce(ctx, call)
		if !moving(err) {
			return reply, err
		}
		pause := pauses[min(n, 1)]
		pause -= rand.N(pause / 2)
		if call.within > 0 && time.Since(ctx.began)+pause > call.within || !sleep(ctx, pause) {
			return nil, err
		}
	}
}

// moving reports whether err means that a cluster did not execute a call because only some of its
// keys have moved to another node yet.
func moving(err error) bool {
	e, ok := errors.AsType[*Error](err)
	return ok && e.Code == "TRYAGAIN"
}

func (s *server) tryOnce(ctx *bounded, call *call) (any, error) {
	node := s.breakers.of(ctx, call.keys)
	if node == nil {
		s.sendOnce(ctx, nil, nil, call)
		return ctx.sent.reply, ctx.sent.err
	}
	s.through(ctx, node, node, call)
	if to := ctx.sent.at; ctx.sent.stopped {
		s.through(ctx, to, node, call) // perhaps as a probe
	}
	if ctx.sent.stopped {
		return nil, ctx.sent.at.openError(call)
	}
	return ctx.sent.reply, ctx.sent.err
}

// through sends a call to node, unless gate is open. gate is the breaker of node, or of the node to
// which node redirects the call.
func (s *server) through(ctx *bounded, gate, node *breaker, call *call) {
	passed := gate.execute(func() (any, error) {
		s.sendOnce(ctx, gate, node, call)
		switch {
		case ctx.sent.at == gate:
			return nil, s.breakerError(ctx, gate, ctx.sent.err)
		case gate == node: // it replied with the redirection
			return nil, s.breakerError(ctx, gate, nil)
		}
		return nil, errSaysNothing
	})
	if !passed {
		s.reload(ctx) // the keys may be on another node by now
		ctx.sent = sent{err: gate.openError(call), at: gate}
	} else if at := ctx.sent.at; at != gate && !ctx.sent.stopped {
		at.execute(func() (any, error) { return nil, s.breakerError(ctx, at, ctx.sent.err) })
	}
}

// sendOnce sends a call once, and stores the outcome in ctx.sent. If the call fails without a reply,
// sendOnce makes a cluster client look for new primaries. The cluster client does this itself only
// for commands that it retries; for others it waits for its next periodic reload.
func (s *server) sendOnce(ctx *bounded, gate, node *breaker, call *call) {
	ctx.sent = sent{at: node}
	reply, written, err := s.send(ctx, s.rdb, gate, node, call)
	if ctx.sent.stopped {
		return
	}
	ctx.sent.reply = reply
	if err != nil {
		e := newError(ctx, call.verb, call.keys, err, written)
		if e.Code == "" {
			s.reload(ctx)
		}
		ctx.sent.reply, ctx.sent.err = nil, e
	}
}

// send passes the call to rdb, and returns its reply. written reports whether a command that is not
// read-only may have been sent. If node is nil, the call gets its own round trip. If node redirects
// the call, send stores the other node in ctx.sent.
func (s *server) send(ctx *bounded, rdb redis.UniversalClient, gate, node *breaker, call *call) (reply any, written bool, err error) {
	ctx.quiet = false
	cmd := newCommand(ctx, call)
	if s.punctual && call.mode != readOnly && gate == node && s.sharesWith(node) {
		defer node.trips.calls.Add(-1)
		if node.trips.calls.Add(1) > shareAbove {
			reply, written, err = s.sendShared(ctx, node, cmd)
			if !s.elsewhere(err) {
				return reply, written, err
			}
			cmd = newCommand(ctx, call)
			ctx.quiet = false
		}
	}
	f := &cmd.follow
	if s.breakers.redirects && node != nil {
		f.ctx, f.breakers, f.gate = ctx, s.breakers, gate
	}
	if s.punctual {
		reply, err = cmd.send(ctx, rdb)
		written = cmd.written()
	} else {
		reply, written, err = s.sendAside(ctx, rdb, cmd)
	}
	if to := f.to.Load(); to != nil {
		ctx.sent.at, ctx.sent.stopped = to, f.stopped.Load()
		ctx.stop(false)
	}
	return reply, written, err
}

// reload makes a cluster client rediscover its nodes, in the background and at most five times a
// second.
func (s *server) reload(ctx context.Context) {
	if cluster, ok := s.rdb.(interface{ ReloadState(context.Context) }); ok {
		cluster.ReloadState(ctx)
	}
}
