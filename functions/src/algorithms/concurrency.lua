-- concurrency n lease=30s: at most n leases at a time. A lease has an id of the caller's choice, is held until it is
-- released, and lapses by the server's clock if it is not renewed in time: a caller that died keeps nobody out.
--
-- State: a sorted set, see src/28_lease_sets.lua.
--
-- A new n counts at once: leases beyond a lowered n are not taken away. A new lease time holds from the next acquire
-- or renew on; a lease that would last for longer than it (the clock was set back, the time was lowered) lapses then.

local MEMBER, BLOCK = lease_sets.MEMBER, lease_sets.BLOCK
local MOST = 5000 -- leases

-- What a call has read of a key.
--   now      ms since the epoch
--   last     when the last member lapses; 0: the key holds no set
--   lapses   when the lease of this id lapses, 0 if it holds none
--   blocked  ms for which the key is blocked, 0 if it is not
--   string   whether it holds a block with nothing left under it
local held = {}

-- read fills in held. Returns the error, or nil.
local function read(key, id)
  local now = clock.ms()
  local last, err = lease_sets.last(key)
  held.now, held.last, held.lapses, held.blocked, held.string = now, last, 0, 0, false
  if last == 0 then
    return nil
  elseif last then
    local scores = redis.call('ZMSCORE', key, MEMBER .. id, BLOCK)
    held.lapses = tonumber(scores[1] or 0)
    held.blocked = math.max(0, (scores[2] or 0) - now)
    return held.blocked % 1 ~= 0 and lease_sets.unusable(key) or nil
  end
  local found = states.look(key)
  if not found or found.request or found.left >= 0 then return err end
  held.last, held.blocked, held.string = 0, found.blocked, true
  return nil
end

-- count returns how many leases are held, and how many count for a limit: if all of them would last for longer than a
-- lease does (the clock was set back), they leave room for one.
local function count(key, limit)
  if held.last <= held.now then return 0, 0 end
  local now, blocked = held.now, held.blocked > 0 and 1 or 0
  local all = redis.call('ZCOUNT', key, string.format('(%d', now), '+inf') - blocked
  local latest = now + limit.lease
  if held.last <= latest then return all, all end
  local far = redis.call('ZCOUNT', key, string.format('(%d', latest), '+inf')
  if held.blocked > limit.lease then
    far = far - 1
  end
  return all, far > 0 and far == all and math.min(all, limit.capacity - 1) or all
end

-- cut lets what would last for longer than a lease does lapse at ms.
local function cut(key, ms)
  local far = redis.call('ZRANGE', key, string.format('(%d', ms), '+inf', 'BYSCORE')
  local words = {}
  for _, member in ipairs(far) do
    if member ~= BLOCK then
      words[#words + 1] = ms
      words[#words + 1] = member
    end
  end
  for from = 1, #words, 2000 do
    redis.call('ZADD', key, unpack(words, from, math.min(from + 1999, #words)))
  end
end

-- keep stores a lease, and takes away what has lapsed. Returns the reply.
local function keep(key, limit, id, others)
  local now, lapses = held.now, held.now + limit.lease
  if held.last == 0 then
    states.forget(key)
    if held.string then
      redis.call('DEL', key)
    end
  else
    redis.call('ZREMRANGEBYSCORE', key, '-inf', now)
    if held.last > lapses then
      cut(key, lapses)
    end
  end
  redis.call('ZADD', key, lapses, MEMBER .. id)
  redis.call('PEXPIREAT', key, math.max(lapses, now + held.blocked))
  return { 1, limit.capacity, math.max(0, limit.capacity - others - 1), 0, limit.lease, 1 }
end

-- refuse returns the reply to a call that gets no lease. counted: how many leases count.
local function refuse(key, limit, counted, retry)
  local last = held.last
  if held.blocked > 0 and last > 0 then
    last = 0
    local two = redis.call('ZRANGE', key, '-2', '-1', 'WITHSCORES')
    for i = 1, #two, 2 do
      if two[i] ~= BLOCK then
        last = tonumber(two[i + 1])
      end
    end
  end
  return { 0, limit.capacity, math.max(0, limit.capacity - counted), retry, math.max(0, last - held.now), 1 }
end

-- acquire takes a lease, or prolongs the one that this id holds: a retry does not take a second one.
local function acquire(key, limit, id)
  local err = read(key, id)
  if err then
    return err
  elseif held.blocked > 0 then
    return { 0, limit.capacity, 0, held.blocked, held.blocked, 1 }
  end
  local all, counted = count(key, limit)
  if held.lapses > held.now then
    return keep(key, limit, id, all - 1)
  elseif counted < limit.capacity then
    return keep(key, limit, id, all)
  end
  local freeing = redis.call('ZRANGE', key, string.format('(%d', held.now), '+inf', 'BYSCORE', 'LIMIT', counted - limit.capacity, '1',
    'WITHSCORES')
  return refuse(key, limit, counted, math.ceil(freeing[2] - held.now))
end

-- renew prolongs a lease that is held, also while the key is blocked; a lease that has lapsed stays lost, and its
-- retry_after is -1.
local function renew(key, limit, id)
  local err = read(key, id)
  if err then return err end
  local all, counted = count(key, limit)
  if held.lapses > held.now then return keep(key, limit, id, all - 1) end
  return refuse(key, limit, counted, -1)
end

-- release gives a lease back: 1, or 0 if this id holds none any more.
local function release(key, _, id)
  local err = read(key, id)
  if err then
    return err
  elseif held.lapses <= held.now then
    return 0
  end
  redis.call('ZREM', key, MEMBER .. id)
  if held.lapses == held.last then
    lease_sets.settle(key)
  end
  return 1
end

-- parse reads "concurrency n lease=30s"; returns the limit, or nil and what is wrong.
local function parse(text)
  local n, lease = string.match(text, '^%s*concurrency%s+(%S+)%s+lease=(%S+)%s*$')
  if not n then return nil, 'not of the form concurrency n lease=30s' end
  local limit = { capacity = numbers.positive(n) }
  if not limit.capacity then
    return nil, string.format('the count %s is not ' .. numbers.WHOLE, errors.quote(n), '1')
  elseif limit.capacity > MOST then
    return nil, string.format('%d leases; a limit takes at most %d', limit.capacity, MOST)
  end
  local wrong
  limit.lease, wrong = limits.period(lease)
  return limit.lease and limit, wrong
end

algorithms.concurrency = {
  name = 'concurrency',
  leases = parse,
  holds = function() return false end,
  acquire = acquire,
  renew = renew,
  release = release,
}
