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
local STATE = '^sliding_log:[^:]'
local BASE, ENTRY = 5, 12
local CHUNK = 2048 -- bytes that the first read brings; a log that ends within is rewritten, a longer one appended to
local MOST = 10000000 -- the largest n: the sums stay in 5 bytes between two rewrites
local REBASE = 200000000000 -- sums start from 0 again; below 0x3a00000000, so that a text never begins with ':'

-- open answers a log, or nil: text holds it from byte `skip` + 1 on, or its beginning, if it is `size` bytes long in all
-- and text is what is at hand of the value of key. The first and the last entry decide most calls.
local function open(text, skip, size, key)
  local count = (size - BASE) / ENTRY
  if count < 1 or count % 1 ~= 0 then
    return nil
  end
  local whole = #text == skip + size
  local base, first, first_sum = struct.unpack('>I5I7I5', text, skip + 1)
  local last, sum = first, first_sum
  if count > 1 and whole then
    last, sum = struct.unpack('>I7I5', text, #text - ENTRY + 1)
  elseif count > 1 then
    last, sum = struct.unpack('>I7I5', redis.call('GETRANGE', key, -ENTRY, -1))
  end
  if base > first_sum or first_sum > sum or first > last then
    return nil
  end
  return {
    text = text, skip = skip, key = key, whole = whole, count = count, base = base, first = first, first_sum = first_sum,
    last = last, sum = sum,
  }
end

-- entry answers the time and the sum of entry i; entry 0 is the base.
local function entry(log, i)
  if i == 0 then
    return 0, log.base
  end
  local at = log.skip + BASE + ENTRY * (i - 1)
  if at + ENTRY <= #log.text then
    return struct.unpack('>I7I5', log.text, at + 1)
  end
  return struct.unpack('>I7I5', redis.call('GETRANGE', log.key, at, at + ENTRY - 1))
end

-- first_live answers the first entry younger than one period, count + 1 if there is none, and the sum before it.
local function first_live(log, since)
  if log.first > since then
    return 1, log.base
  elseif log.last <= since then
    return log.count + 1, log.sum
  end
  local low, high, before = 2, log.count, log.first_sum
  while low < high do
    local middle = (low + high - (low + high) % 2) / 2
    local at, sum = entry(log, middle)
    if at > since then
      high = middle
    else
      low, before = middle + 1, sum
    end
  end
  return low, before
end

-- leaving answers the time of the first entry from `live` on after which at most `units` of the sum are left, and its
-- number.
local function leaving(log, live, units)
  local low, high = live, log.count
  if live == 1 and log.sum - log.first_sum <= units then
    return log.first, 1
  end
  while low < high do
    local middle = (low + high - (low + high) % 2) / 2
    local _, upto = entry(log, middle)
    if log.sum - upto <= units then
      high = middle
    else
      low = middle + 1
    end
  end
  return entry(log, low), low
end

local function fresh(now, units)
  return open(struct.pack('>I5I7I5', 0, now, units), 0, BASE + ENTRY)
end

-- in_use answers how many units of a log count, the first live entry and the log itself: another one, of now, in the
-- place of one that would deny every call for longer than a period.
local function in_use(log, now, rate, cost)
  if not log then
    return 0, 1, nil
  end
  local capacity = rate.capacity
  local live, before = first_live(log, now - rate.period * 1000)
  local used = log.sum > before and log.sum - before or 0
  if used >= capacity and log.last > now and leaving(log, live, capacity - 1) > now then
    used = states.leaves_room(capacity, cost)
    return used, 1, used > 0 and fresh(now, used) or nil
  end
  return used, live, log
end

-- weigh decides. Answers what decide does, and the log, the first live entry, the time and the sum of the entry to write.
local function weigh(log, now, rate, cost)
  local period, capacity = rate.period * 1000, rate.capacity
  local used, live
  used, live, log = in_use(log, now, rate, cost)
  local last = log and log.last or now
  local remaining = used < capacity and capacity - used or 0
  local reset = used > 0 and spans.whole_ms(last + period - now, 0) or 0
  if cost == 0 then
    return true, remaining, 0, reset
  elseif cost > capacity then
    return false, remaining, -1, reset
  elseif cost > remaining then
    local free = leaving(log, live, capacity - cost)
    return false, remaining, spans.whole_ms(free + period - now, 0), reset
  end
  local at = last > now and last or now
  return true, remaining - cost, 0, spans.whole_ms(at + period - now, 0), log, live, at, (log and log.sum or 0) + cost
end

-- rebased answers entries with the sums counted from base.
local function rebased(entries, base)
  local out = {}
  for at = 1, #entries, ENTRY do
    local when, sum = struct.unpack('>I7I5', entries, at)
    out[#out + 1] = struct.pack('>I7I5', when, sum - base)
  end
  return table.concat(out)
end

-- live_part answers the entries from `live` on, and the sum before them.
local function live_part(log, live)
  if live > log.count then
    return '', log.sum
  end
  local _, base = entry(log, live - 1)
  local from = log.skip + BASE + ENTRY * (live - 1)
  if log.whole then
    return string.sub(log.text, from + 1), base
  end
  return redis.call('GETRANGE', log.key, from, -1), base
end

-- rewritten answers the text without the dead entries and with one more.
local function rewritten(log, live, at, sum)
  if not log then
    return struct.pack('>I5I7I5', 0, at, sum)
  end
  local entries, base = live_part(log, live)
  if base > REBASE then
    entries, sum, base = rebased(entries, base), sum - base, 0
  end
  return struct.pack('>I5', base) .. entries .. struct.pack('>I7I5', at, sum)
end

-- goes_on tells whether an entry is simply added to the log: while at most half of its entries have left the window.
local function goes_on(log, kept, live, sum)
  return log and kept == log and live - 1 <= log.count / 2 and sum < REBASE
end

-- expiry answers when the entry of a time has left the window, ms since the epoch.
local function expiry(at, rate)
  return spans.whole_ms(at + rate.period * 1000, 0)
end

------------------------------------------------------------------- a log at hand: one of several rates, or a refund

local function step(text, now, rate, cost)
  local log = nil
  if text ~= '' then
    log = open(text, 0, #text)
    if not log then
      return nil
    end
  end
  local allowed, remaining, retry, reset, kept, live, at, sum = weigh(log, now, rate, cost)
  if not allowed or cost == 0 then
    return allowed, remaining, retry, reset
  elseif goes_on(log, kept, live, sum) then
    return true, remaining, 0, reset, text .. struct.pack('>I7I5', at, sum), expiry(at, rate)
  end
  return true, remaining, 0, reset, rewritten(kept, live, at, sum), expiry(at, rate)
end

-- give takes back the newest units first.
local function give(text, now, rate, cost)
  local log = nil
  if text ~= '' then
    log = open(text, 0, #text)
    if not log then
      return nil
    end
  end
  local used, live
  used, live, log = in_use(log, now, rate, 1)
  local left = used - cost
  if left <= 0 then
    return true, rate.capacity, 0, 0, '', 0
  end
  local at, last = leaving(log, live, cost)
  local entries, base = live_part(log, live)
  entries = string.sub(entries, 1, ENTRY * (last - live)) .. struct.pack('>I7I5', at, base + left)
  if base > REBASE then
    entries, base = rebased(entries, base), 0
  end
  return true, math.max(0, rate.capacity - left), 0, spans.whole_ms(at + rate.period * 1000 - now, 0),
    struct.pack('>I5', base) .. entries, expiry(at, rate)
end

local function spend(now, _, units)
  return struct.pack('>I5I7I5', 0, now, units)
end

local function spent(value)
  local body = packed.first(value, algorithms.sliding_log)
  local log = open(body, 0, #body)
  if not log then
    return 0
  end
  return log.sum - log.base
end

------------------------------------------------------------------- a log in a key of its own

-- as_value turns the text that packed.lua answers with into the whole value, as write_log wants it.
local function as_value(allowed, remaining, retry, reset, text, full)
  return allowed, remaining, retry, reset, text and text ~= '' and PREFIX .. text or text, full
end

local function decide_log(key, limit, cost)
  local head = redis.pcall('GETRANGE', key, 0, CHUNK - 1)
  local log = nil
  if head ~= '' then
    if type(head) ~= 'string' or not string.find(head, STATE) then
      return as_value(packed.decide(key, limit, cost))
    end
    local size = #head < CHUNK and #head or redis.call('STRLEN', key)
    log = open(head, #PREFIX, size - #PREFIX, key)
    if not log then
      return nil, states.unreadable(key, head)
    end
  end
  local allowed, remaining, retry, reset, kept, live, at, sum = weigh(log, clock.us(), limit, cost)
  if not allowed or cost == 0 then
    return allowed, remaining, retry, reset
  elseif not kept then
    return true, remaining, 0, reset, struct.pack('>c12I5I7I5', PREFIX, 0, at, sum), expiry(at, limit)
  elseif goes_on(log, kept, live, sum) then
    local added = struct.pack('>I7I5', at, sum)
    if log.whole then
      return true, remaining, 0, reset, head .. added, expiry(at, limit)
    end
    return true, remaining, 0, reset, added, -expiry(at, limit)
  end
  return true, remaining, 0, reset, PREFIX .. rewritten(kept, live, at, sum), expiry(at, limit)
end

local function give_log(key, limit, cost)
  return as_value(packed.give(key, limit, cost))
end

-- write_log appends to a long log, which decide says by a negative expiry, and rewrites any other.
local function write_log(key, _, _, text, full)
  if full < 0 then
    redis.call('APPEND', key, text)
    redis.call('PEXPIREAT', key, -full)
  elseif text == '' then
    redis.call('DEL', key)
  else
    states.forget(key)
    redis.call('SET', key, text, 'PXAT', full)
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
    limit.decide, limit.give, limit.write = decide_log, give_log, write_log
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
