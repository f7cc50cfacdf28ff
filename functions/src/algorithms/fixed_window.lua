-- fixed_window: n per window. A window opens at the first take, or with align=clock at whole multiples of the period
-- since the epoch (UTC), and ends one period later.
--
-- State: the value is the count, a plain integer; the key expires at the end of the window.
--
-- A new n counts at once against what the open window has counted. A new period or align takes effect when the window
-- ends, but a window that would stay open for longer than the period (the period was lowered, or the clock was set
-- back) is over: the next take opens a new one.

local function holds(value)
  return string.find(value, '^%d+$') ~= nil
end

local function spent(value)
  return numbers.whole(value) or 0
end

-- read answers the count, the ms left of the window (0: none is open), and, if another algorithm left the state, for
-- how many ms that counts; or nil and the error.
local function read(key, limit, cost)
  local value = redis.pcall('GET', key)
  if not value then
    return 0, 0
  end
  local count = type(value) == 'string' and numbers.whole(value)
  if not count then
    local left
    count, left = states.elsewhere(key, value, limit, cost)
    if not count then
      return nil, left
    end
    return count, 0, left
  end
  local left = redis.call('PTTL', key)
  if left < 0 then
    return nil, states.missing_expiry(key)
  elseif left == 0 or left > limit.period then
    return 0, 0
  end
  return count, left
end

-- opening answers the length in ms of a window that opens now.
local function opening(limit)
  if not limit.align then
    return limit.period
  end
  local time = redis.call('TIME')
  local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
  return limit.period - now % limit.period
end

local function decide(key, limit, cost)
  local count, left, elsewhere = read(key, limit, cost)
  if not count then
    return nil, left
  end
  local length = left == 0 and opening(limit) or nil
  left = length or left
  local after = count + cost
  if after > limit.capacity and cost > 0 then
    local until_free = elsewhere or (count > 0 and left or 0)
    return false, math.max(0, limit.capacity - count), cost > limit.capacity and -1 or until_free, until_free
  end
  return true, math.max(0, limit.capacity - after), 0, after > 0 and left or 0, after, length
end

local function write(key, _, cost, count, length)
  if length then
    redis.call('SET', key, string.format('%.0f', count), 'PX', length)
  else
    redis.call('INCRBY', key, string.format('%.0f', cost))
  end
end

local function compile(limit)
  limit.capacity = limit.count
  limit.decide, limit.write = decide, write
end

local function clock(text)
  return text == 'clock' and text or nil, '"clock"'
end

algorithms.fixed_window = {
  name = 'fixed_window',
  options = { align = clock },
  compile = compile,
  holds = holds,
  spent = spent,
}
