-- A call makes one decision on the rates of one or several keys: either all are charged, or none.
-- First, every key is loaded into one state for each rate (src/30_states.lua). Then the states are
-- compared with the cost, charged, and combined into the reply. Finally, the charged states are
-- written. A call that returns an error has therefore changed nothing.
--
-- The enforced limits of a call make one decision. Each shadow policy (a group of limits) makes a
-- separate decision: it is charged if it would allow the call, and the call continues in either case.
-- Shadow policies never deny a call: they try a limit on real traffic before it is enforced. If the
-- enforced limits deny the call, nothing is charged.
--
-- The reply is { allowed, limit, remaining, retry_after_ms, reset_after_ms, index }. With shadow
-- policies it also has would_allowed, would_retry_after_ms and would_index: the result that the
-- call would have if no policy were a shadow policy. With EACH, one more element is a list with the
-- first five fields for each limit by itself, and with shadow policies the units that were charged.

local list = states.list
local LONGEST_KEY = requests.LONGEST_KEY

-- reply is the reply to a call. All calls share one table, because Redis converts it to integers
-- before the next call begins. With a new table for each call, a denied call would take 4 % longer
-- (bench/README.md).
local reply = {}

-- answer returns the reply to a call with one key.
function decisions.answer(allowed, capacity, remaining, retry, reset)
  reply[1], reply[2], reply[3], reply[4], reply[5], reply[6] = allowed, capacity, remaining, retry, reset, 1
  return reply
end

-- wait returns the time in ms until a rate that denies the cost would allow it, or -1 for never.
local function wait(state, cost)
  local rate = state.rate
  if cost > rate.capacity then return -1 end
  return state.ends_in > 0 and state.ends_in or rate.algorithm.wait(state, cost)
end

local ENFORCED = {} -- the group of the limits that are not in a shadow policy

-- load loads every key of a request into states, and marks the groups that deny. It returns the
-- number of states, or nil and the error. The costs of UPTO depend on the capacities, so if load
-- finds overrides, it loads the keys again.
local function load(keys, request, verb, again)
  local named, costs, group_of, takes, size, overridden = request.limits, request.costs, request.group_of, verb == 'charge', 0, false
  ENFORCED.denies = false
  for i = 1, request.count do
    local limit, group, cost = named[i], group_of and group_of[i] or ENFORCED, costs[i]
    local other = limit.form.load(keys[i], limit, size + 1, verb == 'refund' and 1 or cost)
    if other then
      if other.err then return nil, other end
      other.calls, other.span = limit.calls, limit.span -- the call still counts for the limit's policy
      named[i], limit, overridden = other, other, true
    end
    if not takes then cost = 0 end -- a refund, or a call with FORCE, is denied only by a block
    for at = size + 1, size + limit.size do
      local state = list[at]
      state.index, state.cost, state.group = i, cost, group
      if cost > state.free then group.denies = true end
    end
    size = size + limit.size
  end
  if overridden and request.UPTO and not again then
    states.begin()
    requests.limit_costs()
    return load(keys, request, verb, true)
  end
  return size
end

-- fit finds how many units, up to `most`, every limit of a group can allow (UPTO). It returns this
-- number, and makes it the cost of these limits. If it is 0, the group denies, and the cost is 1.
local function fit(size, group, most)
  local fits = most
  for i = 1, size do
    if list[i].group == group then fits = math.min(fits, list[i].cost, math.max(0, list[i].free)) end
  end
  for i = 1, size do
    if list[i].group == group then list[i].cost = math.max(1, fits) end
  end
  group.denies = fits == 0
  return fits
end

-- decide_groups sets which groups are charged. A refund is decided for each group separately: a
-- blocked key under a shadow policy does not prevent a refund to the other keys.
local function decide_groups(size, request, verb)
  local units = request.UPTO
  if units and units > 0 then units = fit(size, ENFORCED, units) end
  ENFORCED.charged = not ENFORCED.denies
  if not request.groups then return end
  for _, group in ipairs(request.groups) do
    if units and request.costs[1] > 0 then fit(size, group, math.max(1, units)) end
    group.charged = not group.denies and (ENFORCED.charged or verb == 'refund')
  end
end

-- force charges a state even if the units do not fit, up to the state's maximum debt.
local function force(state, units)
  local algorithm = state.rate.algorithm
  local err = algorithm.charge(state, math.min(units, algorithm.spare(state)))
  state.free, state.ends_in = math.max(0, state.free), 0
  return err
end

-- charge applies verb, which is charge, force or refund, to the states. It skips the groups that
-- decide_groups does not charge. It returns the error, or nil.
local function charge(size, request, verb)
  local costs, groups = request.costs, request.groups
  for i = 1, size do
    local state = list[i]
    if not groups or state.group.charged then
      local cost = verb == 'charge' and state.cost or costs[state.index]
      local err = cost > 0 and (verb == 'force' and force or state.rate.algorithm[verb])(state, cost)
      if err then return err end
    end
  end
  return nil
