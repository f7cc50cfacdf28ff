-- ratelimit_take decides whether a call is allowed, and charges its cost if every limit allows it.
--   KEYS   one for each limit, then one for ONCE and one for TRACK, in the order of these options
--   ARGV   limit [limit ...] [COST c | COST c1 ... cn] [UPTO | FORCE] [ONCE ttl_ms] [TRACK] [EACH]
--   Output { allowed, limit, remaining, retry_after_ms, reset_after_ms, index }, three more with a shadow policy, and a list with EACH
--   Errors BADARGS BADLIMIT BADCOST BADKEYS BADSTATE NOPOLICY

local one, LONGEST_KEY = decisions.one, requests.LONGEST_KEY
local OPTIONS = { COST = true, UPTO = true, FORCE = true, ONCE = true, TRACK = true, EACH = true }

-- decide_with_options handles a request with any options.
local function decide_with_options(keys, request)
  local request_key, usage_key, limit, cost = request.ONCE, request.TRACK, request.limits[1], request.costs[1]
  local before = request_key and once.read(request_key)
  if before then return before end
  local err = usage_key and tracking.read(usage_key)
  if err then return err end
  local reply, charged, passes
  if request.count == 1 and not (request.UPTO or request.FORCE or request.EACH or request.groups) then
    reply = one(keys[1], limit, cost)
    passes = reply[1] == 1
    charged = passes and cost > 0
  else
    reply, charged, passes = decisions.decide(keys, request, request.FORCE and 'force' or 'charge')
  end
  if reply.err then return reply end
  if charged and request_key then once.keep(request_key, reply, request.ttl) end
  if usage_key then tracking.note(usage_key, passes, request.UPTO and reply[1] or cost) end
  return reply
end

redis.register_function{
  function_name = 'ratelimit_take', description = 'Decides whether a call may pass, and charges it if so: all limits or none.',
  callback = function(keys, args)
    clock.now = nil
    local limit, words = limits.known[args[1]], #args
    if limit and #keys == 1 and #keys[1] <= LONGEST_KEY then
      if limit.canary then limit = policies.side(limit, keys[1]).alone or limit end
      local cost = limit.probe and (words == 1 and 1 or words == 3 and args[2] == 'COST' and numbers.parse(args[3]))
      if cost then return one(keys[1], limit, cost) end
    end
    local request, err = requests.read(keys, args, OPTIONS)
    return err or decide_with_options(keys, request)
  end,
}
