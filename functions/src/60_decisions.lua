-- One decision over the rates of one or several keys: either all are charged, or none. First, every
-- key is read into one state for each rate (src/30_states.lua). Then the states decide, are charged
-- and are summed up. Finally, the charged states are written. A call that returns an error has
-- therefore changed nothing.
--
-- Shadow policies decide but never deny: they try a limit on real traffic before it is enforced.
-- The enforced limits of a call make one decision. Each shadow policy (a group) makes another: it
-- is charged if it would allow, and the call continues in either case. If the enforced limits deny,
-- nothing is charged.
--
-- The reply is { allowed, limit, remaining, retry_after_ms, reset_after_ms, index }. With shadow
-- policies it also has would_allowed, would_retry_after_ms and would_index: the result if no policy
-- of the call were a shadow.

local list = states.list
local ENFORCED = {} -- the group of the limits that are enforced

-- open reads every key of a request into states, and marks the groups that deny. It returns the
-- error, or nil.
local function open(keys, request, verb)
  local asked, costs, group_of, refund, count = request.limits, request.costs, request.group_of, verb == 'refund', 0
  ENFORCED.denies = false
  states.begin()
  for i = 1, request.count do
    local limit, cost, group = asked[i], costs[i], group_of and group_of[i] or ENFORCED
    if refund then cost = 1 end
    local err = limit.open(keys[i], limit, count + 1, cost)
    if err then return err end
    if refund then cost = 0 end -- a refund takes nothing, so only a block denies it
    local last = count + limit.size
    for at = count + 1, last do
      local state = list[at]
      state.index, state.cost, state.group = i, cost, group
      if cost > state.free then group.denies = true end
    end
    count = last
  end
  request.states = count
  return nil
end

-- fit lowers the cost of a group to the number of units that fit, at most `most` (UPTO). It returns
-- that number, or 0 if not even one fits.
local function fit(count, group, most)
  local fits = most
  for i = 1, count do
    if list[i].group == group then
      fits = math.min(fits, list[i].cost, math.max(0, list[i].free))
    end
  end
  for i = 1, count do
    if list[i].group == group then
      list[i].cost = math.max(1, fits)
    end
  end
  group.denies = fits == 0
  return fits
end

-- wait returns the ms after which a rate that denies would allow, or -1 for never.
local function wait(state)
  if state.cost > state.rate.capacity then return -1 end
  return state.foreign > 0 and state.foreign or state.rate.wait(state, state.cost)
end

-- sum_up fills in the six fields of a reply from the states of a group, or from all states if group
-- is nil: the smallest remaining, the longest waits, and the binding rate, which is the first that
-- denies or else the first with the smallest remaining. With upto, field 1 is the number of units
-- taken.
local function sum_up(reply, count, group, upto)
  local binding, denied, units, least = nil, false, upto and numbers.MOST or 1, numbers.MOST
  local longest_wait, longest_reset = 0, 0
  for i = 1, count do
    local state = list[i]
    if not group or state.group == group then
      local rate, free, cost, ms, reset = state.rate, state.free, state.cost, 0, 0
      if cost > free and not state.group.charged then -- this rate denies
        ms, reset = wait(state), state.foreign
        if not denied then
          binding, denied, longest_wait = state, true, 0
        end
      elseif not denied then
        if free < least or not binding then binding = state end
        if rate.delays and cost > 0 and state.group.charged then ms = state.delay end
      end
      if reset == 0 then
        reset = rate.reset(state)
        state.reset = reset
      end
      if reset > longest_reset then longest_reset = reset end
      if ms ~= 0 and longest_wait ~= -1 and (ms > longest_wait or ms == -1) then longest_wait = ms end
      if free < least then least = free > 0 and free or 0 end
      if upto and cost < units then units = cost end
    end
  end
  reply[1] = denied and 0 or units
  reply[2], reply[3], reply[4], reply[5], reply[6] = binding.rate.capacity, least, longest_wait, longest_reset, binding.index
  return reply
end

-- The reply of a call. All calls share one table, because Redis converts it to integers before the
-- next call begins. A new table for each call costs 4 % of a denied call (bench/README.md).
local usual = { 0, 0, 0, 0, 0, 1 }

