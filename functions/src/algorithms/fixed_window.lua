-- fixed_window: n per window. A window opens at the first take, or with align=clock at whole multiples of the period
-- since the epoch (UTC), and ends one period later. Time in whole milliseconds.
--
-- State. The key expires at the end of the window.
--   one rate:        the count, a plain integer; the window's end is the expiry
--   several rates:   each "<count>:<end of the window, ms since the epoch>"
--
-- A new n counts at once against what the open window has counted. A new period or align takes effect when the window
-- ends, but a window that would stay open for longer than the period (the period was lowered, or the clock was set
-- back) gives way to a new one, in which what was counted leaves room for just this call.

local COUNT = '^[1-9]%d*$'

local prefixed = packed.prefixed('fixed_window:')

local function holds(value)
  return (string.find(value, COUNT) ~= nil and numbers.whole(value) ~= nil) or prefixed(value)
end

-- parse reads "<count>:<end>"; nil if it is not that.
local function parse(text)
  local count, ending = string.match(text, '^(%d+):(%d+)$')
  count, ending = numbers.whole(count or ''), numbers.whole(ending or '')
  if count and ending then
    return count, ending
  end
  return nil
end

local function spent(value)
  return numbers.whole(value) or parse(packed.first(value, algorithms.fixed_window)) or 0
end

-- length answers the ms of a window that opens at now (ms).
local function length(rate, now)
  return rate.align and rate.period - now % rate.period or rate.period
end

-- weigh decides over a window: its count and the ms left of it.
local function weigh(count, left, capacity, cost)
  if cost > 0 and cost > capacity - count then
    local until_free = count > 0 and left or 0
    return false, math.max(0, capacity - count), cost > capacity and -1 or until_free, until_free
  end
  local after = count + cost
  return true, math.max(0, capacity - after), 0, after > 0 and left or 0
end

------------------------------------------------------------------- one rate

-- unusual reads a key that does not hold a count. Answers the count, the ms left of the window (0: none is open), and,
-- if another algorithm left the state, for how many ms that counts; or false and the ms of a block; or nil and the
-- error.
local function unusual(key, value, limit, cost)
  local kind, state, left, owner = states.view(key, value, algorithms.fixed_window)
  if not kind then
    return nil, state
  elseif kind == 'blocked' then
    return false, left
  elseif kind == 'none' then
    return 0, 0
  elseif kind == 'own' and not prefixed(state) then
    return numbers.whole(state), left
  elseif kind == 'own' then
    local count, ending = parse(packed.first(state, algorithms.fixed_window))
    left = count and ending - clock.ms() or 0
    return left > 0 and count or 0, math.max(0, left)
  end
  return states.spent_elsewhere(state, left, owner, limit, cost), 0, left
end

-- opening answers the ms of a window that opens in this call.
local function opening(limit)
  if not limit.align then
    return limit.period
  end
  return length(limit, clock.ms())
end

-- read answers the count, the ms left of the window (0: none is open), for how many ms another algorithm's state
-- counts, and whether the key holds the count as write left it; or false and the ms of a block; or nil and the error.
local function read(key, limit, cost)
  local value = redis.pcall('GET', key)
  if not value then
    return 0, 0
  elseif type(value) ~= 'string' or #value > 15 or not string.find(value, COUNT) then
    return unusual(key, value, limit, cost)
  end
  local left = redis.call('PTTL', key)
  if left < 0 then
    return nil, states.missing_expiry(key)
  end
  return tonumber(value), left, nil, true
end

-- renewed answers the count and the ms of a window that opens in this call: what another algorithm's state stands for, or
-- what a window has counted that is open for too long.
local function renewed(count, left, elsewhere, limit, cost)
  if left > limit.period then
    count = math.min(count, states.leaves_room(limit.capacity, cost))
  elseif not elsewhere then
    count = 0
  end
  return count, opening(limit)
end

local function decide(key, limit, cost)
  local count, left, elsewhere, kept = read(key, limit, cost)
  if not count then
    if count == nil then
      return nil, left
    end
    return states.refused_by_block(limit, cost, left)
  end
  local opens = nil
  if left == 0 or left > limit.period then
    count, left = renewed(count, left, elsewhere, limit, cost)
    opens = left
  elseif not kept then
    opens = left
  end
  local capacity = limit.capacity
  if cost <= capacity - count then
    local after = count + cost
    return true, capacity - after, 0, after > 0 and left or 0, after, opens
  end
  local allowed, remaining, retry, reset = weigh(count, left, capacity, cost)
  if not allowed and elsewhere then
    return false, remaining, retry == -1 and -1 or elsewhere, elsewhere
  end
  return allowed, remaining, retry, reset
end

local function give(key, limit, cost)
  local count, left, elsewhere, kept = read(key, limit, 1)
  if not count then
    if count == nil then
      return nil, left
    end
    return states.refused_by_block(limit, 1, left)
  end
  if left == 0 or left > limit.period then
    count, left = renewed(count, left, elsewhere, limit, 1)
    kept = false
  end
  local after = math.max(0, count - cost)
  return true, math.max(0, limit.capacity - after), 0, after > 0 and left or 0, after, not kept and left
end

-- write stores the count; opens: the ms of the window if the key must be written anew.
local function write(key, _, cost, count, opens)
  if count == 0 then
    redis.call('DEL', key)
  elseif opens then
    states.forget(key)
    redis.call('SET', key, count, 'PX', opens)
  else
    redis.call('INCRBY', key, cost)
  end
end

------------------------------------------------------------------- several rates

local function window(text, now, rate, cost)
  if text == '' then
    return 0, length(rate, now)
  end
  local count, ending = parse(text)
  if not count then
    return nil
  elseif ending <= now then
    return 0, length(rate, now)
  elseif ending - now > rate.period then
    return math.min(count, states.leaves_room(rate.capacity, cost)), length(rate, now)
  end
  return count, ending - now
end

local function step(text, now_us, rate, cost)
  local now = math.floor(now_us / 1000)
  local count, left = window(text, now, rate, cost)
  if not count then
    return nil
  end
  local allowed, remaining, retry, reset = weigh(count, left, rate.capacity, cost)
  return allowed, remaining, retry, reset, string.format('%.0f:%.0f', count + cost, now + left), now + left
end

local function give_step(text, now_us, rate, cost)
  local now = math.floor(now_us / 1000)
  local count, left = window(text, now, rate, 1)
  if not count then
    return nil
  elseif cost >= count then
    return true, rate.capacity, 0, 0, '', 0
  end
  return true, math.max(0, rate.capacity - count + cost), 0, left, string.format('%.0f:%.0f', count - cost, now + left),
    now + left
end

local function spend(now_us, rate, units)
  local now = math.floor(now_us / 1000)
  return string.format('%.0f:%.0f', units, now + length(rate, now))
end

local function plain_text(value, left, now_us)
  return string.format('%.0f:%.0f', numbers.whole(value), math.floor(now_us / 1000) + left)
end

-------------------------------------------------------------------------------------------

local function complete_rate(rate)
  rate.capacity = rate.count
end

local function complete(limit)
  if limit.rates then
    return packed.complete(limit)
  end
  limit.decide, limit.give, limit.write = decide, give, write
end

local function clock_option(text)
  return text == 'clock' and text or nil, '"clock"'
end

algorithms.fixed_window = {
  name = 'fixed_window',
  prefix = 'fixed_window:',
  options = { align = clock_option },
  rate = complete_rate,
  limit = complete,
  holds = holds,
  spent = spent,
  step = step,
  give = give_step,
  spend = spend,
  plain = plain_text,
}
