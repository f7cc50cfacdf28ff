-- The arguments of take, peek and refund:
--   limit [limit ...] [COST c | COST c1 ... cn] [UPTO | FORCE] [ONCE ttl_ms] [TRACK] [EACH]
-- The keys are one for each limit, then one for ONCE and one for TRACK, in the order in which these
-- options are given.
--
-- A request has these fields:
--   limits, count   the limits, and their number. src/60_decisions.lua replaces a limit by its override
--   cost            one cost for all limits, in a request without UPTO and shadow policies
--   costs           one cost for each limit, in any other request; with UPTO, at most what the capacities allow
--   UPTO            the requested cost
--   FORCE           whether the cost is charged even if it does not fit
--   EACH            whether the reply has a list of what each limit says
--   ONCE, TRACK     their keys
--   ttl             of ONCE, in ms
--   groups          its shadow policies, see src/60_decisions.lua
--   group_of        from a limit's position to its shadow policy
--   enforced        whether any limit is not in a shadow policy
--   composed        its policies with more than one limit or with other settings; composed.track: whether one has track
--   counted         whether any limit is in a policy
-- A ninth field of the table costs a call about 3 %.

local OPTIONS = {
  COST = 'COST', UPTO = 'UPTO', FORCE = 'FORCE', ONCE = 'ONCE', TRACK = 'TRACK', EACH = 'EACH',
  cost = 'COST', upto = 'UPTO', force = 'FORCE', once = 'ONCE', track = 'TRACK', each = 'EACH',
}
local MOST_LIMITS = 50
local MOST_RATES_IN_CALL = 250
local FEW = 5000 -- a call that asks for at most this much exceeds no algorithm's bound (see most in src/45_limits.lua)

local request -- the request of the current call

