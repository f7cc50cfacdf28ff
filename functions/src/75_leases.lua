-- Leases, for limits such as "concurrency n lease=30s": callers hold at most n leases of a key at
-- the same time. The caller chooses the ID of its lease. A lease ends when it is released. It
-- expires if it is not renewed within its lease time, by the server's clock, so a caller that
-- crashed does not block others for long.
--
-- State: a sorted set with an expiry. A lease is the member "lease:<id>", whose score is the time in ms since the
-- epoch at which it expires. A block is the member "blocked", whose score is the end of the block.
-- The key expires with the last lease, or when the block ends, whichever is later.
--
-- The set also records how long each lease was granted for, in members with negative scores, which
-- are never times. If all leases have the same length, the score of the member "length" is minus
-- that length in ms. Otherwise each lease has a member "given:<id>", whose score is minus the time
-- at which the lease was granted; its length is its expiry minus that time.
--
-- An override (see src/72_overrides.lua) is the member "override:<end, ms>:<n>:<lease, ms>". Its
-- score, numbers.MOST, is above those of all other members, so that reading the last member finds
-- it. The key expires when the last lease, the block and the override have ended.
--
-- A new n takes effect at once, but a lower n ends no existing lease. A new lease time takes effect
-- at the next acquire or renew. Each lease has its own length, the time for which it was
-- last granted, so callers with different lease times may share a key. If a lease has more time
-- left than its own length, the clock was set back. Such a lease is called overlong. An acquire or
-- renew shortens it to its length. Nothing else shortens a lease: if the lease time of an acquire or
-- renew is shorter than the time that its lease has left, the lease is granted for the time left. So
-- it lasts as long as its holder was told, even if the reply to a later renewal is lost.

local MEMBER, BLOCK, LENGTH, GIVEN = 'lease:', 'blocked', 'length', 'given:'
local OVERRIDE = '^override:(%d+):(%d+):(%d+)$'
local LAST = '(9007199254740992' -- above all scores but that of an override
local NO_LEASES = 'does not hold leases'
local EARLIEST = 1000000000000 -- lowest score of a lease: a time in 2001, in ms since the epoch
local MOST = 5000 -- leases
local AT_ONCE = 2000 -- the maximum number of scores and members in one command
local MOST_CUT = 1000 -- leases that cut_each shortens in one call
local MOST_RECORDED = '-500' -- record_given records at most the last 500 members
local LONGEST_ID = 256 -- bytes
local WORDS = { FLOOR = 'FLOOR', floor = 'FLOOR', CLASS = 'CLASS', class = 'CLASS' } -- what may follow the lease ID of acquire

-- read_override returns the override in a member, or nil.
local function read_override(member)
  local ends, n, lease = string.match(member, OVERRIDE)
  ends = numbers.parse_digits(ends)
  local limit = ends and leases.limit(string.format('concurrency %s lease=%sms', n, lease))
  return limit and { member = member, ends = ends, limit = limit }
end

