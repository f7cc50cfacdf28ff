-- ratelimit_peek returns what ratelimit_take would, and writes nothing. It also runs with FCALL_RO
-- and on replicas.
--   KEYS   one for each limit
--   ARGV   limit [limit ...] [COST c | COST c1 ... cn] [UPTO] [FLOOR percent | CLASS name] [BORROW [percent]] [EACH] [GROW]
--   Output { allowed, limit, remaining, retry_after_ms, reset_after_ms, index }, three more with a shadow policy, and a list with EACH.
--          With GROW also the text "grow", and a list with two integers for each key: the length in ms of the last block with GROW,
--          and the ms until it is forgotten
--   Errors BADARGS BADLIMIT BADCOST BADKEYS BADSTATE NOPOLICY

local OPTIONS = { COST = true, UPTO = true, FLOOR = true, CLASS = true, BORROW = true, EACH = true, GROW = true }

redis.register_function{
  function_name = 'ratelimit_peek', description = 'Returns what ratelimit_take would, and changes nothing.',
  flags = { 'no-writes' }, callback = function(keys, args)
    local request, err = requests.plain(keys, args), nil
    if not request then request, err = requests.read(keys, args, OPTIONS) end
    if err then return err end
    local reply, list = (request.BORROW and borrowing or decisions).decide(keys, request, 'charge', true), {}
    if not request.GROW or reply.err then return reply end
    reply = { unpack(reply) } -- other calls share the table
    for i, key in ipairs(keys) do
      local grown = (states.look(key) or list).grown
      list[i] = { grown and grown.length or 0, grown and grown.forgotten - clock.ms() or 0 }
    end
    reply[#reply + 1], reply[#reply + 2] = 'grow', list
    return reply
  end,
}
