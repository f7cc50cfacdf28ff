-- ratelimit_take: decides, and consumes if every limit allows.
--   KEYS   one for each limit, then one for ONCE and one for TRACK, in the order in which these are written
--   ARGV   limit [limit ...] [COST c | COST c1 ... cn] [ONCE ttl_ms] [TRACK]
--   Output { allowed, limit, remaining, retry_after_ms, reset_after_ms, index }, and three more with a shadow policy
--   Errors BADARGS BADLIMIT BADCOST BADKEYS BADSTATE NOPOLICY

local OPTIONS = { COST = true, ONCE = true, TRACK = true }

local decide_one = decisions.one

-- charged tells whether a reply is that of a call that took something.
local function charged(reply, request)
  if reply[1] ~= 1 then
    return false
  elseif request.limits.shadows then
    return request.charged
  end
  for _, cost in ipairs(request.COST) do
    if cost > 0 then
      return true
    end
  end
  return false
end

local function take(keys, request)
  local record, err
  if request.TRACK then
    record, err = tracking.open(request.TRACK)
    if not record then
      return err
    end
  end
  if request.ONCE then
    local before
    before, err = once.read(request.ONCE)
    if before or err then
      return before or err
    end
  end
  local reply = shadows.request(keys, request, true)
  if reply.err then
    return reply
  end
  if request.ONCE and charged(reply, request) then
    once.keep(request.ONCE, reply, request.ttl)
  end
  if record then
    tracking.note(record, reply[1] == 1, request.COST[1])
  end
  return reply
end

redis.register_function{
  function_name = 'ratelimit_take',
  description = 'Decides whether a call may pass, and charges it if so: all limits or none.',
  callback = function(keys, args)
    clock.now = nil
    local limit = limits.known[args[1]]
    if limit and #keys == 1 then -- the common calls go without tables of their own
      local cost = 1
      if #args > 1 then
        cost = #args == 3 and args[2] == 'COST' and numbers.whole(args[3])
      end
      if cost then
        return decide_one(keys[1], limit, cost, true)
      end
    end
    local request, err = requests.read(keys, args, OPTIONS)
    return request and take(keys, request) or err
  end,
}
