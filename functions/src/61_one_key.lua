-- This file decides on calls with one key and at most UPTO, FORCE, FLOOR or CLASS, as src/60_decisions.lua would, but without
-- lists of keys. src/60_decisions.lua takes those whose key has to be loaded into states.

local sought = decisions.sought
local keys, request = {}, { limits = {}, costs = {}, count = 1 } -- what decisions.decide gets; reused by the next call
local reply = {} -- reused by the next call

-- answer returns the reply to a call with one key, and adds the call to the counts of its policy.
local function answer(calls, allowed, capacity, free, retry, reset)
  if calls then policies.count(calls, allowed > 0 and 1 or 0) end
  local whole = reply
  whole[1], whole[2], whole[3], whole[4], whole[5], whole[6] = allowed, capacity, free, retry, reset, 1
  return whole
end

-- beyond decides what the functions decide and above do not: calls with an option, and keys of which probe does not know how many
-- units fit. If such a key is neither blocked nor has an override, decisions.decide takes the call. free, a, b and c are what
-- probe has returned. percent is that of FLOOR, or nil, and calls the counts of the limit's policy, or nil.
local function beyond(key, limit, cost, option, percent, calls, free, a, b, c)
  local named, commit, allowed, above, head, left, d = limit, limit.commit, 1, percent and states.kept(limit.capacity, percent) or 0, nil, nil, nil
  if not free then
    head, left = a, b
    if type(head) == 'string' then
      local blocked
      blocked, free, a, b, c, d = states.blocked(key, head, left, limit)
      if blocked then
        local too_much = option ~= 'FORCE' and (option and 1 or cost) > limit.capacity - above
        return answer(calls, 0, limit.rates[1].capacity, 0, too_much and -1 or blocked, blocked)
      elseif not free then
        limit, free, a, b, c, d = overrides.probe(key, head, left)
        above = free and percent and states.kept(limit.capacity, percent) or 0
      end
      commit = gcra_expiry.commit_behind
    end
  end
  if free and above > 0 then free = math.max(0, free - above) end
  if option == 'FORCE' and free and cost >= free then
    free = nil -- it may leave a debt above the capacity, or no unit; the reply then has the wait for one
  elseif option == 'UPTO' and free then
    cost = math.min(cost, math.max(1, free))
    allowed = cost
  end
  if not free then
    keys[1], request.limits[1], request.costs[1], request.counted, request.UPTO, request.looks_again = key, named, cost, calls, nil, nil
    request.floors, request.calls_of = percent and { percent }, calls ~= named.calls and { calls } or nil
    if option == 'UPTO' then
      request.UPTO = cost
      requests.limit_costs(request)
    end
    return (decisions.decide(keys, request, option == 'FORCE' and 'force' or 'charge', false, 0, head, left))
  elseif cost > free or cost == 0 then
    local reset, retry, capacity = limit.waits(limit, cost > free and sought(limit.capacity, cost, above), a, b, c)
    return answer(calls, cost > free and 0 or allowed, capacity or limit.capacity, free, retry, reset)
  end
  local reset, retry, capacity = commit(key, limit, cost, a, b, c, d)
  return answer(calls, allowed, capacity or limit.capacity, free - cost, option == 'FORCE' and 0 or retry, reset)
end

-- above is decide for a call with FLOOR, or for the calls of a class. option is UPTO or nil.
function one_key.above(key, limit, cost, option, percent, calls)
  if not limit.rate then return beyond(key, limit, cost, option, percent, calls) end -- what is kept free differs between the rates
  local above = states.kept(limit.capacity, percent)
  local free, a, b, c = limit.probe(key, limit, states.wanted(limit.capacity, cost, above))
  if not free or option or cost == 0 or cost > free - above then
    return beyond(key, limit, cost, option, percent, calls, free, a, b, c)
  end
  local reset, retry, capacity = limit.commit(key, limit, cost, a, b, c)
  return answer(calls, 1, capacity or limit.capacity, free - above - cost, retry, reset)
end

-- decide decides on one key, and writes. option is UPTO, FORCE or nil.
function one_key.decide(key, limit, cost, option)
  local free, a, b, c = limit.probe(key, limit, cost)
  if not free or option or cost == 0 then
    return beyond(key, limit, cost, option, nil, limit.calls, free, a, b, c)
  elseif cost > free then
    local reset, retry, capacity = limit.waits(limit, cost, a, b, c)
    return answer(limit.calls, 0, capacity or limit.capacity, free, retry, reset)
  end
  local reset, retry, capacity = limit.commit(key, limit, cost, a, b, c)
  return answer(limit.calls, 1, capacity or limit.capacity, free - cost, retry, reset)
end