-- reply_to returns the reply for the decision.
local function reply_to(request)
  local count, upto = request.states, request.UPTO
  if not request.groups then return sum_up(usual, count, nil, upto) end
  local would = sum_up({}, count, nil, upto)
  local reply = sum_up({}, count, request.enforced and ENFORCED, upto)
  if not request.enforced then
    reply[1], reply[4] = upto or 1, 0
  end
  reply[7], reply[8], reply[9] = would[1], would[4], would[6]
  return reply
end

-- decide_groups sets which groups are charged.
local function decide_groups(request, verb)
  local count, units = request.states, request.UPTO
  if units and units > 0 and request.enforced then
    units = fit(count, ENFORCED, units)
  end
  ENFORCED.charged = not ENFORCED.denies
  for _, group in ipairs(request.groups or {}) do
    if units and request.costs[1] > 0 then
      fit(count, group, math.max(1, units))
    end
    group.charged = not group.denies and (ENFORCED.charged or verb == 'refund')
  end
end

-- decide decides a request and charges the states, but writes nothing. With the verb refund it
-- gives back units, to each group separately: a blocked key under a shadow policy does not prevent
-- a refund to the others. It returns the reply, or nil and the error.
function decisions.decide(keys, request, verb)
  local err = open(keys, request, verb)
  if err then return nil, err end
  if request.UPTO or request.groups then
    decide_groups(request, verb)
  else
    ENFORCED.charged = not ENFORCED.denies
  end
  request.passes = ENFORCED.charged
  for i = 1, (request.passes or request.groups) and request.states or 0 do
    local state = list[i]
    local cost = state.cost
    if verb == 'refund' then cost = request.costs[state.index] end
    if cost > 0 and state.group.charged then
      err = state.rate[verb](state, cost)
      if err then return nil, err end
    end
  end
  return reply_to(request)
end

-- write stores the states that decide changed. It reports whether there were any.
function decisions.write(keys, request)
  local asked, costs, at, any = request.limits, request.costs, 1, false
  for i = 1, (request.passes or request.groups) and request.count or 0 do
    local limit = asked[i]
    if costs[i] > 0 and list[at].group.charged then
      limit.write(keys[i], limit, at)
      any = true
    end
    at = at + limit.size
  end
  return any
end

-- one is decide and write for the common call: one key and a limit with one rate, or with a fast
-- path (limit.take). It returns the reply or the error, or nil if the call needs a request.
function decisions.one(key, limit, cost)
  if limit.take and cost > 0 and limit.take(key, limit, cost, usual) then return usual end
  local rate = limit.rate
  if not rate then return nil end
  states.begin()
  local err = limit.open(key, limit, 1, cost)
  if err then return err end
  local state = list[1]
  local remaining, retry, reset = state.free, 0, state.foreign
  if cost > remaining then
    state.cost = cost
    usual[1], retry = 0, wait(state)
    remaining, reset = remaining > 0 and remaining or 0, reset > 0 and reset or rate.reset(state)
  else
    if cost > 0 then
      rate.charge(state, cost)
      remaining, retry = state.free, rate.delays and state.delay or 0
    end
    usual[1], reset = 1, rate.reset(state)
    state.reset = reset
    if cost > 0 then limit.write(key, limit, 1) end
  end
  usual[2], usual[3], usual[4], usual[5], usual[6] = rate.capacity, remaining, retry, reset, 1
  return usual
end

-- take is decide and write. It returns the reply and whether anything was charged, or nil and the
-- error.
function decisions.take(keys, request)
  if request.count == 1 and not request.UPTO and not request.groups then
    local cost = request.costs[1]
    local reply = decisions.one(keys[1], request.limits[1], cost)
    if reply and reply.err then
      return nil, reply
    elseif reply then
      request.passes = reply[1] == 1
      return reply, request.passes and cost > 0
    end
  end
  local reply, err = decisions.decide(keys, request, 'charge')
  if not reply then return nil, err end
  return reply, decisions.write(keys, request)
end
