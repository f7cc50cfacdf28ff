-- This file reads and changes what keys hold, for the verbs that do not decide: reset, block, unblock,
-- override, override_end.

local MOST_KEYS = 100

local WANT = {
  block = ', the ms for which they are denied, and EXTEND, GROW max_ms forget_ms, or nothing',
  override = ', a limit, and the ms for which it applies',
}

-- of returns a table that describes what a key holds: the result of states.look, for a set of leases
-- that of leases.content, and for a usage record a table with only blocked and use. If the key holds
-- anything else, of returns nil and the error.
local function of(key)
  local found, err, set = states.look(key)
  found = found or set
  if found then return found, found.err and found end
  if tracking.check(key) then return nil, err end
  return { blocked = 0, use = 'a usage record' }
end

-- of_all checks the arguments of a verb that takes keys and `want` arguments. It returns a list of what
-- the keys hold, or nil and the error.
function contents.of_all(verb, keys, args, want)
  clock.now = nil
  if #keys == 0 then
    return nil, errors.new('BADKEYS', 'the number of keys is 0; name at least one to %s', verb)
  elseif #keys > MOST_KEYS then
    return nil, errors.new('BADKEYS', 'the number of keys is %d; %s takes at most %d', #keys, verb, MOST_KEYS)
  elseif #args ~= want then
    return nil, errors.new('BADARGS', '%s: %s takes the keys%s', errors.quote(args[want + 1] or ''), verb, WANT[verb] or ' only')
  end
  local err = requests.too_long(keys) or requests.repeated(keys)
  if err then return nil, err end
  local list = {}
  for i, key in ipairs(keys) do
    list[i], err = of(key)
    if err then return nil, err end
  end
  return list
end

-- too_large returns the error for keys whose states are too large to copy in one call, or nil. It sets
-- the field size, in bytes, of each content that will be copied. Sets of leases are not copied. If
-- copies is not nil, only contents for which copies(content) returns true are copied.
local function too_large(keys, list, copies)
  states.begin()
  for i, key in ipairs(keys) do
    local content = list[i]
    if not content.leases and (not copies or copies(content)) then
      content.size = redis.call('STRLEN', key)
      local err = states.too_much('bytes', content.size, true)
      if err then return err end
    end
  end
  return nil
end

-- duration parses the length of a block or an override, which is at least `least` ms, by default 1. It
-- returns ms, or nil and the error.
function contents.duration(text, what, least)
  local ms = numbers.parse(text)
  least = least or 1
  if ms and ms >= least and ms <= limits.LONGEST then return ms end
  return nil, errors.new('BADARGS', '%s: the ms of %s are a whole number from %d to %d', errors.quote(text), what, least, limits.LONGEST)
end

-- put replaces the block and the override of a key, and keeps its state. blocked is the end of the
-- block in ms since the epoch, 0 for no block, or nil to keep the old block and what GROW remembers of
-- it. override is nil for no override, and grown without GROW. If the state, the block, the override and
-- the memory all end by the current millisecond, put deletes the key, because Valkey would delete it at
-- once.
function contents.put(key, content, blocked, override, grown)
  if not blocked then grown = content.grown end
  blocked = blocked or content.ends or content.leases and leases.blocked_until(key) or 0
  local is_set, inner, parts, expiry = content.leases and not grown, content.override or content, { '' }, 0
  if override then is_set = override.limit.lease end
  if is_set then return leases.put(key, content, blocked, override) end
  if not content.leases then
    states.copy(parts, key, inner.from, content.size - 1)
    expiry = inner.from == 0 and parts[2] and redis.call('PEXPIRETIME', key) or inner.expiry
  end
  if override then parts[1], expiry = overrides.part(override, expiry), math.max(override.ends, expiry) end
  if blocked > 0 then expiry = states.with_block(parts, expiry, blocked, grown) end
  if expiry <= clock.ms() then return redis.call('DEL', key) end
  states.put_parts(key, parts, expiry)
end

-- change calls set(key, content) for each key, with its content from list. If has is not nil,
-- change skips the keys for which has(content) returns false. It returns the number of keys for
-- which it called set, or the error.
function contents.change(keys, list, has, set)
  local err, changed = too_large(keys, list, has), 0
  if err then return err end
  for i, key in ipairs(keys) do
    if not has or has(list[i]) then
      set(key, list[i])
      changed = changed + 1
    end
  end
  return changed
end

-- remove implements the verbs unblock and override_end. They apply set to the keys for which
-- has(content) returns true, as change does.
function contents.remove(verb, keys, args, has, set)
  local list, err = contents.of_all(verb, keys, args, 0)
  return err or contents.change(keys, list, has, set)
end
