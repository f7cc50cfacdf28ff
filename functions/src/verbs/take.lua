-- ratelimit_take decides whether a call is allowed, and charges its cost if every limit allows it.
--   KEYS   one for each limit, then one for ONCE and one for TRACK, in the order of these options
--   ARGV   limit [limit ...] [COST c | COST c1 ... cn] [UPTO | FORCE] [FLOOR percent | CLASS name] [BORROW [percent]] [ONCE ttl_ms] [TRACK] [EACH]
--   Output { allowed, limit, remaining, retry_after_ms, reset_after_ms, index }, three more with a shadow policy, and a list with EACH
--   Errors BADARGS BADLIMIT BADCOST BADKEYS BADSTATE NOPOLICY

local one, above, LONGEST_KEY = one_key.decide, one_key.above, requests.LONGEST_KEY
local OPTIONS = { COST = true, UPTO = true, FORCE = true, FLOOR = true, CLASS = true, BORROW = true, ONCE = true, TRACK = true, EACH = true }

-- decide_with_options handles a request with any options.
local function decide_with_options(keys, request)
  local request_key, usage_key, limit, cost = request.ONCE, request.TRACK, request.limits[1], request.costs[1]
  local before = request_key and once.read(request_key)
  if before then return before end
  local err = usage_key and tracking.read(usage_key)
  if err then return err end
  local reply, charged, passes
  if request.BORROW then
    reply, charged, passes = borrowing.decide(keys, request, 'charge')
  elseif request.count == 1 and not (request.UPTO == 0 or request.EACH or request.groups) then
    local option, calls = request.UPTO and 'UPTO' or request.FORCE and 'FORCE', request.calls_of and request.calls_of[1]
    if request.floors or calls then
      reply = above(keys[1], limit, request.UPTO or cost, option, request.floors and request.floors[1] or 0, calls or limit.calls)
    else
      reply = one(keys[1], limit, request.UPTO or cost, option)
    end
    passes = reply[1] and reply[1] > 0
    charged = passes and (request.UPTO or cost) > 0 -- with UPTO, an override may give more than costs, which the limit's capacity bounds
  else
    reply, charged, passes = decisions.decide(keys, request, request.FORCE and 'force' or 'charge')
  end
  if reply.err then return reply end
  if charged and request_key then once.keep(request_key, reply, request.ttl) end
  if usage_key then tracking.note(usage_key, passes, request.UPTO and reply[1] or cost) end
  return reply
end

local single = { limits = {}, costs = {}, count = 1 } -- the request of direct; reused by the next call

-- floor_of returns the percentage of FLOOR or CLASS, and the counts of the call, or nil.
local function floor_of(limit, option, text)
  local floor, classes = nil, limit.classes
  if option == 'FLOOR' then
    floor, text = requests.percent(text), ''
  elseif option == 'CLASS' then
    floor = type(classes) == 'table' and classes[text]
  end
  return floor, limit.calls and floor and policies.calls(limit.side, text)
end

local both = { limits = {}, costs = {} } -- the request of borrow; reused by the next call

-- borrow decides a call with BORROW, two known limits, and at most COST. It returns the reply, or nil for any other call.
local function borrow(keys, args, guarantee)
  local pool, number, cost = limits.known[args[2]], #args, 1
  if number == 6 and args[3] == 'COST' then
    cost = numbers.parse(args[4])
  elseif number ~= 4 then
    return nil
  end
  local percent = requests.percent(args[number])
  if not (pool and cost and percent and guarantee.rate and pool.rate) or guarantee.name or pool.name then return nil end
  if guarantee.asks + pool.asks > requests.FEW then return nil end
  if keys[1] == keys[2] or #keys[2] > LONGEST_KEY then return nil end
  both.limits[1], both.limits[2], both.costs[1], both.BORROW = guarantee, pool, cost, percent
  return (borrowing.decide(keys, both, 'charge'))
end

-- direct decides a call with one known limit, and at most COST and one other option. It returns the reply or the error, or nil
-- for any other call.
local function direct(keys, args, limit)
  local number, at, cost = #keys, 2, 1
  if number > 2 or number == 0 or #keys[1] > LONGEST_KEY then return nil end
  if number == 2 and args[#args - 1] == 'BORROW' then return borrow(keys, args, limit) end
  if limit.canary then limit = policies.side(limit, keys[1]).alone or limit end
  if args[2] == 'COST' then cost, at = numbers.parse(args[3] or ''), 4 end
  local option, more = args[at], #args - at
  if not limit.probe or not cost then
    return nil
  elseif number == 1 then
    local floor, calls = limit.floor, limit.calls
    if more == 1 then
      floor, calls = floor_of(limit, option, args[at + 1])
      if not floor then return nil end
      option = nil
    elseif option and (more > 0 or floor and option == 'FORCE' or option ~= 'FORCE' and (option ~= 'UPTO' or cost == 0)) then
      return nil
    end
    if not floor then return one(keys[1], limit, cost, option) end
    return above(keys[1], limit, cost, option, floor, calls)
  elseif limit.floor then
    return nil
  end
  local ttl = more == 1 and option == 'ONCE' and numbers.parse_positive(args[at + 1])
  if not ttl and (more ~= 0 or option ~= 'TRACK') or ttl and ttl > limits.LONGEST or keys[1] == keys[2] or #keys[2] > LONGEST_KEY then return nil end
  single.limits[1], single.costs[1], single.ttl, single.ONCE, single.TRACK = limit, cost, ttl, ttl and keys[2], not ttl and keys[2]
  return decide_with_options(keys, single)
end

redis.register_function{
  function_name = 'ratelimit_take', description = 'Decides whether a call may pass, and charges it if so: all limits or none.',
  callback = function(keys, args)
    clock.now = nil
    local limit = limits.known[args[1]]
    if limit then
      if #args == 1 and #keys == 1 and limit.plain and #keys[1] <= LONGEST_KEY then return one(keys[1], limit, 1) end
      local reply = direct(keys, args, limit)
      if reply then return reply end
    end
    local plain = requests.plain(keys, args)
    if plain then return decisions.plain(keys, plain) end
    local request, err = requests.read(keys, args, OPTIONS)
    return err or decide_with_options(keys, request)
  end,
}
