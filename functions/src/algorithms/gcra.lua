-- gcra: continuous refill at n/period, capacity b (default n). The virtual scheduling form of the generic cell rate
-- algorithm (ITU-T I.371, ATM Forum TM 4.0): one theoretical arrival time, TAT, moves on by the emission interval
-- T = period/n for each unit taken, and a call is allowed while TAT stays within b*T of now. Here debt = TAT - now:
-- how long until full again.
--
-- State. The key expires at TAT, rounded up to a whole millisecond.
--   one rate, T of 1 ms or more: "gcra", or "gcra-<k>": TAT is k/q ms before the expiry, q being the denominator of T in
--                                ms, reduced. So the expiry is the state, and no clock need be read to decide.
--   otherwise:                   "gcra:<TAT in us>", or "gcra:<us>+<part>" with a part of a microsecond left over
-- A limit of either kind reads what the other has left; TAT is kept when n, period or burst change, so what was taken
-- under the old limit stays taken.
--
-- A TAT further ahead than any debt of this limit (its period or burst was lowered, or the clock was set back) would
-- lock the key out for longer than one full refill. It counts as a debt that leaves room for just this call: the key
-- is usable at once, at the new rate, and the old burst is not handed out again.

local VALUE = 'gcra'
local TEXT = '^' .. spans.TIME
local STATE = '^gcra:' .. spans.TIME

local PART = '^gcra%-(%d+)$'

local prefixed = packed.prefixed('gcra:')

local function holds(value)
  return value == VALUE or prefixed(value) or string.find(value, PART) ~= nil
end

------------------------------------------------------------------- one rate, T in whole milliseconds
-- Debts are in ticks of 1/limit.ticks ms, which is 1 here.

-- unusual_debt reads a key that holds no usual state. Answers the debt in ticks, and, if another algorithm left the state,
-- for how many ms that counts; or false and the ms of a block; or nil and the error.
local function unusual_debt(key, limit, cost)
  local kind, value, left, owner = states.view(key, redis.pcall('GET', key), algorithms.gcra)
  if not kind then
    return nil, value
  elseif kind == 'blocked' then
    return false, left
  elseif kind == 'none' then
    return 0
  elseif kind == 'own' and string.sub(value, 1, 6) == 'gcra::' then
    local digits, more_digits = string.match(packed.first(value, algorithms.gcra), TEXT)
    local part = (more_digits or '') ~= '' and 1 or 0
    return digits and math.max(0, spans.whole_ms(tonumber(digits), part) - clock.ms()) * limit.ticks or 0
  elseif kind == 'own' then
    local part = tonumber(string.match(value, PART) or '0') -- there under a block that has run out
    return math.max(0, left * limit.ticks - (part < limit.ticks and part or 0))
  end
  return states.spent_elsewhere(value, left, owner, limit, cost) * limit.interval, left
end

-- A key that denies is asked again and again, and PTTL alone answers it, once GET has shown that the state is ours.
-- seen keeps the debt at which it did: while time passes and nothing is written a debt shrinks, so a debt that has not
-- says that the key may no longer be the one that was seen. This saves a seventh of a denied call (bench/README.md), is
-- forgotten freely, and can only deny. peek does not use it: a replica does not see what is written to the key.
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

