-- ratelimit_take: decides, and consumes if every limit allows.
--   KEYS   one for each limit
--   ARGV   limit [limit ...] [COST c | COST c1 ... cn]
--   Output { allowed, limit, remaining, retry_after_ms, reset_after_ms, index }
--   Errors BADARGS BADLIMIT BADCOST BADKEYS BADSTATE NOPOLICY

local decide_one = decisions.one

redis.register_function{
  function_name = 'ratelimit_take',
  description = 'Decides whether a call may pass, and charges it if so: all limits or none.',
  callback = function(keys, args)
    local limit = known[args[1]]
    if limit and #args == 1 and #keys == 1 then
      return decide_one(keys[1], limit, 1, true)
    end
    return decisions.request(keys, args, true)
  end,
}
