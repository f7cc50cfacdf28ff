-- ratelimit_peek returns what ratelimit_take would, and writes nothing. It also runs with FCALL_RO
-- and on replicas.
--   KEYS   one for each limit
--   ARGV   limit [limit ...] [COST c | COST c1 ... cn] [UPTO] [FLOOR percent | CLASS name] [BORROW [percent]] [EACH]
--   Output { allowed, limit, remaining, retry_after_ms, reset_after_ms, index }, three more with a shadow policy, and a list with EACH
--   Errors BADARGS BADLIMIT BADCOST BADKEYS BADSTATE NOPOLICY

local OPTIONS = { COST = true, UPTO = true, FLOOR = true, CLASS = true, BORROW = true, EACH = true }

redis.register_function{
  function_name = 'ratelimit_peek', description = 'Returns what ratelimit_take would, and changes nothing.',
  flags = { 'no-writes' }, callback = function(keys, args)
    local request, err = requests.plain(keys, args), nil
    if not request then request, err = requests.read(keys, args, OPTIONS) end
    return err or ((request.BORROW and borrowing or decisions).decide(keys, request, 'charge', true))
  end,
}
