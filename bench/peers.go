package main

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/go-redis/redis_rate/v10"
	"github.com/redis/go-redis/v9"
	ulule "github.com/ulule/limiter/v3"
	ululeredis "github.com/ulule/limiter/v3/drivers/store/redis"
)

// peers builds contenders from other people's limiters.
type peers struct {
	rdb *redis.Client
}

// moduleVersion returns the version of a dependency of this program.
func moduleVersion(path string) string {
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, module := range info.Deps {
			if module.Path == path {
				return module.Version
			}
		}
	}
	return "(version unknown)"
}

// redisRate returns github.com/go-redis/redis_rate, called through its own API: one EVALSHA of its
// GCRA script. Its keys begin with "rate:".
func (p peers) redisRate(ctx context.Context, w workload) (contender, error) {
	catcher := newRecorder(p.rdb)
	limiter := redis_rate.NewLimiter(catcher.client)
	limit := redis_rate.Limit{Rate: int(w.count), Burst: int(w.count), Period: w.period}
	build := func(n int, cost int64) ([]redis.Cmder, error) {
		cmd, err := catcher.catch(func() error {
			_, err := limiter.AllowN(ctx, key("rate", n)[len("rate:"):], limit, int(cost))
			return err
		})
		return []redis.Cmder{cmd}, err
	}
	if err := catcher.pass(func() error {
		_, err := limiter.Allow(ctx, "load", limit)
		return err
	}); err != nil {
		return contender{}, fmt.Errorf("redis_rate: %w", err)
	}
	c := contender{
		name:     "redis_rate " + moduleVersion("github.com/go-redis/redis_rate/v10"),
		peer:     true,
		prefix:   "rate",
		commands: []string{"evalsha"},
		call:     func(n int) ([]redis.Cmder, error) { return build(n, w.cost) },
		read: func(replies []redis.Cmder) (outcome, error) {
			values, err := replies[0].(*redis.Cmd).Slice()
			if err != nil {
				return outcome{}, err
			}
			if len(values) != 4 {
				return outcome{}, fmt.Errorf("the reply %v has not 4 fields", values)
			}
			allowed, ok1 := values[0].(int64)
			remaining, ok2 := values[1].(int64)
			if !ok1 || !ok2 {
				return outcome{}, fmt.Errorf("the reply %v does not begin with two integers", values)
			}
			return outcome{allowed: allowed == w.cost, used: w.count - remaining}, nil
		},
	}
	if w.prefill > 0 {
		c.fill = func(n int) ([]redis.Cmder, error) { return build(n, w.prefill) }
	}
	return c, nil
}

// ululeLimiter returns the Redis store of github.com/ulule/limiter, called through its own API: one
// EVALSHA of a fixed window that keeps counting when it denies.
func (p peers) ululeLimiter(ctx context.Context, w workload) (contender, error) {
	catcher := newRecorder(p.rdb)
	store, err := ululeredis.NewStoreWithOptions(catcher.client, ulule.StoreOptions{Prefix: "ulul"})
	if err != nil {
		return contender{}, fmt.Errorf("ulule/limiter: %w", err)
	}
	rate := ulule.Rate{Period: w.period, Limit: w.count}
	build := func(n int, cost int64) ([]redis.Cmder, error) {
		cmd, err := catcher.catch(func() error {
			_, err := store.Increment(ctx, key("ulul", n)[len("ulul:"):], cost, rate)
			return err
		})
		return []redis.Cmder{cmd}, err
	}
	c := contender{
		name:     "ulule/limiter " + moduleVersion("github.com/ulule/limiter/v3"),
		peer:     true,
		prefix:   "ulul",
		commands: []string{"evalsha"},
		call:     func(n int) ([]redis.Cmder, error) { return build(n, w.cost) },
		read: func(replies []redis.Cmder) (outcome, error) {
			fields, err := integers(replies[0], 2)
			if err != nil {
				return outcome{}, err
			}
			return outcome{allowed: fields[0] <= w.count, used: fields[0]}, nil
		},
	}
	if w.prefill > 0 {
		c.fill = func(n int) ([]redis.Cmder, error) { return build(n, w.prefill) }
	}
	return c, nil
}

