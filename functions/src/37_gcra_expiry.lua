-- This file implements gcra and leaky_bucket for one rate whose T is at least 1 ms, if its debts, in ticks of this file, are
-- at most 2^53. Read src/algorithms/gcra.lua first. The key's expiry is TAT, rounded up to a ms. Its value is "gcra", or
-- "gcra-<k>" if TAT is k ticks before the expiry,
-- with "-debt" after it for a debt that src/36_gcra_debt.lua marks. The clock is in ms.
--
-- For example, T of 6000/h is 600 ms. The first take of a key sets "gcra" with an expiry in 600 ms. If
-- the next take comes 100 ms later, PTTL is 500, which is the debt, and the take moves the expiry to 1100
-- ms from then. The value stays the same. T of 7000/h is 3600 ticks of 1/7 ms, or 514 2/7 ms. So the first
-- take sets an expiry in 515 ms, which is 3605 ticks, and the value "gcra-5".
--
-- A call with one key that probe knows needs no TIME: PTTL is the debt, and PEXPIRE and PSETEX add to the current time. Before Redis 7.2,
-- the time can advance between reading and writing. The library then sets the expiry to a time since the epoch.

local ceil = gcra_debt.ceil
local VALUE = 'gcra'

-- part_of returns the number k in a value "gcra-<k>", 0 for "gcra", and nil for any other value.
-- text_of does the reverse.
local part_of = numbers.remembered(function(value)
  local digits = value ~= VALUE and string.match(value, '^gcra%-(%d+)$')
  return value == VALUE and 0 or digits and numbers.parse_digits(digits)
end, {})
local text_of = numbers.remembered(function(part)
  return part == 0 and VALUE or string.format('gcra-%d', part)
end, {})

-- unmarked returns a value without its suffix "-debt", or nil if it has no such suffix.
local function unmarked(value) return string.match(value, '^(gcra.*)%-debt$') end

-- holds reports whether a value has the form "gcra" or "gcra-<k>", with or without the mark of a debt.
function gcra_expiry.holds(value) return part_of(value) ~= nil or part_of(unmarked(value) or '') ~= nil end

-- debt_in returns the debt in a value that expires in `left` ms, or nil if the value has a mark or if
-- this algorithm did not write it.
local function debt_in(value, left, ticks)
  local part, debt = type(value) == 'string' and part_of(value), left * ticks
  if not part then return nil end
  return part < ticks and left > 0 and debt - part or debt
end

-- value_of returns the value for a debt, and the ms until it expires.
local function value_of(rate, debt)
  local ms = ceil(debt, rate.ticks)
  return text_of(ms * rate.ticks - debt), ms
end

-- time_left returns what PTTL returns, as of the time now (ms).
local function time_left(key, now)
  local expiry = redis.call('PEXPIRETIME', key)
  return expiry < 0 and expiry or expiry > now and expiry - now or 0
end

-- probe, commit and waits decide on a key: see src/45_limits.lua. What probe returns for the other two is the debt, the key's value
-- and its PTTL. A debt above b*T may be impossible for this call, so its states are loaded.
local function probe(key, limit, _, now)
  local rate, left = limit.rate, now and time_left(key, now) or redis.call('PTTL', key)
  if left == -2 then return rate.capacity, 0 end
  local value, ticks = redis.pcall('GETRANGE', key, '0', '127'), rate.ticks
  local debt = value == VALUE and left * ticks or debt_in(value, left, ticks)
  if left == 0 then value = nil end -- the key expires in the current ms: commit writes it again
  if not debt then return nil, value, left end
  local interval, room = rate.interval, rate.full - debt
  if room < 0 or debt < 0 then return nil end -- below 0: the key has no expiry
  return (room - room % interval) / interval, debt, value, left
end

