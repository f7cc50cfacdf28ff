-- gcra: continuous refill at n/period, capacity b (default n). The virtual scheduling form of the generic cell rate
-- algorithm (ITU-T I.371, ATM Forum TM 4.0): one theoretical arrival time, TAT, moves on by the emission interval
-- T = period/n for each unit taken, and a call is allowed while TAT stays within b*T of now. Here debt = TAT - now:
-- how long until full again.
--
-- State. The key expires at TAT, rounded up to a whole millisecond.
--   T a whole number of ms:  value "gcra"; the expiry is TAT, exactly, and no clock need be read to decide.
--   any other T:             value "gcra:<TAT in us>", or "gcra:<us>+<part>" with a part of a microsecond left over,
--                           in units of 1/n of it (n and the period reduced). Redis never sees a rounded number.
-- A limit of either kind reads what the other has left; TAT is kept when n, period or burst change, so what was taken
-- under the old limit stays taken.
--
-- A TAT further ahead than any debt of this limit (its period or burst was lowered, or the clock was set back) would
-- lock the key out for longer than one full refill. It counts as a debt that leaves room for just this call: the key
-- is usable at once, at the new rate, and the old burst is not handed out again.

local VALUE = 'gcra'

local function holds(value)
  return value == VALUE or string.sub(value, 1, 5) == 'gcra:'
end

local function spent(_, left, limit)
  return math.ceil(left * limit.count / limit.period)
end

------------------------------------------------------------------- T in whole milliseconds

-- other_debt reads a key that does not hold VALUE. Answers the debt in ms, and, if another algorithm left the state,
-- for how many ms that counts; or nil and the error.
local function other_debt(key, limit, cost)
  local value = redis.pcall('GET', key)
  if type(value) == 'string' and holds(value) then
    local debt = redis.call('PTTL', key)
    if debt < 0 then
      return nil, states.missing_expiry(key)
    end
    return debt
  end
  local units, left = states.elsewhere(key, value, limit, cost)
  if not units then
    return nil, left
  end
  return units * limit.interval, left
end

-- A key that denies is asked again and again, and PTTL alone answers it, once GET has shown that the state is ours.
-- seen keeps the debt at which it did: while time passes and nothing is written a debt only shrinks, so a debt above
-- it says that the key is no longer the one that was seen. This saves a sixth of a denied call (bench/README.md), is
-- forgotten freely, and can only deny.
local MOST_SEEN = 10000 -- keys
local LONGEST_SEEN = 200 -- bytes of a key
local seen = {}
local seen_size = 0

local function remember(key, debt)
  if not seen[key] then
    if #key > LONGEST_SEEN then
      return
    elseif seen_size >= MOST_SEEN then
      seen = {}
      seen_size = 0
    end
    seen_size = seen_size + 1
  end
  seen[key] = debt
end

local function decide_ms(key, limit, cost)
  local interval, full = limit.interval, limit.full
  local debt = redis.call('PTTL', key)
  local after = debt + cost * interval
  local kept, elsewhere = true, nil
  if debt <= 0 or after <= full or debt > (seen[key] or 0) or debt + interval > 2 * full then
    if debt == -2 then
      debt = 0
      kept = false
    elseif redis.pcall('GET', key) ~= VALUE then
      debt, elsewhere = other_debt(key, limit, cost)
      kept = false
      if not debt then
        return nil, elsewhere
      end
    elseif debt <= 0 then
      kept = false
      if debt < 0 then
        return nil, states.missing_expiry(key)
      end
    end
    if debt + interval > 2 * full then
      debt = full - interval * (cost > 1 and cost <= limit.capacity and cost or 1)
      kept = false
    end
    after = debt + cost * interval
  end
  if after <= full then
    local room = full - after
    return true, (room - room % interval) / interval, 0, after, after, kept
  end
  local room = full - debt
  local remaining = room >= interval and (room - room % interval) / interval or 0
  if cost == 0 then
    return true, remaining, 0, debt
  elseif kept then
    remember(key, debt)
  end
  return false, remaining, cost > limit.capacity and -1 or elsewhere or after - full, elsewhere or debt
end

local function write_ms(key, limit, cost, after, kept)
  if not kept then
    redis.call('SET', key, VALUE, 'PX', after)
  elseif CLOCK_STANDS then
    redis.call('PEXPIRE', key, after)
  else
    redis.call('PEXPIREAT', key, redis.call('PEXPIRETIME', key) + cost * limit.interval)
  end
end

------------------------------------------------------------------- any other T
-- A span is two whole numbers: microseconds, and a part of one in units of 1/limit.parts of a microsecond. All of
-- them stay below 2^53, so nothing is ever rounded but on the way out.

-- times answers n emission intervals as a span.
local function times(n, limit)
  local part = n * limit.interval_part
  local over = part % limit.parts
  return n * limit.interval_us + (part - over) / limit.parts, over
end

