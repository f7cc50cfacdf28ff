-- The arguments of take and peek:  key [key ...] limit [limit ...] [COST c | COST c1 ... cn]

local requests = {}

local OPTIONS = { COST = true, ONCE = true, TRACK = true }

local function option(text)
  local word = string.upper(text)
  return OPTIONS[word] and word or nil
end

-- read_limits answers the limits and the position after them.
local function read_limits(args)
  local list = {}
  local at = 1
  while at <= #args and not option(args[at]) do
    local limit, err = limits.of(args[at])
    if not limit then
      return nil, err
    end
    list[at] = limit
    at = at + 1
  end
  return list, at
end

-- read_costs reads the numbers after COST, which stands at position at; answers one cost for each limit and the
-- position after them.
local function read_costs(args, at, count)
  local costs = {}
  local first = at + 1
  at = first
  while at <= #args and not option(args[at]) do
    local cost = numbers.whole(args[at])
    if not cost then
      return nil, errors.new('BADCOST', '%s: a cost is ' .. numbers.WHOLE, errors.quote(args[at]), '0')
    end
    costs[#costs + 1] = cost
    at = at + 1
  end
  if #costs == 1 then
    for i = 2, count do
      costs[i] = costs[1]
    end
  elseif #costs ~= count then
    return nil, errors.new('BADARGS', '%.0f costs after COST for %.0f limits; give one for all, or one for each', #costs,
      count)
  end
  return costs, at
end

local function check_keys(keys, count)
  if #keys ~= count then
    return errors.new('BADKEYS', '%.0f keys for %.0f limits; give each limit one key, in order', #keys, count)
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
    return nil, errors.new('BADKEYS', '"0" keys; give each limit one key')
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
    local word = option(args[at])
    if word ~= 'COST' then
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
