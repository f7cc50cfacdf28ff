-- TRACK records the usage of a caller: totals, first and last use, and a count per minute for the
-- last hour. The record also counts denied calls. It has its own key, because a denied call does not
-- change the state of a limit.
--
-- State: a hash with the fields allowed, denied, cost (of allowed calls), first, last (ms since the
-- epoch), and a<minute>, d<minute>: calls allowed and denied in that minute (minutes since the
-- epoch). The key expires a day after the last use.

local NO_RECORD = 'does not hold a usage record'
local MINUTE = 60000
local SERIES = 60 -- minutes
local KEPT = '86400000' -- ms

-- fields returns the values of fields of a record, with false for absent fields. If the key exists but
-- holds no record, or a record without these fields, it returns nil and the error. If the key holds an
-- empty string, which counts as an absent key, it returns { replace = true }.
local function fields(key, ...)
  local values, any = redis.pcall('HMGET', key, ...), false
  if values.err then
    if redis.pcall('GETRANGE', key, '0', '0') == '' then return { replace = true } end
    return nil, errors.failed(key, values, NO_RECORD)
  end
  for i = 1, #values do
    local text = values[i]
    if text then
      any, values[i] = true, numbers.parse(text)
      if not values[i] then return nil, errors.unusable(key, NO_RECORD) end
    end
  end
  if not any and redis.call('PTTL', key) ~= -2 then return nil, errors.unusable(key, NO_RECORD) end
  return values
end

-- current is the minute of the last decision. allowed_now and denied_now are the names of the fields
-- that count its calls. They are cached because most decisions fall in the same minute as the previous
-- one.
local current, allowed_now, denied_now = 0, '', ''

-- values holds the fields from the last read: cost, allowed, and allowed in this minute. note adds
-- to them.
local values

-- read reads the fields that an allowed call changes. It runs before the decision, so that nothing
-- can fail after the call is charged. It returns the error, or nil.
function tracking.read(key)
  local now = clock.ms()
  local minute = (now - now % MINUTE) / MINUTE
  if minute ~= current then
    current, allowed_now, denied_now = minute, string.format('a%d', minute), string.format('d%d', minute)
  end
  local err
  values, err = fields(key, 'cost', 'allowed', allowed_now)
  return err
end

local function forget_old(key, minute)
  for _, field in ipairs(redis.call('HKEYS', key)) do
    local at = numbers.parse_digits(string.match(field, '^[ad](%d+)$'))
    if at and (at <= minute - SERIES or at > minute) then redis.call('HDEL', key, field) end
  end
end

-- sum adds to a field of a record. The sum is at most 2^53.
local function sum(number, more)
  local result = (number or 0) + more
  return numbers.argument(result < numbers.MOST and result or numbers.MOST)
end

-- note adds a decision to the record of a key. tracking.read must have read the same key. note
-- returns the error, or nil.
function tracking.note(key, allowed, cost)
  local total, in_minute = 'allowed', allowed_now
  if not allowed then
    total, in_minute, cost = 'denied', denied_now, 0
    local err
    values, err = fields(key, 'cost', total, in_minute)
    if err then return err end
  end
  local now = numbers.argument(clock.ms())
  if values.replace then redis.call('DEL', key) end
  redis.call('HSET', key, 'last', now, total, sum(values[2], 1), in_minute, sum(values[3], 1), 'cost', sum(values[1], cost))
  if not values[2] then redis.call('HSETNX', key, 'first', now) end
  redis.call('PEXPIRE', key, KEPT)
  if not values[3] then forget_old(key, current) end
  return nil
end

-- check returns an error if the key holds anything but a usage record. Otherwise, it returns nil.
function tracking.check(key)
  local _, err = fields(key, 'cost', 'allowed', 'denied', 'first', 'last')
  return err
end

-- usage returns the reply of ratelimit_usage.
function tracking.usage(key)
  local held, series = {}, {}
  local flat = redis.pcall('HGETALL', key) -- if the key holds an empty string, HGETALL fails, and flat has no elements
  for i = 1, #flat, 2 do
    held[flat[i]] = numbers.parse(flat[i + 1]) or 0
  end
  local newest = math.floor((held.last or 0) / MINUTE)
  for minute = newest - SERIES + 1, newest do
    local name = string.format('%d', minute)
    local allowed, denied = held['a' .. name], held['d' .. name]
    if allowed or denied then series[#series + 1] = { minute * MINUTE, allowed or 0, denied or 0 } end
  end
  return {
    'allowed', held.allowed or 0, 'denied', held.denied or 0, 'cost', held.cost or 0, 'first_ms', held.first or 0,
    'last_ms', held.last or 0, 'interval_ms', MINUTE, 'series', series,
  }
end
