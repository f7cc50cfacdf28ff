package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

const day = 24 * time.Hour

// Workloads of the cases. Limits for keys in use are large enough for all calls in a case. Limits
// for absent keys have short periods where possible, so that created keys expire soon.
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

	refundedWindow = workload{keys: inUse, allow: true, count: 100000, period: time.Hour, cost: 1, prefill: 1000}

	monthInUse  = workload{keys: inUse, allow: true, count: 100000, limit: "100000/mo align=clock", cost: 1, prefill: 3}
	monthAbsent = workload{keys: absent, allow: true, count: 100, limit: "100/mo align=clock", cost: 1}
	never       = workload{keys: hot, count: 0, period: time.Hour, cost: 1}

	pairInUse    = workload{keys: inUse, allow: true, count: 1000, period: day, cost: 1, prefill: 3}
	pairResource = workload{keys: hot, count: 1000, period: day, cost: 1, prefill: 5}
	pairConsumer = workload{keys: hot, count: 5, period: day, cost: 1, prefill: 5}

	slidingInUse = workload{keys: inUse, allow: true, count: 6000, period: day, cost: 1, prefill: 3}
	// tracked uses only a few keys, because a key's first call in a minute costs more: it adds a
	// field to the usage record.
	tracked = workload{keys: hot, allow: true, count: 3600000, period: time.Hour, cost: 1, prefill: 1000}
	leased  = workload{keys: inUse, allow: true, count: 5000, period: day, cost: 1, prefill: 3}
)

