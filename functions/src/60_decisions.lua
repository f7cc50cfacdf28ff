-- A call makes one decision on the rates of one or several keys: either all are charged, or none.
-- First, every key is loaded into one state for each rate (src/30_states.lua). Then the states
-- decide, are charged, and are combined into the reply. Finally, the charged states are written. (A
-- call with one cost is charged and written key by key, after all states have decided.) A call that
-- returns an error has therefore changed nothing.
--
-- The enforced limits of a call make one decision. Each shadow policy (a group of limits) makes a
-- separate decision: it is charged if it would allow, and the call continues in either case. Shadow
-- policies never deny: they try a limit on real traffic before it is enforced. If the enforced
-- limits deny, nothing is charged.
--
-- The reply is { allowed, limit, remaining, retry_after_ms, reset_after_ms, index }. With shadow
-- policies it also has would_allowed, would_retry_after_ms and would_index: the result that the
-- call would have if no policy were a shadow policy. With EACH, one more element is a list with the
-- first five fields for each limit by itself.

local list = states.list

-- reply is the reply of a call. All calls share one table, because Redis converts it to integers
-- before the next call begins. A new table for each call costs 4 % of a denied call
-- (bench/README.md).
local reply = {}

-- answer returns the reply to a call with one key.
function decisions.answer(allowed, capacity, remaining, retry, reset)
  reply[1], reply[2], reply[3], reply[4], reply[5], reply[6] = allowed, capacity, remaining, retry, reset, 1
  return reply
end

-- wait returns the time in ms after which a rate that denies would allow, or -1 for never.
local function wait(state, cost)
  local rate = state.rate
  if cost > rate.capacity then return -1 end
  return state.ends_in > 0 and state.ends_in or rate.algorithm.wait(state, cost)
end

-- replace replaces a limit of a request by the override of its key. The call still counts for the
-- limit's policy.
local function replace(request, i, override)
  local limit = request.limits[i]
  override.calls, override.span = limit.calls, limit.span
  request.limits[i] = override
  return override
end

------------------------------------------------------------------- one cost for all limits

-- The functions of this section decide takes and peeks with one cost above 0, without UPTO and
-- without shadow policies. For EACH, they add the list afterwards. The code for groups of limits takes
-- an eighth longer for these calls if they have several keys.

-- deny fills in the reply to a call that is denied by the state at position `binding`, and perhaps
-- by later states.
local function deny(binding, size, cost)
  local retry, longest, least = 0, 0, numbers.MOST
  for at = 1, size do
    local state, reset = list[at], 0
    local free = state.free
    if cost > free then
      local ms = wait(state, cost)
      if retry ~= -1 and (ms > retry or ms == -1) then retry = ms end
      reset = state.ends_in
    end
    if reset == 0 then reset = state.rate.algorithm.reset(state) end
    if reset > longest then longest = reset end
    if free < least then least = free > 0 and free or 0 end
  end
  return decisions.answer(0, list[binding].rate.capacity, least, retry, longest)
end

-- allow charges the states, writes them unless the call only peeks, and fills in the reply. It also
-- returns the position of the binding state.
local function allow(keys, request, cost, peeks)
  local size, binding, least, longest, retry = 0, 1, numbers.MOST, 0, 0
  for i = 1, request.count do
    local limit = request.limits[i]
    local algorithm, first = limit.algorithm, size + 1
    size = size + limit.size
    for at = first, size do
      local state = list[at]
      algorithm.charge(state, cost)
      if algorithm.delays and state.delay > retry then retry = state.delay end
      if state.reset > longest then longest = state.reset end
      if state.free < least then
        least, binding = state.free, at
      end
    end
    if not peeks then limit.form.write(keys[i], limit, first) end
  end
  return decisions.answer(1, list[binding].rate.capacity, least, retry, longest), binding
end

-- decide_one_cost decides a request with one cost above 0. It returns the reply, or the error.
local function decide_one_cost(keys, request, cost, peeks)
  local size, binding, whole = 0
  for i = 1, request.count do
    local limit = request.limits[i]
    local other = limit.form.load(keys[i], limit, size + 1, cost, request.head, request.left)
    if other then
      if other.err then return other end
      limit = replace(request, i, other)
    end
    for at = size + 1, size + limit.size do
      if not binding and cost > list[at].free then binding = at end
    end
    size = size + limit.size
  end
  if binding then
    whole = deny(binding, size, cost)
  else
    whole, binding = allow(keys, request, cost, peeks)
  end
  local i = 1
  while binding > request.limits[i].size do
    binding = binding - request.limits[i].size
    i = i + 1
  end
  whole[6] = i
  return whole
end

------------------------------------------------------------------- groups of limits

