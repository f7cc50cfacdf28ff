-- A call makes one decision on the rates of one or several keys: either all are charged, or none.
-- First, every key is read with its limit's function probe, which returns how many units fit. If probe
-- cannot tell, for a refund that commit cannot make, for FORCE that leaves no unit, and for FLOOR with several
-- rates, the key is loaded into one state for each rate (src/30_states.lua), and these are charged. Then each key is written, with its limit's function commit or from its states, and
-- gives its part of the reply. A call that returns an error has therefore changed nothing.
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

-- reply is the reply to a call. All calls share one table, because Redis converts it to integers
-- before the next call begins. With a new table for each call, a denied call would take 4 % longer
-- (bench/README.md).
local reply = {}

local ENFORCED = {} -- the group of the limits that are not in a shadow policy

-- For each key of the call, by its position: how many units fit (-1 if the key is blocked), and what probe has returned.
-- For a key that is loaded into states, first is list, and second the position of its first state. All calls share
-- these tables. kept has what FLOOR keeps free, 0 without a floor.
local rooms, first, second, third, kept = {}, {}, {}, {}, {}

-- load loads a key into states, from position `at` of list on. If an override is loaded instead of the limit, it also
-- takes its place in the request. load returns the limit, how many units fit, and the override, or nil and the error.
local function load(key, request, i, at, cost, head, left)
  local limit, least, percent = request.limits[i], numbers.MOST, request.floors and request.floors[i]
  local override
  if percent then
    override = states.load_above(percent, key, limit, at, cost, head, left)
  else
    override = limit.form.load(key, limit, at, cost, head, left)
  end
  if override then
    if override.err then return nil, override end
    override.calls, override.span = limit.calls, limit.span -- the call still counts for the limit's policy
    request.limits[i], limit = override, override
  end
  for j = at, at + limit.size - 1 do
    local free = list[j].free
    if percent and free > 0 then free = math.max(0, free - states.kept(list[j].rate.capacity, percent)) end
    if free < least then least = free end
  end
  first[i], second[i] = list, at
  return limit, least, override
end

decisions.load = load

-- look finds how many units fit into every key of a request, and marks the groups that deny. It returns the number
-- of states that it has loaded, or nil and the error. If known is not nil, probe has been called for so many keys, as rooms,
-- first, second and third say, and has failed for the next key, with head and left. The costs of UPTO depend on the
-- capacities, so if look finds overrides, it looks again.
local function look(keys, request, verb, now, known, head, left)
  local named, costs, shadows, size, overridden = request.limits, request.costs, request.group_of, 0, false
  local takes, refunds, floors = verb == 'charge', verb == 'refund', request.floors
  ENFORCED.denies = false
  for i = 1, request.count do
    local limit, cost, free, a, b, c = named[i], costs[i], nil, head, left, nil
    local percent, fails = floors and floors[i], known and i == known + 1
    kept[i] = percent and states.kept(limit.capacity, percent) or 0
    if known and i <= known then
      free, a, b, c = rooms[i], first[i], second[i], third[i]
    elseif percent then
      if limit.rate and not fails then -- otherwise what is kept differs between rates
        free, a, b, c = limit.probe(keys[i], limit, states.wanted(limit.capacity, cost, kept[i]), now, i)
        free = free and math.max(0, free - kept[i])
      end
    elseif not fails and (not refunds or limit.gives_back) then
      free, a, b, c = limit.probe(keys[i], limit, cost, now, i)
      if free and not takes and free <= (refunds and 0 or cost) then free, a, b = nil, nil, nil end -- the state may have a debt above the capacity, FORCE may leave one, and without a unit left FORCE returns the wait for one
    end
    if free then
      first[i], second[i], third[i] = a, b, c
    else
      if size == 0 then states.begin() end
      local override
      limit, free, override = load(keys[i], request, i, size + 1, refunds and 1 or cost, a, b)
      if not limit then return nil, free end
      size, overridden = size + limit.size, overridden or override
    end
    rooms[i] = free
    if free < (takes and cost or 0) then (shadows and shadows[i] or ENFORCED).denies = true end -- only a block denies a refund, or FORCE
  end
  if overridden and request.UPTO and not request.looks_again then
    request.looks_again = true
    requests.limit_costs(request)
    return look(keys, request, verb, now)
  end
  return size
end