-- join adds the limits of a policy to the request after its first `count`. It returns the new
-- number of limits.
local function join(policy, count)
  request.composed[#request.composed + 1] = policy
  if policy.track then request.composed.track = true end
  local group = nil
  if policy.shadow then
    group = { denies = false }
    request.groups = request.groups or {}
    request.groups[#request.groups + 1] = group
  else
    request.enforced = true
  end
  for i, limit in ipairs(policy.limits) do
    request.limits[count + i], request.group_of[count + i] = limit, group
  end
  return count + #policy.limits
end

-- excess returns the error for limits that exceed the bounds of one call, or nil.
local function excess(count, rates)
  if count > MOST_LIMITS then
    return errors.new('BADARGS', '%d limits; one call takes at most %d', count, MOST_LIMITS)
  elseif rates > MOST_RATES_IN_CALL then
    return errors.new('BADARGS', '%d rates; one call takes at most %d', rates, MOST_RATES_IN_CALL)
  end
  local sums = {}
  for i = 1, count do
    local limit = request.limits[i]
    local most = limit.algorithm.most
    if most then
      sums[most] = (sums[most] or 0) + limit.asks
      if sums[most] > most.sum then
        return errors.new('BADARGS', '%d %s; one call takes at most %d%s', sums[most], most.what, most.sum, most.advice)
      end
    end
  end
  return nil
end

-- read_limits reads the limits, and stops at the first limit that exceeds a bound. It returns the
-- position after them, or nil and the error.
local function read_limits(keys, args)
  local at, count, rates, asked = 1, 0, 0, 0
  while args[at] and not OPTIONS[args[at]] do
    local limit, err = limits.of(args[at])
    if err then
      return nil, err
    elseif limit.canary and policies.in_canary(limit.canary, limit.name, keys[count + 1] or '') then
      limit = limit.canary
    end
    if limit.calls then request.counted = true end
    if limit.limits then
      count = join(limit, count)
    else
      count = count + 1
      request.limits[count], request.enforced = limit, true
    end
    rates, asked = rates + limit.size, asked + limit.asks
    if count > MOST_LIMITS or rates > MOST_RATES_IN_CALL or asked > FEW then
      err = excess(count, rates)
      if err then return nil, err end
    end
    at = at + 1
  end
  request.count = count
  return at
end

-- misnumbered returns the error for a number of costs that is not the number of limits.
local function misnumbered(costs)
  return errors.new('BADARGS', 'the number of costs is %d and the number of limits %d; give one cost for all, or one for each',
    costs, request.count)
end

-- read_costs reads the numbers from position at on. It returns them, or nil and the error.
local function read_costs(args, at)
  local costs, last = {}, at
  while args[last] and not OPTIONS[args[last]] do
    last = last + 1
  end
  if last - at > MOST_LIMITS then return nil, misnumbered(last - at) end
  for i = at, last - 1 do
    local cost = numbers.parse(args[i])
    if not cost then
      return nil, errors.new('BADCOST', '%s: a cost is ' .. numbers.WHOLE, errors.quote(args[i]), '0')
    end
    costs[#costs + 1] = cost
  end
  return costs
end

-- read_options reads the arguments after the limits. allowed lists the options of the verb. It
-- returns the number of keys that the request needs, or nil and the error.
local function read_options(keys, args, at, allowed)
  local used = request.count
  while at <= #args do
    local word, err = OPTIONS[args[at]]
    if not word or not allowed[word] then
      return nil, errors.new('BADARGS', '%s: not an option here', errors.quote(args[at]))
    elseif request[word] then
      return nil, errors.new('BADARGS', '%s is given twice', word)
    end
    at = at + 1
    if word == 'COST' then
      request.COST, err = read_costs(args, at)
      if err then return nil, err end
      at = at + #request.COST
    elseif word == 'UPTO' then
      request.UPTO = 1
    elseif word == 'FORCE' or word == 'EACH' then
      request[word] = true
    else
      used = used + 1
      request[word] = keys[used] or ''
    end
    if word == 'ONCE' then
      request.ttl = numbers.parse_positive(args[at] or '')
      if not request.ttl or request.ttl > limits.LONGEST then
        return nil, errors.new('BADARGS', '%s: ONCE is followed by the ms for which it holds, a whole number from 1 to %d',
          errors.quote(args[at] or ''), limits.LONGEST)
      end
      at = at + 1
    end
  end
  if request.UPTO and request.FORCE then
    return nil, errors.new('BADARGS', 'UPTO and FORCE are both given; UPTO takes what fits, FORCE also what does not: give one')
  end
  if request.composed.track and allowed.TRACK and not request.TRACK then
    used = used + 1
    request.TRACK = keys[used] or ''
  end
  return used
end

-- within_capacity returns the costs of an UPTO call: for each limit, at most the smallest capacity
-- among the limits that decide together.
function requests.within_capacity()
  local group_of, least, costs = request.group_of, {}, {}
  for i = 1, request.count do
    local group = group_of[i] or false
    least[group] = math.min(least[group] or request.UPTO, math.max(1, request.limits[i].capacity))
  end
  for i = 1, request.count do
    costs[i] = least[group_of[i] or false]
  end
  return costs
end

-- spread sets cost or costs. It returns the error, or nil.
local function spread()
  local count, costs, upto = request.count, request.COST or { 1 }, request.UPTO
  if upto and #costs ~= 1 then
    return errors.new('BADARGS', 'the number of costs is %d; UPTO takes the same from every key: give it one', #costs)
  elseif #costs ~= 1 and #costs ~= count then
    return misnumbered(#costs)
  elseif #costs == 1 and not upto and not request.groups then
    request.cost = costs[1]
    return nil
  elseif upto then
    request.UPTO = costs[1]
    costs = requests.within_capacity()
  end
  for i = #costs + 1, count do
    costs[i] = costs[1]
  end
  request.cost, request.costs = nil, costs
  return nil
end

-- repeated returns the error for a key that is given twice, or nil.
function requests.repeated(keys)
  for i = 2, #keys do
    for other = 1, i - 1 do
      if keys[other] == keys[i] then
        return errors.new('BADKEYS', '%s is given twice; name each key once', errors.quote(keys[i]))
      end
    end
  end
  return nil
end

-- misnamed returns the error for a number of keys that is not what the request needs. allowed has
-- TRACK if the verb takes a usage key.
local function misnamed(keys, used, allowed)
  local text = ''
  for _, policy in ipairs(request.composed) do
    local wants = policy.keys and table.concat(policy.keys, ', ') or 'a key'
    text = text .. '; @' .. policy.name .. ' takes ' .. wants .. (allowed.TRACK and policy.track and ', and a usage key last' or '')
  end
  return errors.new('BADKEYS', 'the number of keys is %d and the number of limits %d; give each limit one key, in order%s%s',
    #keys, request.count, used > request.count and ', then one for ONCE and one for TRACK' or '', text)
end

-- plain is the request that read_known returns. Every call of read_known reuses it.
local plain = { limits = {}, cost = 1 }

-- read_known returns the request of a call whose arguments are only limits, and perhaps EACH: one
-- limit for each key, all in limits.known, and within the bounds of one call. It returns nil for any
-- other call.
local function read_known(keys, args)
  local list, known, rates, asked, count, counted = plain.limits, limits.known, 0, 0, #keys, false
  local each = #args == count + 1 and OPTIONS[args[#args]] == 'EACH'
  if #args ~= count and not each or count > MOST_LIMITS then return nil end
  for i = 1, count do
    local limit = known[args[i]]
    if not limit then return nil end
    if limit.calls then
      if limit.limits then return nil end
      counted = true
    end
    list[i], rates, asked = limit, rates + limit.size, asked + limit.asks
  end
  if rates > MOST_RATES_IN_CALL or asked > FEW or requests.repeated(keys) then return nil end
  plain.count, plain.counted, plain.EACH = count, counted, each
  return plain
end

-- read returns the request, or nil and the error.
function requests.read(keys, args, allowed)
  if #keys == 0 then
    return nil, errors.new('BADKEYS', 'the number of keys is 0; give each limit one key')
  end
  request = read_known(keys, args)
  if request then return request end
  request = { limits = {}, group_of = {}, composed = {}, cost = 1 }
  local at, err = read_limits(keys, args)
  if err then return nil, err end
  if request.count == 0 then
    return nil, errors.new('BADARGS', 'no limit after the keys; give one such as 100/m for each key')
  end
  local used
  used, err = read_options(keys, args, at, allowed)
  if not err and (request.COST or request.UPTO or request.groups) then
    err = spread()
  end
  if not err and #keys ~= used then
    err = misnamed(keys, used, allowed)
  end
  err = err or requests.repeated(keys)
  if err then return nil, err end
  return request
end
