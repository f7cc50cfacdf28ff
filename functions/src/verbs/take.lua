-- ratelimit_take decides, and consumes if every limit allows.
--   KEYS   one for each limit, then one for ONCE and one for TRACK, in the order of these options
--   ARGV   limit [limit ...] [COST c | COST c1 ... cn] [UPTO] [ONCE ttl_ms] [TRACK]
--   Output { allowed, limit, remaining, retry_after_ms, reset_after_ms, index }, and three more with a shadow policy
--   Errors BADARGS BADLIMIT BADCOST BADKEYS BADSTATE NOPOLICY

local OPTIONS = { COST = true, UPTO = true, ONCE = true, TRACK = true }

local decide_one = decisions.one

local function take(keys, request)
  if request.ONCE then
    local before, err = once.read(request.ONCE)
    if before or err then return before or err end
  end
  local err = request.TRACK and tracking.read(request.TRACK)
  if err then return err end
  local reply, charged = decisions.take(keys, request)
  if not reply then
    return charged -- the error
  end
  if request.groups then shadows.count(request) end
  if charged and request.ONCE then
    once.keep(request.ONCE, reply, request.ttl)
  end
  if request.TRACK then
    tracking.note(request.TRACK, request.passes, not request.passes and 0 or request.UPTO and reply[1] or request.costs[1])
  end
  return reply
end

redis.register_function{
  function_name = 'ratelimit_take',
  description = 'Decides whether a call may pass, and charges it if so: all limits or none.',
  callback = function(keys, args)
    clock.now = nil
    local limit = limits.known[args[1]]
    if limit and not limit.policy and #keys == 1 then -- the common call needs no request
      local cost = 1
      if #args > 1 then
        cost = #args == 3 and args[2] == 'COST' and numbers.whole(args[3])
      end
      local reply = cost and decide_one(keys[1], limit, cost)
      if reply then return reply end
    end
    local request, err = requests.read(keys, args, OPTIONS)
    return states.finish(request and take(keys, request) or err)
  end,
}
