-- This file implements gcra and leaky_bucket for several rates, or for T below 1 ms. Read
-- src/algorithms/gcra.lua first. The key's value contains the TAT. The clock is in us.

-- Times in microseconds have 16 digits in the years 2001 to 2286.
local TIME = '%d%d%d%d%d%d%d%d%d%d%d%d%d%d%d%d'
local TEXT = '^(' .. TIME .. ')(%+?)(%d*)(.*)$'
local MARK = gcra_debt.MARK

gcra_value.SHAPE = '^' .. TIME .. '%+?%d*%-?d?e?b?t?$' -- with or without the mark

-- read and save are the algorithm's functions for src/35_packed.lua.
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
-- src/37_gcra_expiry.lua. The TAT is the key's expiry.
function gcra_value.convert(value, expiry)
  return string.format('%d', expiry * 1000) .. (string.match(value, '%-debt$') or '')
end

-- left returns the time in ms until the first rate of a value is full, and whether the rate has a marked
-- debt. The value begins at byte `from`.
function gcra_value.left(key, from)
  local text = packed.first_text(key, from, 'gcra:')
  local us, plus, _, mark = string.match(text, TEXT)
  if not us then return 0, false end
  return math.max(0, clock.ceil_ms(us + (plus == '' and 0 or 1)) - clock.ms()), mark == MARK
end

local tats = {} -- the TAT of each rate of a call, in us; reused by the next call

-- decide implements limit.decide (see src/45_limits.lua) for a limit in which each T is a whole
-- number of us. If the cost is 0, or the key holds anything that such a limit cannot have stored,
-- it calls decisions.one_key instead.
local function decide(key, limit, cost)
  local value = redis.pcall('GETRANGE', key, '0', '511')
  local held = value ~= ''
  if cost == 0 or held and (type(value) ~= 'string' or not string.find(value, limit.shape)) then
    return decisions.one_key(key, limit, cost, value)
  end
  local now, rates, size, at = clock.us(), limit.rates, limit.size, limit.first
  local binding, retry = 0, 0
  for i = 1, size do
    local rate, tat = rates[i], now
    if held then
      tat = string.sub(value, at, at + 15) + 0
      at = at + 19 -- 16 digits, then "16:" before the next time
      if tat < now then tat = now end
    end
    local debt, full, most = tat - now, rate.full, rate.full - cost * rate.interval
    tats[i] = tat
    if debt > most then
      local ms = -1
      if cost <= rate.capacity then ms = clock.ceil_ms(debt - most) else most = full - rate.interval end
      if debt - full > most then return decisions.one_key(key, limit, cost) end
      if binding == 0 then binding = i end
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
  if allowed then states.put(key, string.format(limit.format, unpack(tats, 1, size)), clock.ceil_ms(last)) end
  return decisions.answer(allowed and 1 or 0, rates[binding].capacity, least, retry, clock.ceil_ms(last - now))
end

-- complete sets the limit's fields decide, shape, format and first, unless the algorithm delays
-- calls or a rate counts in parts of a us.
function gcra_value.complete(limit)
  for _, rate in ipairs(limit.rates) do
    if rate.ticks > 1 or limit.algorithm.delays then return nil end
  end
  limit.decide, limit.shape, limit.format, limit.first = decide, '^gcra:' .. TIME .. '$', 'gcra:%d', 6
  if not limit.rate then
    limit.shape = '^gcra::' .. string.rep('16:' .. TIME, limit.size) .. '$'
    limit.format, limit.first = 'gcra::' .. string.rep('16:%d', limit.size), 10
  end
end
