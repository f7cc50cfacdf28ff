-- The arguments of take, peek and refund:
--   limit [limit ...] [COST c | COST c1 ... cn] [UPTO] [ONCE ttl_ms] [TRACK]
-- The keys are one for each limit, then one for ONCE and one for TRACK, in the order of these
-- options.
--
-- A request has these fields: limits, and count, their number; costs, one for each; UPTO, the
-- requested cost; ONCE and TRACK, their keys; ttl, in ms; enforced, whether any limit is not in a
-- shadow policy; and those that policies.join adds.

local OPTIONS = {
  COST = 'COST', UPTO = 'UPTO', ONCE = 'ONCE', TRACK = 'TRACK', cost = 'COST', upto = 'UPTO', once = 'ONCE', track = 'TRACK',
}
local MOST_LIMITS = 50

-- ONES holds the costs of a call without COST. It never changes.
local ONES = {}
for i = 1, MOST_LIMITS do
  ONES[i] = 1
end

-- The request of the current call. The next call reuses it. optional reports whether it has more
-- than limits.
local request = { limits = {}, costs = ONES }

-- renew clears what the last call had besides limits.
local function renew()
  request.COST, request.UPTO, request.ONCE, request.TRACK, request.ttl, request.tracks = nil, nil, nil, nil, nil, nil
  request.costs, request.composed, request.groups, request.group_of, request.optional = ONES, nil, nil, nil, false
end

-- read_limits reads the limits. It returns the position after them, or nil and the error.
local function read_limits(args)
  if request.optional then renew() end
  local list, known, at, count, weight, rates = request.limits, limits.known, 1, 0, 0, 0
  request.enforced = false
  local text = args[1]
  while text and not OPTIONS[text] do
    local limit = known[text]
    if not limit then
      local err
      limit, err = limits.of(text)
      if not limit then return nil, err end
    end
    if limit.policy then
      request.optional = true
      count = policies.join(request, limit, count)
      weight = 2
    else
      count = count + 1
      list[count], request.enforced = limit, true
      weight = weight + limit.weight
      rates = rates + limit.size
    end
    if count > MOST_LIMITS then
      return nil, errors.new('BADARGS', '%d limits; one call takes at most %d', count, MOST_LIMITS)
    elseif rates > limits.MOST_RATES then
      return nil, errors.new('BADARGS', '%d rates; one call takes at most %d', rates, limits.MOST_RATES)
    end
    at = at + 1
    text = args[at]
  end
  request.count, request.weight = count, weight
  return at
end

-- misnumbered returns the error for a number of costs that is not that of the limits.
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
    local cost = numbers.whole(args[i])
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
  request.optional = true
  while at <= #args do
    local word = OPTIONS[args[at]]
    if not word or not allowed[word] then
      return nil, errors.new('BADARGS', '%s: not an option here', errors.quote(args[at]))
    elseif request[word] then
      return nil, errors.new('BADARGS', '%s is given twice', word)
    end
    at = at + 1
    if word == 'COST' then
      local err
      request.COST, err = read_costs(args, at)
      if err then return nil, err end
      at = at + #request.COST
    elseif word == 'UPTO' then
      request.UPTO = 1
    else
      used = used + 1
      request[word] = keys[used] or ''
    end
    if word == 'ONCE' then
      request.ttl = numbers.positive(args[at] or '')
      if not request.ttl or request.ttl > limits.LONGEST then
        return nil, errors.new('BADARGS', '%s: ONCE is followed by the ms for which it holds, a whole number from 1 to %d',
          errors.quote(args[at] or ''), limits.LONGEST)
      end
      at = at + 1
    end
  end
  if request.tracks and allowed.TRACK and not request.TRACK then
    used = used + 1
    request.TRACK = keys[used] or ''
  end
  return used
end

-- within_capacity returns the costs of an UPTO call: for each limit, at most the smallest capacity
-- among the limits that decide together.
local function within_capacity()
  local group_of, least, costs = request.group_of or {}, {}, {}
  for i = 1, request.count do
    local group = group_of[i] or false
    least[group] = math.min(least[group] or request.UPTO, request.limits[i].capacity)
  end
  for i = 1, request.count do
    costs[i] = least[group_of[i] or false]
  end
  return costs
end

-- spread sets a cost for each limit of the request. It returns the error, or nil.
local function spread()
  local count, costs, upto = request.count, request.COST or { 1 }, request.UPTO
  if upto and #costs ~= 1 then
    return errors.new('BADARGS', 'the number of costs is %d; UPTO takes the same from every key: give it one', #costs)
  elseif #costs ~= 1 and #costs ~= count then
    return misnumbered(#costs)
  elseif upto then
    request.UPTO = costs[1]
    costs = within_capacity()
  end
  for i = #costs + 1, count do
    costs[i] = costs[1]
  end
  request.costs = costs
  return nil
end

-- excess returns the error for limits that exceed the bounds of one call, or nil.
local function excess()
  local rates, sums = 0, {}
  for i = 1, request.count do
    local limit = request.limits[i]
    local most = limit.algorithm.most
    rates = rates + limit.size
    if most then
      sums[most] = (sums[most] or 0) + limit.asks
      if sums[most] > most.sum then
        return errors.new('BADARGS', '%d %s; one call takes at most %d%s', sums[most], most.what, most.sum, most.advice)
      end
    end
  end
  return rates > limits.MOST_RATES and errors.new('BADARGS', '%d rates; one call takes at most %d', rates, limits.MOST_RATES) or nil
end

-- repeated returns the error for a key that is given twice, or nil.
function requests.repeated(keys)
  local a, b, c, d = keys[1], keys[2], keys[3], keys[4]
  if not d and a ~= b and a ~= c and (b ~= c or not c) then return nil end
  local seen = {}
  for i = 1, #keys do
    if seen[keys[i]] then
      return errors.new('BADKEYS', '%s is given twice; name each key once', errors.quote(keys[i]))
    end
    seen[keys[i]] = true
  end
  return nil
end

-- read returns the request, or nil and the error.
function requests.read(keys, args, allowed)
  if #keys == 0 then
    return nil, errors.new('BADKEYS', 'the number of keys is 0; give each limit one key')
  end
  local at, err = read_limits(args)
  if not at then return nil, err end
  local count = request.count
  local used = count
  if count == 0 then
    return nil, errors.new('BADARGS', 'no limit after the keys; give one such as 100/m for each key')
  elseif at <= #args or request.tracks then
    used, err = read_options(keys, args, at, allowed)
  end
  if not err and (request.COST or request.UPTO) then
    err = spread()
  end
  if not err and #keys ~= used then
    err = errors.new('BADKEYS', 'the number of keys is %d and the number of limits %d; give each limit one key, in order%s%s',
      #keys, count, used > count and ', then one for ONCE and one for TRACK' or '',
      policies.wanted_keys(request, allowed.TRACK))
  end
  err = err or requests.repeated(keys)
  if not err and request.weight > 1 then
    err = excess()
  end
  if err then return nil, err end
  return request
end
