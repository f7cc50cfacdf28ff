-- ratelimit_override sets another limit for the keys for a time. It applies regardless of the limits in
-- the calls. Units that were taken before still count. A second override replaces the first.
--   KEYS   one or more
--   ARGV   limit, ms
--   Output the number of keys; all of them are overridden now
--   Errors BADARGS BADLIMIT BADKEYS BADSTATE (a key has another use; no key is then changed)

redis.register_function{
  function_name = 'ratelimit_override', description = 'Puts another limit on the keys for some milliseconds.',
  flags = { 'allow-oom' }, callback = function(keys, args)
    local list, err = contents.of_all('override', keys, args, 2)
    if err then return err end
    local limit, ms
    limit, err = overrides.limit(args[1])
    if err then return err end
    ms, err = contents.duration(args[2], 'an override')
    if err then return err end
    for i, key in ipairs(keys) do
      local content = list[i]
      local held = content.use or content.held and not limit.lease and 'leases or an override for them'
        or limit.lease and not content.leases and (content.left >= 0 and 'the state of a limit or an override for one' or content.grown and 'a block with GROW')
      if held then return states.in_use(key, held) end
    end
    local override = { ends = clock.ms() + ms, limit = limit, text = args[1] }
    return contents.change(keys, list, nil, function(key, content)
      contents.put(key, content, nil, override)
    end)
  end,
}
