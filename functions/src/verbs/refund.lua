-- ratelimit_refund gives units back to all keys, or to none if one of them is blocked. allowed is
-- then 0. A key never gets more than it needs to be full.
--   KEYS   one for each limit
--   ARGV   limit [limit ...] [COST c | COST c1 ... cn] [EACH]
--   Output { allowed, limit, remaining, retry_after_ms, reset_after_ms, index }, three more with a shadow policy, and a list with EACH
--   Errors BADARGS BADLIMIT BADCOST BADKEYS BADSTATE NOPOLICY

local OPTIONS = { COST = true, EACH = true }

clock.register{
  function_name = 'ratelimit_refund',
  description = 'Gives cost back to the keys, never beyond full.',
  callback = function(keys, args)
    local request, err = requests.read(keys, args, OPTIONS)
    return err or (decisions.decide(keys, request, 'refund'))
  end,
}