local function exceeds(us, part, other_us, other_part)
  return us > other_us or (us == other_us and part > other_part)
end

-- units answers how many whole intervals fit into a span. The quotient of doubles can be one off, the products not.
local function units(us, part, limit)
  if us < 0 or (us == 0 and part <= 0) then
    return 0
  end
  local n = math.floor((us + part / limit.parts) / (limit.interval_us + limit.interval_part / limit.parts)) + 1
  local n_us, n_part = times(n, limit)
  while n > 0 and exceeds(n_us, n_part, us, part) do
    n = n - 1
    n_us, n_part = times(n, limit)
  end
  return n
end

local function whole_ms(us, part)
  return math.ceil((part > 0 and us + 1 or us) / 1000)
end

-- parse_tat reads a value of ours that is not VALUE; nil if it is not one after all. Cut at fixed places rather than
-- matched: 16 digits of microseconds are the years 2001 to 2286.
local function parse_tat(value)
  local us = numbers.whole(string.sub(value, 6, 21))
  if #value == 21 then
    return us, 0
  end
  local part = string.sub(value, 22, 22) == '+' and numbers.whole(string.sub(value, 23))
  if us and part then
    return us, part
  end
end

-- read_debt_span answers the debt as a span, and, if another algorithm left the state, for how many ms that counts;
-- or nil and the error. now in us.
local function read_debt_span(key, limit, cost, now)
  local value = redis.pcall('GET', key)
  if not value then
    return 0, 0
  end
  if type(value) == 'table' or not holds(value) then
    local count, left = states.elsewhere(key, value, limit, cost)
    if not count then
      return nil, left
    end
    local us, part = times(count, limit)
    return us, part, left
  end
  if value == VALUE then
    local left = redis.call('PTTL', key)
    if left < 0 then
      return nil, states.missing_expiry(key)
    end
    return math.max(0, left * 1000 - now % 1000), 0
  end
  local us, part = parse_tat(value)
  if not us then
    return nil, states.unreadable(key, value)
  elseif us < now then
    return 0, 0
  elseif part >= limit.parts then
    return us + 1 - now, 0 -- left by a rate with other parts: rounded up
  end
  return us - now, part
end

local function decide_us(key, limit, cost)
  local time = redis.call('TIME')
  local now = tonumber(time[1]) * 1000000 + tonumber(time[2])
  local us, part, elsewhere = read_debt_span(key, limit, cost, now)
  if not us then
    return nil, part
  end
  local capacity, full_us, full_part = limit.capacity, limit.full_us, limit.full_part
  if exceeds(us, part, limit.far_us, limit.far_part) then
    us, part = times(capacity - (cost > 1 and cost <= capacity and cost or 1), limit)
  end
  if cost > capacity then
    return false, units(full_us - us, full_part - part, limit), -1, elsewhere or whole_ms(us, part)
  end
  local after_us, after_part = times(cost, limit)
  after_us, after_part = after_us + us, after_part + part
  if after_part >= limit.parts then
    after_us, after_part = after_us + 1, after_part - limit.parts
  end
  if cost > 0 and exceeds(after_us, after_part, full_us, full_part) then
    return false, units(full_us - us, full_part - part, limit),
      elsewhere or whole_ms(after_us - full_us, after_part - full_part), elsewhere or whole_ms(us, part)
  end
  return true, units(full_us - after_us, full_part - after_part, limit), 0, whole_ms(after_us, after_part),
    now + after_us, after_part
end

local function write_us(key, _, _, us, part)
  local value
  if part > 0 then
    value = string.format('gcra:%.0f+%.0f', us, part)
  else
    value = string.format('gcra:%.0f', us)
  end
  redis.call('SET', key, value, 'PXAT', whole_ms(us, part))
end

-------------------------------------------------------------------------------------------

local function compile(limit)
  local capacity = limit.burst or limit.count
  limit.capacity = capacity
  if limit.period % limit.count == 0 then
    limit.interval = limit.period / limit.count
    limit.full = limit.interval * capacity
    limit.decide, limit.write = decide_ms, write_ms
    return nil
  end
  local period = limit.period * 1000
  local divisor = numbers.common_divisor(period, limit.count)
  limit.parts = limit.count / divisor
  limit.interval_part = period / divisor % limit.parts
  limit.interval_us = (period / divisor - limit.interval_part) / limit.parts
  if limit.parts * (capacity + 1) > 9007199254740992 then
    return 'the emission interval period/n is too fine a fraction for this burst; round the count or the period'
  end
  limit.full_us, limit.full_part = times(capacity, limit)
  limit.far_us, limit.far_part = times(2 * capacity - 1, limit)
  limit.decide, limit.write = decide_us, write_us
  return nil
end

local function positive(text)
  return numbers.positive(text), string.format(numbers.WHOLE, '1')
end

algorithms.gcra = {
  name = 'gcra',
  options = { burst = positive },
  compile = compile,
  holds = holds,
  spent = spent,
}
