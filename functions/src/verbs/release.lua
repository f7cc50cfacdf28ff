-- ratelimit_release releases a lease. It cannot release another caller's lease. Releasing a lease twice
-- does nothing.
--   KEYS   one
--   ARGV   concurrency n lease=<period> or @policy, lease id (1 to 256 bytes)
--   Output 1, or 0 if this ID holds no lease
--   Errors BADARGS BADLIMIT BADKEYS BADSTATE NOPOLICY

redis.register_function{
  function_name = 'ratelimit_release', description = 'Gives a lease back: 1, or 0 if this id holds none.',
  flags = { 'allow-oom' }, callback = function(keys, args) return leases.call('release', keys, args) end,
}