-- fit finds how many units, up to `most`, every limit of a group can allow (UPTO). It returns this
-- number, and makes it the cost of these limits. If it is 0, the group denies, and the cost is 1.
local function fit(request, group, most)
  local shadows, costs, fits = request.group_of, request.costs, most
  for i = 1, request.count do
    if (shadows and shadows[i] or ENFORCED) == group then fits = math.min(fits, costs[i], math.max(0, rooms[i])) end
  end
  for i = 1, request.count do
    if (shadows and shadows[i] or ENFORCED) == group then costs[i] = math.max(1, fits) end
  end
  group.denies = fits == 0
  return fits
end

-- decide_groups sets which groups are charged. A refund is decided for each group separately: a
-- blocked key under a shadow policy does not prevent a refund to the other keys.
local function decide_groups(request, verb)
  local units = request.UPTO
  if units and units > 0 then units = fit(request, ENFORCED, units) end
  ENFORCED.charged = not ENFORCED.denies
  for _, group in ipairs(request.groups or {}) do
    if units and request.UPTO > 0 then fit(request, group, math.max(1, units)) end
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

-- charge applies verb, which is charge, force or refund, to the states of the keys that are charged. It returns the
-- error, or nil.
local function charge(request, verb)
  local costs, shadows = request.costs, request.group_of
  for i = 1, request.count do
    local units, at = costs[i], second[i]
    if first[i] == list and units > 0 and (shadows and shadows[i] or ENFORCED).charged then
      for j = at, at + request.limits[i].size - 1 do
        local state = list[j]
        local err = (verb == 'force' and force or state.rate.algorithm[verb])(state, units)
        if err then return err end
      end
    end
  end
  return nil
end

-- restore loads the keys that are not charged again, as for a cost of 1, if an impossible state was
-- replaced by one with room for more. The new state is not stored, so the reply must not count this
-- room. Such a state still does not deny: it keeps its field room.
local function restore(keys, request)
  local replaced, named, shadows = {}, request.limits, request.group_of -- replaced: from the position of such a state to its key
  for i = 1, request.count do
    local at = first[i] == list and not (shadows and shadows[i] or ENFORCED).charged and second[i]
    for j = at or 1, at and at + named[i].size - 1 or 0 do
      if list[j].room then replaced[j] = i end
    end
  end
  states.begin()
  local restored = {}
  for _, i in pairs(replaced) do
    if not restored[i] then states.load_above(request.floors and request.floors[i] or 0, keys[i], named[i], second[i], 1) end
    restored[i] = true
  end
  for j in pairs(replaced) do
    list[j].room, states.any_room = true, true
  end
end

-- sought returns how many units of a capacity must be free for a cost if FLOOR keeps `above` units free; math.huge if they never
-- are. The sum may be above 2^53, and rounded.
local function sought(capacity, cost, above) return above > 0 and cost > capacity - above and math.huge or cost + above end
decisions.sought = sought

-- wait returns the time in ms until cost units of a rate are free, or -1 for never.
local function wait(state, cost)
  local rate = state.rate
  if cost > rate.capacity then return -1 end
  return state.ends_in > 0 and state.ends_in or rate.algorithm.wait(state, cost)
end

-- longer returns the longer of two waits in ms; -1 is the longest.
local function longer(a, b) return (a < 0 or b < 0) and -1 or a > b and a or b end

decisions.wait, decisions.longer = wait, longer

-- sum_up returns a key's part of the reply from its states: reset, retry, the capacity of the binding rate, remaining, and
-- whether the key denies. cost is 0 if only a block denies. If forced is true, the wait of an allowed call is the
-- time until one unit fits. percent is the FLOOR of the key, or nil.
local function sum_up(at, size, cost, charged, forced, percent)
  local binding, denies, least, retry, longest = nil, false, numbers.MOST, 0, 0
  for j = at, at + size - 1 do
    local state = list[j]
    local free, reset, ms, above = state.free, state.reset, 0, percent and states.kept(state.rate.capacity, percent) or 0
    if above > 0 and free > 0 then free = math.max(0, free - above) end
    if cost > free and not charged and not (state.room and cost <= state.rate.capacity - above) then -- this rate denies
      ms, reset = wait(state, sought(state.rate.capacity, cost, above)), state.ends_in > 0 and state.ends_in
      if not denies then binding, denies, retry = state, true, 0 end
    elseif not denies then
      if free < least or not binding then binding = state end
      if forced and free == 0 then
        ms = wait(state, 1)
      elseif not forced then
        ms = state.delay
      end
    end
    reset = reset or state.rate.algorithm.reset(state)
    if reset > longest then longest = reset end
    if ms ~= 0 then retry = longer(retry, ms) end
    if free < least then least = free > 0 and free or 0 end
  end
  return longest, retry, binding.rate.capacity, least, denies
