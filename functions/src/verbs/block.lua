-- ratelimit_block denies the keys for a time, regardless of their limits. Units that were taken before
-- still count, and continue to refill. A second block replaces the first, unless EXTEND is given and
-- the first ends later.
--   KEYS   one or more
--   ARGV   ms [EXTEND]
--   Output the number of keys; all of them are blocked now
--   Errors BADARGS BADKEYS BADSTATE (a key holds a reply (ONCE) or a usage record, or was not written by a limiter; no key is then blocked)

local OPTIONS = { EXTEND = true, extend = true }

redis.register_function{
  function_name = 'ratelimit_block', description = 'Denies the keys for some milliseconds, regardless of their limits.',
  flags = { 'allow-oom' }, callback = function(keys, args)
    local extend = OPTIONS[args[2]]
    local list, err = contents.of_all('block', keys, args, extend and 2 or 1)
    if not list then return err end
    local ms
    ms, err = contents.duration(args[1], 'a block')
    if err then return err end
    for i, key in ipairs(keys) do
      if list[i].use then return states.in_use(key, list[i].use) end
    end
    return contents.change(keys, list, nil, function(key, content)
      if not extend or content.blocked < ms then contents.put(key, content, clock.ms() + ms, content.override) end
    end)
  end,
}
