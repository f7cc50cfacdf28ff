-- A call with BORROW has two limits: a guarantee, which one caller has, and a pool, which all callers share. A cost
-- that fits the guarantee is charged to both keys, and may put the pool into debt, as FORCE would. Any other cost is charged to
-- the pool alone, if the pool then still has the percentage that borrowers leave. These are the two rates of RFC 4115 with the
-- coupling, where the second key is common to all callers.
--
-- The reply is a decision whose index says who paid, 1 the guarantee with the pool or 2 the pool. If the call is denied, it is 2
-- if only the debt of the pool is too large.

local list = states.list
local load, wait, longer = decisions.load, decisions.wait, decisions.longer
local floors = {} -- the floors of a request; reused by the next call
local GUARANTEE, POOL = 1, 2

-- position returns the positions in states.list of a key's first and last state.
local function position(request, i)
  local first = i == POOL and request.limits[GUARANTEE].size + 1 or 1
  return first, first + request.limits[i].size - 1
end

-- load_pool loads the pool's key. If the guarantee has room for the cost, an impossible state leaves room for the cost, or for
-- the whole capacity if the rest will be debt. Otherwise, it leaves room for the cost and for what borrowers leave. load_pool
-- returns the error, or nil.
local function load_pool(keys, request, cost, fits)
  local at, named = position(request, POOL), request.limits[POOL].capacity
  floors[POOL] = not fits and request.BORROW > 0 and request.BORROW or nil
  request.floors = floors
  local limit, err = load(keys[POOL], request, POOL, at, fits and math.min(cost, named) or cost)
  if limit and fits and math.min(cost, limit.capacity) ~= math.min(cost, named) then -- an override
    states.begin() -- a key that is loaded again counts once
    limit, err = load(keys[POOL], request, POOL, at, math.min(cost, limit.capacity))
  end
  return not limit and err or nil
end

-- load_both loads both keys for a cost of at least 1. It returns the error, or nil.
local function load_both(keys, request, cost)
  local limit, free = load(keys[GUARANTEE], request, GUARANTEE, 1, cost)
  if not limit then return free end
  return load_pool(keys, request, cost, free >= cost)
end

-- most_debt returns how many units of debt FORCE can leave.
local function most_debt(rate)
  if rate.algorithm.spare == gcra_debt.spare then return rate.capacity - 1 end
  return states.most_owed(rate.capacity) - rate.capacity
end

-- left returns how many units the guarantee has, how many a guaranteed call may charge to the pool, and how many the pool has
-- for borrowers. No key may be blocked: its states have no units.
local function left(request)
  local guaranteed, spare, lent = numbers.MOST, numbers.MOST, numbers.MOST
  local first, last = position(request, POOL)
  for j = 1, last do
    local state, rate = list[j], list[j].rate
    if j < first then
      guaranteed = math.min(guaranteed, state.free)
    else
      spare = math.min(spare, rate.algorithm.spare(state))
      lent = math.min(lent, math.max(0, state.free - states.kept(rate.capacity, request.BORROW)))
    end
  end
  return guaranteed, spare, lent
end

-- until_left returns the time in ms until a key has room for a cost and the percentage of its capacities, or -1 for never.
local function until_left(request, i, cost, percent)
  local ms = 0
  for j = position(request, i), select(2, position(request, i)) do
    local state = list[j]
    local capacity = state.rate.capacity
    local kept = states.kept(capacity, percent)
    if cost > capacity - kept then
      return -1
    elseif cost + kept > state.free then
      ms = math.max(ms, wait(state, cost + kept))
    end
  end
  return ms
end

-- until_spare returns the time in ms until the pool can be charged a cost into debt, or -1 for never.
local function until_spare(request, cost)
  local ms = 0
  for j = position(request, POOL), select(2, position(request, POOL)) do
    local state = list[j]
    local rate = state.rate
    if cost > rate.capacity + most_debt(rate) then
      return -1
    elseif cost > rate.algorithm.spare(state) then
      ms = math.max(ms, wait(state, cost - most_debt(rate)))
    end
  end
  return ms
end

-- shorter returns the shorter of two waits in ms; -1 is the longest.
local function shorter(a, b) return (a < 0 or b >= 0 and b < a) and b or a end

-- block returns the first blocked key, and the time in ms until no block is left, or nil if no key is blocked.
local function block(request)
  local blocked, ms = nil, 0
  for i = GUARANTEE, POOL do
    local state = list[position(request, i)]
    if state.free < 0 then blocked, ms = blocked or i, math.max(ms, state.ends_in) end
  end
  return blocked, ms
end

-- most returns the highest cost that full keys would allow.
local function most(request)
  local guaranteed, lent, first, last = numbers.MOST, numbers.MOST, position(request, POOL)
  for j = 1, last do
    local rate = list[j].rate
    local capacity = rate.capacity
    guaranteed = math.min(guaranteed, j < first and capacity or capacity + most_debt(rate))
    if j >= first then lent = math.min(lent, capacity - states.kept(capacity, request.BORROW)) end
  end
  return math.max(guaranteed, lent)
end

-- change charges or refunds the keys from the first on, and writes them unless peeks is true. It returns the longest delay of a
-- leaky_bucket, or nil and the error.
local function change(keys, request, from, verb, cost, peeks)
  local delay = 0
  for j = position(request, from), select(2, position(request, POOL)) do
    local state = list[j]
    local err = state.rate.algorithm[verb](state, cost)
    if err then return nil, err end
    if state.free < 0 then state.free = 0 end
    state.ends_in, delay = 0, math.max(delay, state.delay)
  end
  for i = from, peeks and 0 or POOL do
    request.limits[i].form.write(keys[i], request.limits[i], position(request, i))
  end
  return delay
