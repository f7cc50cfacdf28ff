-- ratelimit_usage returns what TRACK has counted in a usage key.
--   KEYS   one
--   ARGV   none
--   Output { "allowed", n, "denied", n, "cost", n, "first_ms", t, "last_ms", t, "interval_ms", 60000,
--            "series", { { start_ms, allowed, denied }, ... } }, times in ms since the epoch, all 0 if nothing was counted
--   Errors BADARGS BADKEYS BADSTATE

redis.register_function{
  function_name = 'ratelimit_usage', description = 'Returns what TRACK has counted under a usage key.',
  flags = { 'no-writes' }, callback = function(keys, args)
    if #keys ~= 1 then
      return errors.new('BADKEYS', 'the number of keys is %d; usage takes one', #keys)
    elseif #args > 0 then
      return errors.new('BADARGS', '%s: usage takes the key only', errors.quote(args[1]))
    end
    return requests.too_long(keys) or tracking.check(keys[1]) or tracking.usage(keys[1])
  end,
}
