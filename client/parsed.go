package client

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/ratelimit-functions/ratelimit/client/internal/limittext"
	"github.com/ratelimit-functions/ratelimit/functions"
	"github.com/ratelimit-functions/ratelimit/internal/respmap"
)

const (
	// mostParsed is how many limits parsedLimits keeps. If there are more, the least recently used
	// limit is dropped.
	mostParsed = 1000

	// refreshAfter is the age at which a limit for LocalFallback is fetched again, because its
	// policy may have been redeployed.
	refreshAfter = time.Minute
)

// tableSizes are the maximum sizes of a Client's tables.
type tableSizes struct{ keys, limits int }

// parsedLimits caches the parsed form of limits. The client itself parses most limits that calls
// name directly, such as "100/m". It fetches all others from a server: only the library there knows
// the policies, and can parse every limit.
type parsedLimits struct {
	server *server
	table[limitOn, *parsedLimit]
}

// readPolicy parses the limits of a policy. It returns no keys if the policy limits leases.
func readPolicy(policy functions.Policy) (keys []parsedKey, err error) {
	for _, limit := range policy.Limits {
		key, err := readLimit(limit.Limit)
		switch {
		case err != nil:
			return nil, fmt.Errorf("the limit %q: %w", limit.Limit, err)
		case key.algorithm == limittext.Leases:
			return nil, nil
		}
		if key.shadow, key.classes = policy.Shadow, policy.Classes; policy.AnyClass {
			key.classes = map[string]int{}
		}
		key.pool = policy.Borrow && len(keys) == 1
		keys = append(keys, key)
	}
	return keys, nil
}

// readLimit parses a limit without a server. It returns an error for a policy and for a limit that
// it cannot parse.
func readLimit(text string) (parsedKey, error) {
	limit, err := limittext.Parse(text)
	key := parsedKey{algorithm: limit.Algorithm}
	for _, r := range limit.Rates {
		key.rates = append(key.rates, parsedRate{n: r.N, capacity: r.Capacity, period: r.Period})
	}
	return key, err
}

// limitOn identifies an entry of parsedLimits. Each node has its own entries, because nodes may
// parse a limit differently. An entry with an empty node applies to all nodes.
type limitOn struct {
	limit Limit
	node  string // address
}

// parsedLimit is the parsed form of a limit, from this process or from a server.
type parsedLimit struct {
	keys        []parsedKey // one per key of the limit; nil if the parsed form is unknown
	keysAt      time.Time   // when the request that returned these keys was sent
	checkedAt   time.Time   // when the last request with a reply, even an error reply, was sent
	usedAt      time.Time   // when a call last used the entry
	fetching    bool
	written     bool // the limit is not a policy, and this process has parsed it
	unsupported bool // the library is too old to report parsed limits or algorithms
}

type parsedKey struct {
	shadow    bool
	algorithm string // empty if the library is too old to report algorithms
	rates     []parsedRate
	classes   map[string]int // percentages that classes keep free; empty if calls may name any, nil if there are none
	penalty   Block          // of the policy; the zero Block if there is none
	warn      int            // percentage from which on the policy warns; 0 if it does not
	pool      bool           // the limit is the pool of a guarantee
	canary    *parsedKey     // the key's limit in the canary of the policy; nil if there is none
}

func (k parsedKey) batchable() bool {
	return !k.shadow && k.algorithm != "" && k.algorithm != "leaky_bucket" && (k.canary == nil || k.canary.batchable())
}

type parsedRate struct {
	n, capacity int64 // 0 if the limit allows no calls
	period      time.Duration
}

// get returns the entry for l, and creates it if necessary. p.mu must be held.
func (p *parsedLimits) get(l limitOn) *parsedLimit {
	entry, ok := p.entries.Get(l)
	if !ok {
		entry = &parsedLimit{}
		if key, err := readLimit(string(l.limit)); err == nil && key.algorithm != limittext.Leases {
			entry.keys, entry.written = []parsedKey{key}, true
		}
		p.entries.Add(l, entry)
	}
	return entry
}

