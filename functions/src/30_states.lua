-- What a key may hold. A state is a string with an expiry (the leases of concurrency: a sorted set), and says by its
-- form who wrote it, so a key of another kind is refused before anything is written.
--
--   gcra, gcra-<k>                      a debt of gcra, kept in the expiry
--   123                                 the count of a fixed_window
--   <algorithm>:<state>                 every other state; of several rates <algorithm>::<length>:<state>...
--   blocked:<until>:<expiry>:<state>    ratelimit_block, over the state that was there, with its expiry (ms; 0: none)
--   once:<reply>                        a request's key (src/70_once.lua)
-- Leases: src/28_lease_sets.lua. Usage records, a hash: src/65_tracking.lua.

-- missing_expiry: the state is ours but somebody took its expiry away (PERSIST, SET without KEEPTTL).
function states.missing_expiry(key)
  return errors.unusable(key, 'holds a limiter state without an expiry')
end

states.REQUEST = 'the reply to a request (ONCE)'

-- in_use: the library wrote this, for something else.
function states.in_use(key, what)
  return errors.new('BADSTATE', 'key %s holds %s; give each use a key of its own', errors.quote(key), what)
end

-- unreadable: no limiter wrote this, although it may look like it.
function states.unreadable(key, value)
  if string.sub(value, 1, 5) == 'once:' then
    return states.in_use(key, states.REQUEST)
  end
  return errors.unusable(key, 'holds ' .. errors.quote(value) .. ', which no limiter wrote')
end

-- not_a_state answers the error for what pcall answered instead of a string.
function states.not_a_state(key, failure)
  if string.sub(failure.err, 1, 9) == 'WRONGTYPE' then
    return errors.unusable(key, 'is not a string')
  end
  return failure
end

-- blocked reads a value that ratelimit_block wrote: until when, the state below it and the expiry of that, in ms since
-- the epoch; nil for any other value.
function states.blocked(value)
  local untill, expiry, state = string.match(value, '^blocked:(%d+):(%d+):(.*)$')
  untill, expiry = numbers.whole(untill or ''), numbers.whole(expiry or '')
  if untill and expiry then
    return untill, state, expiry
  end
  return nil
end

function states.block(untill, state, expiry)
  return string.format('blocked:%.0f:%.0f:', untill, expiry) .. state
end

-- owner answers the algorithm that wrote a string, or nil.
function states.owner(value)
  for _, algorithm in pairs(algorithms) do
    if algorithm.holds(value) then
      return algorithm
    end
  end
  return nil
end

-- forget tells the algorithms that a key is about to hold another state than they may have seen in it.
function states.forget(key)
  for i = 1, #states.forgetful do
    states.forgetful[i](key)
  end
end

states.forgetful = {} -- functions of the key, added by the algorithms that remember something of keys

-- leaves_room answers the most units that may count as spent so that just this call finds room: what a state that
-- cannot hold under this limit is taken for.
function states.leaves_room(capacity, cost)
  return capacity - (cost > 1 and cost <= capacity and cost or 1)
end

-- spent_elsewhere carries a key over from another algorithm: a change of algorithm neither hands out a second burst nor
-- locks the key out, and callers with the old and the new limit side by side share one allowance. Answers how many
-- units of this rate count as spent; a call that they deny has to wait until the old state has run out. A state that
-- runs for longer than this rate takes to refill leaves room for just this call.
function states.spent_elsewhere(value, left, owner, rate, cost)
  local most = rate.capacity
  if left > most / rate.count * rate.period then
    most = states.leaves_room(most, cost)
  end
  local units = owner.spent and owner.spent(value, left) or math.ceil(left * rate.count / rate.period)
  return math.min(most, units)
end

-- refused_by_block is the answer of decide for a key that is blocked for left ms more.
function states.refused_by_block(limit, cost, left)
  return false, 0, cost > limit.capacity and -1 or left, left
end

-- view tells what GET has answered (not nil) is to an algorithm:
--   'own', value, left            its own state, left ms before its expiry
--   'other', value, left, owner   another algorithm's
--   'none'                        nothing that counts any more
--   'blocked', nil, left          the key is blocked for left ms more
-- A block that has run out is looked through. Or nil and the error to reply.
--
-- A state is there to the end of the millisecond in which it expires (left is 0), under a block as without one: a limit
-- that was changed meanwhile may still find units spent. Another algorithm's units have all come back by then.
function states.view(key, value, algorithm)
  if type(value) == 'table' then
    local left = lease_sets.outlived(key)
    if not left then
      return nil, states.not_a_state(key, value)
    end
    return left > 0 and 'blocked' or 'none', nil, left
  end
  local left = redis.call('PTTL', key)
  local untill, state, expiry = states.blocked(value)
  if not untill then
    state = value
  end
  local owner = algorithm.holds(state) and algorithm or states.owner(state)
  if not owner and state ~= '' then
    return nil, states.unreadable(key, value)
  elseif left < 0 then
    return nil, states.missing_expiry(key)
  end
  if untill then
    local now = math.max(untill, expiry) - left
    if now < untill then
      return 'blocked', nil, untill - now
    end
    left = expiry - now
  end
  if not owner or left < 0 or (left == 0 and owner ~= algorithm) then
    return 'none'
  end
  return owner == algorithm and 'own' or 'other', state, left, owner
end
