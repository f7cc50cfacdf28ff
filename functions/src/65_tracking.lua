-- TRACK keeps in a key of its own how much a caller asks for: totals, first and last use, and a count a minute for the
-- last hour. It counts denied calls too, so it is apart from the limiter, which a denied call does not change.
--
-- State: a hash. allowed, denied, cost (of allowed calls), first, last (ms since the epoch), and a<minute>, d<minute>:
-- calls allowed and denied in that minute (minutes since the epoch). The key expires a day after the last use.

local MINUTE = 60000
local SERIES = 60 -- minutes
local KEPT = 86400000 -- ms
local NO_RECORD = 'does not hold a usage record'

-- open reads a record, before a decision is made, so that nothing is left to go wrong after it; or nil and the error for
-- a key that holds anything else.
function tracking.open(key)
  local now = clock.ms()
  local minute = string.format('%.0f', math.floor(now / MINUTE))
  local names = { 'allowed', 'denied', 'cost', 'first', 'last', 'a' .. minute, 'd' .. minute }
  local values = redis.pcall('HMGET', key, unpack(names))
  if values.err then
    return nil, string.sub(values.err, 1, 9) == 'WRONGTYPE' and errors.unusable(key, NO_RECORD) or values
  end
  local record = { key = key, now = now, minute = minute }
  for i, name in ipairs(names) do
    record[name] = values[i] and numbers.whole(values[i]) or nil
    if values[i] and not record[name] then
      return nil, errors.unusable(key, NO_RECORD)
    end
  end
  local whole = record.first and record.last and record.cost and (record.allowed or record.denied)
  local left = redis.call('PTTL', key)
  if left == -1 or (left >= 0 and not whole) then
    return nil, errors.unusable(key, NO_RECORD)
  end
  return record
end

-- check answers the error for a key that holds anything but a record, or nil.
function tracking.check(key)
  local _, err = tracking.open(key)
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

-- note counts a decision in the record that open has read. A total stops at 2^53.
function tracking.note(record, allowed, cost)
  local total = allowed and 'allowed' or 'denied'
  local field = (allowed and 'a' or 'd') .. record.minute
  local function sum(name, more)
    return string.format('%.0f', math.min(numbers.MOST, (record[name] or 0) + more))
  end
  local now = string.format('%.0f', record.now)
  redis.call('HSET', record.key, 'first', record.first and sum('first', 0) or now, 'last', now, total, sum(total, 1),
    'cost', sum('cost', allowed and cost or 0), field, sum(field, 1))
  redis.call('PEXPIREAT', record.key, string.format('%.0f', record.now + KEPT))
  if not record[field] then
    states.forget(record.key)
    forget_old(record.key, math.floor(record.now / MINUTE))
  end
end

-- read answers what ratelimit_usage replies.
function tracking.read(key)
  local fields, minutes = {}, {}
  local flat = redis.call('HGETALL', key)
  for i = 1, #flat, 2 do
    local minute = string.match(flat[i], '^[ad](%d+)$')
    fields[flat[i]] = numbers.whole(flat[i + 1]) or 0
    if minute and numbers.whole(minute) and not fields[minute] then
      fields[minute] = true
      minutes[#minutes + 1] = tonumber(minute)
    end
  end
  table.sort(minutes)
  local series = {}
  local newest = math.floor((fields.last or 0) / MINUTE)
  for _, minute in ipairs(minutes) do
    if minute <= newest and minute > newest - SERIES then
      local name = string.format('%.0f', minute)
      series[#series + 1] = { minute * MINUTE, fields['a' .. name] or 0, fields['d' .. name] or 0 }
    end
  end
  return {
    'allowed', fields.allowed or 0, 'denied', fields.denied or 0, 'cost', fields.cost or 0, 'first_ms', fields.first or 0,
    'last_ms', fields.last or 0, 'interval_ms', MINUTE, 'series', series,
  }
end
