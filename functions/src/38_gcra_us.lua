-- gcra with the clock in us: TAT is in the key's value, see src/36_gcra.lua.

-- Times of 16 digits in microseconds are in the years 2001 to 2286.
local TIME = '%d%d%d%d%d%d%d%d%d%d%d%d%d%d%d%d'

-- read and save are the algorithm's functions for src/35_packed.lua.
function gcra_us.read(state, value, from, to, now, cost)
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
        debt = debt + math.min(ticks, numbers.parse_digits(part) or ticks)
      end
    end
  end
  state.now = now
  gcra.set(state, debt, cost)
  return true
end

function gcra_us.save(state)
  local ticks = state.rate.ticks
  local part = state.debt % ticks
  local us = state.now + (state.debt - part) / ticks
  if part > 0 then return string.format('%d+%d', us, part), clock.ceil_ms(us + 1) end
  return string.format('%d', us), clock.ceil_ms(us)
end

local OLD = 'leaky_bucket:' -- the prefix of leaky_bucket before 0.1.0

-- holds reports whether a value is a state of the clock in us.
function gcra_us.holds(value)
  return string.find(value, '^gcra:') ~= nil or string.sub(value, 1, #OLD) == OLD
end

-- plain returns the texts for a value that does not begin with "gcra:".
function gcra_us.plain(value, expiry)
  if string.sub(value, 1, #OLD) == OLD then return string.sub(value, #OLD + 1) end
  return string.format('%d', expiry * 1000)
end

-- left returns the ms until the first rate of a value is full. The value begins at byte `from`.
function gcra_us.left(key, from, value)
  local text = packed.first_text(key, from, string.match(value, '^[%a_]+:'))
  local us = string.match(text, '^' .. TIME)
  return us and math.max(0, clock.ceil_ms(us + (#text == 16 and 0 or 1)) - clock.ms()) or 0
end

local tats = {} -- the TAT of each rate of a call, in us; reused by the next call

-- take decides the common call without states. It covers limits in which each T is a whole number of
-- us, if the key holds nothing or the state of such a limit.
local function take(key, limit, cost)
  local value, reply = redis.pcall('GETRANGE', key, '0', '511'), decisions.reply
  local held = value ~= ''
  if cost == 0 or held and (type(value) ~= 'string' or not string.find(value, limit.shape)) then
    return decisions.take_one(key, limit, cost)
  end
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
    if debt + rate.interval > 2 * full then return decisions.take_one(key, limit, cost) end
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
  return reply
end

function gcra_us.complete(limit)
  packed.complete(limit)
  for _, rate in ipairs(limit.rates) do
    if rate.ticks > 1 or limit.algorithm.delays then return nil end
  end
  limit.take, limit.shape, limit.format, limit.first = take, '^gcra:' .. TIME .. '$', 'gcra:%d', 6
  if not limit.rate then
    limit.shape = '^gcra::' .. string.rep('16:' .. TIME, limit.size) .. '$'
    limit.format, limit.first = 'gcra::' .. string.rep('16:%d', limit.size), 10
  end
end
