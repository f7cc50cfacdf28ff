-- ratelimit_unblock lifts the blocks of the keys. Units taken from them before the block count
-- again.
--   KEYS   one or more
--   ARGV   none
--   Output the number of keys that were blocked
--   Errors BADARGS BADKEYS BADSTATE (one of the keys was not written by a limiter; no key is then changed)

-- unblock lifts the block of a key and keeps the state under it, with its expiry. A state that
-- expires in this very millisecond is not stored, because Valkey would drop it at once.
local function unblock(key, content)
  if content.leases then return leases.unblock(key) end
  local state = redis.call('GETRANGE', key, content.from, '-1')
  if state == '' or content.expiry <= clock.ms() then
    redis.call('DEL', key)
  else
    redis.call('SET', key, state, 'PXAT', content.expiry)
  end
end

clock.register{
  function_name = 'ratelimit_unblock',
  description = 'Lifts the blocks of the keys; returns how many were blocked.',
  flags = { 'allow-oom' },
  callback = function(keys, args)
    local list, err = contents.of_all('unblock', keys, args, 0)
    err = err or contents.too_large(keys, list, 'unblock')
    if err then return err end
    local changed = 0
    for i, key in ipairs(keys) do
      if list[i].blocked > 0 then
        unblock(key, list[i])
        changed = changed + 1
      end
    end
    return changed
  end,
}
