-- sliding_window: n per sliding window, estimated from buckets=k counters per window (default 1).
-- Buckets begin at whole multiples of their width w = period/k since the epoch. The current bucket
-- and the k-1 before it count fully. The next older bucket counts for the part that the window
-- still covers. With k = 1 this is the two-counter estimate. As k grows, the error under steady
-- traffic shrinks, and memory grows: k+1 small numbers. The worst case does not shrink: n units at
-- the end of a bucket, and as many as fit at the end of the k-th bucket after it, add up to almost
-- 2n within one period.
--
-- State: "sliding_window:<w in ms>:<number of the newest bucket>:<its count>,<the one before>,...".
-- The key expires when the last count has left the window. Times are in whole milliseconds.
--
-- A new n takes effect at once. A count from a bucket of another width (another period or k) is
-- added to the bucket in which the old bucket begins. If the state was written in the future (the
-- clock was set back), the sum of its counts becomes the count of the current bucket, lowered if
-- necessary to leave room for this call.
--
-- Sums of counts are capped at 2^53, because counts that other limits stored may add up to more.
--
-- A state's counts are indexed by their distance from the current bucket: counts[0] is the current
-- one, and counts[k] the oldest that counts.

local PREFIX = 'sliding_window:'
local MOST_BUCKETS = 1000
local STATE = '^(%d+):(%d+):(%d[%d,]*)$'
local TWO_COUNTS = '^sliding_window:(%d+):(%d+):(%d+),?(%d*)$'

-- units_left returns how many more units can be taken if the limit's capacity is `capacity`.
local function units_left(state, capacity)
  local rate, counts, sum = state.rate, state.counts, 0
  local last, width = rate.buckets, rate.width
  for i = 0, last - 1 do
    sum = sum + counts[i]
  end
  return math.max(0, capacity - sum - math.ceil(counts[last] * (width - state.into) / width))
end

local function set(state) state.free = units_left(state, state.rate.capacity) end

local function spare(state) return units_left(state, states.most_owed(state.rate.capacity)) end

local function reset(state)
  local counts, last = state.counts, state.rate.buckets
  for i = 0, last do
    if counts[i] > 0 then return (last + 1 - i) * state.rate.width - state.into end
  end
  return 0
end

-- place parses a stored text and adds each count to the bucket for its time. It returns false if the
-- text is not a state, or false and the error if the state is too large.
local function place(state, text, now, cost)
  local rate, counts = state.rate, state.counts
  local width, bucket, list = string.match(text, STATE)
  width, bucket = numbers.parse_digits(width), numbers.parse_digits(bucket)
  if not width or width == 0 or not bucket then return false end
  local err = states.too_much('buckets', 0)
  if err then return false, err end
  local ahead, newest, sum = bucket * width > now, bucket, 0
  for digits in string.gmatch(list, '%d+') do
    local count = numbers.parse_digits(digits)
    if not count then return false end
    local at = state.current - (width == rate.width and bucket or math.floor(bucket * width / rate.width))
    if at <= rate.buckets and not ahead then
      local all = counts[at] + count
      counts[at] = all < numbers.MOST and all or numbers.MOST
    end
    sum = sum + count
    bucket = bucket - 1
  end
  states.too_much('buckets', newest - bucket)
  if ahead then counts[0] = math.min(sum, states.most_spent(state, cost)) end
  return true
end

local function read(state, text, now_us, cost)
  local rate = state.rate
  local now = (now_us - now_us % 1000) / 1000
  state.counts = state.counts or {}
  for i = 0, rate.buckets do
    state.counts[i] = 0
  end
  state.now, state.into = now, now % rate.width
  state.current = (now - state.into) / rate.width
  if text ~= '' then
    local readable, err = place(state, text, now, cost)
    if not readable then return false, err end
  end
  set(state)
  return true
end

local function charge(state, units)
  state.counts[0] = state.counts[0] + units
  state.free = state.free - units
  state.reset = reset(state)
end

-- refund gives back units from the newest counters first.
local function refund(state, units)
  local counts = state.counts
  for i = 0, state.rate.buckets do
    local back = math.min(units, counts[i])
    counts[i] = counts[i] - back
    units = units - back
  end
  set(state)
  state.reset = reset(state)
