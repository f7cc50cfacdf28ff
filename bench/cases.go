package main

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

const day = 24 * time.Hour

// The limits of the cases. A key in use must not run out during its case, and a new key should not
// stay for long.
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

	slidingInUse = workload{keys: inUse, allow: true, count: 6000, period: day, cost: 1, prefill: 3}
	// Only a few keys are tracked: a record keeps a count for each minute, and the first call in a
	// minute costs more.
	tracked = workload{keys: hot, allow: true, count: 3600000, period: time.Hour, cost: 1, prefill: 1000}
	leased  = workload{keys: inUse, allow: true, count: 5000, period: day, cost: 1, prefill: 3}
)

// cases builds all cases on a server. With one library, its peers and the floors take part. With
// several, only the libraries do, and the first one is the subject.
func cases(ctx context.Context, rdb *redis.Client, libraries []*library) ([]benchCase, error) {
	if err := rdb.FunctionLoadReplace(ctx, floorLibrary).Err(); err != nil {
		return nil, fmt.Errorf("load the floors: %w", err)
	}
	b := caseBuilder{ctx: ctx, peers: peers{rdb: rdb}, libraries: libraries}

	const whole, other = "emission interval of whole milliseconds", "emission interval not of whole milliseconds"
	b.gcra("gcra, allowed, key in use", whole, 0.62, wholeInUse, floor("gcra", "fl0", 1, wholeInUse, holds("gcra")))
	b.gcra("gcra, allowed, absent key", whole, 0.64, wholeAbsent, floor("absent", "fl0", 1, wholeAbsent, nil))
	b.gcra("gcra, allowed, COST 5", whole+", key in use", 0.65, wholeCost, floor("gcra", "fl0", 1, wholeCost, holds("gcra")))
	b.gcra("gcra, denied", whole, 0.56, wholeDenied, floor("pttl", "fl0", 1, wholeDenied, holds("gcra")))
	b.gcra("gcra (fractional), allowed, key in use", other, 0.7, otherInUse, floor("part", "fl0", 1, otherInUse, holds("gcra-1")))
	b.gcra("gcra (fractional), allowed, absent key", other, 0.7, otherAbsent, floor("absent", "fl0", 1, otherAbsent, nil))
	b.gcra("gcra (fractional), denied", other, 0.55, otherDenied, floor("look", "fl0", 1, otherDenied, holds("gcra-1")))
	b.window("fixed_window, allowed, key in use", 1.15, windowInUse, floor("count", "fl0", 1, windowInUse, holds("3")))
	b.window("fixed_window, allowed, absent key", 1.2, windowAbsent, floor("opens", "fl0", 1, windowAbsent, nil))
	b.window("fixed_window, denied", 1.0, windowDenied, floor("look", "fl0", 1, windowDenied, holds("100")))
	log := "sliding_log:" + strings.Repeat("x", 41)
	b.pair("sliding_log over two keys, allowed", 1.4, pairInUse, pairInUse, floor("logs", "fl0", 2, pairInUse, holds(log)))
	b.pair("sliding_log over two keys, denied by the second", 1.5, pairResource, pairConsumer,
		floor("logs_denied", "fl0", 2, pairConsumer, holds(log)))

	b.other("leaky_bucket, allowed, key in use", "leaky_bucket", 1.15, wholeInUse, floor("gcra", "fl0", 1, wholeInUse, holds("gcra")))
	b.other("token_bucket, allowed, key in use", "token_bucket", 1.4, wholeInUse,
		floor("text", "fl0", 1, wholeInUse, holds("token_bucket:99:1700000000000000")))
	b.sliding("sliding_window, allowed, key in use", slidingInUse, floor("text", "fl0", 1, slidingInUse, holds("sliding_window:1:1:1")))
	b.rates("two rates on one key, allowed", wholeInUse, floor("text", "fl0", 1, wholeInUse, holds("gcra::16:x")))
	b.several("three limits in one call", wholeInUse)
	b.with("TRACK", "TRACK", 2.3, tracked, []any{"TRACK"}, func(n int) []string { return []string{key("use0", n)} },
		floor("track", "fl0", 2, tracked, holdsUsage))
	request := 0
	b.with("ONCE, new", "ONCE 60000", 2.1, wholeInUse, []any{"ONCE", 60000}, func(int) []string {
		request++
		return []string{key("req0", request)}
	}, floor("once", "fl0", 2, wholeInUse, holdsFirst))
	b.thrice("sliding_window, three calls a key", "sliding_window", 1.8, workload{keys: none, allow: true, count: 100, period: time.Minute, cost: 1})
	b.leases()
	if len(libraries) == 1 {
		b.many("5000 limits in turn", 5000, wholeInUse)
		b.floors("floors", rdb)
		b.worst()
	}
	return b.list, b.err
}