// cases returns all cases for a server. If there is one library, peers (other projects' limiters)
// and floors (functions that make no decision) take part too. If there are several, only the
// libraries take part, and each is compared with the first.
func cases(ctx context.Context, rdb *redis.Client, libraries []*library) ([]benchCase, error) {
	if err := rdb.FunctionLoadReplace(ctx, floorLibrary).Err(); err != nil {
		return nil, fmt.Errorf("load the floors: %w", err)
	}
	b := caseBuilder{ctx: ctx, rdb: rdb, libraries: libraries}

	const whole, other = "emission interval of whole milliseconds", "emission interval not of whole milliseconds"
	b.gcra("gcra, allowed, key in use", whole, 0.62, wholeInUse, floor("gcra", 1, wholeInUse, holds("gcra")))
	b.gcra("gcra, allowed, absent key", whole, 0.64, wholeAbsent, floor("absent", 1, wholeAbsent, nil))
	b.gcra("gcra, allowed, COST 5", whole+", key in use", 0.65, wholeCost, floor("gcra", 1, wholeCost, holds("gcra")))
	b.gcra("gcra, denied", whole, 0.56, wholeDenied, floor("look", 1, wholeDenied, holds("gcra")))
	b.gcra("gcra (fractional), allowed, key in use", other, 0.7, otherInUse, floor("part", 1, otherInUse, holds("gcra-1")))
	b.gcra("gcra (fractional), allowed, absent key", other, 0.7, otherAbsent, floor("absent", 1, otherAbsent, nil))
	b.gcra("gcra (fractional), denied", other, 0.55, otherDenied, floor("look", 1, otherDenied, holds("gcra-1")))
	b.window("fixed_window, allowed, key in use", 1.15, windowInUse, floor("count", 1, windowInUse, holds("4000000000000000003")))
	b.window("fixed_window, allowed, absent key", 1.2, windowAbsent, floor("opens", 1, windowAbsent, nil))
	b.window("fixed_window, denied", 1.0, windowDenied, floor("look", 1, windowDenied, holds("4000000000000000100")))
	log := "sliding_log:" + strings.Repeat("x", 41)
	b.pair("sliding_log over two keys, allowed", 1.4, pairInUse, pairInUse, floor("logs", 2, pairInUse, holds(log)))
	b.pair("sliding_log over two keys, denied by the second", 1.5, pairResource, pairConsumer, floor("logs_denied", 2, pairConsumer, holds(log)))

	b.add(benchCase{name: "leaky_bucket, allowed, key in use", note: "beside gcra", work: wholeInUse}, takes("leaky_bucket", wholeInUse),
		b.inUse().aimed(1.15), floor("gcra", 1, wholeInUse, holds("gcra")))
	b.add(benchCase{name: "token_bucket, allowed, key in use", note: "beside gcra", work: wholeInUse}, takes("token_bucket", wholeInUse),
		b.inUse().aimed(1.4), floor("text", 1, wholeInUse, holds("token_bucket:99:1700000000000000")))
	b.add(benchCase{name: "sliding_window, allowed, key in use", note: "one bucket, beside gcra and a script", work: slidingInUse},
		takes("sliding_window", slidingInUse),
		b.inUse().aimed(1.6), b.twoCounters(slidingInUse).aimed(1), floor("text", 1, slidingInUse, holds("sliding_window:1:1:1")))
	two := wholeInUse
	two.second = "60000/d"
	b.add(benchCase{name: "two rates on one key, allowed", note: "beside one rate", work: two}, takes("", two),
		b.inUse().aimed(1.8), floor("text", 1, wholeInUse, holds("gcra::16:x")))
	b.several("three limits in one call", wholeInUse)
	b.add(benchCase{name: "a policy, allowed, key in use", note: "beside its limit", work: wholeInUse}, policy("@api"),
		b.inUse().aimed(1.02), floor("gcra", 1, wholeInUse, holds("gcra")))
	b.add(benchCase{name: "a policy with a canary for half of the keys", note: "beside the same policy without", work: wholeInUse}, policy("@new"),
		policy("@api")(b.libraries[0], "tg0"), floor("gcra", 1, wholeInUse, holds("gcra")))
	b.add(benchCase{name: "a key with an override", note: "beside one without", work: wholeInUse}, overridden,
		b.inUse(), floor("override", 1, wholeInUse, holds("limit:2500000000000:2500000000000:6:6000/hgcra")))
	b.add(benchCase{name: "a key that GROW remembers", note: "beside one without", work: wholeInUse}, grown,
		b.inUse(), floor("override", 1, wholeInUse, holds("blocked:2400000000000:2500000000000:1:2500000000000:gcra")))
	b.add(benchCase{name: "refund, gcra", note: "beside a take", work: wholeInUse}, refunds("", wholeInUse),
		b.inUse(), floor("gcra", 1, wholeInUse, holds("gcra")))
	b.add(benchCase{name: "refund, fixed_window", note: "beside a take", work: refundedWindow}, refunds("fixed_window", refundedWindow),
		take(b.libraries[0], "tw1", "fixed_window", windowInUse), floor("count", 1, refundedWindow, holds("4000000000000000003")))
	b.add(benchCase{name: "fixed_window over two keys, allowed", note: "beside one key", work: windowInUse},
		takes("fixed_window", windowInUse, windowInUse),
		take(b.libraries[0], "tw1", "fixed_window", windowInUse).named("one key"))
	b.month("fixed_window by the calendar, allowed, key in use", 1.05, monthInUse, windowInUse, floor("count", 1, monthInUse, holds("4000000000000000003")))
	b.month("fixed_window by the calendar, allowed, absent key", 1.5, monthAbsent, windowAbsent, floor("month", 1, monthAbsent, nil))
	b.add(benchCase{name: "0/h, denied", note: "beside gcra", work: never}, takes("", never),
		take(b.libraries[0], "tg0", "", wholeDenied).aimed(1), floor("never", 1, never, nil).named("no command"))
	b.option("TRACK", "TRACK", 2.3, func(n int) string { return key("use0", n) }, floor("track", 2, tracked, holdsFirst("hset", "first", 1, "last", 1, "allowed", 1, "a28333333", 1, "cost", 1)), tracked)
	b.option("FORCE", "FORCE", 1.5, nil, floor("gcra", 1, wholeInUse, holds("gcra")), wholeInUse)
	b.add(benchCase{name: "FLOOR", note: "beside COST", work: wholeInUse},
		func(lib *library, prefix string) contender { return takeWith(lib, prefix, "FLOOR 20", nil, wholeInUse) },
		takeWith(b.libraries[0], "tc0", "COST 1", nil, wholeInUse).aimed(1.1), floor("gcra", 1, wholeInUse, holds("gcra")))
	b.add(benchCase{name: "BORROW, the guarantee pays", note: "beside one limit", work: wholeInUse}, borrows(wholeInUse.rate()), b.inUse().aimed(1.85),
		take(b.libraries[0], "tk0", "", wholeInUse, wholeInUse).named("two limits, two keys"), floor("all", 2, wholeInUse, holds("gcra")))
	b.add(benchCase{name: "BORROW, the pool pays", note: "beside one limit", work: wholeInUse}, borrows("1/d"), b.inUse().aimed(1.75),
		take(b.libraries[0], "tk0", "", wholeInUse, wholeInUse).named("two limits, two keys"), floor("pool", 2, wholeInUse, holds("gcra")))
	b.option("EACH, three limits", "EACH", 1.5, nil, floor("each", 3, wholeInUse, holds("gcra")), wholeInUse, wholeInUse, wholeInUse)
	request := 0
	b.option("ONCE, new", "ONCE 60000", 2.1, func(int) string {
		request++
		return key("req0", request)
	}, floor("once", 2, wholeInUse, holdsFirst("unlink")), wholeInUse)
	b.thrice("sliding_window, three calls a key", "sliding_window", 1.8, workload{keys: none, allow: true, count: 100, period: time.Minute, cost: 1})
	b.leases()
	if len(libraries) == 1 {
		b.many("5000 limits in turn", 5000, wholeInUse)
		b.floors("floors")
		b.worst()
	}
	return b.list, b.err
}