local ENFORCED = {} -- the group of the limits that are enforced

-- load loads every key of a request into states, and marks the groups that deny. It returns the
-- number of states, or nil and the error. The costs of UPTO depend on the capacities, so if load
-- finds overrides, it loads the keys again.
local function load(keys, request, verb, again)
  local costs, group_of, size, overridden = request.costs, request.group_of, 0, false
  ENFORCED.denies = false
  for i = 1, request.count do
    local limit, group, cost = request.limits[i], group_of and group_of[i] or ENFORCED, costs and costs[i] or request.cost
    local other = limit.form.load(keys[i], limit, size + 1, verb == 'refund' and 1 or cost)
    if other then
      if other.err then return nil, other end
      limit, overridden = replace(request, i, other), true
    end
    if verb ~= 'charge' then cost = 0 end -- a refund, and FORCE, are denied only by a block
    for at = size + 1, size + limit.size do
      local state = list[at]
      state.index, state.cost, state.group = i, cost, group
      if cost > state.free then group.denies = true end
    end
    size = size + limit.size
  end
  if overridden and request.UPTO and not again then
    states.begin()
    request.costs = requests.within_capacity()
    return load(keys, request, verb, true)
  end
  return size
end

-- fit lowers the cost of a group to the number of units that fit, at most `most` (UPTO). It returns
-- that number, or 0 if not even one fits.
local function fit(size, group, most)
  local fits = most
  for i = 1, size do
    if list[i].group == group then
      fits = math.min(fits, list[i].cost, math.max(0, list[i].free))
    end
  end
  for i = 1, size do
    if list[i].group == group then
      list[i].cost = math.max(1, fits)
    end
  end
  group.denies = fits == 0
  return fits
end

-- decide_groups sets which groups are charged. A refund is decided for each group separately: a
-- blocked key under a shadow policy does not prevent a refund to the other keys.
local function decide_groups(size, request, verb)
  local units = request.UPTO
  if units and units > 0 and request.enforced then
    units = fit(size, ENFORCED, units)
  end
  ENFORCED.charged = not ENFORCED.denies
  if not request.groups then return end
  for _, group in ipairs(request.groups) do
    if units and request.costs[1] > 0 then
      fit(size, group, math.max(1, units))
    end
    group.charged = not group.denies and (ENFORCED.charged or verb == 'refund')
  end
end

-- force charges a state even if the units do not fit, up to the debt that it may take.
local function force(state, units)
  local algorithm = state.rate.algorithm
  algorithm.charge(state, math.min(units, algorithm.spare(state)))
  state.free, state.ends_in = math.max(0, state.free), 0
end

-- charge charges or refunds the states of the groups that are charged. It returns the error, or nil.
local function charge(size, request, verb)
  local costs = request.costs
  for i = 1, size do
    local state = list[i]
    local cost = state.cost
    if verb ~= 'charge' then cost = costs and costs[state.index] or request.cost end
    if cost > 0 and state.group.charged then
      local err = (verb == 'force' and force or state.rate.algorithm[verb])(state, cost)
      if err then return err end
    end
  end
  return nil
end

-- sum_up fills in six fields of a reply for the states from position `first` to `last` that are in
-- a group, or for all of them if group is nil: the smallest remaining, the longest waits, and the
-- binding rate, which is the first that denies or else the first with the smallest remaining. With
-- upto, field 1 is the number of units taken. With forced, the wait of an allowed call is the time
-- until one unit fits.
local function sum_up(whole, first, last, group, upto, forced)
  local binding, denied, units, least = nil, false, upto and numbers.MOST or 1, numbers.MOST
  local retry, longest = 0, 0
  for i = first, last do
    local state = list[i]
    if not group or state.group == group then
      local algorithm, free, cost, ms, reset = state.rate.algorithm, state.free, state.cost, 0, 0
      if cost > free and not state.group.charged then -- this rate denies
        ms, reset = wait(state, cost), state.ends_in
        if not denied then
          binding, denied, retry = state, true, 0
        end
      elseif not denied then
        if free < least or not binding then binding = state end
        if forced and free == 0 then
          ms = wait(state, 1)
        elseif algorithm.delays and cost > 0 and state.group.charged then
          ms = state.delay
        end
      end
      if reset == 0 then reset = state.reset or algorithm.reset(state) end
      if reset > longest then longest = reset end
      if ms ~= 0 and retry ~= -1 and (ms > retry or ms == -1) then retry = ms end
      if free < least then least = free > 0 and free or 0 end
      if upto and cost < units then units = cost end
    end
  end
  whole[1], whole[2], whole[3] = denied and 0 or units, binding.rate.capacity, least
  whole[4], whole[5], whole[6] = retry, longest, binding.index
  return whole
