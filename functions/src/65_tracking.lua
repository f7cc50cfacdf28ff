-- TRACK records in a separate key how much a caller asks for: totals, first and last use, and a
-- count per minute for the last hour. It also counts denied calls, so it is separate from the
-- limiter, which a denied call does not change.
--
-- State: a hash with the fields allowed, denied, cost (of allowed calls), first, last (ms since the
-- epoch), and a<minute>, d<minute>: calls allowed and denied in that minute (minutes since the
-- epoch). The key expires a day after the last use.

local NO_RECORD = 'does not hold a usage record'
local MINUTE = 60000
local SERIES = 60 -- minutes
local KEPT = 86400000 -- ms

-- empty returns a list of n zeros if the key holds an empty string, which counts as no key, and
-- otherwise nil and the error of the command that failed.
local function empty(key, n, failure)
  if redis.pcall('GETRANGE', key, '0', '0') ~= '' then return nil, errors.failed(key, failure, NO_RECORD) end
  local zeros = {}
  for i = 1, n do
    zeros[i] = 0
  end
  return zeros
end

-- fields returns fields of a record as numbers, 0 for absent ones, or nil and the error for a key
-- that holds anything else.
local function fields(key, ...)
  local values, any = redis.pcall('HMGET', key, ...), false
  if values.err then return empty(key, select('#', ...), values) end
  for i = 1, #values do
    local text = values[i]
    if text then
      any = true
      values[i] = numbers.whole(text)
      if not values[i] then return nil, errors.unusable(key, NO_RECORD) end
    else
      values[i] = 0
    end
  end
  if not any and redis.call('PTTL', key) ~= -2 then return nil, errors.unusable(key, NO_RECORD) end
  return values
end

-- The minute of the last decision, and its fields for allowed and denied calls. They are cached
-- because most calls come in the same minute.
local current, allowed_now, denied_now = 0, '', ''

-- The values that read has read and note adds to.
local values

-- read reads the fields that a decision may change. It runs before the decision, so that nothing
-- can fail after it. It returns the error, or nil.
function tracking.read(key)
  local now = clock.ms()
  local minute = (now - now % MINUTE) / MINUTE
  if minute ~= current then
    current, allowed_now, denied_now = minute, string.format('a%d', minute), string.format('d%d', minute)
  end
  local err
  values, err = fields(key, 'allowed', 'denied', allowed_now, denied_now, 'cost', 'first')
  return err
end

local function forget_old(key, minute)
  for _, field in ipairs(redis.call('HKEYS', key)) do
    local at = numbers.whole(string.match(field, '^[ad](%d+)$') or '')
    if at and (at <= minute - SERIES or at > minute) then
      redis.call('HDEL', key, field)
    end
  end
end

-- sum adds to a number of a record. The sum is at most 2^53.
local function sum(number, more)
  local result = number + more
  return numbers.arg(result < numbers.MOST and result or numbers.MOST)
end

-- note adds a decision to the record that read has read.
function tracking.note(key, allowed, cost)
  local now, total, in_minute, at = clock.ms(), 'denied', denied_now, 2
  if allowed then
    total, in_minute, at = 'allowed', allowed_now, 1
  end
  if values[1] + values[2] + values[6] == 0 then
    redis.call('DEL', key) -- an empty string
  end
  redis.call('HSET', key, 'last', numbers.arg(now), total, sum(values[at], 1), in_minute, sum(values[at + 2], 1), 'cost',
    sum(values[5], cost))
  if values[6] == 0 then
    redis.call('HSET', key, 'first', now)
  end
  redis.call('PEXPIREAT', key, numbers.arg(now + KEPT))
  if values[at + 2] == 0 then forget_old(key, current) end
end

-- check returns the error for a key that holds anything but a record, or nil.
function tracking.check(key)
  local _, err = fields(key, 'first', 'last', 'allowed', 'denied', 'cost')
  return err
end

-- usage returns what ratelimit_usage replies.
function tracking.usage(key)
  local held, series = {}, {}
  local flat = redis.pcall('HGETALL', key) -- an error of an empty string, which has no entries
  for i = 1, #flat, 2 do
    held[flat[i]] = numbers.whole(flat[i + 1]) or 0
  end
  local newest = math.floor((held.last or 0) / MINUTE)
  for minute = newest - SERIES + 1, newest do
    local name = string.format('%d', minute)
    local allowed, denied = held['a' .. name], held['d' .. name]
    if allowed or denied then
      series[#series + 1] = { minute * MINUTE, allowed or 0, denied or 0 }
    end
  end
  return {
    'allowed', held.allowed or 0, 'denied', held.denied or 0, 'cost', held.cost or 0, 'first_ms', held.first or 0,
    'last_ms', held.last or 0, 'interval_ms', MINUTE, 'series', series,
  }
end
