-- A sorted set holds the leases of a key. A lease is the member "lease:<id>", whose score is the
-- time in ms since the epoch at which it lapses. A block is the member "blocked", whose score is
-- the end of the block. The key expires when the last of them lapses.
--
-- The set also records how long each lease was granted for, in members with negative scores, which
-- are never times. If all leases have the same length, it is the member "length", with minus the
-- ms. Otherwise each lease has a member "given:<id>", with minus the time at which it was granted.

lease_sets.MEMBER = 'lease:'
lease_sets.BLOCK = 'blocked'
lease_sets.LENGTH = 'length'
lease_sets.GIVEN = 'given:'

local NO_LEASES = 'does not hold leases'
local EARLIEST = 1000000000000 -- ms since the epoch, 2001: no lease has an earlier score

-- last returns when the last member of a key lapses, in ms since the epoch, or 0 if the key is
-- empty. If the key holds anything else, it returns nil and the error. from is '-1', or '-2' for a
-- call that may remove the last member. With '-2', the score of the member before it is also
-- checked and returned, because the key then expires with that member.
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

-- unusable returns the error for a key whose scores no limiter wrote.
function lease_sets.unusable(key)
  return errors.unusable(key, NO_LEASES)
end

-- settle sets the key's expiry to the time at which its last member lapses.
function lease_sets.settle(key)
  local last = redis.call('ZRANGE', key, '-1', '-1', 'WITHSCORES')
  if last[2] then
    redis.call('PEXPIREAT', key, last[2])
  end
end

-- blocked_until returns the end of the block in ms since the epoch, or 0 if there is none.
function lease_sets.blocked_until(key)
  return tonumber(redis.call('ZSCORE', key, lease_sets.BLOCK) or 0)
end

-- outlived returns how many ms remain of the block of a key whose leases have all lapsed. It
-- returns nil if a lease remains or the key is not a set of leases.
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
