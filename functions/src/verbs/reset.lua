-- ratelimit_reset: forgets the keys: what was taken, blocks, leases, request and usage keys.
--   KEYS   one or more
--   ARGV   none
--   Output how many of the keys held something
--   Errors BADARGS BADKEYS BADSTATE (a key that no limiter wrote: then none is deleted)

clock.register{
  function_name = 'ratelimit_reset',
  description = 'Forgets the keys; returns how many held something.',
  flags = { 'allow-oom' },
  callback = function(keys, args)
    local list, err = holdings.all('reset', keys, args, 0)
    if not list then return err end
    local changed = 0
    for _, key in ipairs(keys) do
      states.forget(key)
      changed = changed + redis.call('DEL', key)
    end
    return changed
  end,
}