type caseBuilder struct {
	ctx       context.Context
	peers     peers
	libraries []*library
	list      []benchCase
	err       error // the first error
}

// each returns a contender of each library, with its own keys. Several have the libraries' names.
func (b *caseBuilder) each(build func(lib *library, prefix string) contender) []contender {
	var list []contender
	for i, lib := range b.libraries {
		c := build(lib, fmt.Sprintf("tk%d", i))
		if len(b.libraries) > 1 {
			c.name = lib.name
		}
		list = append(list, c)
	}
	return list
}

// beside adds a case of the libraries' contenders and, with one library, of others.
func (b *caseBuilder) beside(c benchCase, ours []contender, others ...func() (contender, error)) {
	c.contenders = ours
	for _, other := range others {
		if len(b.libraries) > 1 {
			break
		}
		peer, err := other()
		if err != nil && b.err == nil {
			b.err = fmt.Errorf("%s: %w", c.name, err)
		}
		c.contenders = append(c.contenders, peer)
	}
	b.list = append(b.list, c)
}

// add adds a case of ratelimit_take, and of others.
func (b *caseBuilder) add(c benchCase, algorithm string, works []workload, others ...func() (contender, error)) {
	c.work = works[len(works)-1]
	b.beside(c, b.each(func(lib *library, prefix string) contender { return take(lib, prefix, algorithm, works...) }), others...)
}

// aimed sets the largest ratio that the subject should have to a contender.
func aimed(aim float64, c contender, err error) (contender, error) {
	c.aim = aim
	return c, err
}

// plain wraps a contender whose construction cannot fail.
func plain(c contender) func() (contender, error) {
	return func() (contender, error) { return c, nil }
}

func (b *caseBuilder) gcra(name, note string, aim float64, w workload, bare contender) {
	b.add(benchCase{name: name, note: note}, "", []workload{w}, func() (contender, error) {
		c, err := b.peers.redisRate(b.ctx, w)
		return aimed(aim, c, err)
	}, plain(bare))
}

func (b *caseBuilder) window(name string, aim float64, w workload, bare contender) {
	b.add(benchCase{name: name, note: "the seed's script tells neither what remains nor when to come back"}, "fixed_window", []workload{w},
		func() (contender, error) {
			c, err := b.peers.ululeLimiter(b.ctx, w)
			return aimed(aim, c, err)
		},
		func() (contender, error) { return b.peers.seedCounter(b.ctx, w) },
		plain(b.peers.incrExpire(b.ctx, w)), plain(bare))
}

func (b *caseBuilder) pair(name string, aim float64, resource, consumer workload, bare contender) {
	works := []workload{resource, consumer}
	b.add(benchCase{name: name, note: "both keep a log; gcra on each key is another algorithm, for comparison"},
		"sliding_log", works,
		func() (contender, error) {
			c, err := b.peers.seedLog(b.ctx, resource, consumer)
			return aimed(aim, c, err)
		},
		plain(take(b.libraries[0], "tg0", "", works...)), plain(bare))
}

// inUse returns gcra over one key in use, with which other calls are compared.
func (b *caseBuilder) inUse(aim float64) func() (contender, error) {
	return func() (contender, error) { return aimed(aim, take(b.libraries[0], "tg0", "", wholeInUse), nil) }
}

func (b *caseBuilder) other(name, algorithm string, aim float64, w workload, bare contender) {
	b.add(benchCase{name: name, note: "beside gcra"}, algorithm, []workload{w}, b.inUse(aim), plain(bare))
}

func (b *caseBuilder) sliding(name string, w workload, bare contender) {
	b.add(benchCase{name: name, note: "one bucket, beside gcra and a script"}, "sliding_window", []workload{w}, b.inUse(1.6),
		func() (contender, error) {
			c, err := b.peers.twoCounters(b.ctx, w)
			return aimed(1, c, err)
		}, plain(bare))
}

func (b *caseBuilder) rates(name string, w workload, bare contender) {
	two := w
	two.second = "60000/d"
	b.add(benchCase{name: name, note: "beside one rate"}, "", []workload{two}, b.inUse(1.8), plain(bare))
}

