package main

import (
	"context"

	"github.com/redis/go-redis/v9"
)

// floorLibraryName is the name of the library of floors. A floor is a function that makes no
// decision, so its time is the minimum for a real call. Some floors run no commands; the others run
// the fewest commands that a case needs. Their replies are constant.
const floorLibraryName = "ratelimit_bench"

const floorLibrary = `#!lua name=` + floorLibraryName + `
local stands = (redis.REDIS_VERSION_NUM or 0) >= 0x00070200 -- time stands still during a call
local six = { 1, 100, 99, 0, 600, 1 }
local no = { 0, 100, 0, 600, 600, 1 }
local log = 'sliding_log:12345678901234567890123456789012345678901234567890123' -- four calls
local function register(name, floor)
  redis.register_function('ratelimit_bench_' .. name, function(keys) return floor(keys[1], keys) end)
end
local function move(key)
  if stands then
    redis.call('PEXPIRE', key, '86400000')
  else
    redis.call('PEXPIRETIME', key)
    redis.call('PEXPIREAT', key, '2500000000000')
  end
end
register('one', function() return 1 end)
register('six', function() return six end)
register('new', function() return { 1, 100, 99, 0, 600, 1 } end)
register('gcra', function(key) redis.call('PTTL', key) redis.call('GETRANGE', key, '0', '31') move(key) return six end)
register('absent', function(key) redis.call('PTTL', key) redis.call('PSETEX', key, '60000', 'gcra') return six end)
register('part', function(key)
  redis.call('PTTL', key)
  redis.call('GETRANGE', key, '0', '31')
  if stands then
    redis.call('PSETEX', key, '86400000', 'gcra-1')
  else
    redis.call('PEXPIRETIME', key)
    redis.call('SET', key, 'gcra-1', 'PXAT', '2500000000000')
  end
  return six
end)
register('look', function(key) redis.call('PTTL', key) redis.call('GETRANGE', key, '0', '31') return no end)
register('count', function(key) redis.call('GETRANGE', key, '0', '31') redis.call('PTTL', key) redis.call('INCRBY', key, '1') return six end)
register('opens', function(key) redis.call('GETRANGE', key, '0', '31') redis.call('PSETEX', key, '60000', '4000000000000000001') return six end)
register('text', function(key)
  redis.call('GETRANGE', key, '0', '511')
  redis.call('TIME')
  redis.call('SET', key, 'token_bucket:99:1700000000000000', 'PXAT', '2500000000000')
  return six
end)
register('override', function(key)
  redis.call('PTTL', key)
  redis.call('GETRANGE', key, '0', '31')
  redis.call('TIME')
  redis.call('GETRANGE', key, '0', '1278')
  redis.call('SET', key, 'limit:2500000000000:2500000000000:6:6000/hgcra', 'PXAT', '2500000000000')
  return six
end)
register('logs', function(_, keys)
  redis.call('TIME')
  for i = 1, #keys do redis.call('GETRANGE', keys[i], '0', '2047') end
  for i = 1, #keys do redis.call('SET', keys[i], log, 'PXAT', '2500000000000') end
  return six
end)
register('logs_denied', function(_, keys)
  redis.call('TIME')
  for i = 1, #keys do redis.call('GETRANGE', keys[i], '0', '2047') end
  return no
end)
register('all', function(_, keys)
  for i = 1, #keys do redis.call('PTTL', keys[i]) redis.call('GETRANGE', keys[i], '0', '31') end
  for i = 1, #keys do move(keys[i]) end
  return six
end)
register('pool', function(_, keys)
  for i = 1, #keys do redis.call('PTTL', keys[i]) redis.call('GETRANGE', keys[i], '0', '31') end
  move(keys[#keys])
  return six
end)
local each = { 1, 100, 99, 0, 600, 1, { { 1, 100, 99, 0, 600 }, { 1, 100, 99, 0, 600 }, { 1, 100, 99, 0, 600 } } }
register('each', function(_, keys)
  for i = 1, #keys do redis.call('PTTL', keys[i]) redis.call('GETRANGE', keys[i], '0', '31') end
  for i = 1, #keys do move(keys[i]) end
  return each
end)
register('month', function(key)
  redis.call('GETRANGE', key, '0', '31')
  redis.call('TIME')
  redis.call('SET', key, '4000000000000000001', 'PXAT', '2500000000000')
  return six
end)
register('never', function() return no end)
register('track', function(key, keys)
  redis.call('PTTL', key)
  redis.call('GETRANGE', key, '0', '31')
  redis.call('TIME')
  redis.call('HMGET', keys[2], 'allowed', 'a28333333', 'cost', 'first')
  move(key)
  redis.call('HSET', keys[2], 'last', '1700000000000', 'allowed', '2', 'a28333333', '2', 'cost', '2')
  redis.call('PEXPIREAT', keys[2], '2500000000000')
  return six
end)
register('once', function(key, keys)
  redis.call('GETRANGE', keys[2], '0', '255')
  redis.call('PTTL', key)
  redis.call('GETRANGE', key, '0', '31')
  move(key)
  redis.call('PSETEX', keys[2], '60000', 'once:1,6000,4999,0,600600,1')
  return six
end)
register('lease', function(key)
  redis.call('TIME')
  redis.call('ZRANGE', key, '-1', '-1', 'WITHSCORES')
  redis.call('ZMSCORE', key, 'lease:0', 'blocked', 'length')
  redis.call('ZCOUNT', key, '(1700000000000', '+inf')
  redis.call('ZCARD', key)
  redis.call('ZADD', key, '2500000000000', 'lease:0')
  redis.call('PEXPIREAT', key, '2500000000000')
  return six
end)
register('release', function(key)
  redis.call('TIME')
  redis.call('ZRANGE', key, '-2', '-1', 'WITHSCORES')
  redis.call('ZSCORE', key, 'lease:0')
  redis.call('ZREM', key, 'lease:0', 'given:0')
  return 1
end)
`

