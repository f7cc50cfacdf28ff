-- The arguments of take, peek and refund:
--   limit [limit ...] [COST c | COST c1 ... cn] [UPTO | FORCE] [FLOOR percent | CLASS name] [BORROW [percent]] [PAID 1 | PAID 2]
--   [ONCE ttl_ms] [TRACK] [EACH]
-- The keys are one for each limit, then one for ONCE and one for TRACK, in the order in which these
-- options are given.
--
-- A request has these fields:
--   limits, count   the limits, and their number. src/60_decisions.lua replaces an overridden limit
--   costs           the cost for each limit; with UPTO, at most what the capacities allow
--   COST            the number of costs in the arguments
--   UPTO            the requested cost
--   FORCE           whether the cost is charged even if it does not fit
--   EACH            whether the reply also contains the separate result of each limit
--   GROW            whether the reply to peek also says what GROW remembers of each key
--   ONCE, TRACK     the key for ONCE, the key for TRACK
--   ttl             the ttl_ms of ONCE
--   FLOOR, CLASS    the percentage; the name
--   floors          the percentage of each limit's capacities that the call keeps free, or nil if none
--   calls_of        from a limit's position to the counts for this call, if they differ from limit.calls
--   groups          its shadow policies, see src/60_decisions.lua
--   group_of        from a limit's position to its shadow policy, if there are groups
--   shadows         the number of limits in shadow policies
--   composed        its policies with several limits, shadow, track or a canary
--   track           whether any of its policies has track
--   counted         whether any limit is in a policy
--   looks_again     whether the costs of UPTO are those of overrides (src/60_decisions.lua)

local OPTIONS = {
  COST = 'COST', UPTO = 'UPTO', FORCE = 'FORCE', ONCE = 'ONCE', TRACK = 'TRACK', EACH = 'EACH', FLOOR = 'FLOOR', CLASS = 'CLASS',
  BORROW = 'BORROW', PAID = 'PAID', GROW = 'GROW',
  cost = 'COST', upto = 'UPTO', force = 'FORCE', once = 'ONCE', track = 'TRACK', each = 'EACH', floor = 'FLOOR', class = 'CLASS',
  borrow = 'BORROW', paid = 'PAID', grow = 'GROW',
}
local MOST_LIMITS, MOST_RATES_IN_CALL = 50, 250
local LONGEST_KEY, LONGEST_CLASS = 65536, 64 -- bytes
requests.LONGEST_KEY = LONGEST_KEY
local FEW = 3000 -- the lowest bound of an algorithm: if the limits' fields asks add up to at most this, none is exceeded
requests.FEW = FEW

local request -- the request of the current call
local limits_of_call, costs_of_call = {}, {} -- its limits and costs; reused by the next call

