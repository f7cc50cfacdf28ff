package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/redis/go-redis/v9"
)

type plan struct {
	Keys   int `json:"keys"`   // keys per contender in cases that use existing keys
	Calls  int `json:"calls"`  // timed calls by each contender in each round
	WarmUp int `json:"warmUp"` // untimed calls before the timed ones
	Rounds int `json:"rounds"`
	Batch  int `json:"batch"` // decisions sent per write
}

// each returns the number of calls that a contender makes in a case.
func (p plan) each() int { return (1 + p.Rounds) * (p.Calls + p.WarmUp) }

func (p plan) check() error {
	for name, value := range map[string]int{"--keys": p.Keys, "--calls": p.Calls, "--rounds": p.Rounds, "--batch": p.Batch} {
		if value < 1 {
			return fmt.Errorf("%s is %d, want at least 1", name, value)
		}
	}
	if p.WarmUp < 0 {
		return fmt.Errorf("--warm-up is %d, want at least 0", p.WarmUp)
	}
	if p.Keys > 1e6 || p.each() >= 1e7 {
		return fmt.Errorf("--keys is %d and each contender makes %d calls; keys are numbered with 7 digits, "+
			"so at most 1000000 keys and fewer than 10000000 calls", p.Keys, p.each())
	}
	return nil
}

// fits returns an error if all calls in a case should be allowed but would exceed the limits of
// their keys.
func (p plan) fits(w workload) error {
	if w.keys != inUse || !w.allow {
		return nil
	}
	visits := int64((p.each() + p.Keys - 1) / p.Keys)
	if need := w.prefill + visits*w.cost; need > w.count {
		return fmt.Errorf("each of %d keys would be asked %d times, %d units at a time, and %s allows %d; "+
			"give more --keys or fewer --calls", p.Keys, visits, w.cost, w.rate(), w.count)
	}
	return nil
}

// turns holds the measurements of one contender: microseconds or instructions per decision, one
// value for each round.
type turns []float64

// runner runs cases on one server, one after another.
type runner struct {
	rdb    *redis.Client
	plan   plan
	loaded *library

	counter *counter // counts instructions instead of time; nil to measure time
}

// run measures one case. Contenders take turns, so that anything that slows the machine affects all
// of them. Each round begins with a different contender. The first round is not counted, because
// the server's tables grow during it.
func (r *runner) run(ctx context.Context, c benchCase) ([]turns, error) {
	if c.few {
		usual := r.plan
		defer func() { r.plan = usual }()
		r.plan.Calls, r.plan.WarmUp, r.plan.Rounds = 1, 0, min(5, usual.Rounds)
	}
	if err := r.plan.fits(c.work); err != nil {
		return nil, err
	}
	if err := r.prepare(ctx, c); err != nil {
		return nil, err
	}
	figures := make([]turns, len(c.contenders))
	position := make([]int, len(c.contenders)) // number of calls that each contender has made
	for round := range 1 + r.plan.Rounds {
		for turn := range c.contenders {
			i := (round + turn) % len(c.contenders)
			usec, err := r.turn(ctx, c.work, &c.contenders[i], &position[i])
			if err != nil {
				return nil, fmt.Errorf("%s, round %d: %w", c.contenders[i].name, round, err)
			}
			if round > 0 {
				figures[i] = append(figures[i], usec)
			}
		}
	}
	return figures, nil
}

// prepare empties the database and fills it with each contender's keys. If the case does not use
// the keyset inUse, prepare adds plan.Keys unused keys, so that every case runs in a keyspace of
// similar size.
func (r *runner) prepare(ctx context.Context, c benchCase) error {
	if err := r.rdb.FlushDB(ctx).Err(); err != nil {
		return fmt.Errorf("FLUSHDB: %w", err)
	}
	if c.work.keys != inUse {
		if err := r.send(ctx, r.plan.Keys, func(n int) []redis.Cmder {
			return []redis.Cmder{redis.NewStatusCmd(ctx, "set", key("fill", n), "1", "ex", 86400)}
		}, nil); err != nil {
			return err
		}
	}
	return r.fill(ctx, c)
}

// fill creates the contenders' keys. The contenders take turns, because decisions on the keys
// created last are 4 % faster.
func (r *runner) fill(ctx context.Context, c benchCase) error {
	keys := map[keyset]int{inUse: r.plan.Keys, hot: hotKeys}[c.work.keys]
	part := (keys + fillParts - 1) / fillParts
	for from := 0; from < keys; from += part {
		for turn := range c.contenders {
			contender := &c.contenders[(from/part+turn)%len(c.contenders)]
			if contender.fill == nil {
				continue
			}
			if err := r.enter(ctx, contender); err != nil {
				return err
			}
			if err := r.send(ctx, min(part, keys-from), func(n int) []redis.Cmder { return contender.fill(from + n) }, nil); err != nil {
				return fmt.Errorf("%s: fill the keys: %w", contender.name, err)
			}
		}
	}
	return nil
}

const fillParts = 40