end

-- restore loads the keys of groups that are not charged again, as for a cost of 1, if an impossible state
-- was replaced by one with room for more. The new state is not stored, so the reply must not count this
-- room. Such a state still does not deny: it keeps its field room.
local function restore(keys, named, count)
  local rooms, firsts, first = {}, {}, 1 -- the positions of such states, and of the first state of their keys
  for i = 1, count do
    local last = first + named[i].size - 1
    for at = first, list[first].group.charged and 0 or last do
      if list[at].room then rooms[at], firsts[i] = true, first end
    end
    first = last + 1
  end
  states.begin()
  for i, at in pairs(firsts) do
    named[i].form.load(keys[i], named[i], at, 1)
  end
  for at in pairs(rooms) do
    list[at].room, states.any_room = true, true
  end
end

-- denies reports whether a state denies its cost.
local function denies(state) return state.cost > state.free and not state.room end

-- sum_up fills in the first six fields of a reply, from the states at positions `first` to `last`.
-- If group is not nil, it uses only the states of that group. The reply gets the smallest remaining
-- and the longest waits. The binding rate is the first rate that denies. If no rate denies, it is
-- the first rate with the smallest remaining. If upto is true, field 1 is the number of units
-- taken. If forced is true, the wait of an allowed call is the time until one unit fits.
local function sum_up(whole, first, last, group, upto, forced)
  local binding, denied, units, least = nil, false, upto and numbers.MOST or 1, numbers.MOST
  local retry, longest = 0, 0
  for i = first, last do
    local state = list[i]
    if not group or state.group == group then
      local free, cost, reset, ms = state.free, state.cost, state.reset, 0
      if cost > free and not state.group.charged and not state.room then -- this rate denies
        ms, reset = wait(state, cost), state.ends_in > 0 and state.ends_in
        if not denied then binding, denied, retry = state, true, 0 end
      elseif not denied then
        if free < least or not binding then binding = state end
        if forced and free == 0 then
          ms = wait(state, 1)
        elseif not forced then
          ms = state.delay
        end
      end
      reset = reset or state.rate.algorithm.reset(state)
      if reset > longest then longest = reset end
      if ms ~= 0 and retry >= 0 and (ms > retry or ms < 0) then retry = ms end
      if free < least then least = free > 0 and free or 0 end
      if upto and cost < units then units = cost end
    end
  end
  whole[1], whole[2], whole[3] = denied and 0 or units, binding.rate.capacity, least
  whole[4], whole[5], whole[6] = retry, longest, binding.index
  return whole
end

local result = {} -- the list that each() returns; the next call reuses it

-- each returns the list that EACH adds to the reply.
local function each(request, verb)
  local count, first, costs = request.count, 1, request.costs
  for i = 1, count do
    local last, state = first + request.limits[i].size - 1, list[first]
    result[i] = sum_up(result[i] or {}, first, last, nil, request.UPTO, request.FORCE)
    result[i][6] = request.groups and (not state.group.charged and 0 or verb == 'charge' and state.cost or costs[i]) or nil
    first = last + 1
  end
  for i = count + 1, #result do
    result[i] = nil
  end
  return result
end

-- write stores the states that were changed. It reports whether any state was changed.
local function write(keys, request)
  local costs, groups, at, any = request.costs, request.groups, 1, false
  for i = 1, request.count do
    local limit = request.limits[i]
    if costs[i] > 0 and (not groups or list[at].group.charged) then
      limit.form.write(keys[i], limit, at)
      any = true
    end
    at = at + limit.size
  end
  return any
end

-- count adds a call to the counts of its policies. If the enforced limits deny a call, it is
-- counted only for the enforced policies that deny it.
local function count(request)
  local at = 1
  for i = 1, request.count do
    local limit, group = request.limits[i], request.group_of and request.group_of[i]
    local calls, last, denied = limit.calls, at - 1, 0
    if calls and ENFORCED.charged then
      local allowed = group and group.denies and 0 or 1
      calls[allowed] = calls[allowed] + 1
    elseif calls and not group then
      for j = i, i + limit.span - 1 do
        last = last + request.limits[j].size
      end
      for j = at, last do
        if denies(list[j]) then denied = 1 end
      end
      calls[0] = calls[0] + denied
    end
    at = at + limit.size
  end
end

local decide

-- as_enforced returns the reply to a call with UPTO if none of its policies were a shadow policy, or the
-- error. All limits then decide together how many units fit, so it is a decision of its own. A call
-- without UPTO has the same costs in both, so sum_up can compute this reply from the same states.
local function as_enforced(keys, request)
  local groups, group_of, wants_each = request.groups, request.group_of, request.EACH
  request.groups, request.group_of, request.EACH = nil, nil, nil
  requests.limit_costs()
  local whole = decide(keys, request, 'charge', true)
  request.groups, request.group_of, request.EACH = groups, group_of, wants_each
  requests.limit_costs()
  states.begin()
  return whole
