-- ratelimit_unblock: lifts the blocks of the keys; what was taken from them before is there again.
--   KEYS   one or more
--   ARGV   none
--   Output how many of the keys were blocked
--   Errors BADARGS BADKEYS BADSTATE (a key that no limiter wrote: then none is changed)

-- Nothing can be stored that expires in this very millisecond: Valkey drops it at once.
local function unblock(key, holding, now)
  states.forget(key)
  if holding.kind == 'leases' then
    lease_sets.unblock(key)
  elseif holding.value == '' or holding.expiry <= now then
    redis.call('DEL', key)
  else
    redis.call('SET', key, holding.value, 'PXAT', string.format('%.0f', holding.expiry))
  end
end

clock.register{
  function_name = 'ratelimit_unblock',
  description = 'Lifts the blocks of the keys; answers how many were blocked.',
  flags = { 'allow-oom' },
  callback = function(keys, args)
    local list, err = holdings.all('unblock', keys, args, 0)
    if not list then
      return err
    end
    local now, changed = clock.ms(), 0
    for i, key in ipairs(keys) do
      if list[i].blocked > now then
        unblock(key, list[i], now)
        changed = changed + 1
      end
    end
    return changed
  end,
}