type caseBuilder struct {
	ctx       context.Context
	rdb       *redis.Client
	libraries []*library
	list      []benchCase
	err       error // the first error
}

// failed sets b.err unless it is already set. doing describes what failed.
func (b *caseBuilder) failed(doing string, err error) {
	if err != nil && b.err == nil {
		b.err = fmt.Errorf("%s: %w", doing, err)
	}
}

// add adds a case. ours returns the contender for lib, whose keys begin with the 3 bytes in prefix.
// The contenders in others take part only if there is one library.
func (b *caseBuilder) add(c benchCase, ours func(lib *library, prefix string) contender, others ...contender) {
	for i, lib := range b.libraries {
		contender := ours(lib, fmt.Sprintf("tk%d", i))
		if len(b.libraries) > 1 {
			contender.name = lib.name
		}
		c.contenders = append(c.contenders, contender)
	}
	if len(b.libraries) == 1 {
		c.contenders = append(c.contenders, others...)
	}
	b.list = append(b.list, c)
}

// takes returns a function to pass to add as ours. For each library and prefix, it calls take with
// the given algorithm and workloads.
func takes(algorithm string, works ...workload) func(*library, string) contender {
	return func(lib *library, prefix string) contender { return take(lib, prefix, algorithm, works...) }
}

// inUse returns a contender that takes units with gcra from keys in use. Other kinds of calls are
// compared with this contender.
func (b *caseBuilder) inUse() contender { return take(b.libraries[0], "tg0", "", wholeInUse) }

func (b *caseBuilder) gcra(name, note string, aim float64, w workload, bare contender) {
	b.add(benchCase{name: name, note: note, work: w}, takes("", w), b.redisRate(w).aimed(aim), bare)
}

func (b *caseBuilder) window(name string, aim float64, w workload, bare contender) {
	b.add(benchCase{name: name, note: "the seed's script tells neither what remains nor when to come back", work: w},
		takes("fixed_window", w), b.ulule(w).aimed(aim), b.seedCounter(w), incrExpire(w), bare)
}

func (b *caseBuilder) pair(name string, aim float64, resource, consumer workload, bare contender) {
	b.add(benchCase{name: name, note: "both keep a log; gcra on each key is another algorithm, for comparison", work: consumer},
		takes("sliding_log", resource, consumer),
		b.seedLog(resource, consumer).aimed(aim), take(b.libraries[0], "tg0", "", resource, consumer), bare)
}

// several compares calls with three keys, two keys and one key.
func (b *caseBuilder) several(name string, w workload) {
	b.add(benchCase{name: name, note: "gcra, allowed, keys in use", work: w},
		func(lib *library, prefix string) contender {
			return take(lib, prefix, "", w, w, w).named("three limits, three keys")
		},
		take(b.libraries[0], "th2", "", w, w).named("two limits, two keys"),
		take(b.libraries[0], "th1", "", w).named("one limit").aimed(2.5),
		floor("all", 3, w, holds("gcra")))
}

