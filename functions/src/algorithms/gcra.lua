-- gcra: continuous refill at n/period, capacity b (default n). This is the virtual scheduling form
-- of the generic cell rate algorithm (ITU-T I.371, ATM Forum TM 4.0). It keeps one theoretical
-- arrival time, TAT, which each unit taken advances by the emission interval T = period/n. A call
-- is allowed while TAT is at most b*T after now. (golang.org/x/time/rate keeps the same as a number
-- of tokens: b - (TAT - now)/T.) The debt is TAT - now: the time until the rate is full again.
--
-- Debts are counted in ticks. A tick is small enough that all debts are whole numbers, so only
-- replies and expiries are rounded. T is rate.interval ticks, b*T is rate.full ticks, and a unit of
-- the clock (1 ms or 1 us) is rate.ticks ticks. TAT is stored in one of two ways:
--
--   limit                      clock  the key's value                            its expiry
--   one rate, T of 1 ms or more   ms  "gcra", or "gcra-<k>": TAT is k ticks       TAT, rounded up. It is the state: PTTL
--                                     before the expiry                          gives the debt, without TIME
--   any other                     us  "gcra:<us>", or "gcra:<us>+<k>": TAT, and   TAT, rounded up
--                                     k ticks more; for several rates see src/35_packed.lua
--
-- A limit stored in one way reads states stored in the other. TAT is kept when n, period or burst
-- change: what was taken under the old limit stays taken. k is in ticks of the limit that wrote it.
-- If a unit of the clock has at most k ticks under the current limit, TAT is rounded up to the
-- unit.
--
-- A stored debt above (2b - 1)T is replaced. A call of this limit leaves at most b*T. A limit with
-- twice the burst leaves at most 2b*T, which is (2b - 1)T after one T. A larger debt was stored
-- before the period was lowered or the clock was set back, and would lock the key for longer than a
-- full refill. The debt that replaces it leaves room for just this call: the key is usable at once
-- at the new rate, but does not grant the old burst again.
--
-- leaky_bucket uses the same state and arithmetic.

local list = states.list
local FINENESS = 1000000000 -- if T is rounded up, the error is below T / FINENESS

-- ceil converts ticks into a longer unit of that many ticks, rounded up.
local function ceil(debt, ticks)
  if ticks == 1 then return debt end
  local over = debt % ticks
  return (over > 0 and debt + ticks - over or debt) / ticks
end

-- set sets the debt of a state. It replaces a debt above (2b - 1)T with one that leaves room for
-- this call, and reports whether it kept the debt.
local function set(state, debt, cost)
  local rate = state.rate
  local interval, full = rate.interval, rate.full
  local reached = debt + interval <= 2 * full
  if not reached then
    debt = interval * states.leaves_room(rate.capacity, cost)
  end
  local room = full - debt
  state.debt = debt
  state.free = room > 0 and (room - room % interval) / interval or 0
  return reached
end

local function charge(state, units)
  state.debt, state.free = state.debt + units * state.rate.interval, state.free - units
end

local function refund(state, units)
  set(state, math.max(0, state.debt - units * state.rate.interval), 1)
end

local function reset(state)
  return ceil(state.debt, state.rate.ticks_per_ms)
end

local function wait(state, cost)
  local rate = state.rate
  return ceil(state.debt + cost * rate.interval - rate.full, rate.ticks_per_ms)
end

------------------------------------------------------------------- the clock in us: TAT is in the value

-- Times of 16 digits in microseconds are in the years 2001 to 2286.
local TIME = '%d%d%d%d%d%d%d%d%d%d%d%d%d%d%d%d'

local function open(state, value, from, to, now, cost)
  local debt = 0
  if to >= from then
    local us, part, last = string.match(value, '^' .. TIME, from), '', from + 15
    if to > last then
      part = string.match(string.sub(value, last + 1, to), '^%+(%d+)$')
    end
    if not us or not part or to < last then
      return false
    elseif us - now >= 0 then
      local ticks = state.rate.ticks
      debt = (us - now) * ticks
      if part ~= '' then
        debt = debt + math.min(ticks, numbers.digits(part) or ticks)
      end
    end
  end
  state.now = now
  set(state, debt, cost)
  return true
