-- ratelimit_override_end removes the overrides of the keys. States, leases and blocks stay.
--   KEYS   one or more
--   ARGV   none
--   Output the number of keys that had an override
--   Errors BADARGS BADKEYS BADSTATE (one of the keys was not written by a limiter; no key is then changed)

redis.register_function{
  function_name = 'ratelimit_override_end', description = 'Removes the overrides of the keys; returns how many had one.',
  flags = { 'allow-oom' }, callback = function(keys, args) return contents.remove('override_end', keys, args, overrides.active, contents.put) end,
}
