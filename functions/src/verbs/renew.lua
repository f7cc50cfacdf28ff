-- ratelimit_renew extends a held lease. An expired lease cannot be renewed: allowed is 0 and
-- retry_after_ms is -1.
--   KEYS   one
--   ARGV   concurrency n lease=<period> or @policy, lease id (1 to 256 bytes)
--   Output { allowed, n, remaining, retry_after_ms, reset_after_ms, 1, lease_ms }
--   Errors BADARGS BADLIMIT BADKEYS BADSTATE NOPOLICY

redis.register_function{
  function_name = 'ratelimit_renew', description = 'Prolongs a lease that is held.',
  flags = { 'allow-oom' }, callback = function(keys, args) return leases.call('renew', keys, args) end,
}
