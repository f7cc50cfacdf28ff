-- What the keys hold, for the verbs that take keys without a limit: reset, block, unblock.

local MOST_KEYS = 250
local MOST_BYTES = 2500000

-- of returns the result of states.look, to which it adds in_use: what the key holds, if it cannot
-- be blocked. For a set of leases or a usage record, only leases, blocked and in_use are set.
local function of(key)
  local found, err = states.look(key)
  if found and not found.leases then
    found.in_use = found.request and states.REQUEST
    return found
  elseif leases.last(key, '-2') then
    return { leases = true, blocked = math.max(0, leases.blocked_until(key) - clock.ms()) }
  elseif not tracking.check(key) then
    return { blocked = 0, in_use = 'a usage record' }
  end
  return nil, err
end

-- of_all checks the arguments of a verb that takes keys and `want` arguments. It returns a
-- description of each key (see of), or nil and the error.
function contents.of_all(verb, keys, args, want)
  if #keys == 0 then
    return nil, errors.new('BADKEYS', 'the number of keys is 0; name at least one to %s', verb)
  elseif #keys > MOST_KEYS then
    return nil, errors.new('BADKEYS', 'the number of keys is %d; %s takes at most %d', #keys, verb, MOST_KEYS)
  elseif #args ~= want then
    return nil, errors.new('BADARGS', '%s: %s takes the keys%s', errors.quote(args[want + 1] or ''), verb,
      want == 0 and ' only' or ', the ms for which they are denied, and EXTEND or nothing')
  end
  local err = requests.repeated(keys)
  if err then return nil, err end
  local list = {}
  for i, key in ipairs(keys) do
    list[i], err = of(key)
    if err then return nil, err end
  end
  return list
end

-- too_large returns the error for keys whose states are too large to copy in one call, or nil.
-- block copies all states, unblock only the states of blocked keys.
function contents.too_large(keys, list, verb)
  local bytes = 0
  for i, key in ipairs(keys) do
    if not list[i].leases and (verb == 'block' or list[i].blocked > 0) then
      bytes = bytes + redis.call('STRLEN', key)
    end
  end
  if bytes > MOST_BYTES then
    return errors.new('BADKEYS', 'the keys hold %d bytes, and %s copies them: at most %d in one call; name fewer keys', bytes,
      verb, MOST_BYTES)
  end
  return nil
end