// bare returns a contender that sends a command that reads and writes no keys.
func bare(name, command string, args ...any) contender {
	return contender{
		name:     name,
		commands: []string{command},
		call: func(int) []redis.Cmder {
			return []redis.Cmder{redis.NewCmd(context.Background(), append([]any{command}, args...)...)}
		},
		read: readAnything,
	}
}

func readAnything(replies []redis.Cmder) (outcome, error) {
	return outcome{allowed: true, used: unknown}, replies[0].Err()
}

// floor returns a contender that runs only the Redis commands that a decision needs, without the
// library's logic. keys is the number of keys in a call. fill returns the command that creates a
// key; it may be nil.
func floor(function string, keys int, w workload, fill func(key string) redis.Cmder) contender {
	prefixes := numbered("fl0", keys)
	c := contender{
		name:     "the commands alone",
		prefix:   prefixes[0],
		commands: []string{"fcall"},
		call:     func(n int) []redis.Cmder { return fcall("bench_"+function, n, prefixes, "limit") },
		read: func(replies []redis.Cmder) (outcome, error) {
			return outcome{allowed: w.allow, used: unknown}, replies[0].Err()
		},
	}
	if fill != nil {
		c.fill = func(n int) (all []redis.Cmder) {
			for _, prefix := range prefixes {
				all = append(all, fill(key(prefix, n)))
			}
			return all
		}
	}
	return c
}

// holds returns a fill function for floor that sets the key to value.
func holds(value string) func(key string) redis.Cmder {
	return func(key string) redis.Cmder {
		return redis.NewStatusCmd(context.Background(), "set", key, value, "px", 86400000)
	}
}

// holdsLeases returns the command that stores leases in the key of a floor.
func holdsLeases(key string) redis.Cmder {
	return redis.NewIntCmd(context.Background(), "zadd", key, 2400000000000, "lease:a", 2400000000001, "lease:b",
		2400000000002, "lease:0", 2400000000003, "lease:c", -86400000, "length")
}

// holdsFirst returns a fill function for floor: the first key of a call gets the state of gcra, the
// second is an argument of the given command. key[3] is the position of the key.
func holdsFirst(command string, more ...any) func(key string) redis.Cmder {
	return func(key string) redis.Cmder {
		if key[3] == '0' {
			return holds("gcra")(key)
		}
		return redis.NewIntCmd(context.Background(), append([]any{command, key}, more...)...)
	}
}
