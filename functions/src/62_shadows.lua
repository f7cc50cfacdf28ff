-- Shadow policies decide and never deny: they are tried on real traffic before they are enforced. In a call, the limits
-- that are enforced make one decision, and each shadow policy makes one of its own: it is charged if it would allow,
-- and the call goes on whatever it says. If the enforced limits deny, nothing is charged anywhere.
--
-- Reply: { allowed, limit, remaining, retry_after_ms, reset_after_ms, index,
--          would_allowed, would_retry_after_ms, would_index }
-- The first six are those of the enforced limits; if there are none, what the shadow policies say, but for allowed = 1
-- and retry_after_ms = 0. The last three are what the call would have been told if no policy of it were a shadow.

-- How many calls each shadow policy let through that it would have denied: since this library was loaded, on this node.
local denied = {}

local function note(name)
  denied[name] = (denied[name] or 0) + 1
end

-- counts answers { name, count, ... } for every shadow policy.
function shadows.counts()
  local list = {}
  for _, name in ipairs(policies.names(function(policy) return policy.shadow end)) do
    list[#list + 1] = name
    list[#list + 1] = denied[name] or 0
  end
  return list
end

-- divide answers the groups of a call's limits, the enforced ones first, and that group (nil if there is none).
local function divide(keys, request)
  local enforced = {}
  local groups = {}
  for i, limit in ipairs(request.limits) do
    local group = request.limits.shadows[i] or enforced
    if not group.at then
      group.at, group.keys, group.limits, group.costs = {}, {}, {}, {}
      table.insert(groups, group == enforced and 1 or #groups + 1, group)
    end
    local n = #group.at + 1
    group.at[n], group.keys[n], group.limits[n], group.costs[n] = i, keys[i], limit, request.COST[i]
  end
  return groups, enforced.at and enforced
end

local function ask(verb, group, consume)
  local reply = decisions.all(verb, group.keys, group.limits, group.costs, consume)
  if not reply.err then
    group.reply = { reply[1], reply[2], reply[3], reply[4], reply[5], group.at[reply[6]] }
  end
  return reply.err and reply
end

-- combine answers the six fields for several groups as for one call: the first that denies is binding, else the one
-- with least remaining, the first of equals.
local function combine(groups)
  local sum
  for _, group in ipairs(groups) do
    local reply = group.reply
    if not sum then
      sum = { unpack(reply) }
    else
      local binds = reply[6] < sum[6]
      if reply[1] == sum[1] then
        if reply[1] == 1 then
          binds = reply[3] < sum[3] or (reply[3] == sum[3] and binds)
        end
        if sum[4] ~= -1 then
          sum[4] = (reply[4] == -1 or reply[4] > sum[4]) and reply[4] or sum[4]
        end
      else
        binds = reply[1] == 0
        sum[4] = binds and reply[4] or sum[4]
      end
      if binds then
        sum[1], sum[2], sum[6] = reply[1], reply[2], reply[6]
      end
      sum[3] = math.min(sum[3], reply[3])
      sum[5] = math.max(sum[5], reply[5])
    end
  end
  return sum
end

-- charge takes from every group that allows, and tells in request.charged whether anything was taken.
local function charge(verb, groups, request)
  for _, group in ipairs(groups) do
    local err = group.reply[1] == 1 and #groups > 1 and ask(verb, group, true)
    if err then
      return err
    elseif not group.name and group.reply[1] == 0 then
      return nil -- time went on between the two looks at the keys
    end
    for _, cost in ipairs(group.costs) do
      request.charged = request.charged or (group.reply[1] == 1 and cost > 0)
    end
    if verb == 'decide' and group.name and group.reply[1] == 0 then
      note(group.name)
    end
  end
  return nil
end

local function decide(verb, keys, request, consume)
  local groups, enforced = divide(keys, request)
  -- No group may write before every key has been read: a call that errs changes nothing.
  for _, group in ipairs(groups) do
    local err = ask(verb, group, consume and #groups == 1)
    if err then
      return err
    end
  end
  if consume and (not enforced or enforced.reply[1] == 1) then
    local err = charge(verb, groups, request)
    if err then
      return err
    end
  end
  local reply, would = combine(enforced and { enforced } or groups), combine(groups)
  if not enforced then
    reply[1], reply[4] = 1, 0
  end
  reply[7], reply[8], reply[9] = would[1], would[4], would[6]
  return reply
end

-- request is decisions.request for calls that may name shadow policies.
function shadows.request(keys, request, consume)
  if request.limits.shadows then
    return decide('decide', keys, request, consume)
  end
  return decisions.request(keys, request, consume)
end

-- refund gives back, to each group apart: a blocked key under a shadow policy does not keep the others from it.
function shadows.refund(keys, request)
  if request.limits.shadows then
    return decide('give', keys, request, true)
  end
  return decisions.all('give', keys, request.limits, request.COST, true)
end

-- lease turns the reply of acquire or renew under a shadow policy: a lease that would have been refused is not held.
function shadows.lease(name, reply)
  if reply.err then
    return reply
  elseif reply[1] == 0 then
    note(name)
  end
  return { 1, reply[2], reply[3], 0, reply[5], reply[6], reply[1], reply[4], reply[6] }
end
