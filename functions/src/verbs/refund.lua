-- ratelimit_refund gives units back to all keys. If one of them is blocked, it gives back nothing
-- and allowed is 0. A key never gets more units than it needs to be full.
--   KEYS   one for each limit, then one for ONCE
--   ARGV   limit [limit ...] [COST c | COST c1 ... cn] [BORROW [percent]] [PAID 1 | PAID 2] [ONCE ttl_ms] [EACH]
--   Output { allowed, limit, remaining, retry_after_ms, reset_after_ms, index }, three more with a shadow policy, and a list with EACH
--   Errors BADARGS BADLIMIT BADCOST BADKEYS BADSTATE NOPOLICY

local OPTIONS = { COST = true, BORROW = true, PAID = true, ONCE = true, EACH = true }

redis.register_function{
  function_name = 'ratelimit_refund', description = 'Gives cost back to the keys, never beyond full.',
  callback = function(keys, args)
    local plain = requests.plain(keys, args)
    if plain then return (decisions.decide(keys, plain, 'refund')) end
    local request, err = requests.read(keys, args, OPTIONS)
    if err then return err end
    local request_key = request.ONCE
    local before = request_key and once.read(request_key)
    if before then return before end
    local reply, gives_back = (request.BORROW and borrowing or decisions).decide(keys, request, 'refund')
    if request_key and gives_back then once.keep(request_key, reply, request.ttl) end
    return reply
  end,
}