-- commit sets only the expiry if the value does not change. value is nil if the key is written anew. left is the key's
-- PTTL, read earlier in the call. Before Redis 7.2, time has passed since then, and a key whose value is not nil gets an expiry that
-- is the new debt after the time at which left was read: now (ms) or, if now is nil, the key's expiry minus left.
local function commit(key, limit, units, debt, value, left, now)
  local rate = limit.rate
  local ms, text = debt + units * rate.interval, VALUE -- in ticks, until value_of converts them
  if rate.ticks > 1 then text, ms = value_of(rate, ms) end
  if not key then
    return ms, limit.delays and ceil(debt, rate.ticks) or 0
  elseif CLOCK_STANDS and text == value then
    redis.call('PEXPIRE', key, ms)
  elseif CLOCK_STANDS or not value then
    -- SET would waste memory: Redis would keep the argument's buffer, which can be longer than the value.
    redis.call('PSETEX', key, numbers.argument(ms), text)
  else
    local expiry = string.format('%d', ms + (now or redis.call('PEXPIRETIME', key) - left))
    if text == value then
      redis.call('PEXPIREAT', key, expiry)
    else
      redis.call('SET', key, text, 'PXAT', expiry)
    end
  end
  return ms, limit.delays and ceil(debt, rate.ticks) or 0
end

local function waits(limit, cost, debt)
  local rate = limit.rate
  local ticks, wait = rate.ticks, 0
  if cost then wait = cost > rate.capacity and -1 or ceil(debt + cost * rate.interval - rate.full, ticks) end
  return ceil(debt, ticks), wait
end

-- fill_in creates the state of a rate with this debt. For forced, see gcra_debt.set; for value and now,
-- see commit.
local function fill_in(at, rate, debt, value, cost, now, forced)
  local state = states.new(at, rate)
  if not gcra_debt.set(state, debt, cost, forced) then value = nil end
  state.value, state.now = value, now
end

local function load_empty(limit, at) fill_in(at, limit.rate, 0, nil, 1) end

-- load_found loads a state of this file or of src/38_gcra_value.lua. If the key holds nothing else, commit can keep
-- the value, and needs the exact time that is left.
local function load_found(key, limit, at, cost, found)
  local ticks, value, left = limit.rate.ticks, found.value or redis.call('GETRANGE', key, found.from, found.from + 31), found.left
  local now = found.from == 0 and clock.ms() or nil
  if now then left = time_left(key, now) end
  local debt, forced = debt_in(value, left, ticks), false
  local kept = debt and now and left > 0 and value or nil
  if not debt then
    debt, forced = debt_in(unmarked(value), left, ticks), true
  end
  if not debt then
    debt, forced = gcra_value.left(key, found.from)
    debt = debt * ticks
  end
  fill_in(at, limit.rate, debt, kept, cost, now, forced)
end

local function save(limit, at)
  local state = states.list[at]
  local text, ms = value_of(limit.rate, state.debt)
  if ms == 0 then return { '' }, 0 end
  return { text, gcra_debt.marked(state) and gcra_debt.MARK or nil }, clock.ms() + ms
end

local function write(key, limit, at)
  local state = states.list[at]
  if state.debt == 0 then
    redis.call('DEL', key)
  elseif gcra_debt.marked(state) then
    states.put_parts(key, save(limit, at))
  else
    commit(key, limit, 0, state.debt, state.value, nil, state.now) -- if there is a value, there is now, and no need of left
  end
end

local form = { load = states.load_other, load_empty = load_empty, load_found = load_found, write = write, save = save }
gcra_expiry.form = form

-- behind and commit_behind are probe and commit for a state that comes after an override or a block in the key's value. behind
-- returns how many units fit, and the debt, or nil if the debt has a mark or is above b*T, or if another algorithm wrote the state.
-- left is the time in ms until the state expires. The value that commit_behind writes has the state's expiry between `before` and
-- `after`; the key expires at `least` (ms since the epoch) or, if it is later, with the state.
function gcra_expiry.behind(limit, state, left)
  local rate = limit.rate
  local debt = state == '' and 0 or debt_in(state, left > 0 and left or 0, rate.ticks)
  if not debt or debt > rate.full then return nil end
  local room = rate.full - debt
  return (room - room % rate.interval) / rate.interval, debt
end

function gcra_expiry.commit_behind(key, limit, units, debt, least, before, after)
  local rate = limit.rate
  local state, ms = value_of(rate, debt + units * rate.interval)
  local expiry = clock.ms() + ms
  states.put(key, string.format('%s%d%s%s', before, expiry, after, state), least > expiry and least or expiry)
  return ms, limit.delays and ceil(debt, rate.ticks) or 0
end

-- complete completes a limit that stores its states in this way.
function gcra_expiry.complete(limit)
  limit.form, limit.probe, limit.commit, limit.waits, limit.gives_back, limit.delays = form, probe, commit, waits, true, limit.algorithm.delays
end