// seedCounterScript is the counter from an article on limiting one's own calls to other people's
// APIs ("Implementation using counter"), from which this project grew. KEYS[1] is the counter; ARGV
// are the window in seconds and the limit. It returns nil, or -1 if it denies.
const seedCounterScript = `
local count = redis.call('GET', KEYS[1])
if not count then
-- EX: expire. This is the most important part of it.
redis.call('SET', KEYS[1], 1, 'EX', tonumber(ARGV[1]))
return
end
-- rate limited
if tonumber(count) >= tonumber(ARGV[2]) then
return -1
end
redis.call('INCR', KEYS[1])
return
`

func (p peers) seedCounter(ctx context.Context, w workload) (contender, error) {
	if w.cost != 1 {
		return contender{}, fmt.Errorf("the seed counter takes one unit at a time, not %d", w.cost)
	}
	call, err := p.script(ctx, seedCounterScript, func(n int) []any {
		return []any{1, key("seed", n), int64(w.period / time.Second), w.count}
	})
	if err != nil {
		return contender{}, err
	}
	c := contender{
		name:     "seed counter script",
		peer:     true,
		prefix:   "seed",
		commands: []string{"evalsha"},
		call:     call,
		read: func(replies []redis.Cmder) (outcome, error) {
			value, err := replies[0].(*redis.Cmd).Result()
			if errors.Is(err, redis.Nil) {
				return outcome{allowed: true, used: unknown}, nil
			}
			if err == nil && value != int64(-1) {
				err = fmt.Errorf("the reply is %v, neither nil nor -1", value)
			}
			return outcome{used: unknown}, err
		},
	}
	if w.prefill > 0 {
		c.fill = repeat(call, w.prefill)
	}
	return c, nil
}

// incrExpire counts without a script: INCRBY and EXPIRE, as envoyproxy/ratelimit sends them, with
// the decision in the client. It counts denied calls too, and each call extends the expiry. It
// serves as a floor.
func (p peers) incrExpire(ctx context.Context, w workload) contender {
	build := func(n int, cost int64) ([]redis.Cmder, error) {
		k := key("incr", n)
		return []redis.Cmder{
			redis.NewIntCmd(ctx, "incrby", k, cost),
			redis.NewBoolCmd(ctx, "expire", k, int64(w.period/time.Second)),
		}, nil
	}
	c := contender{
		name:     "INCRBY + EXPIRE, no script",
		peer:     true,
		prefix:   "incr",
		commands: []string{"incrby", "expire"},
		call:     func(n int) ([]redis.Cmder, error) { return build(n, w.cost) },
		read: func(replies []redis.Cmder) (outcome, error) {
			count, err := replies[0].(*redis.IntCmd).Result()
			if err != nil {
				return outcome{}, err
			}
			if set, err := replies[1].(*redis.BoolCmd).Result(); err != nil || !set {
				return outcome{}, fmt.Errorf("EXPIRE answers %t, %v", set, err)
			}
			return outcome{allowed: count <= w.count, used: count}, nil
		},
	}
	if w.prefill > 0 {
		c.fill = func(n int) ([]redis.Cmder, error) { return build(n, w.prefill) }
	}
	return c
}

// seedLogScript is the second, shorter form of the script of "LUA_rateLimiting" (2021), from which
// this project grew: a resource and one of its consumers, each a sorted set with an entry for each
// call. KEYS are the resource and the consumer; ARGV are the window in seconds, the limit of the
// resource and the limit of the consumer. It returns 'True' or 'False'.
const seedLogScript = `local rlimit = 0+ARGV[2] local climit = 0+ARGV[3] local t = (redis.call('TIME')) ` +
	`redis.call('ZREMRANGEBYSCORE',KEYS[1],'0',(t[1]-ARGV[1])) local rcount = (redis.call('ZCARD',KEYS[1])) ` +
	`if (rcount == rlimit) then return 'False' ` +
	`elseif (((redis.call('ZREMRANGEBYSCORE',KEYS[2],'0',(t[1]-ARGV[1]))) < 1000000) ` +
	`and (redis.call('ZCARD',KEYS[2]) < climit)) then ` +
	`redis.call('ZADD',KEYS[1],t[1],t[1]..':'..t[2]) redis.call('ZADD',KEYS[2],t[1],t[1]..':'..t[2]) return 'True' ` +
	`else return 'False' end`

