-- TRACK records the usage of a caller: totals, first and last use, and a count per minute for the
-- last hour. The record also counts denied calls. It has its own key, because a denied call does not
-- change the state of a limit.
--
-- State: a hash with the fields first, last (ms since the epoch), cost (of allowed calls), allowed and
-- denied (at least one of them), and a<minute>, d<minute>: calls allowed and denied in that minute
-- (minutes since the epoch). It has no other fields. The first call in a minute sets the expiry
-- to a day and a minute later.

local parse, argument = numbers.parse, numbers.argument

local NO_RECORD = 'does not hold a usage record'
local MINUTE = 60000
local SERIES = 60 -- minutes
local MOST_FIELDS = 5 + 2 * SERIES
local KEPT = '86460000' -- ms: a day, and a minute in which no other call sets the expiry
local TOTALS = { first = true, last = true, cost = true, allowed = true, denied = true }

-- current is the minute of the last decision. allowed_now and denied_now are the names of the fields
-- that count its calls. They are cached because most decisions fall in the same minute as the previous
-- one.
local current, allowed_now, denied_now = 0, '', ''

local now -- ms since the epoch, from the last call of fetch

-- values holds what the last call of read found: the fields cost, allowed, allowed in this minute, denied
-- and denied in this minute, with false for absent fields. values.empty is set if there is no record, and
-- values.replace if the key holds an empty string, which counts as an absent key. values.outdated has the
-- fields that the first call in a minute deletes.
local values

-- examine checks that a key holds a record with everything that note writes and nothing else, or does not
-- exist. It checks the number of fields before it reads their names. It returns the error, or nil.
local function examine(key)
  local left, is_record = redis.call('PTTL', key), false
  if left == -2 then
    values.empty = true
    return nil
  elseif left >= 0 and values[1] and (values[2] or values[4]) and redis.call('HLEN', key) <= MOST_FIELDS then
    local times, outdated = redis.call('HMGET', key, 'first', 'last'), {}
    is_record = times[1] and parse(times[1]) and times[2] and parse(times[2])
    for _, field in ipairs(redis.call('HKEYS', key)) do
      local at = numbers.parse_digits(string.match(field, '^[ad](%d+)$'))
      is_record = is_record and (at or TOTALS[field])
      if at and (at <= current - SERIES or at > current) then outdated[#outdated + 1] = field end
    end
    if outdated[1] then values.outdated = outdated end
  end
  return not is_record and errors.unusable(key, NO_RECORD) or nil
end

-- fetch reads the fields that a call changes into values. It returns the error, or nil.
local function fetch(key)
  now = clock.ms()
  local minute = (now - now % MINUTE) / MINUTE
  if minute ~= current then
    current, allowed_now, denied_now = minute, string.format('a%d', minute), string.format('d%d', minute)
  end
  values = redis.pcall('HMGET', key, 'cost', 'allowed', allowed_now, 'denied', denied_now)
  if values.err then
    local err = errors.failed(key, values, NO_RECORD)
    values = { false, false, false, false, false, empty = true, replace = true }
    return redis.pcall('GETRANGE', key, '0', '0') ~= '' and err or nil
  end
  for i = 1, 5 do
    local text = values[i]
    if text then
      local number = parse(text)
      if not number then return errors.unusable(key, NO_RECORD) end
      values[i] = number
    end
  end
  return nil
end

-- check returns an error if the key holds anything but a usage record. Otherwise, it returns nil.
function tracking.check(key)
  local err = fetch(key)
  return err or not values.empty and examine(key) or nil
end

-- read is like check, but does not examine a record that was examined earlier in this minute, when its
-- first call was made. It runs before the decision, so that nothing can fail after the call is charged and
-- counted.
function tracking.read(key)
  local err = fetch(key)
  if err or values.empty then return err end
  local is_current = values[1] and (values[2] and values[3] or values[4] and values[5])
  if is_current and redis.call('PTTL', key) >= 0 then return nil end
  return examine(key)
end

-- sum adds to a field of a record. The sum is at most 2^53.
local function sum(number, more)
  local result = (number or 0) + more
  return argument(result < numbers.MOST and result or numbers.MOST)
end

-- note adds a decision to the record of a key. tracking.read must have read the same key.
function tracking.note(key, allowed, cost)
  local total, in_minute, at = 'allowed', allowed_now, 2
  if not allowed then
    total, in_minute, at, cost = 'denied', denied_now, 4, 0
  end
  local last = argument(now)
  if values.replace then redis.call('DEL', key) end
  redis.call('HSET', key, 'last', last, total, sum(values[at], 1), in_minute, sum(values[at + 1], 1), 'cost', sum(values[1], cost))
  if values.empty then redis.call('HSET', key, 'first', last) end
  if not (values[3] or values[5]) then redis.call('PEXPIRE', key, KEPT) end
  if values.outdated then redis.call('HDEL', key, unpack(values.outdated)) end
end

-- usage returns the reply of ratelimit_usage. tracking.check must have checked the key.
function tracking.usage(key)
  local held, series = {}, {}
  local flat = redis.pcall('HGETALL', key) -- if the key holds an empty string, HGETALL fails, and flat has no elements
  for i = 1, #flat, 2 do
    held[flat[i]] = parse(flat[i + 1]) or 0
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