end

-- wait returns the ms until a denied call fits. It subtracts the counts of the buckets from the
-- room, newest first, and stops at the first bucket that does not fit. The call fits when enough of
-- this bucket has left the window.
local function wait(state, cost)
  local rate, counts = state.rate, state.counts
  local width, room, at = rate.width, rate.capacity - cost, 0
  while at < rate.buckets and counts[at] <= room do
    room = room - counts[at]
    at = at + 1
  end
  return (rate.buckets - at) * width + math.ceil((counts[at] - room) * width / counts[at]) - state.into
end

-- save returns the counts as a text, without empty counts at the end.
local function save(state)
  local counts, last, list = state.counts, state.rate.buckets, {}
  while counts[last] == 0 and last > 0 do
    last = last - 1
  end
  for i = 0, last do
    list[i + 1] = string.format('%d', counts[i])
  end
  return string.format('%d:%d:', state.rate.width, state.current) .. table.concat(list, ','), state.now + state.reset
end

-- probe, commit and waits decide on a key: see src/45_limits.lua. What probe returns for the other two is the counts of the current bucket and
-- of the one before it, and the ms since the current bucket began. If the rate has several buckets, or the key holds
-- another kind of state, the states are loaded.
local function probe(key, limit)
  local rate = limit.rate
  if rate.buckets > 1 then return nil end
  local value, now, width, count, before = redis.pcall('GETRANGE', key, '0', '511'), clock.ms(), rate.width, 0, 0
  local into = now % width
  if value ~= '' then
    local stored, bucket, newest, older = string.match(type(value) == 'string' and value or '', TWO_COUNTS)
    local current = (now - into) / width
    local age = current - (tonumber(bucket) or current + 1)
    newest, older = numbers.parse_digits(newest), older == '' and 0 or numbers.parse_digits(older)
    if tonumber(stored) ~= width or age < 0 or not newest or not older then return nil, value end
    if age == 0 then
      count, before = newest, older
    elseif age == 1 then
      before = newest
    end
  end
  local free = rate.capacity - count - math.ceil(before * (width - into) / width)
  return free > 0 and free or 0, count, before, into
end

local function commit(key, limit, units, count, before, into)
  local width, now = limit.rate.width, clock.ms()
  local full = 2 * width - into
  if key then
    local text = before > 0 and 'sliding_window:%d:%d:%d,%d' or 'sliding_window:%d:%d:%d'
    states.put(key, string.format(text, width, (now - into) / width, count + units, before), now + full)
  end
  return full, 0
end

local denied = { counts = {} } -- the state that waits passes to wait(); reused

local function waits(limit, cost, count, before, into)
  local rate, ms = limit.rate, 0
  local full = 2 * rate.width - into
  if cost and cost <= rate.capacity then
    denied.rate, denied.into, denied.counts[0], denied.counts[1] = rate, into, count, before
    ms = wait(denied, cost)
  end
  return count > 0 and full or before > 0 and full - rate.width or 0, cost and cost > rate.capacity and -1 or ms
end

local function spent(key, from)
  local counts = string.match(packed.first_text(key, from, PREFIX), '^%d+:%d+:([%d,]+)$')
  local sum, size = 0, 0
  for digits in string.gmatch(counts or '', '%d+') do
    sum = sum + digits
    size = size + 1
  end
  return sum, states.too_much('buckets', size)
end

local function complete_rate(rate)
  rate.buckets = rate.buckets or 1
  rate.width = rate.period / rate.buckets
  if rate.buckets > MOST_BUCKETS then
    return string.format('buckets=%d is above %d', rate.buckets, MOST_BUCKETS)
  elseif rate.width % 1 ~= 0 then
    return string.format('buckets=%d does not divide the period into whole milliseconds', rate.buckets)
  end
end

algorithms.sliding_window = {
  name = 'sliding_window',
  prefix = PREFIX,
  shape = STATE,
  options = { buckets = numbers.positive_option },
  most = { field = 'buckets', sum = 3000, what = 'buckets', advice = '' },
  complete_rate = complete_rate,
  probe = probe, commit = commit, waits = waits,
  spent = spent,
  charge = charge, refund = refund, spare = spare, reset = reset, wait = wait, read = read, save = save,
}