func (p peers) seedLog(ctx context.Context, resource, consumer workload) (contender, error) {
	call, err := p.script(ctx, seedLogScript, func(n int) []any {
		return []any{2, key("slog", n), key("clog", n), int64(resource.period / time.Second), resource.count, consumer.count}
	})
	if err != nil {
		return contender{}, err
	}
	return contender{
		name:     "seed two-key log script",
		peer:     true,
		commands: []string{"evalsha"},
		call:     call,
		read: func(replies []redis.Cmder) (outcome, error) {
			text, err := replies[0].(*redis.Cmd).Text()
			if err == nil && text != "True" && text != "False" {
				err = fmt.Errorf("the reply is %q, neither True nor False", text)
			}
			return outcome{allowed: text == "True", used: unknown}, err
		},
		fill: repeat(call, consumer.prefill),
	}, nil
}

// twoCounterScript is a sliding window of two counters as articles and libraries implement it. Each
// clock window has a key; the previous window counts in proportion to the part of it that the
// sliding window still covers. KEYS[1] is the prefix of both; ARGV are the period in ms and the
// limit. It returns allowed, remaining and the ms until the current window ends.
const twoCounterScript = `
local period, limit = tonumber(ARGV[1]), tonumber(ARGV[2])
local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
local window = math.floor(now / period)
local into = now - window * period
local current = KEYS[1] .. ':' .. window
local count = tonumber(redis.call('GET', current) or '0')
local before = tonumber(redis.call('GET', KEYS[1] .. ':' .. (window - 1)) or '0')
local used = before * (period - into) / period + count
if used + 1 > limit then
  return { 0, 0, period - into }
end
count = redis.call('INCR', current)
if count == 1 then
  redis.call('PEXPIRE', current, 2 * period)
end
return { 1, math.floor(limit - used - 1), period - into }
`

func (p peers) twoCounters(ctx context.Context, w workload) (contender, error) {
	call, err := p.script(ctx, twoCounterScript, func(n int) []any {
		return []any{1, key("twoc", n), int64(w.period / time.Millisecond), w.count}
	})
	return contender{
		name:     "two-counter script",
		peer:     true,
		prefix:   "twoc",
		commands: []string{"evalsha"},
		call:     call,
		read: func(replies []redis.Cmder) (outcome, error) {
			fields, err := integers(replies[0], 3)
			if err != nil {
				return outcome{}, err
			}
			return outcome{allowed: fields[0] == 1, used: w.count - fields[1]}, nil
		},
		fill: repeat(call, w.prefill),
	}, err
}

// script loads a script and returns a function that calls it. args returns the number of keys, the
// keys and the arguments.
func (p peers) script(ctx context.Context, text string, args func(n int) []any) (func(int) ([]redis.Cmder, error), error) {
	sha, err := p.rdb.ScriptLoad(ctx, text).Result()
	if err != nil {
		return nil, fmt.Errorf("SCRIPT LOAD: %w", err)
	}
	return func(n int) ([]redis.Cmder, error) {
		return []redis.Cmder{redis.NewCmd(ctx, append([]any{"evalsha", sha}, args(n)...)...)}, nil
	}, nil
}

// repeat returns a function that makes the same call a number of times.
func repeat(call func(int) ([]redis.Cmder, error), times int64) func(int) ([]redis.Cmder, error) {
	return func(n int) ([]redis.Cmder, error) {
		var all []redis.Cmder
		for range times {
			cmds, err := call(n)
			if err != nil {
				return nil, err
			}
			all = append(all, cmds...)
		}
		return all, nil
	}
}
