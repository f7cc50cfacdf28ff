-- concurrency n lease=30s: at most n leases at a time. A lease has an id of the caller's choice, is held until it is
-- released, and lapses by the server's clock if it is not renewed in time: a caller that died keeps nobody out.
--
-- State: a sorted set, see src/28_lease_sets.lua.
--
-- A new n counts at once: leases beyond a lowered n are not taken away. A new lease time holds from the next acquire
-- or renew on; a lease that would last for longer than it (the clock was set back, the time was lowered) lapses then.

local MEMBER, BLOCK = lease_sets.MEMBER, lease_sets.BLOCK

local function digits(number)
  return string.format('%.0f', number)
end

-- score answers when a member lapses, or nil.
local function score(key, member)
  local text = redis.call('ZSCORE', key, member)
  return text and tonumber(text) or nil
end

-- blocked_for answers the ms for which the key is blocked, 0 if it is not, and whether it holds a set of leases; or nil
-- and the error for a key that holds anything else, but for a block over a state that has run out.
local function blocked_for(key, now)
  local ours, err = lease_sets.holds(key)
  if ours then
    return math.max(0, lease_sets.blocked_until(key) - now), true
  elseif ours == nil then
    return 0, false
  end
  local value = redis.pcall('GET', key)
  local untill, _, expiry = states.blocked(type(value) == 'string' and value or '')
  if untill and expiry < now then
    return math.max(0, untill - now), false
  end
  return nil, err
end

-- held answers how many leases are held at now. If all of them would last for longer than a lease does (the clock was set
-- back), they leave room for one.
local function held(key, limit, now)
  local from = '(' .. digits(now)
  local count = redis.call('ZCOUNT', key, from, '+inf')
  local far = redis.call('ZCOUNT', key, '(' .. digits(now + limit.lease), '+inf')
  local block = lease_sets.blocked_until(key)
  if block > now then
    count = count - 1
    far = block > now + limit.lease and far - 1 or far
  end
  return far > 0 and far == count and math.min(count, limit.capacity - 1) or count
end

local function answer(key, limit, now, allowed, count, retry)
  local last = redis.pcall('ZRANGE', key, -2, -1, 'WITHSCORES')
  local reset = 0
  for i = 1, last.err and 0 or #last, 2 do
    if last[i] ~= BLOCK then
      reset = math.max(reset, tonumber(last[i + 1]) - now)
    end
  end
  return { allowed, limit.capacity, math.max(0, limit.capacity - count), retry, reset, 1 }
end

-- keep stores a lease. What has lapsed goes, and what would last for longer than a lease does is cut to that.
local function keep(key, limit, member, now, is_set)
  local lapses = digits(now + limit.lease)
  if is_set then
    redis.call('ZREMRANGEBYSCORE', key, '-inf', digits(now))
    for _, far in ipairs(redis.call('ZRANGE', key, '(' .. lapses, '+inf', 'BYSCORE')) do
      if far ~= BLOCK then
        redis.call('ZADD', key, lapses, far)
      end
    end
  else
    states.forget(key)
    redis.call('DEL', key) -- a block that has run out
  end
  redis.call('ZADD', key, lapses, member)
  lease_sets.settle(key)
end

-- acquire takes a lease, or prolongs the one that this id holds: a retry does not take a second one.
local function acquire(key, limit, id)
  local now = clock.ms()
  local blocked, is_set = blocked_for(key, now)
  if not blocked then
    return is_set -- the error
  elseif blocked > 0 then
    return { 0, limit.capacity, 0, blocked, blocked, 1 }
  end
  local member = MEMBER .. id
  local lapses = is_set and score(key, member) or now
  local count = is_set and held(key, limit, now) or 0
  if lapses <= now then
    if count >= limit.capacity then
      local freeing = redis.call('ZRANGE', key, '(' .. digits(now), '+inf', 'BYSCORE', 'LIMIT',
        digits(count - limit.capacity), '1', 'WITHSCORES')
      return answer(key, limit, now, 0, count, tonumber(freeing[2]) - now)
    end
  end
  keep(key, limit, member, now, is_set)
  return answer(key, limit, now, 1, held(key, limit, now), 0)
end

-- renew prolongs a lease that is held, also while the key is blocked; a lease that has lapsed stays lost, and its
-- retry_after is -1.
local function renew(key, limit, id)
  local now = clock.ms()
  local blocked, is_set = blocked_for(key, now)
  if not blocked then
    return is_set -- the error
  end
  local member = MEMBER .. id
  local lapses = is_set and score(key, member) or now
  if lapses <= now then
    return answer(key, limit, now, 0, is_set and held(key, limit, now) or 0, -1)
  end
  keep(key, limit, member, now, true)
  return answer(key, limit, now, 1, held(key, limit, now), 0)
end

-- release gives a lease back: 1, or 0 if this id holds none any more.
local function release(key, _, id)
  local now = clock.ms()
  local blocked, is_set = blocked_for(key, now)
  if not blocked then
    return is_set -- the error
  end
  local member = MEMBER .. id
  local lapses = is_set and score(key, member) or now
  if lapses <= now then
    return 0
  end
  redis.call('ZREM', key, member)
  lease_sets.settle(key)
  return 1
end

-- parse reads "concurrency n lease=30s"; answers the limit, or nil and what is wrong.
local function parse(text)
  local count, lease = string.match(text, '^%s*concurrency%s+(%S+)%s+lease=(%S+)%s*$')
  if not count then
    return nil, 'not of the form concurrency n lease=30s'
  end
  local limit = { capacity = numbers.positive(count) }
  if not limit.capacity then
    return nil, string.format('the count %s is not ' .. numbers.WHOLE, errors.quote(count), '1')
  end
  local wrong
  limit.lease, wrong = limits.period(lease)
  return limit.lease and limit, wrong
end

algorithms.concurrency = {
  name = 'concurrency',
  leases = parse,
  holds = function()
    return false
  end,
  acquire = acquire,
  renew = renew,
  release = release,
}
