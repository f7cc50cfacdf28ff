-- concurrency n lease=30s: at most n leases at a time. The caller chooses a lease's ID. A lease is
-- held until it is released or, by the server's clock, is not renewed in time. A caller that
-- crashed therefore blocks nobody for long.
--
-- State: a sorted set, see src/28_lease_sets.lua.
--
-- A new n takes effect at once: if n is lowered, existing leases stay. A new lease time takes
-- effect at the next acquire or renew. Each lease has its own length, the time for which it was
-- last granted, so callers with different lease times may share a key. A lease that would last
-- longer than its own length is far: the clock was set back. An acquire or renew shortens it to its
-- length.

local MEMBER, BLOCK, LENGTH, GIVEN = lease_sets.MEMBER, lease_sets.BLOCK, lease_sets.LENGTH, lease_sets.GIVEN
local MOST = 5000 -- leases
local AT_ONCE = 2000 -- words of a command

-- The data that a call has read from a key:
--   now      ms since the epoch
--   last     when the last member lapses; 0 if the key holds no set
--   before   the score of the member before the last, for release
--   string   whether the key holds a block without a state under it
--   blocked  ms for which the key is blocked, 0 if it is not
--   lapses   when the lease with this ID lapses, 0 if there is none
--   same     whether the set records one length for all leases and it equals this limit's lease time
--   length   the length of all leases in ms; nil if the set records when each was granted
--   live     the number of members that have not lapsed
--   far      the number of far leases
local held = {}

-- look finds out whether a key holds a set of leases. from is passed to lease_sets.last. It returns
-- the error, or nil.
local function look(key, from)
  local last, before = lease_sets.last(key, from) -- or the error
  held.now, held.last, held.before, held.string = clock.ms(), last or 0, before, false
  held.blocked, held.lapses, held.same, held.length = 0, 0, false, nil
  if last then return nil end
  local found = states.look(key)
  if not found or found.request or found.left >= 0 then return before end
  held.blocked, held.string = found.blocked, true
  return nil
end

-- read calls look and reads what else a decision needs. It returns the error, or nil.
local function read(key, limit, id)
  local err = look(key, '-1')
  if err or held.last == 0 then return err end
  local scores = redis.call('ZMSCORE', key, MEMBER .. id, BLOCK, LENGTH)
  local length = scores[3]
  held.lapses = tonumber(scores[1] or 0)
  held.blocked = math.max(0, (scores[2] or 0) - held.now)
  if length == limit.length then
    held.same, held.length = true, limit.lease
  elseif length then
    length = -tonumber(length)
    if length < 1 or length > limits.LONGEST or length % 1 ~= 0 then return lease_sets.unusable(key) end
    held.length = length
  elseif redis.call('ZCOUNT', key, '-inf', '(0') == 0 then
    held.length = limit.lease -- an older build, which recorded no lengths, wrote the set
  end
  return held.blocked % 1 ~= 0 and lease_sets.unusable(key) or nil
end

-- far_ones returns the number of far leases.
local function far_ones(key)
  local length = held.length
  if not length then return redis.call('ZCOUNT', key, '-inf', string.format('(-%d', held.now)) end
  local latest = held.now + length
  if held.last <= latest then return 0 end
  local far = redis.call('ZCOUNT', key, string.format('(%d', latest), '+inf')
  return held.blocked > length and far - 1 or far
end

-- count returns how many leases are held, and how many count against a limit. If all leases are
-- far, one fewer than n counts, to leave room for one.
local function count(key, limit)
  held.live, held.far = 0, 0
  if held.last <= held.now then return 0, 0 end
  local all, far = redis.call('ZCOUNT', key, string.format('(%d', held.now), '+inf'), far_ones(key)
  held.live, held.far = all, far
  if held.blocked > 0 then
    all = all - 1
  end
  return all, far > 0 and far == all and math.min(all, limit.capacity - 1) or all
end