end

function decide(keys, request, verb, peeks)
  local would = request.groups and request.UPTO and as_enforced(keys, request)
  if would and would.err then return would end
  local size, err = load(keys, request, verb, would) -- as_enforced has already found the overrides
  if err then return err end
  decide_groups(size, request, verb)
  local changes = ENFORCED.charged or request.groups and verb == 'refund'
  err = changes and charge(size, request, verb)
  if err then return err end
  if states.any_room then restore(keys, request.limits, request.count) end
  local upto, forced = request.UPTO, request.FORCE
  local whole = sum_up((request.groups or request.EACH) and {} or reply, 1, size, nil, upto, forced)
  if request.groups then
    local enforced = request.shadows < request.count
    would = would or whole
    whole = sum_up({}, 1, size, enforced and ENFORCED, upto, forced)
    if not enforced then whole[1], whole[4] = upto or 1, 0 end
    whole[7], whole[8], whole[9] = would[1], would[4], would[6]
  end
  if request.EACH then whole[#whole + 1] = each(request, verb) end
  changes = changes and not peeks and write(keys, request)
  if request.counted and not peeks and verb ~= 'refund' then count(request) end
  return whole, changes, ENFORCED.charged
end

-- decide carries out a request. If peeks is true, it writes nothing. verb is charge, force or
-- refund. decide returns the reply, whether anything was charged or given back, and whether the enforced
-- limits allow the request. If the request fails, decide returns only the error.
function decisions.decide(keys, request, verb, peeks)
  states.begin()
  local whole, charges, passes = decide(keys, request, verb, peeks)
  states.drop()
  return whole, charges, passes
end

local named, keys_of_one = {}, {} -- the limits of decide_plain, and the key of one_key; reused by the next call

-- decide_plain is a faster decide for a call without options or policies. It decides on the first
-- `number` limits in named, with the same cost for each. If there are several, each has one rate. verb
-- is charge or refund. decide_plain returns the reply or the error, or nil if one of several keys has an
-- override. The caller must call states.drop afterwards.
local function decide_plain(keys, number, cost, verb, peeks, head, left)
  local size, denied, needed = 0, false, verb == 'charge' and cost or 0
  states.begin()
  for i = 1, number do
    local limit = named[i]
    local other = limit.form.load(keys[i], limit, size + 1, cost, head, left)
    if other then
      if other.err or number > 1 then return other.err and other end
      limit, named[i] = other, other
    end
    size = size + limit.size
  end
  for at = 1, size do
    if needed > list[at].free then denied = true end
  end
  if denied then
    ENFORCED.charged = false
    for at = 1, size do
      local state = list[at]
      state.index, state.cost, state.group = number > 1 and at or 1, needed, ENFORCED
    end
    if states.any_room then restore(keys, named, number) end
    sum_up(reply, 1, size)
  else
    local retry, longest, binding, least = 0, 0, 1, numbers.MOST
    for at = 1, size do
      local state = list[at]
      local algorithm = state.rate.algorithm
      local err = cost > 0 and algorithm[verb](state, cost)
      if err then return err end
      local free, reset, delay = state.free, state.reset or algorithm.reset(state), state.delay
      if free < least then least, binding = free, at end
      if reset > longest then longest = reset end
      if delay > retry then retry = delay end
    end
    decisions.answer(1, list[binding].rate.capacity, least, retry, longest)
    if number > 1 then reply[6] = binding end
    for i = 1, cost > 0 and not peeks and number or 0 do
      named[i].form.write(keys[i], named[i], i)
    end
  end
  return reply
end

-- several decides on a call that has one limit of one rate for each key, and no other arguments. It
-- returns the reply or the error, or nil for any other call. verb is charge or refund. If peeks is
-- true, several writes nothing.
function decisions.several(keys, args, verb, peeks)
  local known, number, asked = limits.known, #keys, 0
  if number ~= #args or number == 0 or number > requests.MOST_LIMITS or requests.repeated(keys) then return nil end
  for i = 1, number do
    local limit = known[args[i]]
    if not limit or not limit.rate or limit.calls or #keys[i] > LONGEST_KEY then return nil end
    named[i], asked = limit, asked + limit.asks
  end
  clock.now = nil
  local whole = asked <= requests.FEW and decide_plain(keys, number, 1, verb, peeks)
  states.drop()
  return whole
end

-- one_key decides on one key and writes. head and left are what limit.decide has read, or nil: see
-- src/45_limits.lua. It returns the reply or the error.
function decisions.one_key(key, limit, cost, head, left)
  keys_of_one[1], named[1] = key, limit
  local whole = decide_plain(keys_of_one, 1, cost, 'charge', false, head, left)
  states.drop()
  return whole
end