end

local would_be = {} -- the fields 1, 3, 4 and 6 of the reply if no policy were a shadow

-- add adds key i to would_be, in the same way as decide adds it to the reply.
local function add(i, retry, left, denies)
  local whole = would_be
  if denies then
    if whole[1] == 1 then whole[1], whole[4], whole[6] = 0, 0, i end
  elseif whole[1] == 0 then
    retry = 0
  elseif left < whole[3] or i == 1 then
    whole[6] = i
  end
  if left < whole[3] then whole[3] = left end
  whole[4] = longer(whole[4], retry)
end

local results = {} -- the list that EACH adds to the reply; reused by the next call
local reply_each = { [7] = results } -- reply for EACH without shadow policies

-- note sets the result of key i.
local function note(i, allowed, capacity, free, retry, reset, charged)
  local entry = results[i]
  if not entry then
    entry = {}
    results[i] = entry
  end
  entry[1], entry[2], entry[3], entry[4], entry[5], entry[6] = allowed, capacity, free, retry, reset, charged
end

local denials = {} -- whether each key of a call with policies denies; reused by the next call

-- count adds a call to the counts of its policies. If the enforced limits deny a call, it is counted
-- only for the enforced policies that deny it.
local function count(request)
  for i = 1, request.count do
    local limit, group = request.limits[i], request.group_of and request.group_of[i]
    local calls, allowed = request.calls_of and request.calls_of[i] or limit.calls, nil
    if calls and ENFORCED.charged then
      allowed = group and group.denies and 0 or 1
    elseif calls and not group then
      for j = i, i + limit.span - 1 do
        if denials[j] then allowed = 0 end
      end
    end
    if allowed then policies.count(calls, allowed) end
  end
end

local decide

-- as_enforced returns the reply to a call with UPTO if none of its policies were a shadow policy, or the
-- error. All limits then decide together how many units fit, so it is a decision of its own. A call
-- without UPTO has the same costs in both, so this reply can be added up from the same keys.
local function as_enforced(keys, request)
  local groups, group_of, wants_each = request.groups, request.group_of, request.EACH
  request.groups, request.group_of, request.EACH = nil, nil, nil
  requests.limit_costs(request)
  local whole = decide(keys, request, 'charge', true)
  request.groups, request.group_of, request.EACH = groups, group_of, wants_each
  requests.limit_costs(request)
  return whole
end