// keys returns the parsed keys of all limits, in order. Policies are taken from given until a server
// has reported its own. If a limit is not known, keys returns only that limit.
func (p *parsedLimits) keys(limits []Limit, given map[Limit][]parsedKey) (keys []parsedKey, unknown Limit) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, limit := range limits {
		l := limitOn{limit: limit}
		if limit[0] != '@' {
			p.get(l)
		}
		of := given[limit]
		if entry, ok := p.entries.Get(l); ok && entry.keys != nil {
			of = entry.keys
		}
		if of == nil {
			return nil, limit
		}
		keys = append(keys, of...)
	}
	return keys, ""
}

// learn fetches the parsed form of limits in the background, unless the client can parse them
// itself or has fetched them within refreshAfter. It is called with limits that a server has just
// used.
func (p *parsedLimits) learn(limits []Limit) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, limit := range limits {
		l := limitOn{limit: limit}
		if entry := p.get(l); !entry.written {
			p.renew(entry, refreshAfter, l, p.server.rdb)
		}
	}
}

// renew fetches the entry of l from node, in the background, if the entry is at least as old as
// age. p.mu must be held.
func (p *parsedLimits) renew(entry *parsedLimit, age time.Duration, l limitOn, node redis.UniversalClient) {
	if !entry.fetching && p.server.now().Sub(entry.checkedAt) >= age {
		entry.fetching = p.server.lifetime.run(func() { p.refresh(p.server.lifetime.ctx, l, node) })
	}
}

// batchable reports whether units of the limit may be taken in advance and spent one by one. Each
// unit of a leaky_bucket has its own wait, and each call under a shadow policy has its own shadow
// decision, so neither is batchable. A policy's canary must also be batchable, because the client
// does not know which keys use it. The policy must list the call's class, because the server refuses
// other classes, and a batch for each of them would take memory.
//
// A policy may be redeployed, so the limits that the key's node has reported are valid only for
// ttl. If calls come more often than once per ttl, batchable fetches the limits again in the
// background before they expire.
func (p *parsedLimits) batchable(ctx context.Context, a single, ttl time.Duration) bool {
	if a.limit[0] != '@' {
		return a.class == "" // only policies have classes
	}
	nodes := p.server.breakers
	if nodes.node != nil && !nodes.ready.Load() {
		return false // the nodes are not known yet
	}
	l, node := p.on(ctx, a.key, a.limit)
	p.mu.Lock()
	defer p.mu.Unlock()
	entry, now := p.get(l), p.server.now()
	if now.Sub(entry.usedAt) < ttl {
		age := ttl / 2
		if entry.unsupported {
			age = refreshAfter
		}
		p.renew(entry, age, l, node)
	}
	entry.usedAt = now
	keys := entry.keys
	if len(keys) != 1 || now.Sub(entry.keysAt) >= ttl || !keys[0].batchable() {
		return false
	}
	_, listed := keys[0].classes[a.class]
	return listed || a.class == ""
}

