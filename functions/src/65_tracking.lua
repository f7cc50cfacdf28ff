-- TRACK keeps in a key of its own how much a caller asks for: totals, first and last use, and a count a minute for the
-- last hour. It counts denied calls too, so it is apart from the limiter, which a denied call does not change.
--
-- State: a hash. allowed, denied, cost (of allowed calls), first, last (ms since the epoch), and a<minute>, d<minute>:
-- calls allowed and denied in that minute (minutes since the epoch). The key expires a day after the last use.

local MINUTE = 60000
local SERIES = 60 -- minutes
local KEPT = 86400000 -- ms

-- check answers the error for a key that holds anything but this, or nil.
function tracking.check(key)
  local first = redis.pcall('HGET', key, 'first')
  if type(first) == 'table' then
    return states.not_usage(key)
  elseif not first and redis.call('EXISTS', key) == 1 then
    return states.not_usage(key)
  end
  return nil
end

local function forget_old(key, minute)
  local old = {}
  for _, field in ipairs(redis.call('HKEYS', key)) do
    local at = numbers.whole(string.match(field, '^[ad](%d+)$') or '')
    if at and (at <= minute - SERIES or at > minute) then
      old[#old + 1] = field
    end
  end
  for _, field in ipairs(old) do
    redis.call('HDEL', key, field)
  end
end

-- note counts a decision.
function tracking.note(key, allowed, cost)
  local now = clock.ms()
  local minute = math.floor(now / MINUTE)
  local at = string.format('%.0f', now)
  redis.call('HSETNX', key, 'first', at)
  redis.call('HSET', key, 'last', at)
  redis.call('HINCRBY', key, allowed and 'allowed' or 'denied', 1)
  if allowed and cost > 0 then
    redis.call('HINCRBY', key, 'cost', string.format('%.0f', cost))
  end
  if redis.call('HINCRBY', key, string.format(allowed and 'a%.0f' or 'd%.0f', minute), 1) == 1 then
    forget_old(key, minute)
  end
  redis.call('PEXPIREAT', key, string.format('%.0f', now + KEPT))
end

-- read answers what ratelimit_usage replies.
function tracking.read(key)
  local fields, minutes = {}, {}
  local flat = redis.call('HGETALL', key)
  for i = 1, #flat, 2 do
    local minute = string.match(flat[i], '^[ad](%d+)$')
    fields[flat[i]] = tonumber(flat[i + 1]) or 0
    if minute and not fields[minute] then
      fields[minute] = true
      minutes[#minutes + 1] = tonumber(minute)
    end
  end
  table.sort(minutes)
  local series = {}
  for i, minute in ipairs(minutes) do
    local name = string.format('%.0f', minute)
    series[i] = { minute * MINUTE, fields['a' .. name] or 0, fields['d' .. name] or 0 }
  end
  return {
    'allowed', fields.allowed or 0, 'denied', fields.denied or 0, 'cost', fields.cost or 0, 'first_ms', fields.first or 0,
    'last_ms', fields.last or 0, 'interval_ms', MINUTE, 'series', series,
  }
end