// option adds a case that compares a take that has an option with the same take without it. bare is
// the floor of the case.
func (b *caseBuilder) option(name, option string, aim float64, extra func(n int) string, bare contender, works ...workload) {
	b.add(benchCase{name: name, note: "beside the same call without", work: works[0]},
		func(lib *library, prefix string) contender { return takeWith(lib, prefix, option, extra, works...) },
		take(b.libraries[0], "tg0", "", works...).aimed(aim), bare)
}

// month measures takes from a window of a calendar month, and compares them with takes from an
// ordinary window.
func (b *caseBuilder) month(name string, aim float64, w, ordinary workload, bare contender) {
	b.add(benchCase{name: name, note: "beside an ordinary window", work: w}, takes("fixed_window", w),
		take(b.libraries[0], "tw1", "fixed_window", ordinary).aimed(aim), bare)
}

// many adds a case that compares calls under many different limits to calls under one limit. Do not
// use it to compare libraries: each turn would begin with a newly loaded library, which would have
// to parse every limit again.
func (b *caseBuilder) many(name string, limits int, w workload) {
	b.add(benchCase{name: name, note: "each key has one of them; beside one limit", work: w}, func(lib *library, prefix string) contender {
		each := make([]contender, limits)
		for i := range each {
			limit := w
			limit.count += int64(i)
			each[i] = take(lib, prefix, "", limit)
		}
		ours := each[0].named(fmt.Sprintf("ratelimit_take, %d limits in turn", limits))
		ours.call = func(n int) []redis.Cmder { return each[n%limits].call(n) }
		ours.fill = func(n int) []redis.Cmder { return each[n%limits].fill(n) }
		return ours
	}, b.inUse().aimed(1.1))
}

// thrice adds a case in which each key gets three takes. It compares the algorithm with gcra.
func (b *caseBuilder) thrice(name, algorithm string, aim float64, w workload) {
	build := func(lib *library, prefix, algorithm string) contender {
		c := take(lib, prefix, algorithm, w)
		once := c.call
		c.call = func(n int) []redis.Cmder { return once(n / 3) }
		return c
	}
	b.add(benchCase{name: name, note: "the first on an absent key; beside gcra", work: w},
		func(lib *library, prefix string) contender { return build(lib, prefix, algorithm) },
		build(b.libraries[0], "tg0", "").aimed(aim))
}

// leases compares acquire, renew and release with a gcra take.
func (b *caseBuilder) leases() {
	none := leased
	none.prefill = 0
	held := []string{"a", "b", "c"}
	for _, verb := range []struct {
		name  string
		aim   float64
		held  []string
		id    func(visit int) string // returns the lease ID for the n-th visit to a key
		floor string
	}{
		{"acquire", 2.3, held, strconv.Itoa, "lease"},
		{"renew", 2.5, held, func(int) string { return "b" }, "lease"},
		{"release", 2.5, append(held, "1", "2", "3", "4", "5"), strconv.Itoa, "release"},
	} {
		b.add(benchCase{name: verb.name + ", three leases held", note: "beside gcra", work: none},
			func(lib *library, prefix string) contender {
				visits := map[int]int{}
				return lease(lib, prefix, verb.name, verb.held, func(n int) string {
					visits[n]++
					return verb.id(visits[n])
				})
			}, b.inUse().aimed(verb.aim), floor(verb.floor, 1, none, holdsLeases))
	}
}

func (b *caseBuilder) floors(name string) {
	sha, err := b.rdb.ScriptLoad(b.ctx, "return 1").Result()
	b.failed("load the floors", err)
	b.list = append(b.list, benchCase{
		name: name, note: "a constant reply: nothing is decided", work: workload{keys: none, allow: true, cost: 1},
		contenders: []contender{
			bare("FCALL of a function that returns 1", "fcall", "ratelimit_bench_one", 0),
			bare("FCALL of one that returns six integers", "fcall", "ratelimit_bench_six", 0),
			bare("FCALL of one that returns six in a new table", "fcall", "ratelimit_bench_new", 0),
			bare("EVALSHA of 'return 1'", "evalsha", sha, 0),
			bare("PING", "ping"),
		},
	})
}