-- last_lease returns when the last lease lapses. The result is before now if there is none.
local function last_lease(key)
  local two = redis.call('ZRANGE', key, '-2', '-1', 'WITHSCORES')
  return tonumber(two[two[#two - 1] == BLOCK and #two - 2 or #two] or 0)
end

-- add adds any number of scores and members to the set, in several commands if needed.
local function add(key, words)
  for from = 1, #words, AT_ONCE do
    redis.call('ZADD', key, unpack(words, from, math.min(from + AT_ONCE - 1, #words)))
  end
end

-- given_of returns the member that records when a lease was granted.
local function given_of(member)
  return GIVEN .. string.sub(member, #MEMBER + 1)
end

-- part converts a set with one length for all leases into one that records when each lease was
-- granted. It also removes lapsed leases and shortens far ones.
local function part(key)
  local now, length, words = held.now, held.length, {}
  local latest, just_now = string.format('%d', now + length), string.format('-%d', now)
  redis.call('ZREMRANGEBYSCORE', key, '-inf', now)
  local list = redis.call('ZRANGE', key, '0', '-1', 'WITHSCORES')
  for i = 1, #list, 2 do
    local member, given, size = list[i], list[i + 1] - length, #words
    if member ~= BLOCK then
      words[size + 1], words[size + 2] = given > now and just_now or string.format('-%d', given), given_of(member)
      if given > now then
        words[size + 3], words[size + 4] = latest, member
      end
    end
  end
  add(key, words)
end

-- cut_each shortens the far leases of a set that records when each was granted. It shortens at most
-- AT_ONCE of them, because more would take too long.
local function cut_each(key)
  local now, members, words, texts = held.now, {}, {}, {}
  local just_now = string.format('-%d', now)
  local far = redis.call('ZRANGE', key, '-inf', '(' .. just_now, 'BYSCORE', 'LIMIT', '0', AT_ONCE, 'WITHSCORES')
  for i = 1, #far, 2 do
    members[#members + 1] = MEMBER .. string.sub(far[i], #GIVEN + 1)
  end
  for i, lapses in ipairs(redis.call('ZMSCORE', key, unpack(members))) do
    if lapses then
      local length, size = lapses + far[2 * i], #words
      texts[length] = texts[length] or string.format('%d', now + length)
      words[size + 1], words[size + 2], words[size + 3], words[size + 4] = texts[length], members[i], just_now, far[2 * i - 1]
    end
  end
  add(key, words)
end

-- drop_each removes lapsed leases and the members that record when they were granted.
local function drop_each(key)
  local members = redis.call('ZRANGE', key, '0', held.now, 'BYSCORE')
  for i = 1, #members do
    if members[i] ~= BLOCK then
      members[#members + 1] = given_of(members[i])
    end
  end
  for from = 1, #members, AT_ONCE do
    redis.call('ZREM', key, unpack(members, from, math.min(from + AT_ONCE - 1, #members)))
  end
end

-- cut makes all leases that lapse after ms lapse at ms.
local function cut(key, ms)
  local words = {}
  for _, member in ipairs(redis.call('ZRANGE', key, string.format('(%d', ms), '+inf', 'BYSCORE')) do
    if member ~= BLOCK then
      words[#words + 1] = ms
      words[#words + 1] = member
    end
  end
  add(key, words)
end

-- keep stores a lease and removes lapsed ones. others is the number of other leases held. It
-- returns the reply.
local function keep(key, limit, id, others)
  local now, lease, member = held.now, limit.lease, MEMBER .. id
  local reset, lapses = lease, numbers.arg(now + lease)
  if others > 0 and held.length ~= lease then
    if held.length then
      part(key)
    else
      if held.far > 0 then cut_each(key) end
      drop_each(key)
    end
    redis.call('ZADD', key, lapses, member, -now, GIVEN .. id)
    reset = math.ceil(last_lease(key)) - now
  else
    if held.last == 0 then
      if held.string then
        redis.call('DEL', key)
      end
    elseif not held.same then
      redis.call('ZREMRANGEBYSCORE', key, '-inf', now)
    elseif redis.call('ZCARD', key) > held.live + 1 then
      redis.call('ZREMRANGEBYSCORE', key, '0', now)
    end
    if held.far > 0 then cut(key, now + lease) end
    if held.same then
      redis.call('ZADD', key, lapses, member)
    else
      redis.call('ZADD', key, lapses, member, limit.length, LENGTH)
    end
  end
  if held.blocked > lease or reset > lease then
    lapses = numbers.arg(now + math.max(reset, held.blocked))
  end
  redis.call('PEXPIREAT', key, lapses)
  return { 1, limit.capacity, math.max(0, limit.capacity - others - 1), 0, reset, 1 }
end

-- refuse returns the reply to a call that gets no lease. counted is the number of leases that
-- count.
local function refuse(key, limit, counted, retry)
  local last = held.last
  if held.blocked > 0 and last > 0 then
    last = last_lease(key)
  end
  return { 0, limit.capacity, math.max(0, limit.capacity - counted), retry, math.max(0, last - held.now), 1 }
end

-- acquire takes a lease, or renews the one that this ID holds, so that a retry does not take a
-- second one.
local function acquire(key, limit, id)
  local err = read(key, limit, id)
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

-- renew extends a held lease, even while the key is blocked. A lapsed lease stays lost: retry_after
-- is -1.
local function renew(key, limit, id)
  local err = read(key, limit, id)
  if err then return err end
  local all, counted = count(key, limit)
  if held.lapses > held.now then return keep(key, limit, id, all - 1) end
  return refuse(key, limit, counted, -1)
end

-- release gives a lease back. It returns 1, or 0 if this ID no longer holds one.
local function release(key, _, id)
  local err = look(key, '-2')
  if err or held.last == 0 then return err or 0 end
  local lapses = tonumber(redis.call('ZSCORE', key, MEMBER .. id) or 0)
  if lapses <= held.now then
    return 0
  elseif lapses < held.last then
    redis.call('ZREM', key, MEMBER .. id, GIVEN .. id)
  elseif held.before > held.now then
    redis.call('ZREM', key, MEMBER .. id, GIVEN .. id)
    redis.call('PEXPIREAT', key, numbers.arg(held.before))
  else
    redis.call('DEL', key)
  end
  return 1
end

-- parse parses "concurrency n lease=30s". It returns the limit, or nil and what is wrong.
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
  if wrong then return nil, wrong end
  limit.length = string.format('-%d', limit.lease) -- as stored in a set
  return limit
end

algorithms.concurrency = {
  name = 'concurrency',
  leases = parse,
  holds = function() return false end,
  acquire = acquire,
  renew = renew,
  release = release,
}
