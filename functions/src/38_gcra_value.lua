-- This file implements gcra and leaky_bucket for several rates, or for T below 1 ms. Read
-- src/algorithms/gcra.lua first. The key's value contains the TAT. The clock is in us.
--
-- For example, "gcra:1700000000600000" is the value of one rate, and "gcra::16:170000000060000016:1700000001200000"
-- that of two: 16 is the length of each TAT. If T is not a whole number of us, the value has "+<k>" after the
-- TAT in us, and the TAT is k ticks later. The key expires when the last rate is full.

-- Times in microseconds have 16 digits in the years 2001 to 2286.
local TIME = '%d%d%d%d%d%d%d%d%d%d%d%d%d%d%d%d'
local TEXT = '^(' .. TIME .. ')(%+?)(%d*)(.*)$'
local MARK = gcra_debt.MARK

gcra_value.SHAPE = '^' .. TIME .. '%+?%d*%-?d?e?b?t?$' -- with or without the mark

-- read and save are the algorithm's functions for src/35_packed.lua. The rate is full if TAT has passed. k is at most one us,
-- even if another limit with smaller ticks has written it.
function gcra_value.read(state, text, now, cost)
  local debt, ticks, mark = 0, state.rate.ticks, ''
  if text ~= '' then
    local us, plus, part
    us, plus, part, mark = string.match(text, TEXT)
    if not us or (plus == '') ~= (part == '') or mark ~= '' and mark ~= MARK then return false end
    if us - now >= 0 then debt = (us - now) * ticks + (part ~= '' and math.min(ticks, numbers.parse_digits(part) or ticks) or 0) end
  end
  state.now = now
  gcra_debt.set(state, debt, cost, mark ~= '')
  return true
end

function gcra_value.save(state)
  local ticks = state.rate.ticks
  local part = state.debt % ticks
  local us, mark = state.now + (state.debt - part) / ticks, gcra_debt.marked(state) and MARK or ''
  if part > 0 then return string.format('%d+%d', us, part) .. mark, clock.ceil_ms(us + 1) end
  return string.format('%d', us) .. mark, clock.ceil_ms(us)
end

-- convert implements the function convert of src/35_packed.lua, for the values of
-- src/37_gcra_expiry.lua. The TAT becomes the key's expiry: without k, it is
-- rounded up to a ms.
function gcra_value.convert(value, expiry)
  return string.format('%d', expiry * 1000) .. (string.match(value, '%-debt$') or '')
end

-- left returns the time in ms until the first rate of a value is full, and whether the rate has a marked
-- debt. The value begins at byte `from`.
function gcra_value.left(key, from)
  local text = packed.first_text(key, from, 'gcra:')
  local us, plus, _, mark = string.match(text, TEXT)
  if not us then return 0, false end -- the first rate is full
  return math.max(0, clock.ceil_ms(us + (plus == '' and 0 or 1)) - clock.ms()), mark == MARK
end

local tats_of = {} -- for each key of a call, the TAT of each rate in us; reused by the next call

-- probe, commit and waits decide on a key (see src/45_limits.lua) for a limit in which each T is a whole number of
-- us: a tick is then 1 us. What probe returns for the other two is the TATs, in us since the epoch, and the position of the rate with the fewest units,
-- which is the binding one. A TAT that has passed counts as now. A TAT more than b*T after now may be impossible for this call,
-- so the key's states are loaded. The limit's pattern (shape) fits only values without "+<k>" and "-debt", so each TAT has a
-- fixed position in the value.
local function probe(key, limit, _, _, number)
  local value = redis.pcall('GETRANGE', key, '0', '511')
  local held = value ~= ''
  if held and (type(value) ~= 'string' or not string.find(value, limit.shape)) then return nil, value end
  local now, rates, at, tats = clock.us(), limit.rates, limit.first, tats_of[number or 1]
  if not tats then
    tats = {}
    tats_of[number or 1] = tats
  end
  local least, binding = numbers.MOST, 1
  for i = 1, limit.size do
    local rate, tat = rates[i], now
    if held then
      tat = string.sub(value, at, at + 15) + 0
      at = at + 19 -- 16 digits, then "16:" before the next time
      if tat < now then tat = now end
    end
    tats[i] = tat
    local interval, room = rate.interval, rate.full - tat + now
    if room < 0 then return nil end
    local free = (room - room % interval) / interval
    if free < least then least, binding = free, i end
  end
  return least, tats, binding
end

local function commit(key, limit, units, tats, binding)
  local rates, size, last = limit.rates, limit.size, 0
  for i = 1, size do
    local tat = tats[i] + units * rates[i].interval
    tats[i] = tat -- the new times, so waits cannot be called after commit
    if tat > last then last = tat end
  end
  if key then states.put(key, string.format(limit.format, unpack(tats, 1, size)), clock.ceil_ms(last)) end
  return clock.ceil_ms(last - clock.us()), 0, rates[binding].capacity
end

local function waits(limit, cost, tats, binding)
  local now, rates, last, wait, first = clock.us(), limit.rates, 0, 0, nil
  for i = 1, limit.size do
    local rate, tat = rates[i], tats[i]
    if tat > last then last = tat end
    local over = cost and tat + cost * rate.interval - now - rate.full or 0
    if over > 0 then
      first = first or i
      if cost > rate.capacity then wait = -1 end
      if wait >= 0 and over > wait then wait = over end
    end
  end
  return clock.ceil_ms(last - now), wait < 0 and -1 or clock.ceil_ms(wait), rates[first or binding].capacity
end

-- complete sets the fields with which probe decides on a limit, unless the algorithm delays calls or a rate counts in
-- parts of a us.
function gcra_value.complete(limit)
  for _, rate in ipairs(limit.rates) do
    if rate.ticks > 1 or limit.algorithm.delays then return nil end
  end
  limit.probe, limit.commit, limit.waits, limit.gives_back = probe, commit, waits, limit.rate ~= nil -- of several rates, one may be too full to be given units back
  limit.shape, limit.format, limit.first = '^gcra:' .. TIME .. '$', 'gcra:%d', 6
  if not limit.rate then
    limit.shape = '^gcra::' .. string.rep('16:' .. TIME, limit.size) .. '$'
    limit.format, limit.first = 'gcra::' .. string.rep('16:%d', limit.size), 10
  end
end