end

local function save(state)
  local ticks = state.rate.ticks
  local part = state.debt % ticks
  local us = state.now + (state.debt - part) / ticks
  if part > 0 then return string.format('%d+%d', us, part), clock.ceil_ms(us + 1) end
  return string.format('%d', us), clock.ceil_ms(us)
end

local tats = {} -- the TAT of each rate of a call, in us; reused by the next call

-- take_us decides the common call without states. It applies if each T is a whole number of us and
-- the key holds nothing or the state of such a limit. It fills in the reply and returns true, or
-- returns false if the call needs open.
local function take_us(key, limit, cost, reply)
  local value = redis.pcall('GETRANGE', key, '0', '511')
  local held = value ~= ''
  if held and (type(value) ~= 'string' or not string.find(value, limit.shape)) then return false end
  local now, rates, size, at = clock.us(), limit.rates, limit.size, limit.first
  local binding, retry = 0, 0
  for i = 1, size do
    local rate, tat = rates[i], now
    if held then
      tat = tonumber(string.sub(value, at, at + 15))
      at = at + 19 -- 16 digits, then "16:" before the next time
      if tat < now then tat = now end
    end
    local full, units = rate.full, cost * rate.interval
    local debt = tat - now
    if debt + rate.interval > 2 * full then return false end
    tats[i] = tat
    if debt + units > full then
      if binding == 0 then binding = i end
      local ms = cost > rate.capacity and -1 or clock.ceil_ms(debt + units - full)
      if retry ~= -1 and (ms == -1 or ms > retry) then retry = ms end
    end
  end
  local allowed, least, last = binding == 0, numbers.MOST, 0
  for i = 1, size do
    local rate, tat = rates[i], tats[i]
    if allowed then
      tat = tat + cost * rate.interval
      tats[i] = tat
    end
    local room = rate.full - tat + now
    local free = room > 0 and (room - room % rate.interval) / rate.interval or 0
    if free < least then
      least = free
      if allowed then binding = i end
    end
    if tat > last then last = tat end
  end
  reply[1], reply[2], reply[3], reply[4] = allowed and 1 or 0, rates[binding].capacity, least, retry
  reply[5], reply[6] = clock.ceil_ms(last - now), 1
  if allowed then
    states.put(key, string.format(limit.format, unpack(tats, 1, size)), clock.ceil_ms(last))
  end
  return true
end