end

local result, fields_of, with_each = {}, {}, {} -- of EACH; reused by the next call

-- each returns the list that EACH adds to the reply.
local function each(request)
  local count, first = request.count, 1
  for i = 1, count do
    local fields, last = fields_of[i] or {}, first + request.limits[i].size - 1
    sum_up(fields, first, last, nil, request.UPTO, request.FORCE)
    fields[6] = nil
    result[i], fields_of[i], first = fields, fields, last + 1
  end
  for i = count + 1, #result do
    result[i] = nil
  end
  return result
end

-- add_each returns the reply of a request with EACH that decide_one_cost has decided.
local function add_each(request, cost, charged)
  local at = 1
  ENFORCED.charged = charged
  for i = 1, request.count do
    for _ = 1, request.limits[i].size do
      local state = list[at]
      state.index, state.cost, state.group = i, cost, ENFORCED
      at = at + 1
    end
  end
  for i = 1, 6 do
    with_each[i] = reply[i]
  end
  with_each[7] = each(request)
  return with_each
end

-- write stores the states that were changed. It reports whether any state was changed.
local function write(keys, request)
  local costs, at, any = request.costs, 1, false
  for i = 1, request.count do
    local limit = request.limits[i]
    if (costs and costs[i] or request.cost) > 0 and list[at].group.charged then
      limit.form.write(keys[i], limit, at)
      any = true
    end
    at = at + limit.size
  end
  return any
end

local function decide_request(keys, request, verb, peeks)
  local size, err = load(keys, request, verb)
  if err then return err end
  decide_groups(size, request, verb)
  err = charge(size, request, verb)
  if err then return err end
  local upto, forced, whole = request.UPTO, request.FORCE, reply
  if request.groups then
    local would = sum_up({}, 1, size, nil, upto, forced)
    whole = sum_up({}, 1, size, request.enforced and ENFORCED, upto, forced)
    if not request.enforced then
      whole[1], whole[4] = upto or 1, 0
    end
    whole[7], whole[8], whole[9] = would[1], would[4], would[6]
  else
    if request.EACH then whole = {} end
    sum_up(whole, 1, size, nil, upto, forced)
  end
  if request.EACH then
    whole[#whole + 1] = each(request)
  end
  return whole, not peeks and write(keys, request), ENFORCED.charged
end

------------------------------------------------------------------- the counts of policies

-- denies reports whether one of the states from position `first` to `last`, which were not charged,
-- denies. cost is the cost for all states, or nil if each state has its own.
local function denies(first, last, cost)
  for i = first, last do
    if (cost or list[i].cost) > list[i].free then return true end
  end
  return false
end

-- count adds a call to the counts of its policies. If the enforced limits deny a call, it is
-- counted only for the enforced policies that deny it. passes is whether the enforced limits allow.
local function count(request, passes, cost)
  local group_of, at = request.group_of, 1
  for i = 1, request.count do
    local limit = request.limits[i]
    local calls, group = limit.calls, group_of and group_of[i]
    if calls and passes then
      local allowed = group and group.denies and 0 or 1
      calls[allowed] = calls[allowed] + 1
    elseif calls and not group then
      local last = at + limit.size - 1
      for j = i + 1, i + limit.span - 1 do
        last = last + request.limits[j].size
      end
      if denies(at, last, cost) then calls[0] = calls[0] + 1 end
    end
    at = at + limit.size
  end
end

-- decide decides a request and writes unless it only peeks. verb is charge, force or refund. It
-- returns the reply, whether anything was charged, and whether the enforced limits allow; or the error.
function decisions.decide(keys, request, verb, peeks)
  local cost, whole, charges, passes = request.cost
  states.begin()
  if verb == 'charge' and cost and cost > 0 then
    whole = decide_one_cost(keys, request, cost, peeks)
    passes = whole[1] == 1
    charges = passes
    if request.EACH and not whole.err then whole = add_each(request, cost, passes) end
  else
    cost = nil
    whole, charges, passes = decide_request(keys, request, verb, peeks)
  end
  if request.counted and not peeks and verb ~= 'refund' and whole[1] then
    count(request, passes, cost)
  end
  if states.large then states.drop() end
  return whole, charges, passes
end

local one, keys_of_one = { limits = {}, count = 1 }, {}

-- one_key decides on one key and writes. head and left are what limit.decide has read, or nil: see
-- src/45_limits.lua. It returns the reply or the error.
function decisions.one_key(key, limit, cost, head, left)
  keys_of_one[1], one.limits[1], one.cost = key, limit, cost
  one.head, one.left = head or false, left or false -- nil in a new field would make Lua rehash the table
  return (decisions.decide(keys_of_one, one, 'charge'))
end
