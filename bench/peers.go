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

// redisRate returns a contender that calls the API of github.com/go-redis/redis_rate. Each call is
// one EVALSHA of its GCRA script. The package puts "rate:" before each key.
func (b *caseBuilder) redisRate(w workload) contender {
	catcher := newRecorder(b.rdb)
	limiter := redis_rate.NewLimiter(catcher.client)
	limit := redis_rate.Limit{Rate: int(w.count), Burst: int(w.count), Period: w.period}
	catcher.passing = true // the first call loads redis_rate's script
	_, err := limiter.Allow(b.ctx, "load", limit)
	catcher.passing = false
	b.failed("redis_rate", err)
	c := contender{
		name:     redisRateName,
		peer:     true,
		prefix:   "rate",
		commands: []string{"evalsha"},
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
	return c.taking(w, func(n int, units int64) []redis.Cmder {
		return catcher.catch(func() error {
			_, err := limiter.AllowN(b.ctx, key("rate", n)[len("rate:"):], limit, int(units))
			return err
		})
	})
}

// ulule returns a contender that calls the API of github.com/ulule/limiter with its Redis store.
// Each call is one EVALSHA of a fixed window that also counts denied calls.
func (b *caseBuilder) ulule(w workload) contender {
	catcher := newRecorder(b.rdb)
	store, err := ululeredis.NewStoreWithOptions(catcher.client, ulule.StoreOptions{Prefix: "ulul"})
	b.failed("ulule/limiter", err)
	rate := ulule.Rate{Period: w.period, Limit: w.count}
	c := contender{
		name:     ululeName,
		peer:     true,
		prefix:   "ulul",
		commands: []string{"evalsha"},
		read: func(replies []redis.Cmder) (outcome, error) {
			fields, err := integers(replies[0], 2)
			if err != nil {
				return outcome{}, err
			}
			return outcome{allowed: fields[0] <= w.count, used: fields[0]}, nil
		},
	}
	return c.taking(w, func(n int, units int64) []redis.Cmder {
		return catcher.catch(func() error {
			_, err := store.Increment(b.ctx, key("ulul", n)[len("ulul:"):], units, rate)
			return err
		})
	})
}

// seedCounterScript is the script in the section "Implementation using counter" of the article on
// which this project is based. KEYS[1] is the counter; ARGV are the window in seconds and the
// limit. The script returns nil for an allowed call and -1 for a denied one.
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

func (b *caseBuilder) seedCounter(w workload) contender {
	c := b.script("seed counter script", seedCounterScript, w.prefill, func(n int) []any {
		return []any{1, key("seed", n), int64(w.period / time.Second), w.count}
	})
	c.prefix = "seed"
	c.read = func(replies []redis.Cmder) (outcome, error) {
		value, err := replies[0].(*redis.Cmd).Result()
		if errors.Is(err, redis.Nil) {
			return outcome{allowed: true, used: unknown}, nil
		}
		if err == nil && value != int64(-1) {
			err = fmt.Errorf("the reply is %v, neither nil nor -1", value)
		}
		return outcome{used: unknown}, err
	}
	return c
}

// incrExpire counts without a script: it sends INCRBY and EXPIRE, like envoyproxy/ratelimit, and
// the client decides. It counts denied calls too, and each call extends the expiry. It shows how
// fast the simplest limiter is.
func incrExpire(w workload) contender {
	c := contender{
		name:     "INCRBY + EXPIRE, no script",
		peer:     true,
		prefix:   "incr",
		commands: []string{"incrby", "expire"},
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
	return c.taking(w, func(n int, units int64) []redis.Cmder {
		ctx, k := context.Background(), key("incr", n)
		return []redis.Cmder{redis.NewIntCmd(ctx, "incrby", k, units), redis.NewBoolCmd(ctx, "expire", k, int64(w.period/time.Second))}
	})
}

// seedLogScript is the second, shorter form of the script of "LUA_rateLimiting" (2021), this
// project's predecessor. A resource and one of its consumers each have a sorted set with a member
// for each call. KEYS are the resource and the consumer; ARGV are the window in seconds and the
// limits of the resource and of the consumer. The script returns 'True' or 'False'.
const seedLogScript = `local rlimit = 0+ARGV[2] local climit = 0+ARGV[3] local t = (redis.call('TIME')) ` +
	`redis.call('ZREMRANGEBYSCORE',KEYS[1],'0',(t[1]-ARGV[1])) local rcount = (redis.call('ZCARD',KEYS[1])) ` +
	`if (rcount == rlimit) then return 'False' ` +
	`elseif (((redis.call('ZREMRANGEBYSCORE',KEYS[2],'0',(t[1]-ARGV[1]))) < 1000000) ` +
	`and (redis.call('ZCARD',KEYS[2]) < climit)) then ` +
	`redis.call('ZADD',KEYS[1],t[1],t[1]..':'..t[2]) redis.call('ZADD',KEYS[2],t[1],t[1]..':'..t[2]) return 'True' ` +
	`else return 'False' end`

func (b *caseBuilder) seedLog(resource, consumer workload) contender {
	c := b.script("seed two-key log script", seedLogScript, consumer.prefill, func(n int) []any {
		return []any{2, key("slog", n), key("clog", n), int64(resource.period / time.Second), resource.count, consumer.count}
	})
	c.read = func(replies []redis.Cmder) (outcome, error) {
		text, err := replies[0].(*redis.Cmd).Text()
		if err == nil && text != "True" && text != "False" {
			err = fmt.Errorf("the reply is %q, neither True nor False", text)
		}
		return outcome{allowed: text == "True", used: unknown}, err
	}
	return c
}

// twoCounterScript is a sliding window of two counters, as articles and libraries implement it.
// Each clock-aligned window has a key with a counter. The script multiplies the previous counter by
// the fraction of its window that the sliding window still covers. KEYS[1] is the prefix of both
// keys; ARGV are the period in ms and the limit. The script returns whether the call is allowed,
// how many calls remain, and the ms until the current window ends.
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

func (b *caseBuilder) twoCounters(w workload) contender {
	c := b.script("two-counter script", twoCounterScript, w.prefill, func(n int) []any {
		return []any{1, key("twoc", n), int64(w.period / time.Millisecond), w.count}
	})
	c.read = func(replies []redis.Cmder) (outcome, error) {
		fields, err := integers(replies[0], 3)
		if err != nil {
			return outcome{}, err
		}
		return outcome{allowed: fields[0] == 1, used: w.count - fields[1]}, nil
	}
	return c
}

// script loads a script and returns a contender that calls the script. The caller must set the
// contender's field read. args returns the number of keys, the keys and the arguments for key
// number n. prefill is the number of calls that fill a key.
func (b *caseBuilder) script(name, text string, prefill int64, args func(n int) []any) contender {
	sha, err := b.rdb.ScriptLoad(b.ctx, text).Result()
	b.failed("SCRIPT LOAD", err)
	call := func(n int) []redis.Cmder {
		return []redis.Cmder{redis.NewCmd(b.ctx, append([]any{"evalsha", sha}, args(n)...)...)}
	}
	fill := func(n int) (all []redis.Cmder) {
		for range prefill {
			all = append(all, call(n)...)
		}
		return all
	}
	return contender{name: name, peer: true, commands: []string{"evalsha"}, call: call, fill: fill}
}
