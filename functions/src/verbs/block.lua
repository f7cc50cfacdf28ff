-- ratelimit_block: denies the keys for a time, whatever their limits. What was taken from them stays taken underneath
-- and goes on to refill. A second block replaces the first.
--   KEYS   one or more
--   ARGV   ms
--   Output how many keys are blocked now: all of them
--   Errors BADARGS BADKEYS BADSTATE (a request's or a usage key, or one that no limiter wrote: then none is blocked)

local function block(key, holding, untill)
  states.forget(key)
  if holding.kind == 'leases' then
    return lease_sets.block(key, untill)
  end
  redis.call('SET', key, states.block(untill, holding.value, holding.expiry), 'PXAT',
    string.format('%.0f', math.max(untill, holding.expiry)))
end

clock.register{
  function_name = 'ratelimit_block',
  description = 'Denies the keys for some milliseconds, whatever their limits.',
  callback = function(keys, args)
    local list, err = holdings.all('block', keys, args, 1)
    if not list then
      return err
    end
    local ms = numbers.positive(args[1])
    if not ms or ms > limits.LONGEST then
      return errors.new('BADARGS', '%s: the ms of a block are a whole number from 1 to %.0f', errors.quote(args[1]),
        limits.LONGEST)
    end
    for i, key in ipairs(keys) do
      if list[i].in_use then
        return states.in_use(key, list[i].in_use)
      end
    end
    for i, key in ipairs(keys) do
      block(key, list[i], clock.ms() + ms)
    end
    return #keys
  end,
}
