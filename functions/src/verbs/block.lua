-- ratelimit_block denies the keys for a time, whatever their limits. Units taken before stay taken
-- under the block and continue to refill. A second block replaces the first, unless EXTEND is given
-- and the first ends later.
--   KEYS   one or more
--   ARGV   ms [EXTEND]
--   Output the number of keys, which are all blocked now
--   Errors BADARGS BADKEYS BADSTATE (a key is a request's or a usage key, or was not written by a limiter; no key is then blocked)

local OPTIONS = { EXTEND = true, extend = true }

-- block denies a key until `ends`, in ms since the epoch.
local function block(key, content, ends)
  if content.leases then return leases.block(key, ends) end
  local expiry = content.expiry
  local state = redis.call('GETRANGE', key, content.from, '-1')
  if content.from == 0 and state ~= '' then
    expiry = redis.call('PEXPIRETIME', key)
  end
  redis.call('SET', key, string.format('blocked:%d:%d:', ends, expiry) .. state, 'PXAT', math.max(ends, expiry))
end

clock.register{
  function_name = 'ratelimit_block',
  description = 'Denies the keys for some milliseconds, whatever their limits.',
  callback = function(keys, args)
    local extend = OPTIONS[args[2]]
    local list, err = contents.of_all('block', keys, args, extend and 2 or 1)
    if not list then return err end
    local ms = numbers.parse_positive(args[1])
    if not ms or ms > limits.LONGEST then
      return errors.new('BADARGS', '%s: the ms of a block are a whole number from 1 to %d', errors.quote(args[1]),
        limits.LONGEST)
    end
    for i, key in ipairs(keys) do
      if list[i].in_use then return states.in_use(key, list[i].in_use) end
    end
    err = contents.too_large(keys, list, 'block')
    if err then return err end
    for i, key in ipairs(keys) do
      if not extend or list[i].blocked < ms then
        block(key, list[i], clock.ms() + ms)
      end
    end
    return #keys
  end,
}
