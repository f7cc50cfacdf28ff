-- sliding_log: exact: never more than n in any span of one period. Each allowed call is kept until it is one period old.
--
-- State: "sliding_log:" and a log of fixed-width entries, so that a long one is searched in place and appended to, and
-- never read as a whole:
--   5 bytes         units charged before the first entry
--   12 bytes each   when (us, 7 bytes), and the units charged up to and including this call (5 bytes), big-endian
-- The key expires when the last entry has left the window.
--
-- A new n or period counts at once against the log. A log with n units in the future (the clock was set back) leaves
-- room for just this call. Another algorithm's state counts as one entry of now.

local PREFIX = 'sliding_log:'
local BASE, ENTRY = 5, 12
local CHUNK = 2048 -- bytes that the first read brings; a log that ends within is rewritten, a longer one appended to
local MOST = 1000000000 -- the largest n: the sums stay in 5 bytes between two rewrites
local REBASE = 1000000000000

-- A log: body (what is at hand of the text), from (position in the value at which the text begins), key (for what is
-- not at hand), count (entries), base.
local function open(body, size, key)
  local count = (size - BASE) / ENTRY
  if count < 1 or count % 1 ~= 0 then
    return nil
  end
  return { body = body, key = key, whole = #body == size, count = count, base = struct.unpack('>I5', body) }
end

-- entry answers the time and the sum of entry i; entry 0 is the base.
local function entry(log, i)
  if i == 0 then
    return 0, log.base
  end
  local at = BASE + ENTRY * (i - 1)
  if at + ENTRY <= #log.body then
    return struct.unpack('>I7I5', log.body, at + 1)
  end
  at = at + #PREFIX
  return struct.unpack('>I7I5', redis.call('GETRANGE', log.key, at, at + ENTRY - 1))
end

-- first_live answers the first entry younger than one period, count + 1 if there is none.
local function first_live(log, since)
  local low, high = 1, log.count + 1
  while low < high do
    local middle = math.floor((low + high) / 2)
    if entry(log, middle) > since then
      high = middle
    else
      low = middle + 1
    end
  end
  return low
end

-- leaves_at_most answers the first entry from low on after which at most `units` of the sum are left.
local function leaves_at_most(log, low, sum, units)
  local high = log.count
  while low < high do
    local middle = math.floor((low + high) / 2)
    local _, upto = entry(log, middle)
    if sum - upto <= units then
      high = middle
    else
      low = middle + 1
    end
  end
  return low
end

local function fresh(now, units)
  return open(struct.pack('>I5I7I5', 0, now, units), BASE + ENTRY)
end

-- weigh decides. log: nil for an empty one. Answers what decide does, and log, the first live entry, the time and the
-- sum of the entry to write.
local function weigh(log, now, rate, cost)
  local period = rate.period * 1000
  local live, used, last, sum = 1, 0, now, 0
  if log then
    last, sum = entry(log, log.count)
    live = first_live(log, now - period)
    local _, before = entry(log, live - 1)
    used = sum - before
    if used >= rate.capacity then
      local usable = entry(log, leaves_at_most(log, live, sum, rate.capacity - 1))
      if usable > now then
        used = states.leaves_room(rate.capacity, cost)
        log = used > 0 and fresh(now, used) or nil
        live, last, sum = 1, now, used
      end
    end
  end
  local remaining = math.max(0, rate.capacity - used)
  local reset = used > 0 and spans.whole_ms(last + period - now, 0) or 0
  if cost == 0 then
    return true, remaining, 0, reset
  elseif cost > rate.capacity then
    return false, remaining, -1, reset
  elseif cost > remaining then
    local leaving = entry(log, leaves_at_most(log, live, sum, rate.capacity - cost))
    return false, remaining, spans.whole_ms(leaving + period - now, 0), reset
  end
  local at = math.max(now, last)
  return true, remaining - cost, 0, spans.whole_ms(at + period - now, 0), log, live, at, sum + cost
end

-- rewritten answers the text without the dead entries and, if `at` is given, with one more.
local function rewritten(log, live, at, sum)
  local base, kept = 0, ''
  if log and live <= log.count then
    local _
    _, base = entry(log, live - 1)
    local from = BASE + ENTRY * (live - 1)
    kept = log.whole and string.sub(log.body, from + 1)
      or redis.call('GETRANGE', log.key, #PREFIX + from, -1)
  elseif at then
    base = log and select(2, entry(log, log.count)) or 0
  end
  if base > REBASE then
    kept = string.gsub(kept, string.rep('.', ENTRY), function(old)
      local when, upto = struct.unpack('>I7I5', old)
      return struct.pack('>I7I5', when, upto - base)
    end)
    sum = at and sum - base
    base = 0
  end
  return struct.pack('>I5', base) .. kept .. (at and struct.pack('>I7I5', at, sum) or '')
end

-- expiry answers when the entry of a time has left the window, ms since the epoch.
local function expiry(at, rate)
  return spans.whole_ms(at + rate.period * 1000, 0)
end

------------------------------------------------------------------- a log at hand: one of several rates, or a refund

local function step(text, now, rate, cost)
  local log = nil
  if text ~= '' then
    log = open(text, #text)
    if not log then
      return nil
    end
  end
  local allowed, remaining, retry, reset, kept, live, at, sum = weigh(log, now, rate, cost)
  if not allowed or cost == 0 then
    return allowed, remaining, retry, reset
  end
  return true, remaining, 0, reset, rewritten(kept, live, at, sum), expiry(at, rate)
end

-- give takes back the newest units first.
local function give(text, now, rate, cost)
  local log = text ~= '' and open(text, #text) or nil
  if text ~= '' and not log then
    return nil
  elseif not log then
    return true, rate.capacity, 0, 0, '', 0
  end
  local live = first_live(log, now - rate.period * 1000)
  local _, sum = entry(log, log.count)
  local _, before = entry(log, live - 1)
  local left = sum - before - cost
  if left <= 0 then
    return true, rate.capacity, 0, 0, '', 0
  end
  local last = leaves_at_most(log, live, sum, cost)
  local at = entry(log, last)
  local body = string.sub(rewritten(log, live, nil, nil), 1, BASE + ENTRY * (last - live))
  body = body .. struct.pack('>I7I5', at, struct.unpack('>I5', body) + left)
  return true, math.max(0, rate.capacity - left), 0, spans.whole_ms(at + rate.period * 1000 - now, 0), body,
    expiry(at, rate)
end

local function spend(now, _, units)
  return struct.pack('>I5I7I5', 0, now, units)
end

local function spent(value)
  local body = packed.text(string.sub(value, #PREFIX + 1), 1) or ''
  local log = open(body, #body)
  if not log then
    return 0
  end
  local _, sum = entry(log, log.count)
  return sum - log.base
end

------------------------------------------------------------------- a log in a key of its own

local function decide_log(key, limit, cost)
  local head = redis.pcall('GETRANGE', key, 0, CHUNK - 1)
  local log = nil
  if head ~= '' then
    if type(head) ~= 'string' or string.sub(head, 1, #PREFIX) ~= PREFIX or string.sub(head, #PREFIX + 1, #PREFIX + 1) == ':'
    then
      return packed.decide(key, limit, cost)
    end
    local size = #head < CHUNK and #head or redis.call('STRLEN', key)
    log = open(string.sub(head, #PREFIX + 1), size - #PREFIX, key)
    if not log then
      return nil, states.unreadable(key, head)
    end
  end
  local time = redis.call('TIME')
  local now = tonumber(time[1]) * 1000000 + tonumber(time[2])
  local allowed, remaining, retry, reset, kept, live, at, sum = weigh(log, now, limit, cost)
  if not allowed or cost == 0 then
    return allowed, remaining, retry, reset
  end
  if kept and not kept.whole and live - 1 <= kept.count / 2 and sum < REBASE then
    return true, remaining, 0, reset, struct.pack('>I7I5', at, sum), -expiry(at, limit)
  end
  return true, remaining, 0, reset, rewritten(kept, live, at, sum), expiry(at, limit)
end

-- write_log appends to a long log, which decide says by a negative expiry, and rewrites any other.
local function write_log(key, _, _, text, full)
  if full < 0 then
    redis.call('APPEND', key, text)
    redis.call('PEXPIREAT', key, -full)
  elseif text == '' then
    redis.call('DEL', key)
  else
    redis.call('SET', key, PREFIX .. text, 'PXAT', full)
  end
end

local function complete_rate(rate)
  rate.capacity = rate.count
  if rate.count > MOST then
    return string.format('a sliding_log keeps each call, and so takes a count of at most %.0f', MOST)
  end
end

local function complete(limit)
  packed.complete(limit)
  if not limit.rates then
    limit.decide, limit.write = decide_log, write_log
  end
end

algorithms.sliding_log = {
  name = 'sliding_log',
  prefix = 'sliding_log:',
  options = {},
  rate = complete_rate,
  limit = complete,
  holds = packed.prefixed('sliding_log:'),
  step = step,
  give = give,
  spent = spent,
  spend = spend,
}
