-- ratelimit_reset deletes the keys and everything in them: states, blocks, overrides, leases,
-- replies (ONCE) and usage records.
--   KEYS   one or more
--   ARGV   none
--   Output the number of keys that held something; an empty string counts as no key
--   Errors BADARGS BADKEYS BADSTATE (one of the keys was not written by a limiter; no key is then deleted)

redis.register_function{
  function_name = 'ratelimit_reset', description = 'Forgets the keys; returns how many held something.',
  flags = { 'allow-oom' }, callback = function(keys, args)
    local list, err = contents.of_all('reset', keys, args, 0)
    if not list then return err end
    local changed = 0
    for i, key in ipairs(keys) do
      if not list[i].empty then changed = changed + redis.call('UNLINK', key) end
    end
    return changed
  end,
}
