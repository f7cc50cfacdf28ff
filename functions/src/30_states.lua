-- States: what a key holds, and what a call has read of it.
--
-- A key holds a string with an expiry (the leases of concurrency: a sorted set; a usage record: a hash). The string says
-- by its form who wrote it, so that a key of another kind is refused before anything is written. functions/STATE.md has the forms.
--
-- What a call reads becomes one table for each rate of each key, in states.list. The tables are used again by the next
-- call. All algorithms fill in
--   rate     the rate of the limit
--   free     how many units fit now, and after a charge or a refund how many fit then; -1 if the key is blocked
--   foreign  ms until the block of the key ends, or the state of another algorithm that was found in it; 0 for neither
-- and src/60_decisions.lua
--   index    of the key in the call, from 1
--   cost     what the call costs here
--   group    the limits that decide together: the enforced ones, or those of one shadow policy
--   reset    ms until the rate is full again
-- Further fields belong to the algorithm.

local list = {}
states.list = list

-- new returns the state at a place of the list, for its algorithm to fill in.
function states.new(at, rate)
  local state = list[at]
  if not state then
    state = {}
    list[at] = state
  end
  state.rate, state.foreign = rate, 0
  return state
end

-- leaves_room returns the most units that may count as spent so that just this call finds room: what a state that
-- cannot hold under this limit is taken for.
function states.leaves_room(capacity, cost)
  return capacity - (cost > 1 and cost <= capacity and cost or 1)
end

------------------------------------------------------------------- what a key holds

local HEAD = 128 -- bytes of a value that tell what it is, and until when it is blocked

-- missing_expiry: the state is ours but somebody took its expiry away (PERSIST, SET without KEEPTTL).
function states.missing_expiry(key)
  return errors.unusable(key, 'holds a limiter state without an expiry')
end

states.REQUEST = 'the reply to a request (ONCE)'

-- in_use: the library wrote this, for something else.
function states.in_use(key, what)
  return errors.new('BADSTATE', 'key %s holds %s; give each use a key of its own', errors.quote(key), what)
end

-- unreadable: no limiter wrote the string in this key, although it may look like one of ours. The error does not show it,
-- because it may be a secret and errors end in logs.
function states.unreadable(key)
  local size = redis.call('STRLEN', key)
  return errors.unusable(key, string.format('holds a string of length %d, which no limiter wrote', size))
end

-- owner returns the algorithm that wrote a string, given its beginning; or nil.
function states.owner(head)
  for _, algorithm in pairs(algorithms) do
    if algorithm.holds(head) then return algorithm end
  end
  return nil
end

-- What look finds in a key.
--   leases   whether it is a set of leases, which have all lapsed under a block
--   request  whether it is the reply to a request (ONCE)
--   blocked  ms for which the key is still blocked, 0 if it is not
--   from     where the state begins in the value, in bytes: behind the words of a block, if there is one
--   expiry   of a state under a block, ms since the epoch; 0 if there is none
--   owner    the algorithm whose state it is, nil if there is none
--   left     ms until the state expires: it is there to the end of the ms in which it does, under a block as without one;
--            below 0 if there is none any more
local found = {}

-- look tells what a key holds, and reads no more than the head of it. Returns found; or nil and the error for a key that
-- can be no limiter's.
function states.look(key)
  local head = redis.pcall('GETRANGE', key, '0', HEAD - 1)
  found.leases, found.request, found.blocked = false, false, 0
  found.from, found.expiry, found.owner, found.left = 0, 0, nil, -1
  if type(head) == 'table' then
    found.leases, found.blocked = true, lease_sets.outlived(key)
    if not found.blocked then return nil, errors.failed(key, head, 'is not a string') end
    return found
  elseif head == '' then
    return found
  end
  local ends, expiry, from = string.match(head, '^blocked:(%d+):(%d+):()')
  ends, expiry = numbers.digits(ends or ''), numbers.digits(expiry or '')
  local blocked = ends and expiry
  if blocked then
    found.from, found.expiry = from - 1, expiry
  end
  local state = string.sub(head, found.from + 1)
  found.owner = states.owner(state)
  found.request = not blocked and string.sub(state, 1, 5) == 'once:'
  if not (found.owner or found.request or blocked and state == '') then
    return nil, states.unreadable(key)
  end
  found.left = redis.call('PTTL', key)
  if found.left < 0 then
    return nil, states.missing_expiry(key)
  elseif blocked then
    local now = math.max(ends, expiry) - found.left
    found.blocked, found.left = math.max(0, ends - now), expiry - now
  end
  return found
end

-- adopt opens a limit over a key that does not hold its usual state: one that is blocked, or holds the state of another
-- algorithm or another form of its own. Returns the error, or nil.
--
-- What another algorithm has left is carried over: a change of algorithm neither hands out a second burst nor locks the
-- key out, and callers with the old and the new limit side by side share one allowance. It counts as units spent now;
-- a call that they deny has to wait until the old state has run out. A state that runs for longer than the rate takes to
-- refill leaves room for just this call.
function states.adopt(key, limit, at, cost)
  local it, err = states.look(key)
  if not it then
    return err
  elseif it.request then
    return states.in_use(key, states.REQUEST)
  elseif it.blocked > 0 then
    for i, rate in ipairs(limit.rates) do
      local state = states.new(at + i - 1, rate)
      state.free, state.foreign = -1, it.blocked
    end
    return nil
  end
  local owner, left = it.owner, it.left
  if not owner or left < 0 or left == 0 and owner ~= limit.owner then
    return limit.fresh(limit, at)
  elseif owner == limit.owner then
    return limit.reopen(key, limit, at, cost, it)
  end
  local counted = owner.spent and owner.spent(key, it.from)
  limit.fresh(limit, at)
  for i, rate in ipairs(limit.rates) do
    local state, most = list[at + i - 1], rate.capacity
    if left * rate.count > most * rate.period then
      most = states.leaves_room(most, cost)
    end
    most = math.min(most, counted or math.ceil(left * rate.count / rate.period))
    if most > 0 then
      rate.spend(state, most)
    end
    state.foreign = left
  end
  return nil
end

------------------------------------------------------------------- what is written into keys

-- forget is called with every key into which another state is written than an algorithm may remember of it: gcra does.
function states.forget() end

-- put stores a string in a key until the time of its expiry, ms since the epoch. An algorithm that has something cheaper
-- for a common call sets the expiry itself: gcra, fixed_window, sliding_log.
function states.put(key, value, expiry)
  states.forget(key)
  redis.call('SET', key, value, 'PXAT', numbers.arg(expiry))
end
