-- What verbs that take keys without a limit need to know of them: reset, block, unblock.

-- of answers what a key holds: { kind = 'none' }, { kind = 'state', value =, expiry =, blocked = ms since the epoch }
-- (a string; without a block blocked is 0), { kind = 'leases', blocked = }, or { kind = 'usage' }; or nil and the error.
function holdings.of(key, now)
  local value = redis.pcall('GET', key)
  if not value then
    return { kind = 'none', blocked = 0, value = '', expiry = 0 }
  elseif type(value) == 'string' then
    local left, err = states.expires_in(key)
    local untill, state, expiry = states.blocked(value)
    if not untill and not states.owner(value) and string.sub(value, 1, 5) ~= 'once:' then
      return nil, states.unreadable(key, value)
    elseif not left then
      return nil, err
    end
    return { kind = 'state', blocked = untill or 0, value = untill and state or value, expiry = expiry or now + left }
  end
  if lease_sets.holds(key) then
    return { kind = 'leases', blocked = lease_sets.blocked_until(key) }
  elseif not tracking.check(key) then
    return { kind = 'usage', blocked = 0 }
  end
  return nil, states.not_a_state(key, value)
end

-- all answers what each key holds, and now in ms since the epoch; or nil and the error.
function holdings.all(keys)
  local list = {}
  local now = clock.ms()
  for i, key in ipairs(keys) do
    local holding, err = holdings.of(key, now)
    if not holding then
      return nil, err
    end
    list[i] = holding
  end
  return list, now
end

-- arguments checks those of a verb over keys; answers the error, or nil.
function holdings.arguments(verb, keys, args, want)
  if #keys == 0 then
    return errors.new('BADKEYS', 'the number of keys is 0; name at least one to %s', verb)
  elseif #args ~= want then
    return errors.new('BADARGS', '%s: %s takes the keys%s', errors.quote(args[want + 1] or ''), verb,
      want == 0 and ' only' or ' and the ms for which they are denied')
  end
  return requests.repeated(keys)
end
