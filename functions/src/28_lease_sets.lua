-- The leases of a key: a sorted set, member "lease:<id>", score the time in ms since the epoch at which it lapses. A block
-- is the member "blocked", which lapses with the block. The key expires when the last of them lapses.

lease_sets.MEMBER = 'lease:'
lease_sets.BLOCK = 'blocked'

local NO_LEASES = 'does not hold leases'
local EARLIEST = 1000000000000 -- ms since the epoch, 2001: what lapses before is no lease

local function is_ours(member)
  return member == lease_sets.BLOCK or string.sub(member, 1, #lease_sets.MEMBER) == lease_sets.MEMBER
end

-- holds tells whether a key holds such a set; nil if it holds nothing, false and the error if it holds something else.
function lease_sets.holds(key)
  local first = redis.pcall('ZRANGE', key, 0, 0, 'WITHSCORES')
  if first.err then
    return false, string.sub(first.err, 1, 9) == 'WRONGTYPE' and errors.unusable(key, NO_LEASES) or first
  elseif not first[1] then
    return nil
  end
  local last = redis.call('ZRANGE', key, -1, -1, 'WITHSCORES')
  if not is_ours(first[1]) or not is_ours(last[1]) or tonumber(first[2]) < EARLIEST or tonumber(last[2]) > numbers.MOST
    or redis.call('PTTL', key) < 0
  then
    return false, errors.unusable(key, NO_LEASES)
  end
  return true
end

-- settle moves the key's expiry to where its last member lapses.
function lease_sets.settle(key)
  local last = redis.call('ZRANGE', key, -1, -1, 'WITHSCORES')
  if last[2] then
    redis.call('PEXPIREAT', key, string.format('%.0f', tonumber(last[2])))
  end
end

-- blocked_until answers when the block ends, ms since the epoch; 0 without one.
function lease_sets.blocked_until(key)
  return tonumber(redis.call('ZSCORE', key, lease_sets.BLOCK) or 0)
end

-- outlived returns for how many ms more a key is blocked whose leases have all lapsed; nil if there is a lease, or no set.
function lease_sets.outlived(key)
  local now = clock.ms()
  local left = lease_sets.holds(key) and lease_sets.blocked_until(key) - now or -1
  return left >= 0 and redis.call('ZCOUNT', key, string.format('%.0f', now), '+inf') == 1 and left or nil
end

function lease_sets.block(key, untill)
  redis.call('ZADD', key, string.format('%.0f', untill), lease_sets.BLOCK)
  lease_sets.settle(key)
end

function lease_sets.unblock(key)
  redis.call('ZREM', key, lease_sets.BLOCK)
  lease_sets.settle(key)
end