function decide(keys, request, verb, peeks, known, head, left)
  local groups, upto, each, counted, number = request.groups, request.UPTO, request.EACH, request.counted, request.count
  local would = groups and upto and as_enforced(keys, request)
  if would and would.err then return would end
  local takes, forced, refunds, now = verb == 'charge', verb == 'force', verb == 'refund', number > 1 and not CLOCK_STANDS and clock.ms() or nil
  local size, err = look(keys, request, verb, now, known, head, left)
  if err then return err end
  ENFORCED.charged = not ENFORCED.denies
  if groups or upto then decide_groups(request, verb) end
  if size > 0 then
    err = charge(request, verb)
    if err then return err end
    if states.any_room then restore(keys, request) end
  end
  local named, costs, shadows, enforced, changes, floors = request.limits, request.costs, request.group_of, true, false, request.floors
  local allowed, binding, capacity, least, longest_wait, longest = 1, 0, 0, numbers.MOST, 0, 0
  if groups then
    enforced = request.shadows < number
    would_be[1], would_be[3], would_be[4] = 1, numbers.MOST, 0
  end
  -- The reply has the smallest remaining and the longest waits. The binding key is the first that denies. If no key
  -- denies, it is the first with the smallest remaining.
  for i = 1, number do
    local limit, cost, group, free, a = named[i], costs[i], shadows and shadows[i] or ENFORCED, rooms[i], first[i]
    local charged, denies, reset, retry, most = group.charged, false
    if a == list then
      reset, retry, most, free, denies = sum_up(second[i], limit.size, takes and cost or 0, charged, forced, floors and floors[i])
      if charged and cost > 0 then
        if not peeks then limit.form.write(keys[i], limit, second[i]) end
        changes = true
      end
    elseif charged and cost > 0 then
      if not refunds then
        reset, retry, most = limit.commit(not peeks and keys[i], limit, cost, a, second[i], third[i], now)
        free = free - cost
      elseif cost < limit.capacity - free then
        reset = limit.commit(keys[i], limit, -cost, a, second[i], third[i], now)
        free = free + cost
      else
        redis.call('DEL', keys[i])
        free, reset = limit.capacity, 0
      end
      if not takes then retry = 0 end
      changes = true
    else
      denies = takes and not charged and cost > free
      reset, retry, most = limit.waits(limit, denies and sought(limit.capacity, cost, kept[i]), a, second[i], third[i])
    end
    if counted then denials[i] = denies end
    if each then note(i, denies and 0 or upto and cost or 1, most or limit.capacity, free, retry, reset, groups and (charged and cost or 0) or nil) end
    if groups then add(i, retry, free, denies) end
    if group == ENFORCED or not enforced then
      if denies then
        if allowed > 0 then allowed, binding, capacity, longest_wait = 0, i, most or limit.capacity, 0 end
      elseif allowed == 0 then
        retry = 0
      elseif free < least or binding == 0 then
        binding, capacity = i, most or limit.capacity
      end
      if free < least then least = free end
      if retry ~= 0 then longest_wait = longer(longest_wait, retry) end
      if reset > longest then longest = reset end
    end
  end
  if upto and allowed == 1 then allowed = costs[binding] end
  local whole = groups and {} or each and reply_each or reply
  whole[1], whole[2], whole[3], whole[4], whole[5], whole[6] = allowed, capacity, least, longest_wait, longest, binding
  if groups then
    would = would or would_be
    if not enforced then whole[1], whole[4] = upto or 1, 0 end
    whole[7], whole[8], whole[9] = would[1], would[4], would[6]
  end
  if each then results[number + 1] = nil end -- the list ends there
  if each and groups then whole[10] = results end
  if counted and not peeks and not refunds then count(request) end
  return whole, changes and not peeks, ENFORCED.charged
end

-- decide carries out a request. If peeks is true, it writes nothing. verb is charge, force or
-- refund. decide returns the reply, whether anything was charged or given back, and whether the enforced
-- limits allow the request. If the request fails, decide returns only the error. For known, head and left see look.
function decisions.decide(keys, request, verb, peeks, known, head, left)
  local whole, charges, passes = decide(keys, request, verb, peeks, known, head, left)
  states.drop()
  return whole, charges, passes
end

-- plain carries out a take of 1 unit of each key, with at most the option EACH; see requests.plain. It does what decide would, if the function probe of every limit knows how
-- many units fit.
function decisions.plain(keys, request)
  local named, number, now, denies = request.limits, request.count, not CLOCK_STANDS and clock.ms() or nil, false
  for i = 1, number do
    local limit = named[i]
    local free, a, b, c = limit.probe(keys[i], limit, 1, now, i)
    if not free then return (decisions.decide(keys, request, 'charge', false, i - 1, a, b)) end
    rooms[i], first[i], second[i], third[i] = free, a, b, c
    if free < 1 then denies = true end
  end
  local each, least, binding, capacity, longest_wait, longest = request.EACH, numbers.MOST, 0, 0, 0, 0
  for i = 1, number do
    local limit, free = named[i], rooms[i]
    local reset, retry, most
    if denies then
      denials[i] = free < 1
      reset, retry, most = limit.waits(limit, free < 1 and 1, first[i], second[i], third[i])
      if free < 1 and least > 0 then least, binding, capacity = 0, i, most or limit.capacity end
    else
      free = free - 1
      reset, retry, most = limit.commit(keys[i], limit, 1, first[i], second[i], third[i], now)
      if free < least then least, binding, capacity = free, i, most or limit.capacity end
    end
    if each then note(i, rooms[i] < 1 and 0 or 1, most or limit.capacity, free, retry, reset) end
    if retry ~= 0 then longest_wait = longer(longest_wait, retry) end
    if reset > longest then longest = reset end
  end
  ENFORCED.charged = not denies
  if request.counted then count(request) end
  local whole = each and reply_each or reply
  if each then results[number + 1] = nil end
  whole[1], whole[2], whole[3], whole[4], whole[5], whole[6] = denies and 0 or 1, capacity, least, longest_wait, longest, binding
  return whole
end
