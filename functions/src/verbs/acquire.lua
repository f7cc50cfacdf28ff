-- ratelimit_acquire takes one of n leases, or renews the lease that this ID already holds, so that
-- a retry does not take a second lease.
--   KEYS   one
--   ARGV   concurrency n lease=<period> or @policy, lease id (1 to 256 bytes)
--   Output { allowed, n, remaining, retry_after_ms, reset_after_ms, 1, lease_ms }
--   Errors BADARGS BADLIMIT BADKEYS BADSTATE NOPOLICY

redis.register_function{
  function_name = 'ratelimit_acquire', description = 'Takes a lease, or prolongs the one that this id holds.',
  callback = function(keys, args) return leases.call('acquire', keys, args) end,
}
