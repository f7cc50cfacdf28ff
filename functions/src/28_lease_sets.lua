-- The leases of a key: a sorted set, member "lease:<id>", score the time in ms since the epoch at which it lapses. A block
-- is the member "blocked", which lapses with the block. The key expires when the last of them lapses.
--
-- The set also says how long each lease was given for, in members whose scores are below 0, where no time is: "length", minus
-- the ms, if all leases were given for the same; else "given:<id>" for each lease, minus the time at which it was given.

lease_sets.MEMBER = 'lease:'
lease_sets.BLOCK = 'blocked'
lease_sets.LENGTH = 'length'
lease_sets.GIVEN = 'given:'

local NO_LEASES = 'does not hold leases'
local EARLIEST = 1000000000000 -- ms since the epoch, 2001: what lapses before is no lease

-- last returns the ms since the epoch at which the last member of a key lapses; 0 if it holds nothing. Or nil and the error
-- if it holds anything else. from: '-1', or '-2' for a call that may take the last member away: the key then expires with the
-- one before it, whose score is checked too, and returned.
function lease_sets.last(key, from)
  local last = redis.pcall('ZRANGE', key, from, '-1', 'WITHSCORES')
  local size = #last
  if last.err then
    return nil, errors.failed(key, last, NO_LEASES)
  elseif size == 0 then
    return 0
  end
  local member, lapses, before = last[size - 1], tonumber(last[size]), tonumber(last[2])
  local is_ours = member == lease_sets.BLOCK or string.sub(member, 1, #lease_sets.MEMBER) == lease_sets.MEMBER
  if not is_ours or lapses < EARLIEST or lapses > numbers.MOST or lapses % 1 ~= 0 or before % 1 ~= 0 then
    return nil, lease_sets.unusable(key)
  end
  return lapses, before
end

-- unusable is the error for a key with scores that no limiter wrote.
function lease_sets.unusable(key)
  return errors.unusable(key, NO_LEASES)
end

-- settle moves the key's expiry to where its last member lapses.
function lease_sets.settle(key)
  local last = redis.call('ZRANGE', key, '-1', '-1', 'WITHSCORES')
  if last[2] then
    redis.call('PEXPIREAT', key, last[2])
  end
end

-- blocked_until returns when the block ends, ms since the epoch; 0 without one.
function lease_sets.blocked_until(key)
  return tonumber(redis.call('ZSCORE', key, lease_sets.BLOCK) or 0)
end

-- outlived returns for how many ms more a key is blocked whose leases have all lapsed; nil if there is a lease, or no set.
function lease_sets.outlived(key)
  local now = clock.ms()
  local left = lease_sets.last(key, '-2') and lease_sets.blocked_until(key) - now or -1
  return left >= 0 and redis.call('ZCOUNT', key, now, '+inf') == 1 and left or nil
end

function lease_sets.block(key, ends)
  redis.call('ZADD', key, ends, lease_sets.BLOCK)
  lease_sets.settle(key)
end

function lease_sets.unblock(key)
  redis.call('ZREM', key, lease_sets.BLOCK)
  lease_sets.settle(key)
end