-- last reads the last members of a set of leases. It returns three values:
--   the end of the last lease or of the block, whichever is later, in ms since the epoch; 0 if there is neither
--   if from is '-2', the score of the member before it
--   the override, or nil
-- If the key holds anything else, last returns nil and the error.
--
-- from is '-1', or '-2' for a call that may remove the last member. After the removal, the key
-- expires with the member before it. last therefore also reads and checks the score of that member.
-- Only the recursive call passes override: the override that it has just read.
function leases.last(key, from, override)
  local last = redis.pcall('ZRANGE', key, from, override and '-2' or '-1', 'WITHSCORES')
  local size = #last
  if last.err then
    return nil, errors.failed(key, last, NO_LEASES)
  elseif size == 0 then
    return 0, nil, override
  end
  local member, lapses, before = last[size - 1], tonumber(last[size]), tonumber(last[2])
  local is_ours = member == BLOCK or string.sub(member, 1, #MEMBER) == MEMBER
  if override and lapses < 0 then
    return 0, nil, override -- no lease is left: members with negative scores are not leases
  elseif not is_ours and lapses == numbers.MOST and not override then
    override = read_override(member)
    if override then return leases.last(key, from == '-1' and '-2' or '-3', override) end
  end
  if not is_ours or lapses < EARLIEST or lapses > numbers.MOST or lapses % 1 ~= 0 or before % 1 ~= 0 then
    return nil, errors.unusable(key, NO_LEASES)
  end
  return lapses, before, override
end

-- check checks the rest of a set whose last member leases.last has accepted: the expiry, and the name of the
-- member with the lowest score. It returns the error, or nil.
function leases.check(key)
  local first = redis.call('ZRANGE', key, '0', '0')[1]
  local is_ours = first == LENGTH or first == BLOCK or string.find(first, '^lease:') or string.find(first, '^given:') or read_override(first)
  if is_ours and redis.call('PTTL', key) >= 0 then return nil end
  return errors.unusable(key, NO_LEASES)
end

-- blocked_until returns the end of the block in ms since the epoch, or 0 if there is none.
function leases.blocked_until(key) return tonumber(redis.call('ZSCORE', key, BLOCK) or 0) end

-- content returns what states.look returns for a set of leases, without from, expiry and left, which describe
-- a string. held is whether a lease or an override is in effect. For a broken set, content returns the error,
-- and for any other key nil.
function leases.content(key)
  local now = clock.ms()
  local last, _, override = leases.last(key, '-2')
  local err = last and leases.check(key)
  if err or not last then return err end
  local ends = leases.blocked_until(key)
  local held = ends < now or override and override.ends >= now or redis.call('ZCOUNT', key, now, LAST) > 1
  return { leases = true, held = held, blocked = math.max(0, ends - now), override = override, use = false }
end

-- put implements contents.put for a set of leases, and for a string that contains only a block. The
-- key expires when the last of its leases, block and override ends.
function leases.put(key, content, blocked, override)
  if not content.leases then redis.call('DEL', key) end
  local _, _, old = leases.last(key, '-1')
  redis.call('ZREM', key, BLOCK, old and old.member or BLOCK)
  if blocked > 0 then redis.call('ZADD', key, blocked, BLOCK) end
  local last = leases.last(key, '-1') or 0
  if override then
    local limit = override.limit
    redis.call('ZADD', key, numbers.MOST, string.format('override:%d:%d:%d', override.ends, limit.capacity, limit.lease))
    last = math.max(last, override.ends)
  end
  redis.call('PEXPIREAT', key, last)
end

-- set is the data that a call has read from a key:
--   now      ms since the epoch
--   last     when the last lease or the block ends, whichever is later; 0 if there is neither
--   before   the score of the member before that lease or block, for release
--   override the override, which may have ended, or nil
--   string   whether the key is a string with a block and no state
--   blocked  ms for which the key is blocked, 0 if it is not
--   lapses   when the lease with this ID expires, 0 if there is none
--   same     whether the set records one length for all leases, and it is this limit's lease time
--   length   the length of all leases in ms; nil if the set records when each was granted
--   live     the number of leases that have not expired, plus 1 if the key is blocked
--   overlong the number of overlong leases
--   kept     the number of leases that FLOOR keeps free
local set = {}

-- look sets the fields of `set` for a key. It returns an error if the key holds anything but leases or
-- a block. from is passed to leases.last.
local function look(key, from)
  local last, before, override = leases.last(key, from) -- before is the error if last is nil
  set.now, set.last, set.before, set.override, set.string = clock.ms(), last or 0, before, override, false
  set.blocked, set.lapses, set.same, set.length = 0, 0, false, nil
  if last then return nil end
  local found = states.look(key)
  if not found or found.use or found.left >= 0 or found.grown then return before end
  set.blocked, set.string = found.blocked, true
  return nil
end

-- read calls look and reads everything else that a decision needs. It returns the effective limit,
-- which is the override's limit while an override is in effect, or nil and the error.
local function read(key, limit, id)
  local err, override = look(key, '-1'), set.override
  if err then return nil, err end
  if override and override.ends > set.now then limit = override.limit end
  if set.last == 0 then return limit end
  local scores = redis.call('ZMSCORE', key, MEMBER .. id, BLOCK, LENGTH)
  local length = scores[3]
  set.lapses = tonumber(scores[1] or 0)
  set.blocked = math.max(0, (scores[2] or 0) - set.now)
  if length == limit.length then
    set.same, set.length = true, limit.lease
  elseif length then
    length = -tonumber(length)
    if length < 1 or length > limits.LONGEST or length % 1 ~= 0 then return nil, errors.unusable(key, NO_LEASES) end
    set.length = length
  else
    err = leases.check(key)
    if err then return nil, err end
  end
  if set.blocked % 1 ~= 0 then return nil, errors.unusable(key, NO_LEASES) end
  return limit
end

-- count returns how many leases are held, and how many of them count against the limit. If all are
-- overlong (see the top of this file), at most n - 1 count, less what FLOOR keeps free, so that one more can be granted.
local function count(key, limit)
  local now, length, overlong = set.now, set.length, 0
  set.live, set.overlong = 0, 0
  if set.last <= now then return 0, 0 end
  local all = redis.call('ZCOUNT', key, string.format('(%d', now), LAST)
  if not length then
    overlong = redis.call('ZCOUNT', key, '-inf', string.format('(-%d', now))
  elseif set.last > now + length then
    overlong = redis.call('ZCOUNT', key, string.format('(%d', now + length), LAST) - (set.blocked > length and 1 or 0)
  end
  set.live, set.overlong = all, overlong
  if set.blocked > 0 then all = all - 1 end
  return all, overlong > 0 and overlong == all and math.min(all, math.max(0, limit.capacity - 1 - set.kept)) or all
end

-- last_lease returns when the last lease expires. If there is no lease, the result is before now.
local function last_lease(key)
  local override = set.override
  local two = redis.call('ZRANGE', key, override and '-3' or '-2', override and '-2' or '-1', 'WITHSCORES')
  return tonumber(two[two[#two - 1] == BLOCK and #two - 2 or #two] or 0)
end

-- add adds any number of scores and members to the set, in several commands if needed.
local function add(key, words)
  for from = 1, #words, AT_ONCE do
    redis.call('ZADD', key, unpack(words, from, math.min(from + AT_ONCE - 1, #words)))
  end
end

-- given_of returns the member that records when a lease was granted.
local function given_of(member) return GIVEN .. string.sub(member, #MEMBER + 1) end

-- record_given converts a set with one length for all leases into one that records when each lease
-- was granted. It also removes expired leases. It records only the leases that expire last (see
-- MOST_RECORDED), because recording more would take too long. The other leases do not count as
-- overlong until they are extended.
local function record_given(key)
  local words = {}
  redis.call('ZREMRANGEBYSCORE', key, '-inf', set.now)
  local list = redis.call('ZRANGE', key, MOST_RECORDED, set.override and '-2' or '-1', 'WITHSCORES')
  for i = 1, #list, 2 do
    if list[i] ~= BLOCK then
      words[#words + 1] = string.format('-%d', list[i + 1] - set.length)
      words[#words + 1] = given_of(list[i])
    end
  end
  redis.call('ZADD', key, unpack(words))
end

-- cut_each shortens the overlong leases of a set that records when each was granted. It shortens at
-- most MOST_CUT of them, because shortening more would take too long.
local function cut_each(key)
  local now, members, words = set.now, {}, {}
  local granted = string.format('-%d', now)
  local overlong = redis.call('ZRANGE', key, '-inf', '(' .. granted, 'BYSCORE', 'LIMIT', '0', MOST_CUT, 'WITHSCORES')
  for i = 1, #overlong, 2 do
    members[#members + 1] = MEMBER .. string.sub(overlong[i], #GIVEN + 1)
  end
  for i, lapses in ipairs(redis.call('ZMSCORE', key, unpack(members))) do
    if lapses then
      local length, size = lapses + overlong[2 * i], #words
      words[size + 1], words[size + 2], words[size + 3], words[size + 4] = numbers.argument(now + length), members[i], granted, overlong[2 * i - 1]
    end
  end
  add(key, words)
end

-- drop_each removes expired leases and the members that record when they were granted.
local function drop_each(key)
  local members = redis.call('ZRANGE', key, '0', set.now, 'BYSCORE')
  for i = 1, #members do
    if members[i] ~= BLOCK then members[#members + 1] = given_of(members[i]) end
  end
  for from = 1, #members, AT_ONCE do
    redis.call('ZREM', key, unpack(members, from, math.min(from + AT_ONCE - 1, #members)))
  end
end

-- cut shortens the overlong leases.
local function cut(key)
  if not set.length then return cut_each(key) end
  local words, ms = {}, string.format('%d', set.now + set.length)
  for _, member in ipairs(redis.call('ZRANGE', key, '(' .. ms, LAST, 'BYSCORE')) do
    if member ~= BLOCK then
      words[#words + 1] = ms
      words[#words + 1] = member
    end
  end
  add(key, words)
end

-- reply is the reply to acquire and renew. All calls share one table, as in decisions.answer.
local reply = {}

-- answer returns the reply to acquire and renew. lease is the time in ms for which the lease with
-- this ID is held, or 0.
local function answer(allowed, capacity, remaining, retry, reset, lease)
  reply[1], reply[2], reply[3], reply[4], reply[5], reply[6], reply[7] = allowed, capacity, remaining, retry, reset, 1, lease
  return reply
end

-- extended returns the limit that extends the held lease with this ID: the given one or, if the
-- lease has more time left than limit.lease, one for the time left. The time left of an overlong
-- lease is its length.
local function extended(key, limit, id)
  local left, length = math.floor(set.lapses - set.now), set.length
  if left <= limit.lease then return limit end
  if not length then
    local given = tonumber(redis.call('ZSCORE', key, GIVEN .. id))
    length = given and set.lapses + given or left
  end
  left = math.min(left, length)
  return left > limit.lease and { capacity = limit.capacity, lease = left, length = string.format('-%d', left) } or limit
end

-- keep stores a lease, removes expired ones, and returns the reply. others is the number of other
-- held leases.
local function keep(key, limit, id, others)
  local now, lease, member, override = set.now, limit.lease, MEMBER .. id, set.override
  local reset, lapses, stays = lease, numbers.argument(now + lease), set.blocked
  if override and override.ends <= now then
    redis.call('ZREM', key, override.member)
    set.override = nil
  elseif override then
    stays = math.max(stays, override.ends - now)
  end
  if set.overlong > 0 then cut(key) end
  if others > 0 and set.length ~= lease then
    if set.length then record_given(key) end
    drop_each(key)
    redis.call('ZADD', key, lapses, member, -now, GIVEN .. id)
    reset = math.ceil(last_lease(key)) - now
  else
    if set.last == 0 then
      if set.string then redis.call('DEL', key) end
    elseif not set.same then
      redis.call('ZREMRANGEBYSCORE', key, '-inf', now)
    elseif redis.call('ZCARD', key) > set.live + 1 then
      redis.call('ZREMRANGEBYSCORE', key, '0', now)
    end
    if set.same then
      redis.call('ZADD', key, lapses, member)
    else
      redis.call('ZADD', key, lapses, member, limit.length, LENGTH)
    end
  end
  if stays > lease or reset > lease then lapses = numbers.argument(now + math.max(reset, stays)) end
  redis.call('PEXPIREAT', key, lapses)
  return answer(1, limit.capacity, math.max(0, limit.capacity - others - 1 - set.kept), 0, reset, lease)
end

-- grant takes a lease, or extends the one that this ID holds, even while the key is blocked. So a
-- retry does not take a second lease, and a caller that is denied holds no lease. If renews is true,
-- it only extends a held lease. An expired lease cannot be renewed: retry_after is -1. percent is that of FLOOR.
local function grant(key, limit, id, renews, percent)
  local err
  limit, err = read(key, limit, id)
  set.kept = limit and states.kept(limit.capacity, percent)
  if err then
    return err
  elseif set.lapses > set.now then
    return keep(key, extended(key, limit, id), id, count(key, limit) - 1)
  elseif set.blocked > 0 and not renews then
    return answer(0, limit.capacity, 0, set.kept < limit.capacity and set.blocked or -1, set.blocked, 0)
  end
  local all, counted = count(key, limit)
  local free, retry, last = limit.capacity - counted - set.kept, -1, set.last
  if not renews and set.kept < limit.capacity then
    if free > 0 then return keep(key, limit, id, all) end
    local freeing = redis.call('ZRANGE', key, string.format('(%d', set.now), '+inf', 'BYSCORE', 'LIMIT', 0 - free, '1',
      'WITHSCORES')
    retry = math.ceil(freeing[2] - set.now)
  end
  if set.blocked > 0 and last > 0 then last = last_lease(key) end
  return answer(0, limit.capacity, math.max(0, free), retry, math.max(0, last - set.now), 0)
end

-- release gives a lease back. It returns 1, or 0 if this ID no longer holds one.
local function release(key, _, id)
  local err = look(key, '-2')
  if err or set.last == 0 then return err or 0 end
  local lapses, before, override = tonumber(redis.call('ZSCORE', key, MEMBER .. id) or 0), set.before, set.override
  local stays = override and override.ends > before and override.ends or before
  if lapses <= set.now then
    return 0
  elseif lapses < set.last or stays > set.now then
    redis.call('ZREM', key, MEMBER .. id, GIVEN .. id)
    if lapses >= set.last then redis.call('PEXPIREAT', key, numbers.argument(stays)) end
  else
    err = leases.check(key)
    if err then return err end
    redis.call('DEL', key)
  end
  return 1
end

-- parse parses "concurrency n lease=30s". It returns the limit, or nil and what is wrong.
local function parse(text)
  if string.match(text, '^%s*([%a_]+)') ~= 'concurrency' then
    return nil, 'not a limit for leases; write it as concurrency n lease=30s'
  end
  local n, lease = string.match(text, '^%s*concurrency%s+(%S+)%s+lease=(%S+)%s*$')
  if not n then return nil, 'not of the form concurrency n lease=30s' end
  local limit = { capacity = numbers.parse_positive(n) }
  if not limit.capacity then
    return nil, string.format('the count %s is not ' .. numbers.WHOLE, errors.quote(n), '1')
  elseif limit.capacity > MOST then
    return nil, string.format('%d leases; a limit takes at most %d', limit.capacity, MOST)
  end
  local wrong
  limit.lease, wrong = limits.period(lease)
  if wrong then return nil, wrong end
  limit.length = string.format('-%d', limit.lease) -- the score of the member "length"
  return limit
end

-- limit returns the parsed limit, or nil and the error.
leases.limit = numbers.remembered(function(text) return limits.checked(text, parse) end, {})

algorithms.concurrency = { refusal = 'concurrency is for ratelimit_acquire, ratelimit_renew and ratelimit_release' }

-- floor_of reads what follows the lease ID: FLOOR and a percentage, CLASS and a name, or nothing. policy is that of the call, or
-- nil, and name its name. It returns the percentage, and the class for policies.calls, or nil and the error.
local function floor_of(policy, name, word, text)
  local classes, percent, err = policy and policy.classes
  if not word then
    return type(classes) == 'table' and classes.default or 0
  elseif word == 'FLOOR' then
    percent, err = requests.percent(text)
    return percent, err or ''
  end
  text, err = requests.class(text)
  if err then return nil, err end
  percent, err = policies.class({ classes = classes, name = name }, text)
  return percent, err or text
end

-- call executes a verb. It checks the arguments, which are one key, a limit and a lease ID, and
-- returns the reply or an error.
function leases.call(verb, keys, args)
  clock.now = nil
  if #keys ~= 1 then
    return errors.new('BADKEYS', 'the number of keys is %d; %s takes one', #keys, verb)
  end
  local word = verb == 'acquire' and WORDS[args[3]]
  if #args < 2 then
    return errors.new('BADARGS', 'the number of arguments is %d; %s takes a limit and a lease id', #args, verb)
  elseif args[3] and not word then
    return errors.new('BADARGS', '%s: not an option here', errors.quote(args[3]))
  end
  local err = requests.too_long(keys)
  if err then return err end
  local text, policy, limit, name = args[1]
  if string.sub(text, 1, 1) == '@' then
    name = string.sub(text, 2)
    policy, err = policies.lease(text, keys[1])
    if not policy then return err end
    text = policy[1]
  end
  limit, err = leases.limit(text)
  if not limit then return err end
  local id = args[2]
  if #id == 0 or #id > LONGEST_ID then
    return errors.new('BADARGS', 'the lease id %s is not of 1 to %d bytes', errors.quote(id), LONGEST_ID)
  end
  local percent, class = 0, nil
  if verb == 'acquire' then
    if args[5] then return errors.new('BADARGS', '%s: not an option here; acquire takes one FLOOR or CLASS', errors.quote(args[5])) end
    percent, class = floor_of(policy, name, word, args[4])
    if not percent then return class end
  end
  local got = (verb == 'release' and release or grant)(keys[1], limit, id, verb == 'renew', percent)
  if not policy or verb == 'release' or got.err then return got end
  if verb == 'acquire' then policies.count(policies.calls(policy, class), got[1]) end
  if not policy.shadow then return got end
  return { 1, got[2], got[3], 0, got[5], got[6], got[1], got[4], got[6], got[7] } -- allowed, even without a lease
end
