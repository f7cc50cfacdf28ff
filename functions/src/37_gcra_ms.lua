-- gcra with the clock in ms: TAT is the key's expiry, see src/36_gcra.lua.

local ceil, list = gcra.ceil, states.list
local VALUE = 'gcra'

-- part_of returns the k of a value, and text_of returns the value for a k.
local part_of = numbers.remembered(function(value)
  return value == VALUE and 0 or numbers.parse_digits(string.match(value, '^gcra%-(%d+)$'))
end, {})
local text_of = numbers.remembered(function(part)
  return part == 0 and VALUE or string.format('gcra-%d', part)
end, {})

-- holds reports whether a value is a state of the clock in ms.
function gcra_ms.holds(value)
  return part_of(value) ~= nil
end

-- read returns the debt of a key with `left` ms until it expires, and its value, or nil if the value
-- is to be written anew. It returns nil if the key does not hold such a state.
local function read(key, left, ticks)
  if left == -2 then return 0, nil end
  local value = redis.pcall('GETRANGE', key, '0', '31')
  local debt = left * ticks
  if value ~= VALUE then
    local part = type(value) == 'string' and part_of(value)
    if not part then return nil, nil end
    if part < ticks and left > 0 then debt = debt - part end
  end
  if left == 0 then value = nil end
  return debt, value
end

-- store writes a debt to a key. value is what the key holds, or nil to write the value in any case.
-- left is the ms until the key expires. If the value does not change, only the expiry is set. On
-- Redis 7.0, where the time advances during a call, the new expiry is computed from now, the ms since
-- the epoch as of which left was read, or without it from the old expiry.
local function store(key, rate, debt, value, left, now)
  local ms, text = debt, VALUE
  if rate.ticks > 1 then
    ms = ceil(debt, rate.ticks)
    text = text_of(ms * rate.ticks - debt)
  end
  if CLOCK_STANDS and text == value then
    redis.call('PEXPIRE', key, ms)
  elseif CLOCK_STANDS or not value then
    -- SET would store the value in a buffer sized for an earlier, longer argument.
    redis.call('PSETEX', key, numbers.argument(ms), text)
  else
    local expiry = string.format('%d', ms + (now or redis.call('PEXPIRETIME', key) - left))
    if text == value then
      redis.call('PEXPIREAT', key, expiry)
    else
      redis.call('SET', key, text, 'PXAT', expiry)
    end
  end
  return ms
end

-- take decides the common call without a state.
local function take(key, limit, cost)
  local rate, left, reply = limit.rate, redis.call('PTTL', key), decisions.reply
  local interval, full, ticks = rate.interval, rate.full, rate.ticks
  local debt, value = read(key, left, ticks)
  if not debt or debt < 0 or debt + interval > 2 * full or cost == 0 then return decisions.take_one(key, limit, cost) end
  local after = debt + cost * interval
  reply[2], reply[6] = rate.capacity, 1
  local room = full - after
  if room < 0 then
    local missing = ceil(-room, ticks)
    room = full - debt
    reply[1], reply[3] = 0, room > 0 and (room - room % interval) / interval or 0
    reply[4], reply[5] = cost > rate.capacity and -1 or missing, ceil(debt, ticks)
    return reply
  end
  reply[1], reply[3], reply[4] = 1, (room - room % interval) / interval, limit.algorithm.delays and ceil(debt, ticks) or 0
  reply[5] = store(key, rate, after, value, left)
  return reply
end

-- fill_in fills in a state. value and now are as for store.
local function fill_in(at, rate, debt, value, cost, now)
  local state = list[at]
  if not state then
    state = states.new(at, rate)
  end
  state.rate, state.ends_in, state.now = rate, 0, now
  if not gcra.set(state, debt, cost) then value = nil end
  state.value = value
end

local function fresh(limit, at)
  fill_in(at, limit.rate, 0, nil, 1)
end

local function open(key, limit, at, cost)
  local left, now
  if CLOCK_STANDS then
    left = redis.call('PTTL', key)
  else
    now = clock.ms()
    left = redis.call('PEXPIRETIME', key)
    if left >= 0 then left = left > now and left - now or 0 end
  end
  local debt, value = read(key, left, limit.rate.ticks)
  if not debt then
    return states.open_other(key, limit, at, cost)
  elseif left == -1 then
    return states.missing_expiry(key)
  end
  fill_in(at, limit.rate, debt, value, cost, now)
  return nil
end

-- reopen reads a state of gcra under a block that has ended, or one of the clock in us.
local function reopen(key, limit, at, cost, found)
  local rate, value, left = limit.rate, redis.call('GETRANGE', key, found.from, found.from + 31), found.left
  local part = part_of(value)
  if not part then
    left = gcra_us.left(key, found.from, value)
  end
  local debt = left * rate.ticks
  if part and part < rate.ticks and left > 0 then debt = debt - part end
  fill_in(at, rate, debt, nil, cost)
end

local function write(key, limit, at)
  local state = list[at]
  if state.debt == 0 then return redis.call('DEL', key) end
  store(key, limit.rate, state.debt, state.value, nil, state.now)
end

local form = { open = open, fresh = fresh, reopen = reopen, write = write }

function gcra_ms.complete(limit)
  limit.form, limit.take = form, take
end
