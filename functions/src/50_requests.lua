-- The arguments of take, peek and refund:
--   limit [limit ...] [COST c | COST c1 ... cn] [ONCE ttl_ms] [TRACK]
-- over one key for each limit, then one for ONCE and one for TRACK, in the order in which these are written.

local OPTIONS = { COST = 'COST', ONCE = 'ONCE', TRACK = 'TRACK', cost = 'COST', once = 'ONCE', track = 'TRACK' }

-- read_limits answers the limits and the position after them.
local function read_limits(args)
  local list = {}
  local at = 1
  local text = args[1]
  while text and not OPTIONS[text] do
    local limit, err = limits.of(text)
    if not limit then
      return nil, err
    elseif limit.policy then
      policies.join(list, limit)
    else
      list[#list + 1] = limit
    end
    at = at + 1
    text = args[at]
  end
  return list, at
end

-- read_costs reads the numbers after COST, which stands at position at; answers one cost for each limit and the
-- position after them.
local function read_costs(args, at, count)
  local costs = {}
  local given = 0
  local text = args[at + 1]
  while text and not OPTIONS[text] do
    local cost = numbers.whole(text)
    if not cost then
      return nil, errors.new('BADCOST', '%s: a cost is ' .. numbers.WHOLE, errors.quote(text), '0')
    end
    given = given + 1
    costs[given] = cost
    text = args[at + 1 + given]
  end
  if given == 1 then
    for i = 2, count do
      costs[i] = costs[1]
    end
  elseif given ~= count then
    return nil, errors.new('BADARGS', 'the number of costs is %.0f and the number of limits %.0f; give one cost for all, '
      .. 'or one for each', given, count)
  end
  return costs, at + 1 + given
end

-- ONES are the costs of a call without COST. They are shared, and never changed.
local ONES = {}

local function ones(count)
  for i = #ONES + 1, count do
    ONES[i] = 1
  end
  return ONES
end

-- read_options reads what follows the limits into request. allowed: the options that the verb has. Answers the error,
-- or nil.
local function read_options(request, keys, args, at, allowed)
  local count = #request.limits
  local spare = count -- the last key that is given a meaning
  while at <= #args do
    local word = OPTIONS[args[at]]
    if not word or not allowed[word] then
      return errors.new('BADARGS', '%s: not an option here', errors.quote(args[at]))
    elseif request[word] then
      return errors.new('BADARGS', '%s is given twice', word)
    end
    if word == 'COST' then
      local costs, after = read_costs(args, at, count)
      if not costs then
        return after -- the error
      end
      request.COST, at = costs, after
    else
      spare = spare + 1
      request[word] = keys[spare] or ''
      at = at + 1
      if word == 'ONCE' then
        request.ttl = numbers.positive(args[at] or '')
        if not request.ttl or request.ttl > limits.LONGEST then
          return errors.new('BADARGS', '%s: ONCE is followed by the ms for which it holds, a whole number from 1 to %.0f',
            errors.quote(args[at] or ''), limits.LONGEST)
        end
        at = at + 1
      end
    end
  end
  request.COST = request.COST or ones(count)
  if request.limits.track and allowed.TRACK and not request.TRACK then
    spare = spare + 1
    request.TRACK = keys[spare] or ''
  end
  if #keys ~= spare then
    return errors.new('BADKEYS', 'the number of keys is %.0f and the number of limits %.0f; give each limit one key, in '
      .. 'order%s%s', #keys, count, spare > count and ', then one for ONCE and one for TRACK' or '',
      policies.says(request.limits, allowed.TRACK))
  end
  return nil
end

-- repeated answers the error for a key that is given twice, or nil.
function requests.repeated(keys)
  if #keys == 2 and keys[1] ~= keys[2] then
    return nil
  end
  local seen = {}
  for _, key in ipairs(keys) do
    if seen[key] then
      return errors.new('BADKEYS', '%s is given twice; name each key once', errors.quote(key))
    end
    seen[key] = true
  end
  return nil
end

-- read answers the request: limits, COST (one for each limit), ONCE and TRACK (their keys), ttl; or nil and the error.
function requests.read(keys, args, allowed)
  if #keys == 0 then
    return nil, errors.new('BADKEYS', 'the number of keys is 0; give each limit one key')
  end
  local list, at = read_limits(args)
  if not list then
    return nil, at
  elseif #list == 0 then
    return nil, errors.new('BADARGS', 'no limit after the keys; give one such as 100/m for each key')
  end
  local request = { limits = list }
  local err = read_options(request, keys, args, at, allowed) or (#keys > 1 and requests.repeated(keys)) or nil
  if err then
    return nil, err
  end
  return request
end