// several compares calls over three, two and one key.
func (b *caseBuilder) several(name string, w workload) {
	b.beside(benchCase{name: name, note: "gcra, allowed, keys in use", work: w},
		b.each(func(lib *library, prefix string) contender {
			three := take(lib, prefix, "", w, w, w)
			three.name = "three limits, three keys"
			return three
		}),
		func() (contender, error) {
			two := take(b.libraries[0], "th2", "", w, w)
			two.name = "two limits, two keys"
			return two, nil
		},
		func() (contender, error) {
			one := take(b.libraries[0], "th1", "", w)
			one.name = "one limit"
			return aimed(2.5, one, nil)
		}, plain(floor("three", "fl0", 3, w, holds("gcra"))))
}

// with compares a take with additional arguments to the same take without them.
func (b *caseBuilder) with(name, words string, aim float64, w workload, args []any, extra func(n int) []string, bare contender) {
	b.beside(benchCase{name: name, note: "beside the same call without", work: w},
		b.each(func(lib *library, prefix string) contender { return takeWith(lib, prefix, w, words, args, extra) }),
		func() (contender, error) { return aimed(aim, take(b.libraries[0], "tg0", "", w), nil) }, plain(bare))
}

// many compares takes with many different limits, one after another, with takes of one limit. A
// library that has just been loaded parses each of them, so only one takes part.
func (b *caseBuilder) many(name string, limits int, w workload) {
	ours := take(b.libraries[0], "tk0", "", w)
	ours.name = fmt.Sprintf("ratelimit_take, %d limits in turn", limits)
	build := func(fill func(n int) ([]redis.Cmder, error)) func(n int) ([]redis.Cmder, error) {
		return func(n int) ([]redis.Cmder, error) {
			commands, err := fill(n)
			for _, command := range commands {
				args := command.Args()
				args[slices.Index(args, any(w.rate()))] = workload{count: w.count + int64(n%limits), period: w.period}.rate()
			}
			return commands, err
		}
	}
	ours.call, ours.fill = build(ours.call), build(ours.fill)
	b.beside(benchCase{name: name, note: "each key has one of them; beside one limit", work: w}, []contender{ours}, b.inUse(1.1))
}

// thrice compares three takes from each of many keys.
func (b *caseBuilder) thrice(name, algorithm string, aim float64, w workload) {
	build := func(lib *library, prefix, algorithm string) contender {
		c := take(lib, prefix, algorithm, w)
		once := c.call
		c.call = func(n int) ([]redis.Cmder, error) { return once(n / 3) }
		return c
	}
	b.beside(benchCase{name: name, note: "the first on an absent key; beside gcra", work: w},
		b.each(func(lib *library, prefix string) contender { return build(lib, prefix, algorithm) }),
		func() (contender, error) { return aimed(aim, build(b.libraries[0], "tg0", ""), nil) })
}

// leases compares the calls of leases with a take of gcra, or the same calls of several libraries.
func (b *caseBuilder) leases() {
	none := leased
	none.prefill = 0
	held := []string{"a", "b", "c"}
	for _, verb := range []struct {
		name  string
		aim   float64
		held  []string
		id    func(visit int) string // lease ID for the n-th visit to a key
		floor string
	}{
		{"acquire", 2.3, held, strconv.Itoa, "lease"},
		{"renew", 2.5, held, func(int) string { return "b" }, "lease"},
		{"release", 2.5, append(held, "1", "2", "3", "4", "5"), strconv.Itoa, "release"},
	} {
		b.beside(benchCase{name: verb.name + ", three leases held", note: "beside gcra", work: none},
			b.each(func(lib *library, prefix string) contender {
				visits := map[int]int{}
				return lease(lib, prefix, verb.name, verb.held, func(n int) string {
					visits[n]++
					return verb.id(visits[n])
				})
			}), b.inUse(verb.aim), plain(floor(verb.floor, "fl0", 1, none, holdsLeases)))
	}
}

func (b *caseBuilder) floors(name string, rdb *redis.Client) {
	list, err := bareFloors(b.ctx, rdb)
	if err != nil && b.err == nil {
		b.err = err
	}
	b.list = append(b.list, benchCase{name: name, note: "a constant reply: nothing is decided", work: workload{keys: none,
		allow: true, cost: 1}, contenders: list})
}