states.forgetful[#states.forgetful + 1] = function(key)
  if seen[key] then
    seen[key] = -1
  end
end

local function decide_ms(key, limit, cost, consume)
  local interval, full = limit.interval, limit.full
  local debt = redis.call('PTTL', key)
  local after = debt + cost * interval
  local kept, read, elsewhere = true, false, nil
  if debt <= 0 or after <= full or not consume or debt >= (seen[key] or -1) or debt + interval > 2 * full then
    read = true
    if debt == -2 then
      debt = 0
      kept = false
    elseif redis.pcall('GET', key) ~= VALUE then
      debt, elsewhere = unusual_debt(key, limit, cost)
      kept = false
      if debt == nil then
        return nil, elsewhere
      elseif not debt then
        return states.refused_by_block(limit, cost, elsewhere)
      end
    elseif debt <= 0 then
      kept = false
      if debt < 0 then
        return nil, states.missing_expiry(key)
      end
    end
    if debt + interval > 2 * full then
      debt = interval * states.leaves_room(limit.capacity, cost)
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
  elseif read and kept then
    remember(key, debt)
  end
  return false, remaining, cost > limit.capacity and -1 or elsewhere or after - full, elsewhere or debt
end

local function give_ms(key, limit, cost)
  local allowed, remaining, retry, debt, _, kept = decide_ms(key, limit, 0)
  if not allowed then
    return allowed, remaining, retry, debt
  end
  local after = math.max(0, debt - cost * limit.interval)
  return true, math.max(0, math.floor((limit.full - after) / limit.interval)), 0, after, after, kept
end

local function write_ms(key, limit, cost, after, kept)
  if after == 0 then
    redis.call('DEL', key)
  elseif not kept then
    redis.call('PSETEX', key, after, VALUE) -- SET would keep the value in the memory of an earlier, longer argument
  elseif CLOCK_STANDS then
    redis.call('PEXPIRE', key, after)
  else
    redis.call('PEXPIREAT', key, redis.call('PEXPIRETIME', key) + cost * limit.interval)
  end
end

------------------------------------------------------------------- one rate, T of 1 ms or more
-- The same with a part of a millisecond, in the value. Time is still in whole ms: it admits at most one unit later.

local function ceil_ms(ticks, limit)
  local over = ticks % limit.ticks
  return (over > 0 and ticks + limit.ticks - over or ticks) / limit.ticks
end

-- usual_debt answers the debt in ticks and the ms left of the key, or nil if it holds no usual state.
local function usual_debt(key, value, limit)
  local part = value == VALUE and '0' or type(value) == 'string' and string.match(value, PART)
  local left = part and redis.call('PTTL', key) or -1
  if left < 0 then
    return nil
  end
  part = tonumber(part)
  return math.max(0, left * limit.ticks - (part < limit.ticks and part or 0)), left
end

local function decide_part(key, limit, cost)
  local interval, full = limit.interval, limit.full
  local value = redis.pcall('GET', key)
  local debt, left, elsewhere = 0, 0, nil
  if value then
    debt, left = usual_debt(key, value, limit)
    if not debt then
      debt, elsewhere = unusual_debt(key, limit, cost)
      left = 0
      if debt == nil then
        return nil, elsewhere
      elseif not debt then
        return states.refused_by_block(limit, cost, elsewhere)
      end
    end
    if debt + interval > 2 * full then
      debt, left = interval * states.leaves_room(limit.capacity, cost), 0
    end
  end
  local after = debt + cost * interval
  if after <= full then
    local room = full - after
    return true, (room - room % interval) / interval, 0, ceil_ms(after, limit), after, left
  end
  local room = full - debt
  local remaining = room >= interval and (room - room % interval) / interval or 0
  if cost == 0 then
    return true, remaining, 0, ceil_ms(debt, limit), debt, left
  end
  return false, remaining, cost > limit.capacity and -1 or elsewhere or ceil_ms(after - full, limit),
    elsewhere or ceil_ms(debt, limit)
end

local function give_part(key, limit, cost)
  local allowed, remaining, retry, reset, debt, left = decide_part(key, limit, 0)
  if not allowed then
    return allowed, remaining, retry, reset
  end
  local after = math.max(0, debt - cost * limit.interval)
  local room = math.max(0, limit.full - after)
  return true, (room - room % limit.interval) / limit.interval, 0, ceil_ms(after, limit), after, left
end

-- write_part stores the debt. left: the ms left of a key that goes on, 0 if it is new.
local function write_part(key, limit, _, after, left)
  if after == 0 then
    return redis.call('DEL', key)
  end
  states.forget(key)
  local ms = ceil_ms(after, limit)
  local part = ms * limit.ticks - after
  local value = part == 0 and VALUE or string.format('gcra-%.0f', part)
  if CLOCK_STANDS or left == 0 then
    return redis.call('PSETEX', key, ms, value)
  end
  return redis.call('SET', key, value, 'PXAT', redis.call('PEXPIRETIME', key) + ms - left)
end

------------------------------------------------------------------- any T, any number of rates

-- debt_at answers the debt that a TAT stands for as a span, from what the pattern of one has matched. cost is what the
-- call wants.
local function debt_at(digits, more_digits, now, rate, cost)
  local us, part = tonumber(digits), 0
  if us < now then
    return 0, 0
  end
  us = us - now
  if more_digits ~= '' then
    part = tonumber(more_digits)
    if part >= rate.parts then
      us, part = us + 1, 0 -- left by a rate with other parts: rounded up
    end
  end
  if spans.exceeds(us, part, rate.far_us, rate.far_part) then
    return spans.times(states.leaves_room(rate.capacity, cost), rate)
  end
  return us, part
end

-- debt_of does so for a text, and answers nil if that is none.
local function debt_of(text, now, rate, cost)
  if text == '' then
    return 0, 0
  end
  local digits, more_digits = string.match(text, TEXT)
  if digits then
    return debt_at(digits, more_digits, now, rate, cost)
  end
  return nil
end

-- weigh decides over a debt. Answers allowed, remaining, retry_after, reset_after, and the debt after the call.
local function weigh(us, part, rate, cost)
  local full_us, full_part, capacity = rate.full_us, rate.full_part, rate.capacity
  if cost <= capacity then
    local after_us, after_part = spans.times(cost, rate)
    after_us, after_part = after_us + us, after_part + part
    if after_part >= rate.parts then
      after_us, after_part = after_us + 1, after_part - rate.parts
    end
    if cost == 0 or after_us < full_us or (after_us == full_us and after_part <= full_part) then
      return true, spans.units(full_us - after_us, full_part - after_part, rate), 0, spans.whole_ms(after_us, after_part),
        after_us, after_part
    end
    return false, spans.units(full_us - us, full_part - part, rate),
      spans.whole_ms(after_us - full_us, after_part - full_part), spans.whole_ms(us, part)
  end
  return false, spans.units(full_us - us, full_part - part, rate), -1, spans.whole_ms(us, part)
end

local function step(text, now, rate, cost)
  local us, part = debt_of(text, now, rate, cost)
  if not us then
    return nil
  end
  local allowed, remaining, retry, reset
  allowed, remaining, retry, reset, us, part = weigh(us, part, rate, cost)
  if not allowed then
    return false, remaining, retry, reset
  end
  return true, remaining, 0, reset, spans.text(now + us, part), spans.whole_ms(now + us, part)
end

local function give(text, now, rate, cost)
  local us, part = debt_of(text, now, rate, 1)
  if not us then
    return nil
  end
  local less_us, less_part = spans.times(math.min(cost, 2 * rate.capacity), rate)
  us, part = us - less_us, part - less_part
  if part < 0 then
    us, part = us - 1, part + rate.parts
  end
  if us < 0 or (us == 0 and part == 0) then
    return true, rate.capacity, 0, 0, '', 0
  end
  return true, spans.units(rate.full_us - us, rate.full_part - part, rate), 0, spans.whole_ms(us, part),
    spans.text(now + us, part), spans.whole_ms(now + us, part)
end

local function spend(now, rate, units)
  local us, part = spans.times(units, rate)
  return spans.text(now + us, part)
end

local function plain(_, left, now)
  return spans.text(now - now % 1000 + left * 1000, 0)
end

------------------------------------------------------------------- one rate, T below 1 ms
-- What packed.lua would do with step, without the strings between: a third of the time (bench/README.md).

local function decide_us(key, limit, cost)
  local value = redis.pcall('GET', key)
  local now = clock.us()
  local us, part = 0, 0
  if value then
    local digits, more_digits
    if type(value) == 'string' then
      digits, more_digits = string.match(value, STATE)
    end
    if not digits then
      return packed.decide(key, limit, cost)
    end
    us, part = debt_at(digits, more_digits, now, limit, cost)
  end
  local allowed, remaining, retry, reset
  allowed, remaining, retry, reset, us, part = weigh(us, part, limit, cost)
  return allowed, remaining, retry, reset, allowed and now + us, part
end

-- write_us stores TAT. What packed.lua has decided, a refund among it, is a text and an expiry instead.
local function write_us(key, limit, cost, us, part)
  if type(us) == 'string' then
    return packed.write(key, limit, cost, us, part)
  end
  redis.call('SET', key, spans.text(us, part, 'gcra:'), 'PXAT', spans.whole_ms(us, part))
end

-------------------------------------------------------------------------------------------

-- complete_rate works for leaky_bucket too, which keeps the same state.
local function complete_rate(rate)
  rate.capacity = rate.burst or rate.count
  local wrong = spans.prepare(rate, rate.capacity)
  if wrong then
    return wrong
  end
  rate.full_us, rate.full_part = spans.times(rate.capacity, rate)
  rate.far_us, rate.far_part = spans.times(2 * rate.capacity - 1, rate)
  return nil
end

local function complete(limit)
  local divisor = limit.rates and 1 or numbers.common_divisor(limit.period, limit.count)
  local interval = not limit.rates and limit.period / divisor
  if limit.rates or limit.period < limit.count or 2 * interval * limit.capacity > numbers.MOST then
    packed.complete(limit)
    if not limit.rates then
      limit.decide, limit.write = decide_us, write_us
    end
    return
  end
  limit.interval, limit.ticks = interval, limit.count / divisor
  limit.full = interval * limit.capacity
  if limit.ticks == 1 then
    limit.decide, limit.give, limit.write = decide_ms, give_ms, write_ms
  else
    limit.decide, limit.give, limit.write = decide_part, give_part, write_part
  end
end

algorithms.gcra = {
  name = 'gcra',
  prefix = 'gcra:',
  options = { burst = numbers.positive_option },
  rate = complete_rate,
  limit = complete,
  holds = holds,
  step = step,
  give = give,
  spend = spend,
  plain = plain,
  debt_of = debt_of,
}
