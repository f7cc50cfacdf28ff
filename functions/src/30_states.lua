-- States: the content of a key, and the part of it that a call has read.
--
-- A key holds a string with an expiry. (The leases of concurrency are a sorted set; a usage record
-- is a hash.) The form of the string shows what wrote it, so a key of another kind is rejected
-- before anything is written. functions/STATE.md lists the forms.
--
-- A call fills one table in states.list for each rate of each key. The next call reuses the tables.
-- All algorithms set
--   rate     the rate of the limit
--   free     how many units fit now, updated by a charge or a refund; -1 if the key is blocked
--   foreign  ms until the key's block or another algorithm's state in the key ends; 0 if there is neither
-- src/60_decisions.lua sets
--   index    the position of the key in the call, from 1
--   cost     the cost of the call for this key
--   group    the limits that decide together: the enforced ones, or those of one shadow policy
--   reset    ms until the rate is full again
-- Algorithms add their own fields.

local list = {}
states.list = list

-- new returns the state at a position in the list, for its algorithm to fill in.
function states.new(at, rate)
  local state = list[at]
  if not state then
    state = {}
    list[at] = state
  end
  state.rate, state.foreign = rate, 0
  return state
end

-- leaves_room returns the most units that can count as spent and still leave room for this call. It
-- replaces a stored state that is impossible under this limit.
function states.leaves_room(capacity, cost)
  return capacity - (cost > 1 and cost <= capacity and cost or 1)
end

------------------------------------------------------------------- what one call may read

-- A state that a larger limit left takes as long to read as under that limit, so a call may only
-- read a certain number of them. The most that one key can hold under any limit is below these
-- bounds: 200,000 calls in logs, which are 2.4 MB, and 5,016 buckets.
local MOST_BYTES, MOST_BUCKETS = 2500000, 20000
local MOST_KEPT, SMALL = 64, 10000 -- states, and bytes of them, that are kept for the next call
local bytes, buckets = 0, 0 -- read by this call

-- begin begins a decision.
function states.begin()
  bytes, buckets = 0, 0
end

-- finish frees the states of a decision that was large. It returns its arguments.
function states.finish(...)
  if bytes > SMALL or buckets > SMALL or list[MOST_KEPT + 1] then
    for at = #list, 1, -1 do
      list[at] = nil
    end
  end
  return ...
end

-- too_much counts bytes of a key's value before they are read, beyond the first 2048. It returns
-- the error, or nil.
function states.too_much(more)
  bytes = bytes + more
  if bytes <= MOST_BYTES then return nil end
  return errors.new('BADKEYS', 'the keys hold more than %d bytes, the most that one call reads; name fewer keys', MOST_BYTES)
end

-- too_many counts buckets of sliding_window that were read. Call it with 0 before reading the next
-- state. It returns the error, or nil.
function states.too_many(more)
  buckets = buckets + more
  if buckets <= MOST_BUCKETS then return nil end
  return errors.new('BADKEYS', 'the keys hold more than %d buckets, the most that one call reads; name fewer keys',
    MOST_BUCKETS)
end

------------------------------------------------------------------- what a key holds

local HEAD = 128 -- bytes of a value that show its kind and the end of its block

-- missing_expiry returns the error for a limiter's state whose expiry was removed (by PERSIST, or
-- by SET without KEEPTTL).
function states.missing_expiry(key)
  return errors.unusable(key, 'holds a limiter state without an expiry')
end

states.REQUEST = 'the reply to a request (ONCE)'

-- in_use returns the error for a key that the library uses for something else.
function states.in_use(key, what)
  return errors.new('BADSTATE', 'key %s holds %s; give each use a key of its own', errors.quote(key), what)
end

-- unreadable returns the error for a string that no limiter wrote, although it may look like a
-- state. The error does not show the string, because it may be a secret and errors are logged.
function states.unreadable(key)
  local size = redis.call('STRLEN', key)
  return errors.unusable(key, string.format('holds a string of length %d, which no limiter wrote', size))
end

-- owner returns the algorithm that wrote a string, given its first bytes, or nil.
function states.owner(head)
  for _, algorithm in pairs(algorithms) do
    if algorithm.holds(head) then return algorithm end
  end
  return nil
end

-- The result of look:
--   leases   whether the key is a set of leases that have all lapsed under a block
--   request  whether the key holds the reply to a request (ONCE)
--   blocked  ms for which the key is still blocked, 0 if it is not
--   from     where the state begins in the value, in bytes: after the words of a block, if there is one
--   expiry   of a state under a block, in ms since the epoch; 0 if there is none
--   owner    the algorithm that wrote the state, nil if there is none
--   left     ms until the state expires, or below 0 if there is no state. A state exists to the end
--            of the ms in which it expires, whether it is under a block or not
local found = {}

-- look finds out what a key holds and reads only the first bytes of it. It returns found, or nil
-- and the error for a key that no limiter can have written.
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

-- adopt opens a limit over a key that does not hold the limit's usual state: the key is blocked, or
-- it holds another algorithm's state or another form of the limit's own. It returns the error, or
-- nil.
--
-- Another algorithm's state is carried over. A change of algorithm therefore grants no second burst
-- and does not lock the key, and callers with the old and the new limit share one allowance. The
-- old state counts as units spent now. If those units deny a call, it has to wait until the old
-- state has expired. A state that lasts longer than the rate needs to refill leaves room for just
-- this call.
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
  local counted = nil
  if owner.spent then
    counted, err = owner.spent(key, it.from)
    if err then return err end
  end
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

------------------------------------------------------------------- what is written to keys

-- put stores a string in a key that expires at expiry, in ms since the epoch. gcra, fixed_window
-- and sliding_log have cheaper ways for common calls and set the expiry themselves.
function states.put(key, value, expiry)
  redis.call('SET', key, value, 'PXAT', numbers.arg(expiry))
end
