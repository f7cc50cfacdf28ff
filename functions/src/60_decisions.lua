-- One decision over the rates of one or several keys: all of them are charged, or none. First every key is read into a
-- state for each rate (src/30_states.lua); then the states decide, are charged and summed up; what was charged is written
-- last. A call that errs has therefore changed nothing.
--
-- Shadow policies decide and never deny: they are tried on real traffic before they are enforced. In a call, the limits
-- that are enforced make one decision, and each shadow policy (a group) makes one of its own: it is charged if it would
-- allow, and the call goes on whatever it says. If the enforced limits deny, nothing is charged anywhere.
--
-- The reply: { allowed, limit, remaining, retry_after_ms, reset_after_ms, index }, and with shadow policies
-- would_allowed, would_retry_after_ms, would_index: what the call would have been told if no policy of it were a shadow.

local list = states.list
local ENFORCED = {} -- the group of the limits that are enforced
local MOST_KEPT = 64 -- states

-- trim gives the states of a call of very many rates to the collector.
local function trim()
  for at = #list, MOST_KEPT + 1, -1 do
    list[at] = nil
  end
end

-- open reads every key of a request into states, and marks the groups that deny: this is where a call is denied. Returns
-- the error, or nil.
local function open(keys, request, verb)
  local asked, costs, group_of, refund, count = request.limits, request.costs, request.group_of, verb == 'refund', 0
  ENFORCED.denies = false
  if list[MOST_KEPT + 1] then trim() end
  for i = 1, request.count do
    local limit, cost, group = asked[i], costs[i], group_of and group_of[i] or ENFORCED
    if refund then cost = 1 end
    local err = limit.open(keys[i], limit, count + 1, cost)
    if err then return err end
    if refund then cost = 0 end -- it takes nothing, and is denied by a block alone; room is made for one unit
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

-- fit lowers the cost of a group to the units that fit, from 1 to most (UPTO). Returns them, 0 if not even one fits.
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

-- wait returns the ms after which a rate that denies would allow, -1 for never.
local function wait(state)
  if state.cost > state.rate.capacity then return -1 end
  return state.foreign > 0 and state.foreign or state.rate.wait(state, state.cost)
end

-- sum_up writes the six fields of a reply over the states of a group, of all states if it is nil. They are the least
-- remaining, the longest waits, and the binding rate: the first that denies, else the first with least remaining.
-- upto: field 1 is how many units were taken.
local function sum_up(reply, count, group, upto)
  local binding, denied, units, least = nil, false, upto and numbers.MOST or 1, numbers.MOST
  local longest_wait, longest_reset = 0, 0
  for i = 1, count do
    local state = list[i]
    if not group or state.group == group then
      local rate, free, cost, ms, reset = state.rate, state.free, state.cost, 0, 0
      if cost > free and not state.group.charged then -- it denies
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

-- The reply of a call. Redis turns it into integers before the next call begins, so one table serves all calls: a new one
-- each time costs 4 % of a denied call (bench/README.md).
local usual = { 0, 0, 0, 0, 0, 1 }

-- reply_to sums up what was decided.
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

-- decide_groups says which groups are charged.
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

-- decide decides over a request and charges the states, but writes nothing; or, with the verb refund, gives back to them,
-- to each group apart: a blocked key under a shadow policy does not keep the others from it. Returns the reply; or nil and
-- the error.
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
    if cost > 0 and state.group.charged then state.rate[verb](state, cost) end
  end
  return reply_to(request)
end

-- write stores what decide has charged or given back. Returns whether that was anything.
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

-- one is decide and write for one key with one rate, or one that its algorithm takes from without states: the common call.
-- Returns the reply, or the error; or nil where it takes a request.
function decisions.one(key, limit, cost)
  if limit.take and cost > 0 and limit.take(key, limit, cost, usual) then return usual end
  local rate = limit.rate
  if not rate then return nil end
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

-- take is decide and write. Returns the reply, and whether anything was charged; or nil and the error.
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