// told returns a policy, as the node of key has told it within refreshAfter, with a parsedKey for each of
// its keys. If the policy was not fetched for so long, told fetches it. While another call does, told
// returns what was known before, if anything.
func (p *parsedLimits) told(ctx context.Context, key string, policy Limit) []parsedKey {
	l, node := p.on(ctx, key, policy)
	p.mu.Lock()
	entry := p.get(l)
	stale := p.server.now().Sub(entry.checkedAt) >= refreshAfter && (!entry.fetching || entry.checkedAt.IsZero())
	entry.fetching = entry.fetching || stale
	p.mu.Unlock()
	if stale {
		p.refresh(ctx, l, node)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return entry.keys
}

// on returns the limitOn for limit on the node of key, and a client of that node. Only a policy
// needs its own entry per node, because it may be deployed on some nodes only.
func (p *parsedLimits) on(ctx context.Context, key string, limit Limit) (limitOn, redis.UniversalClient) {
	if limit[0] != '@' || p.server.breakers.node == nil {
		return limitOn{limit: limit}, p.server.rdb
	}
	node := p.server.breakers.of(ctx, p.server.keys([]string{key}))
	return limitOn{limit, node.node}, p.server.clientOf(node)
}

// refresh fetches l from node and keeps it. If the node does not reply, the previous entry stays,
// and a later call fetches it again.
func (p *parsedLimits) refresh(ctx context.Context, l limitOn, node redis.UniversalClient) {
	began := p.server.now()
	keys, err := p.fetch(ctx, l.limit, node)
	p.mu.Lock()
	defer p.mu.Unlock()
	entry, ok := p.entries.Get(l)
	if !ok {
		return
	}
	entry.fetching = false
	var e *Error
	switch {
	case err == nil:
		entry.keys, entry.keysAt, entry.checkedAt = keys, began, began
		entry.unsupported = keys == nil || keys[0].algorithm == ""
	case errors.As(err, &e) && e.Code != "":
		entry.checkedAt, entry.unsupported = began, e.Code == "BADARGS"
	}
}

// fetch returns limit as the library on node parses it, with an entry for each key. It returns nil
// if the library is too old to report it.
func (p *parsedLimits) fetch(ctx context.Context, limit Limit, node redis.UniversalClient) ([]parsedKey, error) {
	limited := p.server.bounded(ctx)
	defer limited.release()
	reply, err := newCommand(limited, &call{verb: "info", args: []any{string(limit)}, mode: readOnly}).send(limited, node)
	if err != nil {
		return nil, newError(limited, "info", nil, err, false)
	}
	keys, _ := parseLimit(reply)
	return keys, nil
}

// refillRate returns how many units limit refills per second at its fastest rate. If the limit is
// unknown, is not gcra, or has several keys, it returns a number so large that Close refunds
// nothing.
func (p *parsedLimits) refillRate(ctx context.Context, limit Limit, node redis.UniversalClient) (perSecond float64) {
	keys, err := p.fetch(ctx, limit, node)
	if err != nil || len(keys) != 1 || keys[0].algorithm != "gcra" {
		return math.MaxInt32
	}
	for _, r := range keys[0].rates {
		perSecond = max(perSecond, float64(r.n)/r.period.Seconds())
	}
	return perSecond
}

// parseLimit parses the fields of info for a limit and, if the limit is a policy with a canary, for
// the canary. It returns false if the limit's fields are missing or invalid.
func parseLimit(reply any) ([]parsedKey, bool) {
	fields := respmap.Of(reply)
	keys, ok := parseKeys(fields["limit"], fields["algorithms"])
	if classes, ok := fields["classes"].([]any); ok {
		named := map[string]int{}
		for i := 1; i < len(classes); i += 2 {
			name, _ := classes[i-1].(string)
			percent, _ := classes[i].(int64)
			named[name] = int(min(max(percent, 0), 100))
		}
		for i := range keys {
			keys[i].classes = named
		}
	}
	var ms [3]int64
	if parseIntegers(described(fields["penalty"]), ms[:]) && slices.Min(ms[:]) > 0 && slices.Max(ms[:]) <= mostCost {
		for i := range keys {
			keys[i].penalty = Block{For: milliseconds(ms[0]), Max: milliseconds(ms[1]), Forget: milliseconds(ms[2])}
		}
	}
	if warn, ok := fields["warn"].(int64); ok && warn >= leastWarn && warn <= 100 {
		for i := range keys {
			keys[i].warn = int(warn)
		}
	}
	if fields["borrow"] != nil && len(keys) == 2 {
		keys[1].pool = true
	}
	canary, _ := parseKeys(fields["canary_limit"], fields["canary_algorithms"])
	for i := range min(len(keys), len(canary)) {
		keys[i].canary = &canary[i]
	}
	return keys, ok
}

// parseKeys parses two fields of the reply to ratelimit_info. It returns false if limitField is
// invalid.
func parseKeys(limitField, algorithmsField any) ([]parsedKey, bool) {
	list, ok := limitField.([]any)
	if !ok || len(list) == 0 {
		return nil, false
	}
	algorithms, _ := algorithmsField.([]any)
	keys := make([]parsedKey, len(list))
	for i, entry := range list {
		numbers := described(entry)
		n := make([]int64, len(numbers))
		if len(n) < 4 || len(n)%3 != 1 || !parseIntegers(numbers, n) {
			return nil, false
		}
		if i < len(algorithms) {
			keys[i].algorithm, _ = algorithms[i].(string)
		}
		keys[i].shadow = n[0] == 1
		for ; len(n) > 3; n = n[3:] {
			if n[1] < 0 || n[2] < 1 || n[3] < 0 || max(n[1], n[3]) > mostCost {
				return nil, false
			}
			keys[i].rates = append(keys[i].rates, parsedRate{n: n[1], period: milliseconds(n[2]), capacity: n[3]})
		}
	}
	return keys, true
}
