-- fixed_window: n per window. A window opens at the first take, or with align=clock at whole
-- multiples of the period since the epoch (UTC). It ends one period later; src/42_calendar.lua
-- describes the periods of the calendar. Times are in whole milliseconds. The function probe opens
-- the windows of most calls, and the function read those of states.
--
-- State. The key expires at the end of the window.
--   one rate:        "400" and the count in 16 digits; the window's end is the expiry
--   several rates:   each "<count>:<end of the window, ms since the epoch>", see src/35_packed.lua
--
-- A new n takes effect at once and also applies to what the open window has already counted. A new
-- period or align takes effect when the window ends. But if the window would stay open for longer
-- than the period, because the period was lowered or the clock was set back, a new window replaces
-- it. The new window keeps the old count, lowered if necessary to leave room for this call.
--
-- "400" shows that the library wrote the value. A bare count would look like any number that another
-- program stores with an expiry. The value is a whole number of 64 bits, 4 * 10^18 + count, so INCRBY adds
-- to the count. It is above 2^53, so Lua must not read it as a number.

local PREFIX = 'fixed_window:'
local MARKED = '^400(%d+)$'
local FORMAT, ONE = '400%016d', '4000000000000000001'
local SIZE = 19 -- bytes

local small = {} -- from the value to the count, for the counts below 1000 that marked_count has parsed; see numbers.parse

-- marked_count parses the value of one rate. It returns nil for any other text.
local function marked_count(value)
  local count = small[value]
  if count then return count end
  local digits = #value == SIZE and string.match(value, MARKED)
  if not digits then return nil end
  count = digits + 0
  if count >= numbers.MOST then
    return numbers.parse(digits)
  elseif count == 0 then
    return nil
  elseif count < 1000 then
    small[value] = count
  end
  return count
end

-- length returns the length in ms of a window that opens now.
local function length(rate) return rate.align and calendar.left(rate, clock.ms()) or rate.period end

local function reset(state) return state.count > 0 and state.left or 0 end

local function set(state, count)
  local free = state.rate.capacity - count
  state.count = count
  state.free = free > 0 and free or 0
  state.reset = reset(state)
end

local function charge(state, units) set(state, state.count + units) end

local function refund(state, units) set(state, math.max(0, state.count - units)) end

local function spare(state) return math.max(0, states.most_owed(state.rate.capacity) - state.count) end

local function wait(state) return state.left end

-- parse parses "<count>:<end>", or returns nil.
local function parse(text)
  local count, ending = string.match(text, '^(%d+):(%d+)$')
  return numbers.parse_digits(count), numbers.parse_digits(ending)
end

-- read sets the fields count and left of a state. left is the time in ms until the window ends. If
-- the window has ended, or would end too late, read opens a new one.
local function read(state, text, now, cost)
  local rate, count, ending = state.rate, 0, 0
  if text ~= '' then
    count, ending = parse(text)
    if not count or not ending then return false end
  end
  state.now = (now - now % 1000) / 1000
  state.left = ending - state.now
  if state.left <= 0 then
    count, state.left = 0, length(rate)
  elseif state.left > rate.period then
    count, state.left = math.min(count, states.most_spent(state, cost)), length(rate)
  end
  set(state, count)
  return true
end

local function save(state)
  local ending = state.now + state.left
  return string.format('%d:%d', state.count, ending), ending
end

local function convert(value, expiry) return string.format('%d:%d', marked_count(value), expiry) end

------------------------------------------------------------------- one rate: the value is the mark and the count

-- probe, commit and waits decide on a key: see src/45_limits.lua. What probe returns for the other two is the count and the ms that the window
-- stays open.
local function probe(key, limit, _, now)
  local value = redis.pcall('GETRANGE', key, '0', '511')
  if value == '' then return limit.capacity, 0, length(limit.rate) end
  local count = type(value) == 'string' and marked_count(value)
  if not count then return nil, value end
  local left = now and redis.call('PEXPIRETIME', key) - now or redis.call('PTTL', key)
  if left <= 0 or left > limit.rate.period then return nil end
  local free = limit.capacity - count
  return free > 0 and free or 0, count, left
end

local function commit(key, limit, units, count, left, _, now)
  if not key then
    return left, 0
  elseif count > 0 then
    redis.call('INCRBY', key, units == 1 and '1' or numbers.argument(units)) -- the sum is at most 4 * 10^18 + capacity
    return left, 0
  end
  local value = units == 1 and ONE or string.format(FORMAT, units)
  if now or limit.rate.align then
    states.put(key, value, clock.ms() + left) -- an absolute expiry, because on Redis 7.0 time has passed since left was computed
  else
    redis.call('PSETEX', key, numbers.argument(left), value)
  end
  return left, 0
end

local function waits(limit, cost, count, left)
  return count > 0 and left or 0, not cost and 0 or cost > limit.capacity and -1 or left
end

local function write(key, _, at)
  local state = states.list[at]
  if state.count == 0 then return redis.call('DEL', key) end
  states.put(key, string.format(FORMAT, state.count), state.now + state.left)
end

-------------------------------------------------------------------------------------------

algorithms.fixed_window = {
  name = 'fixed_window',
  prefix = PREFIX,
  shape = '^%d+:%d+$',
  options = {
    align = function(text) return text == 'clock' and text or nil, '"clock"' end,
    zone = calendar.zone,
    from = calendar.from,
  },
  complete_rate = calendar.complete,
  probe = probe, commit = commit, waits = waits, gives_back = true,
  form = {
    load = packed.form.load, load_empty = packed.form.load_empty, load_found = packed.form.load_found, write = write, save = packed.form.save,
  },
  holds = marked_count,
  spent = function(key, from)
    return marked_count(redis.call('GETRANGE', key, from, from + 31)) or parse(packed.first_text(key, from, PREFIX)) or 0
  end,
  charge = charge, refund = refund, spare = spare, reset = reset, wait = wait, read = read, save = save,
  convert = convert,
}
