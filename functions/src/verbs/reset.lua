-- ratelimit_reset: forgets what was taken.
--   KEYS   one or more
--   ARGV   none
--   Output how many of the keys held something
--   Errors BADARGS BADKEYS BADSTATE (a key that no limiter wrote: then none is deleted)

redis.register_function{
  function_name = 'ratelimit_reset',
  description = 'Forgets what was taken from the keys; answers how many held something.',
  flags = { 'allow-oom' },
  callback = function(keys, args)
    if #args > 0 then
      return errors.new('BADARGS', '%s: reset takes keys only', errors.quote(args[1]))
    elseif #keys == 0 then
      return errors.new('BADKEYS', 'the number of keys is 0; name at least one to reset')
    end
    for _, key in ipairs(keys) do
      local value = redis.pcall('GET', key)
      local owner, err = true, nil
      if value then
        owner, err = states.owner(key, value)
      end
      if not owner then
        return err
      end
    end
    local changed = 0
    for _, key in ipairs(keys) do
      changed = changed + redis.call('DEL', key)
    end
    return changed
  end,
}