-- plain returns the texts for a value that does not begin with "gcra:".
local function plain(value, expiry)
  local old = 'leaky_bucket:' -- the prefix of leaky_bucket before 0.1.0
  if string.sub(value, 1, #old) == old then return string.sub(value, #old + 1) end
  return string.format('%d', expiry * 1000)
end

------------------------------------------------------------------- the clock in ms: TAT is the expiry

local VALUE = 'gcra'

-- part_of returns the k of a value, and text_of returns the value for a k.
local part_of = numbers.remembered(function(value)
  return value == VALUE and 0 or numbers.digits(string.match(value, '^gcra%-(%d+)$') or '')
end, {})
local text_of = numbers.remembered(function(part)
  return part == 0 and VALUE or string.format('gcra-%d', part)
end, {})

-- store writes a debt to a key. value is what the key holds, or nil to write the value in any case.
-- left is the ms until the key expires. If the value does not change, only the expiry is set. On
-- Redis 7.0, where the time advances during a call, the new expiry is computed from the old one and
-- not from now.
local function store(key, rate, debt, value, left)
  local ms, text = debt, VALUE
  if rate.ticks > 1 then
    ms = ceil(debt, rate.ticks)
    text = text_of(ms * rate.ticks - debt)
  end
  if text == value and CLOCK_STANDS then
    redis.call('PEXPIRE', key, ms)
  elseif text == value then
    redis.call('PEXPIREAT', key, string.format('%d', redis.call('PEXPIRETIME', key) + ms - left))
  elseif CLOCK_STANDS or not value then
    -- SET would store the value in a buffer sized for an earlier, longer argument.
    redis.call('PSETEX', key, ms == rate.ms and rate.ms_text or numbers.arg(ms), text)
  else
    redis.call('SET', key, text, 'PXAT', string.format('%d', redis.call('PEXPIRETIME', key) + ms - left))
  end
  return ms
end

-- take_ms decides the common call without a state. It applies if the key holds nothing or the state
-- of such a limit. It fills in the reply and returns true, or returns false if the call needs
-- open_ms.
local function take_ms(key, limit, cost, reply)
  local rate = limit.rate
  local interval, full, ticks = rate.interval, rate.full, rate.ticks
  local left, value = redis.call('PTTL', key), nil
  local debt = left * ticks
  local after = debt + cost * interval
  if left == -2 then
    debt, after = 0, cost * interval
  elseif left <= 0 or debt + interval > 2 * full then
    return false
  else
    value = redis.pcall('GETRANGE', key, '0', '31')
    if value ~= VALUE then
      local part = type(value) == 'string' and part_of(value)
      if not part then
        return false
      elseif part < ticks then
        debt, after = debt - part, after - part
      end
    end
  end
  reply[2], reply[6] = rate.capacity, 1
  local room = full - after
  if room >= 0 then
    reply[1], reply[3], reply[4] = 1, (room - room % interval) / interval, rate.delays and ceil(debt, ticks) or 0
    reply[5] = store(key, rate, after, value, left)
    return true
  end
  local missing = after - full
  room = full - debt
  if ticks > 1 then
    missing, debt = ceil(missing, ticks), ceil(debt, ticks)
  end
  reply[1], reply[3] = 0, room > 0 and (room - room % interval) / interval or 0
  reply[4], reply[5] = cost > rate.capacity and -1 or missing, debt
  return true
end

-- begin fills in a state. Its debt is the key's remaining ms, minus the k of its value (part).
-- value is as for store.
local function begin(at, rate, left, part, value, cost)
  local state, debt = states.new(at, rate), left * rate.ticks
  if part > 0 and part < rate.ticks and debt > 0 then
    debt = debt - part
  end
  state.left, state.value = left, value
  if not set(state, debt, cost) or left == 0 then state.value = nil end
end

local function fresh_ms(limit, at)
  begin(at, limit.rate, 0, 0, nil, 1)
end

local function open_ms(key, limit, at, cost)
  local left, value, part = redis.call('PTTL', key), nil, 0
  if left == -2 then
    left = 0
  else
    value = redis.pcall('GETRANGE', key, '0', '31')
    if value ~= VALUE then
      part = type(value) == 'string' and part_of(value)
      if not part then return states.adopt(key, limit, at, cost) end
    end
    if left < 0 then return states.missing_expiry(key) end
  end
  return begin(at, limit.rate, left, part, value, cost)
end

-- reopen_ms reads a state of gcra under a block that has ended, or one stored in us. The expiry of
-- a single rate is its TAT. The expiry of several rates is the latest TAT, so reopen_ms reads the
-- text of the first rate.
local function reopen_ms(key, limit, at, cost, found)
  local value, left = redis.call('GETRANGE', key, found.from, found.from + 31), found.left
  local prefix = string.match(value, '^([%a_]+:):')
  if prefix then
    local text = packed.first_text(key, found.from, prefix)
    local us = string.match(text, '^' .. TIME)
    left = 0
    if us then
      left = math.max(0, clock.ceil_ms(us + (#text == 16 and 0 or 1)) - clock.ms())
    end
  end
  begin(at, limit.rate, left, part_of(value) or 0, nil, cost)
end

local function write_ms(key, limit, at)
  local state = list[at]
  if state.debt == 0 then return redis.call('DEL', key) end
  store(key, limit.rate, state.debt, state.value, state.left)
end

------------------------------------------------------------------- limits

-- divide sets a rate's ticks for a clock with that many units in a ms. It reports whether all debts
-- can be counted in them, which requires that none exceeds 2^53.
local function divide(rate, units_per_ms)
  local period, count = rate.period * units_per_ms, rate.count
  local divisor = numbers.common_divisor(period, count)
  rate.ticks, rate.interval = count / divisor, period / divisor
  rate.full, rate.ticks_per_ms = rate.interval * rate.capacity, rate.ticks * units_per_ms
  rate.ms = ceil(rate.interval, rate.ticks) -- the expiry that the first take sets, in ms; ms_text for Redis 7.0
  rate.ms_text = string.format('%d', rate.ms)
  return 2 * rate.full <= numbers.MOST
end

-- round sets a rounded-up T for a rate that divide cannot handle: the smallest fraction interval /
-- ticks of a us that is above T and keeps all debts at or below 2^53. It narrows a lower and an
-- upper bound of T down the Stern-Brocot tree, many steps at a time as in Euclid's algorithm. below
-- and above are the distances of the bounds from T, times count and the ticks of the bound.
local function round(rate)
  local most = math.floor(numbers.MOST / (2 * rate.capacity))
  local low, low_ticks, below = 0, 1, rate.period * 1000
  local high, high_ticks, above = 1, 0, rate.count
  while low + high <= most do
    local steps = math.floor(below / above)
    low, low_ticks, below = low + steps * high, low_ticks + steps * high_ticks, below - steps * above
    local room = low > 0 and math.floor((most - high) / low) or math.huge
    steps = below > 0 and math.min(room, math.floor(above / below)) or 0
    high, high_ticks, above = high + steps * low, high_ticks + steps * low_ticks, above - steps * below
  end
  rate.ticks, rate.interval = high_ticks, high
  rate.full, rate.ticks_per_ms = high * rate.capacity, high_ticks * 1000
  if high_ticks == 0 or above * FINENESS >= rate.period * 1000 * high_ticks then
    return 'n/period is too fast for this burst to be counted exactly; use a smaller n or burst'
  end
  return nil
end

local function complete_rate(rate)
  rate.capacity = rate.burst or rate.count
  rate.charge, rate.refund, rate.spend, rate.reset, rate.wait = charge, refund, charge, reset, wait
end

local function complete(limit)
  limit.owner, limit.prefix = algorithms.gcra, 'gcra:'
  local rates = limit.rates
  if limit.rate and limit.rate.period >= limit.rate.count and divide(limit.rate, 1) then
    limit.open, limit.fresh, limit.reopen, limit.write, limit.take = open_ms, fresh_ms, reopen_ms, write_ms, take_ms
    return nil
  end
  packed.complete(limit)
  local whole = true
  for _, rate in ipairs(rates) do
    local wrong = not divide(rate, 1000) and round(rate) or nil
    if wrong then return wrong end
    whole = whole and rate.ticks == 1 and not rate.delays
  end
  if whole then
    limit.take = take_us
    limit.shape, limit.format, limit.first = '^gcra:' .. TIME .. '$', 'gcra:%d', 6
    if not limit.rate then
      limit.shape = '^gcra::' .. string.rep('16:' .. TIME, limit.size) .. '$'
      limit.format, limit.first = 'gcra::' .. string.rep('16:%d', limit.size), 10
    end
  end
  return nil
end

algorithms.gcra = {
  name = 'gcra',
  options = { burst = numbers.positive_option },
  rate = complete_rate,
  limit = complete,
  holds = function(head)
    return string.find(head, '^gcra:') ~= nil or part_of(head) ~= nil or string.find(head, '^leaky_bucket:') ~= nil
  end,
  charge = charge,
  open = open,
  save = save,
  plain = plain,
  in_place = true,
}
