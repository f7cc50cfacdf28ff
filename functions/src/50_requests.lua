-- The arguments of take and peek:  key [key ...] limit [limit ...] [COST c | COST c1 ... cn]

local requests = {}

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
    end
    list[at] = limit
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
    return nil, errors.new('BADARGS', 'COST is followed by %.0f costs and there are %.0f limits; give one cost for all, '
      .. 'or one for each', given, count)
  end
  return costs, at + 1 + given
end

local function check_keys(keys, count)
  if #keys ~= count then
    return errors.new('BADKEYS', 'the number of keys is %.0f and the number of limits %.0f; give each limit one key, '
      .. 'in order', #keys, count)
  elseif count == 1 then
    return nil
  end
  local seen = {}
  for _, key in ipairs(keys) do
    if seen[key] then
      return errors.new('BADKEYS', '%s is given twice; one key takes one limit', errors.quote(key))
    end
    seen[key] = true
  end
  return nil
end

-- read answers the limits and the costs, each in the order of keys; or nil and the error to reply.
function requests.read(keys, args)
  if #keys == 0 then
    return nil, errors.new('BADKEYS', 'the number of keys is 0; give each limit one key')
  end
  local list, at = read_limits(args)
  if not list then
    return nil, at
  end
  if #list == 0 then
    return nil, errors.new('BADARGS', 'no limit after the keys; give one such as 100/m for each key')
  end
  local err = check_keys(keys, #list)
  if err then
    return nil, err
  end
  local costs
  while at <= #args do
    if OPTIONS[args[at]] ~= 'COST' then
      return nil, errors.new('BADARGS', '%s: not in this version', errors.quote(args[at]))
    end
    if costs then
      return nil, errors.new('BADARGS', 'COST is given twice')
    end
    costs, at = read_costs(args, at, #list)
    if not costs then
      return nil, at
    end
  end
  if not costs then
    costs = {}
    for i = 1, #list do
      costs[i] = 1
    end
  end
  return list, costs
end
