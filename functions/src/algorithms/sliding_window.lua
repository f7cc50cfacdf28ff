-- sliding_window: n per sliding window, estimated from buckets=k counters a window (default 1). The buckets begin at
-- whole multiples of their width w = period/k since the epoch. What counts are the bucket of now, the k-1 before it, and
-- of the one before those the part that the window still covers; with k = 1 this is the two-counter estimate. Under
-- steady traffic the error shrinks with k, and memory grows with it: k+1 small numbers. The worst case does not shrink: n
-- units at the end of a bucket, and as many as fit at the end of the k-th after it, are almost 2n within one period.
--
-- State: "sliding_window:<w in ms>:<number of the newest bucket>:<its count>,<the one before>,...". The key expires
-- when the last count has left the window. Time in whole milliseconds.
--
-- A new n counts at once. Counters of another width (another period or k) count from where their bucket begins. If the
-- state was written in the future (the clock was set back), what it adds up to leaves room for just this call.

local MOST_BUCKETS = 1000

-- parse answers width, newest and the counts, counts[0] the newest; or nil.
local function parse(text)
  local width, newest, first, second, list = string.match(text, '^(%d+):(%d+):(%d+),?(%d*)([%d,]*)$')
  width, newest = numbers.whole(width or ''), numbers.whole(newest or '')
  if not width or width == 0 or not newest then
    return nil
  end
  local counts, at = { [0] = numbers.whole(first) }, 1
  if second ~= '' then
    counts[1], at = numbers.whole(second), 2
  end
  for digits in string.gmatch(list, '%d+') do
    counts[at] = numbers.whole(digits)
    if not counts[at] then
      return nil
    end
    at = at + 1
  end
  if not counts[0] or (at > 1 and not counts[1]) then
    return nil
  end
  return width, newest, counts, at
end

-- read answers the counts by their distance from the bucket of now: counts[0] now's, up to counts[k]; or nil.
local function read(text, now, rate, cost)
  local counts = {}
  for i = 0, rate.buckets do
    counts[i] = 0
  end
  if text == '' then
    return counts
  end
  local width, newest, found, many = parse(text)
  if not width then
    return nil
  end
  local current = math.floor(now / rate.width)
  if newest * width > now then
    local sum = 0
    for i = 0, many - 1 do
      sum = sum + found[i]
    end
    counts[0] = math.min(sum, states.leaves_room(rate.capacity, cost))
    return counts
  end
  for i = 0, many - 1 do
    local at = current - (width == rate.width and newest - i or math.floor((newest - i) * width / rate.width))
    if at <= rate.buckets then
      counts[at] = counts[at] + found[i]
    end
  end
  return counts
end

-- text_of writes the counts, without the empty ones at the end.
local function text_of(counts, current, rate)
  local last = rate.buckets
  while counts[last] == 0 and last > 0 do
    last = last - 1
  end
  if last < 2 then
    return string.format(last == 0 and '%.0f:%.0f:%.0f' or '%.0f:%.0f:%.0f,%.0f', rate.width, current, counts[0], counts[1])
  end
  local list = {}
  for i = 0, last do
    list[i + 1] = string.format('%.0f', counts[i])
  end
  return string.format('%.0f:%.0f:', rate.width, current) .. table.concat(list, ',')
end

-- full_buckets adds up the counters that count whole.
local function full_buckets(counts, rate)
  local sum = 0
  for i = 0, rate.buckets - 1 do
    sum = sum + counts[i]
  end
  return sum
end

-- remaining and reset of the counts, `into` ms into the bucket of now.
local function standing(counts, into, rate)
  local oldest = counts[rate.buckets]
  local estimate = full_buckets(counts, rate) + math.ceil(oldest * (rate.width - into) / rate.width)
  local reset = 0
  for i = 0, rate.buckets do
    if counts[i] > 0 then
      reset = (rate.buckets + 1 - i) * rate.width - into
      break
    end
  end
  return math.max(0, rate.capacity - estimate), reset
end

-- wait answers the ms until the estimate leaves room for cost, if nothing else is taken.
local function wait(counts, into, rate, cost)
  local width = rate.width
  local room = rate.capacity - cost - full_buckets(counts, rate)
  for shift = 0, rate.buckets do
    local oldest = counts[rate.buckets - shift]
    if room >= 0 then
      local needed = oldest > room and math.ceil((oldest - room) * width / oldest) or 0
      if needed < width then
        return shift * width + needed - into
      end
    end
    room = room + (counts[rate.buckets - 1 - shift] or 0)
  end
  return (rate.buckets + 1) * width - into
end

local function fits(counts, into, rate, cost)
  local room = rate.capacity - cost - full_buckets(counts, rate)
  return room >= 0 and counts[rate.buckets] * (rate.width - into) <= room * rate.width
end

local function step(text, now_us, rate, cost)
  local now = math.floor(now_us / 1000)
  local counts = read(text, now, rate, cost)
  if not counts then
    return nil
  end
  local current = math.floor(now / rate.width)
  local into = now - current * rate.width
  if cost == 0 then
    local remaining, reset = standing(counts, into, rate)
    return true, remaining, 0, reset
  elseif not fits(counts, into, rate, cost) then
    local remaining, reset = standing(counts, into, rate)
    return false, remaining, cost > rate.capacity and -1 or wait(counts, into, rate, cost), reset
  end
  counts[0] = counts[0] + cost
  local remaining, reset = standing(counts, into, rate)
  return true, remaining, 0, reset, text_of(counts, current, rate), now + reset
end

-- give takes back from the newest counters first.
local function give(text, now_us, rate, cost)
  local now = math.floor(now_us / 1000)
  local counts = read(text, now, rate, 1)
  if not counts then
    return nil
  end
  for i = 0, rate.buckets do
    local back = math.min(cost, counts[i])
    counts[i], cost = counts[i] - back, cost - back
  end
  local current = math.floor(now / rate.width)
  local remaining, reset = standing(counts, now - current * rate.width, rate)
  return true, remaining, 0, reset, reset > 0 and text_of(counts, current, rate) or '', now + reset
end

local function spend(now_us, rate, units)
  return string.format('%.0f:%.0f:%.0f', rate.width, math.floor(now_us / 1000 / rate.width), units)
end

local function spent(value)
  local width, _, counts, many = parse(packed.first(value, algorithms.sliding_window))
  local sum = 0
  for i = 0, width and many - 1 or -1 do
    sum = sum + counts[i]
  end
  return sum
end

local function complete_rate(rate)
  rate.capacity = rate.count
  rate.buckets = rate.buckets or 1
  rate.width = rate.period / rate.buckets
  if rate.buckets > MOST_BUCKETS then
    return string.format('buckets=%.0f is above %.0f', rate.buckets, MOST_BUCKETS)
  elseif rate.width % 1 ~= 0 then
    return string.format('buckets=%.0f does not divide the period into whole milliseconds', rate.buckets)
  end
end

algorithms.sliding_window = {
  name = 'sliding_window',
  prefix = 'sliding_window:',
  options = { buckets = numbers.positive_option },
  rate = complete_rate,
  limit = packed.complete,
  holds = packed.prefixed('sliding_window:'),
  step = step,
  give = give,
  spent = spent,
  spend = spend,
}
