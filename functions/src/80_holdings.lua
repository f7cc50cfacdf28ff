-- What verbs that take keys without a limit need to know of them: reset, block, unblock.

-- of returns what a key holds: { kind = 'none' }, { kind = 'state', value =, expiry =, blocked = ms since the epoch }
-- (a string; without a block blocked is 0), { kind = 'leases', blocked = }, or what no block can cover: { in_use = what }.
-- Or nil and the error.
local function of(key)
  local value = redis.pcall('GET', key)
  if not value then
    return { kind = 'none', blocked = 0, value = '', expiry = 0 }
  elseif type(value) == 'string' then
    local ends = redis.call('PEXPIRETIME', key)
    local untill, state, expiry = states.blocked(value)
    local request = string.sub(value, 1, 5) == 'once:'
    if not untill and not request and not states.owner(value) then
      return nil, states.unreadable(key, value)
    elseif ends < 0 then
      return nil, states.missing_expiry(key)
    elseif request then
      return { in_use = states.REQUEST, blocked = 0 }
    end
    return { kind = 'state', blocked = untill or 0, value = untill and state or value, expiry = expiry or ends }
  end
  if lease_sets.holds(key) then
    return { kind = 'leases', blocked = lease_sets.blocked_until(key) }
  elseif not tracking.check(key) then
    return { in_use = 'a usage record', blocked = 0 }
  end
  return nil, states.not_a_state(key, value)
end

-- all checks the arguments of a verb that takes keys and `want` words more, and returns what each key holds; or nil and
-- the error.
function holdings.all(verb, keys, args, want)
  if #keys == 0 then
    return nil, errors.new('BADKEYS', 'the number of keys is 0; name at least one to %s', verb)
  elseif #args ~= want then
    return nil, errors.new('BADARGS', '%s: %s takes the keys%s', errors.quote(args[want + 1] or ''), verb,
      want == 0 and ' only' or ' and the ms for which they are denied')
  end
  local err = requests.repeated(keys)
  if err then
    return nil, err
  end
  local list = {}
  for i, key in ipairs(keys) do
    list[i], err = of(key)
    if err then
      return nil, err
    end
  end
  return list
end
