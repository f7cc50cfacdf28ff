package main

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
)

const day = 24 * time.Hour

// The limits of the cases. A key in use must not run out during its case, and an absent key should not stay for long.
var (
	wholeInUse  = workload{keys: inUse, allow: true, count: 6000, period: time.Hour, cost: 1, prefill: 1000}
	wholeCost   = workload{keys: inUse, allow: true, count: 60000, period: 10 * time.Hour, cost: 5, prefill: 1000}
	wholeAbsent = workload{keys: absent, allow: true, count: 100, period: time.Minute, cost: 1}
	wholeDenied = workload{keys: hot, count: 100, period: day, cost: 1, prefill: 100}
	otherInUse  = workload{keys: inUse, allow: true, count: 7000, period: time.Hour, cost: 1, prefill: 1000}
	otherAbsent = workload{keys: absent, allow: true, count: 70, period: time.Minute, cost: 1}
	otherDenied = workload{keys: hot, count: 7, period: day, cost: 1, prefill: 7}

	windowInUse  = workload{keys: inUse, allow: true, count: 100000, period: time.Hour, cost: 1, prefill: 3}
	windowAbsent = workload{keys: absent, allow: true, count: 100, period: time.Second, cost: 1}
	windowDenied = workload{keys: hot, count: 100, period: time.Hour, cost: 1, prefill: 100}

	pairInUse    = workload{keys: inUse, allow: true, count: 1000, period: day, cost: 1, prefill: 3}
	pairResource = workload{keys: hot, count: 1000, period: day, cost: 1, prefill: 5}
	pairConsumer = workload{keys: hot, count: 5, period: day, cost: 1, prefill: 5}
)

// What the project aims at (subject ÷ peer, at most).
const (
	aimAllowed = 0.65 // gcra against redis_rate
	aimDenied  = 0.5
	aimWindow  = 0.8 // fixed_window against the cheapest peer that is a script
	aimLog     = 0.6 // sliding_log over two keys against the seed's
	aimThree   = 1.6 // three limits in one call against one
)

// cases builds all cases on a server. With one library its peers take part; with several only the libraries do, the
// first of them the subject.
func cases(ctx context.Context, rdb *redis.Client, libraries []*library) ([]benchCase, error) {
	b := caseBuilder{ctx: ctx, peers: peers{rdb: rdb}, libraries: libraries}

	b.gcra("gcra, allowed, key in use", "emission interval of whole milliseconds", aimAllowed, wholeInUse)
	b.gcra("gcra, allowed, absent key", "emission interval of whole milliseconds", aimAllowed, wholeAbsent)
	b.gcra("gcra, allowed, COST 5", "emission interval of whole milliseconds, key in use", aimAllowed, wholeCost)
	b.gcra("gcra, denied", "emission interval of whole milliseconds", aimDenied, wholeDenied)
	b.gcra("gcra (fractional), allowed, key in use", "emission interval not of whole milliseconds", aimAllowed, otherInUse)
	b.gcra("gcra (fractional), allowed, absent key", "emission interval not of whole milliseconds", aimAllowed, otherAbsent)
	b.gcra("gcra (fractional), denied", "emission interval not of whole milliseconds", aimDenied, otherDenied)
	b.window("fixed_window, allowed, key in use", windowInUse)
	b.window("fixed_window, allowed, absent key", windowAbsent)
	b.window("fixed_window, denied", windowDenied)
	b.pair("sliding_log over two keys, allowed", pairInUse, pairInUse)
	b.pair("sliding_log over two keys, denied by the second", pairResource, pairConsumer)
	if len(libraries) == 1 {
		b.several("three limits in one call", wholeInUse)
		b.floors("floors", rdb)
	}
	return b.list, b.err
}

type caseBuilder struct {
	ctx       context.Context
	peers     peers
	libraries []*library
	list      []benchCase
	err       error // the first
}

// add makes a case of what the libraries do and, with one library, of what the peers do.
func (b *caseBuilder) add(c benchCase, algorithm string, works []workload, others ...func() (contender, error)) {
	c.work = works[len(works)-1]
	for i, lib := range b.libraries {
		ours := take(lib, fmt.Sprintf("tk%d", i), algorithm, works...)
		if len(b.libraries) > 1 {
			ours.name = lib.name
		}
		c.contenders = append(c.contenders, ours)
	}
	if len(b.libraries) == 1 {
		for _, other := range others {
			peer, err := other()
			if err != nil && b.err == nil {
				b.err = fmt.Errorf("%s: %w", c.name, err)
			}
			c.contenders = append(c.contenders, peer)
		}
	}
	b.list = append(b.list, c)
}

func (b *caseBuilder) gcra(name, note string, aim float64, w workload) {
	b.add(benchCase{name: name, note: note}, "", []workload{w}, func() (contender, error) {
		c, err := b.peers.redisRate(b.ctx, w)
		c.aim = aim
		return c, err
	})
}

func (b *caseBuilder) window(name string, w workload) {
	aimed := func(c contender, err error) (contender, error) {
		c.aim = aimWindow
		return c, err
	}
	b.add(benchCase{name: name, note: "the aim is against the cheaper of the two scripts"}, "fixed_window", []workload{w},
		func() (contender, error) { return aimed(b.peers.ululeLimiter(b.ctx, w)) },
		func() (contender, error) { return aimed(b.peers.seedCounter(b.ctx, w)) },
		func() (contender, error) { return b.peers.incrExpire(b.ctx, w), nil })
}

func (b *caseBuilder) pair(name string, resource, consumer workload) {
	works := []workload{resource, consumer}
	b.add(benchCase{name: name, note: "both keep a log; gcra on each key is another algorithm, for comparison"},
		"sliding_log", works,
		func() (contender, error) {
			c, err := b.peers.seedLog(b.ctx, resource, consumer)
			c.aim = aimLog
			return c, err
		},
		func() (contender, error) { return take(b.libraries[0], "tg0", "", works...), nil })
}

// several compares calls over three, two and one key.
func (b *caseBuilder) several(name string, w workload) {
	three := take(b.libraries[0], "th3", "", w, w, w)
	two := take(b.libraries[0], "th2", "", w, w)
	one := take(b.libraries[0], "th1", "", w)
	three.name, two.name, one.name = "three limits, three keys", "two limits, two keys", "one limit"
	one.aim = aimThree
	b.list = append(b.list, benchCase{name: name, note: "gcra, allowed, keys in use", work: w,
		contenders: []contender{three, two, one}})
}

func (b *caseBuilder) floors(name string, rdb *redis.Client) {
	list, err := floors(b.ctx, rdb)
	if err != nil && b.err == nil {
		b.err = err
	}
	b.list = append(b.list, benchCase{name: name, note: "a constant reply: nothing is decided", work: workload{keys: none,
		allow: true, cost: 1}, contenders: list})
}