-- join adds the limits of a policy to the request, which has `count` limits so far. It returns the
-- new number of limits.
local function join(policy, count)
  local size, group = #policy.limits, nil
  request.composed, request.track = request.composed or {}, request.track or policy.track
  request.composed[#request.composed + 1] = policy
  if policy.shadow then
    group = { denies = false }
    request.groups, request.group_of, request.shadows = request.groups or {}, request.group_of or {}, (request.shadows or 0) + size
    request.groups[#request.groups + 1] = group
  end
  for i, limit in ipairs(policy.limits) do
    request.limits[count + i], request.costs[count + i] = limit, 1
    if group then request.group_of[count + i] = group end
  end
  return count + size
end

-- excess returns the error for limits that together exceed the bound of an algorithm, or nil.
local function excess()
  local sums = {}
  for i = 1, request.count do
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

-- read_limits reads the limits, and stops when there are too many. It returns the position after
-- them, or nil and the error.
local function read_limits(keys, args)
  local known, list, costs = limits.known, request.limits, request.costs
  local at, count, rates, asked, text = 1, 0, 0, 0, args[1]
  while text and not OPTIONS[text] do
    local limit, err = known[text]
    if not limit then limit, err = limits.of(text) end
    if err then return nil, err end
    if limit.calls then
      request.counted = true
      limit = policies.side(limit, keys[count + 1] or '')
    end
    if limit.limits then
      count = join(limit, count)
    else
      count = count + 1
      list[count], costs[count] = limit, 1
    end
    rates, asked, at = rates + limit.size, asked + limit.asks, at + 1
    if count > MOST_LIMITS then
      return nil, errors.new('BADARGS', '%d limits; one call takes at most %d', count, MOST_LIMITS)
    elseif rates > MOST_RATES_IN_CALL then
      return nil, errors.new('BADARGS', '%d rates; one call takes at most %d', rates, MOST_RATES_IN_CALL)
    end
    text = args[at]
  end
  request.count = count
  if count == 0 then
    return nil, errors.new('BADARGS', 'no limit after the keys; give one such as 100/m for each key')
  end
  return at, asked > FEW and excess() or nil
end

-- misnumbered returns the error for a number of costs that differs from the number of limits.
local function misnumbered(costs)
  return errors.new('BADARGS', 'the number of costs is %d and the number of limits %d; give one cost for all, or one for each',
    costs, request.count)
end

-- read_costs reads the costs, which begin at args[at]. It returns their number, or nil and the
-- error.
local function read_costs(args, at)
  local given, costs = 0, request.costs
  while args[at + given] and not OPTIONS[args[at + given]] do
    given = given + 1
  end
  if given > MOST_LIMITS then return nil, misnumbered(given) end
  for i = 1, given do
    local text = args[at + i - 1]
    costs[i] = numbers.parse(text)
    if not costs[i] then
      return nil, errors.new('BADCOST', '%s: a cost is ' .. numbers.WHOLE, errors.quote(text), '0')
    end
  end
  return given
end

-- read_options reads the arguments from position `at` on, which follow the limits. allowed has the
-- options that the verb accepts. read_options returns the number of keys that the request needs, or
-- nil and the error.
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
      at = at + request.COST
    elseif word == 'ONCE' or word == 'TRACK' then
      used = used + 1
      request[word] = keys[used] or ''
    elseif word == 'FLOOR' or word == 'CLASS' then
      request[word], err = (word == 'FLOOR' and requests.percent or requests.class)(args[at])
      if err then return nil, err end
      at = at + 1
    elseif word == 'BORROW' then
      request.BORROW = 0
      if args[at] and not OPTIONS[args[at]] then
        request.BORROW, err = requests.percent(args[at], word)
        if err then return nil, err end
        at = at + 1
      end
    elseif word == 'PAID' then
      request.PAID = args[at] == '1' and 1 or args[at] == '2' and 2 or nil
      if not request.PAID then
        return nil, errors.new('BADARGS', '%s: PAID is followed by 1 or 2, the index of the take', errors.quote(args[at] or ''))
      end
      at = at + 1
    else
      request[word] = 1
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
  elseif request.FLOOR and request.CLASS then
    return nil, errors.new('BADARGS', 'FLOOR and CLASS are both given; a class stands for a percentage: give one')
  elseif request.FORCE and (request.FLOOR or request.CLASS) then
    return nil, errors.new('BADARGS', '%s and FORCE are both given; FORCE keeps nothing free: give one', request.FLOOR and 'FLOOR' or 'CLASS')
  end
  if request.track and allowed.TRACK and not request.TRACK then
    -- A usage key that a client names among the limited keys would become the key of ONCE, which answers all calls that share it.
    if request.ONCE then return nil, errors.new('BADARGS', 'ONCE is given for a policy with track; give TRACK, too, so that the order of the keys is clear') end
    used = used + 1
    request.TRACK = keys[used] or ''
  end
  return used
end

-- percent parses the percentage of FLOOR. It returns nil and the error for any other text.
function requests.percent(text, word)
  local percent = numbers.parse(text or '')
  if percent and percent <= 100 then return percent end
  return nil, errors.new('BADARGS', '%s: %s is followed by a whole percentage from 0 to 100', errors.quote(text or ''), word or 'FLOOR')
end

-- class checks the name of a class.
function requests.class(text)
  if text and #text > 0 and #text <= LONGEST_CLASS then return text end
  return nil, errors.new('BADARGS', '%s: CLASS is followed by a name of 1 to %d bytes', errors.quote(text or ''), LONGEST_CLASS)
end

-- borrowed checks a request with BORROW, or with a policy of a guarantee and a pool. Such a policy needs no BORROW, but a caller
-- that counts on a guarantee and a pool gives it: then any other policy is an error. It returns the error, or nil.
local function borrowed(refunds)
  local composed, percent, what = request.composed or {}, request.BORROW, nil
  for _, other in ipairs(composed) do
    if other.borrow then
      what = '@' .. other.name
      percent = other.borrow
    end
  end
  if not percent then
    return request.PAID and errors.new('BADARGS', 'PAID is given without BORROW; it says who paid for a take with BORROW')
  elseif what and (request.BORROW or 0) > 0 then
    return errors.new('BADARGS', '%s and BORROW %d are both given; the policy has its own percentage: leave the number out', what, request.BORROW)
  elseif what and request.count ~= 2 then
    return errors.new('BADARGS', '%s and other limits are given; it has a guarantee and a pool, which decide by themselves', what)
  elseif not what and request.count ~= 2 then
    return errors.new('BADARGS', 'the number of limits is %d; BORROW takes two, a guarantee and a pool', request.count)
  end
  for i = 1, what and 0 or 2 do
    local limit = request.limits[i]
    if limit.name then
      return errors.new('BADARGS', '@%s and BORROW are both given; BORROW takes a guarantee and a pool: two limits, or one policy that has both', limit.name)
    elseif not limit.rate then
      return errors.new('BADARGS', 'limit %d has %d rates; a guarantee and a pool have one each', i, limit.size)
    end
  end
  for _, word in ipairs{ 'UPTO', 'FORCE', 'EACH', 'FLOOR', 'CLASS' } do
    if request[word] then
      return errors.new('BADARGS', '%s and %s are both given; a guarantee and a pool do not take it', word, what or 'BORROW')
    end
  end
  if request.COST and request.COST > 1 then
    return errors.new('BADARGS', 'the number of costs is %d; a guarantee and a pool are charged the same: give one', request.COST)
  elseif refunds and not request.PAID then
    return errors.new('BADARGS', 'PAID is missing; a refund says who paid, with the index of the take')
  end
  request.BORROW = percent
  return nil
end

-- floors sets the percentages that a request for a take or a peek keeps free, and which counts it changes. It returns the
-- error, or nil.
local function floors()
  local percent, class = request.FLOOR or request.FORCE and 0, request.CLASS
  for i = 1, request.count do
    local limit, err = request.limits[i]
    local own = percent or limit.floor
    if class then
      own, err = policies.class(limit, class)
      if err then return err end
    end
    if own and own > 0 then
      request.floors = request.floors or {}
      request.floors[i] = own
    end
    if limit.calls and (class or percent) then
      request.calls_of = request.calls_of or {}
      request.calls_of[i] = policies.calls(limit.side, class or '')
    end
  end
  return nil
end

-- limit_costs sets the costs of an UPTO call. The cost for a limit is the requested cost, but at most
-- the smallest capacity among the limits that decide together, less what FLOOR keeps free.
function requests.limit_costs(of)
  local group_of, percents, least = of.group_of, of.floors, {}
  for i = 1, of.count do
    local group, most = group_of and group_of[i] or 0, of.limits[i].capacity
    if percents and percents[i] then most = most - states.kept(most, percents[i]) end
    least[group] = math.min(least[group] or of.UPTO, most)
  end
  for i = 1, of.count do
    of.costs[i] = least[group_of and group_of[i] or 0]
  end
end

-- spread sets the cost for each limit. It returns the error, or nil.
local function spread()
  local given, costs, upto = request.COST or 1, request.costs, request.UPTO
  if upto and given ~= 1 then
    return errors.new('BADARGS', 'the number of costs is %d; UPTO takes the same from every key: give it one', given)
  elseif given ~= 1 and given ~= request.count then
    return misnumbered(given)
  end
  for i = given + 1, request.count do
    costs[i] = costs[1]
  end
  if upto then
    request.UPTO = costs[1]
    requests.limit_costs(request)
  end
  return nil
end

-- too_long returns the error for a key with too many bytes, or nil. A call must check its keys before it
-- hashes them (policies.in_canary) or passes them to a command.
function requests.too_long(keys)
  for i = 1, #keys do
    if #keys[i] > LONGEST_KEY then
      return errors.new('BADKEYS', '%s: a key has at most %d bytes', errors.quote(keys[i]), LONGEST_KEY)
    end
  end
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

-- misnamed returns the error for a wrong number of keys. allowed.TRACK is set if the verb takes a
-- usage key.
local function misnamed(keys, used, allowed)
  local text = ''
  for _, policy in ipairs(request.composed or {}) do
    local wants = policy.keys and table.concat(policy.keys, ', ') or 'a key'
    text = text .. '; @' .. policy.name .. ' takes ' .. wants .. (allowed.TRACK and policy.track and ', and a usage key last' or '')
  end
  return errors.new('BADKEYS', 'the number of keys is %d and the number of limits %d; give each limit one key, in order%s%s',
    #keys, request.count, used > request.count and ', then one for ONCE and one for TRACK' or '', text)
end

local plain_request = { limits = limits_of_call, costs = costs_of_call } -- reused by the next call

-- plain returns the request of a call that has one known limit of one rate for each key, and at most EACH. For any other
-- call it returns nil. read takes longer.
function requests.plain(keys, args)
  local known, number, asked, counted = limits.known, #keys, 0, nil
  local each = args[number + 1] == 'EACH' and 1 or nil
  if number + (each or 0) ~= #args or number == 0 or number > MOST_LIMITS then return nil end
  for i = 1, number do
    local limit = known[args[i]]
    if not limit or not limit.rate or limit.floor then return nil end
    asked, counted = asked + limit.asks, counted or limit.calls
    limits_of_call[i], costs_of_call[i] = limit, 1
  end
  if asked > FEW or requests.too_long(keys) or requests.repeated(keys) then return nil end
  clock.now = nil
  plain_request.count, plain_request.counted, plain_request.EACH = number, counted, each
  return plain_request
end

-- read returns the request, or nil and the error.
function requests.read(keys, args, allowed)
  clock.now = nil
  if #keys == 0 then return nil, errors.new('BADKEYS', 'the number of keys is 0; give each limit one key') end
  request = { limits = limits_of_call, costs = costs_of_call, count = 0 }
  local at, used
  local err = requests.too_long(keys)
  if err then return nil, err end
  at, err = read_limits(keys, args)
  if err then return nil, err end
  used, err = read_options(keys, args, at, allowed)
  err = err or borrowed(allowed.PAID) or allowed.FLOOR and floors() or spread() or #keys ~= used and misnamed(keys, used, allowed) or requests.repeated(keys)
  if err then return nil, err end
  return request
end