// enter loads the contender's library if it is not loaded.
func (r *runner) enter(ctx context.Context, c *contender) error {
	if c.library == nil || c.library == r.loaded {
		return nil
	}
	if err := r.rdb.FunctionLoadReplace(ctx, c.library.text).Err(); err != nil {
		return fmt.Errorf("load the library %s: %w", c.library.name, err)
	}
	r.loaded = c.library
	return nil
}

// turn makes one contender's calls in one round, and returns the server time or the instructions
// per decision.
func (r *runner) turn(ctx context.Context, w workload, c *contender, position *int) (float64, error) {
	if err := r.enter(ctx, c); err != nil {
		return 0, err
	}
	if c.prepare != nil {
		if err := r.send(ctx, 1, func(int) []redis.Cmder { return c.prepare() }, nil); err != nil {
			return 0, err
		}
	}
	call := func(int) []redis.Cmder {
		n := r.keyNumber(w.keys, *position)
		*position++
		return c.call(n)
	}
	check := func(replies []redis.Cmder) error {
		decided, err := c.read(replies)
		if err != nil {
			return err
		}
		return w.check(decided)
	}
	if err := r.send(ctx, r.plan.WarmUp, call, check); err != nil {
		return 0, err
	}
	used, err := r.measure(ctx, c, func() error { return r.send(ctx, r.plan.Calls, call, check) })
	if err == nil && w.keys == absent {
		err = r.forget(ctx, c, *position)
	}
	return used, err
}

// measure runs calls, and returns the server time in microseconds, or the number of instructions,
// per decision.
func (r *runner) measure(ctx context.Context, c *contender, calls func() error) (float64, error) {
	if r.counter != nil {
		if err := r.counter.start(ctx); err != nil {
			return 0, err
		}
		if err := calls(); err != nil {
			return 0, err
		}
		sum, err := r.counter.read(ctx)
		return sum / float64(r.plan.Calls), err
	}
	before, err := r.stats(ctx)
	if err != nil {
		return 0, err
	}
	if err := calls(); err != nil {
		return 0, err
	}
	after, err := r.stats(ctx)
	if err != nil {
		return 0, err
	}
	return cost(before, after, c.commands, r.plan.Calls, c.refuses)
}

// forget deletes the keys that a turn created. Otherwise the server would double its hash tables in
// the middle of a later turn. position is the number of the next key.
func (r *runner) forget(ctx context.Context, c *contender, position int) error {
	made := r.plan.WarmUp + r.plan.Calls
	if err := r.send(ctx, made, func(n int) []redis.Cmder {
		return []redis.Cmder{redis.NewIntCmd(ctx, "unlink", key(c.prefix, position-made+n))}
	}, nil); err != nil {
		return err
	}
	left, err := r.rdb.DBSize(ctx).Result()
	if err != nil {
		return fmt.Errorf("DBSIZE: %w", err)
	}
	if left != int64(r.plan.Keys) {
		return fmt.Errorf("%d keys are left after the turn's own were deleted, want %d", left, r.plan.Keys)
	}
	return nil
}

// keyNumber returns the number of the key for the call at a position. It visits keys in use equally
// often, but not in the order of their creation, because keys created one after another are
// neighbors in memory.
func (r *runner) keyNumber(keys keyset, position int) int {
	const stride = 48271 // a prime
	switch keys {
	case inUse:
		if r.plan.Keys%stride == 0 {
			return position % r.plan.Keys
		}
		return position % r.plan.Keys * stride % r.plan.Keys
	case hot:
		return position % hotKeys
	default:
		return position
	}
}

func (r *runner) stats(ctx context.Context) (commandStats, error) {
	info, err := r.rdb.InfoMap(ctx, "commandstats").Result()
	if err != nil {
		return nil, fmt.Errorf("INFO commandstats: %w", err)
	}
	return parseCommandStats(info["Commandstats"])
}

// send sends the commands of n decisions in batches, and calls check with the replies to each
// decision. If check is nil, send only looks for errors.
func (r *runner) send(ctx context.Context, n int, call func(int) []redis.Cmder, check func([]redis.Cmder) error) error {
	for from := 0; from < n; from += r.plan.Batch {
		to := min(from+r.plan.Batch, n)
		decisions := make([][]redis.Cmder, 0, to-from)
		pipe := r.rdb.Pipeline()
		for i := from; i < to; i++ {
			commands := call(i)
			decisions = append(decisions, commands)
			for _, command := range commands {
				if err := command.Err(); err != nil { // the command could not be built
					return err
				}
				pipe.Process(ctx, command)
			}
		}
		if _, err := pipe.Exec(ctx); err != nil && ctx.Err() != nil {
			return ctx.Err()
		}
		for _, replies := range decisions {
			for _, reply := range replies {
				if err := reply.Err(); err != nil && !errors.Is(err, redis.Nil) {
					return fmt.Errorf("%v: %w", reply.Args(), err)
				}
			}
			if check == nil {
				continue
			}
			if err := check(replies); err != nil {
				return fmt.Errorf("%v: %w", replies[0].Args(), err)
			}
		}
	}
	return nil
}