end

-- load_again loads the keys before `from`, which were not changed, as a call with a cost of 1 finds them. It cannot fail,
-- because the keys have been loaded before.
local function load_again(keys, request, from)
  if from == GUARANTEE then return end
  states.begin()
  if from > POOL then
    load_both(keys, request, 1)
  else
    load(keys[GUARANTEE], request, GUARANTEE, 1, 1)
  end
end

-- reset_of returns the time in ms until a key is full.
local function reset_of(request, i, denies)
  local longest = 0
  for j = position(request, i), select(2, position(request, i)) do
    local state = list[j]
    local blocked = (denies or state.free < 0) and state.ends_in > 0
    longest = math.max(longest, blocked and state.ends_in or state.reset or state.rate.algorithm.reset(state))
  end
  return longest
end

-- probed decides on keys of which the functions probe know how many units fit, and that need no debt. It returns the reply,
-- and whether the call is allowed, or nil if the states have to be loaded: that takes longer.
local function probed(keys, request, cost, peeks)
  local guarantee, pool = request.limits[GUARANTEE], request.limits[POOL]
  local now, kept = not CLOCK_STANDS and clock.ms() or nil, states.kept(pool.capacity, request.BORROW)
  local free, a, b, c = guarantee.probe(keys[GUARANTEE], guarantee, cost, now, GUARANTEE)
  if not free then return nil end
  local fits = cost <= free
  local room, d, e, f = pool.probe(keys[POOL], pool, fits and cost or states.wanted(pool.capacity, cost, kept), now, POOL)
  if not room or room == 0 and pool.rate.algorithm.spare ~= gcra_debt.spare then return nil end -- there may be a debt
  if cost > room and fits or cost > room + most_debt(pool.rate) then return nil end
  local own_key, pool_key, index = not peeks and keys[GUARANTEE], not peeks and keys[POOL], fits and GUARANTEE or POOL
  local lent = math.max(0, room - kept)
  local reset, ms, pool_reset, pool_ms
  if fits then
    reset, ms = guarantee.commit(own_key, guarantee, cost, a, b, c, now)
    free = free - cost
  else
    reset, ms = guarantee.waits(guarantee, cost > lent and cost, a, b, c)
  end
  if fits or cost <= lent then
    pool_reset, pool_ms = pool.commit(pool_key, pool, cost, d, e, f, now)
    room, lent, ms = room - cost, math.max(0, lent - cost), math.max(fits and ms or 0, pool_ms)
  else
    pool_reset, pool_ms = pool.waits(pool, decisions.sought(pool.capacity, cost, kept), d, e, f)
    index, ms = 0, shorter(ms, pool_ms)
  end
  local remaining = math.max(math.min(free, room + most_debt(pool.rate)), lent)
  return { index > 0 and 1 or 0, (index == POOL and pool or guarantee).capacity, remaining, ms, math.max(reset, pool_reset), math.max(1, index) }, index > 0
end

-- count adds a call to the counts of its policy.
local function count(calls, allowed, index)
  if not calls then return end
  policies.count(calls, allowed)
  if allowed == 1 and index == POOL then calls.borrowed = (calls.borrowed or 0) + 1 end
end

-- decide carries out a request with BORROW. For verb, peeks and the results see decisions.decide.
local function decide(keys, request, verb, peeks)
  local cost, refunds = request.costs[1], verb == 'refund'
  local calls = not (refunds or peeks) and request.limits[GUARANTEE].calls
  if not refunds and cost > 0 then
    local reply, passes = probed(keys, request, cost, peeks)
    if reply then
      count(calls, reply[1], reply[6])
      return reply, passes, passes
    end
  end
  states.begin()
  local err = load_both(keys, request, refunds and 1 or math.max(1, cost))
  if err then return err end
  local index, ms = block(request)
  local allowed, from, denies_pool, denies_guarantee = 0, POOL + 1, false, false -- the keys from `from` on are changed
  local guaranteed, spare, lent
  if not index then guaranteed, spare, lent = left(request) end
  if index then
    if not refunds and cost > most(request) then ms = -1 end
  elseif refunds then
    allowed, index, ms = 1, request.PAID, 0
    if cost > 0 then
      from = index
      states.begin()
      err = load_pool(keys, request, 1, true)
    end
  elseif cost == 0 then
    allowed, index = 1, GUARANTEE
  elseif cost <= guaranteed and cost <= spare then
    allowed, index, from = 1, GUARANTEE, GUARANTEE
  elseif cost <= guaranteed then
    index, ms, denies_pool = POOL, until_spare(request, cost), true
  elseif cost <= lent then
    allowed, index, from = 1, POOL, POOL
  else
    local borrowed = until_left(request, POOL, cost, request.BORROW)
    states.begin()
    err = load_pool(keys, request, cost, true)
    local own = longer(until_left(request, GUARANTEE, cost, 0), until_spare(request, cost))
    index, ms, denies_pool, denies_guarantee = GUARANTEE, shorter(own, borrowed), true, true
  end
  if not err and from <= POOL then
    ms, err = change(keys, request, from, verb, cost, peeks)
  end
  if err then return err end
  load_again(keys, request, from)
  local reset = math.max(reset_of(request, GUARANTEE, denies_guarantee), reset_of(request, POOL, denies_pool))
  local remaining = 0
  if not block(request) then
    guaranteed, spare, lent = left(request)
    remaining = math.max(math.min(guaranteed, spare), lent)
  end
  count(calls, allowed, index)
  return { allowed, request.limits[index].capacity, remaining, ms, reset, index }, from <= POOL, allowed == 1
end

function borrowing.decide(...)
  local reply, charges, passes = decide(...)
  states.drop()
  return reply, charges, passes
end
