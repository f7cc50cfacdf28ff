-- ratelimit_release: gives a lease back. It can neither free another's lease nor free twice.
--   KEYS   one
--   ARGV   concurrency n lease=<period> or @policy, lease id (1 to 256 bytes)
--   Output 1, or 0 if this id holds no lease (any more)
--   Errors BADARGS BADLIMIT BADKEYS BADSTATE NOPOLICY

clock.register{
  function_name = 'ratelimit_release',
  description = 'Gives a lease back: 1, or 0 if this id holds none.',
  flags = { 'allow-oom' },
  callback = function(keys, args)
    return leases.call('release', keys, args)
  end,
}
