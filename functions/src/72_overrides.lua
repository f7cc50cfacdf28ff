-- An override is another limit for a key, until a given time. Every decision on the key uses the
-- override, whatever limit the call names. src/75_leases.lua stores the overrides of concurrency.
--
-- State: "limit:<end, ms>:<expiry of the state, ms; 0: none>:<length>:<limit>". In the key's value, an
-- override comes after the block, if there is one, and before the state of the limit. The key expires
-- when all three have ended. An override that has ended is ignored, and dropped when the state is next
-- written.
--
-- A call looks for an override only if a key does not hold what the call's limit stores, so overrides do not slow down calls
-- on other keys. overrides.probe reads an override of gcra. All others are loaded by states.load_other: it
-- loads the key with the override's limit and returns the override. The decision then uses the
-- override instead of the call's limit. An override has the fields algorithm, size, capacity and form
-- of a limit, and
--   limit    the parsed limit
--   text     the limit as the caller wrote it
--   ends     when the override ends, in ms since the epoch
--   from, expiry, owner, value, left   as in the result of states.look, but of the state after the override

local PREFIX = 'limit:'
local PART = '^(limit:(%d+):)(%d+)():(%d+):()'
-- LAST is the offset, from the beginning of an override, of the last byte that overrides.read loads.
-- These bytes include the override, at most 1072 bytes, and the next 128 bytes, which show the kind of
-- the state.
local LAST = 1279
local SHORT = 127 -- bytes: a longer value may not have been read to its end
local MOST_RATES = 5 -- so that a call with 50 overridden keys has at most 250 rates, the maximum

overrides.PREFIX = PREFIX

-- begins reports whether a value begins with an override. If the value begins with a block, the caller
-- must remove it first.
function overrides.begins(value) return string.sub(value, 1, #PREFIX) == PREFIX end

-- part returns the text that an override adds before a state.
function overrides.part(override, expiry)
  return string.format('limit:%d:%d:%d:', override.ends, expiry, #override.text) .. override.text
end

local function parse(text)
  if string.sub(text, 1, 1) == '@' then
    return nil, 'an override takes a limit such as 100/m; a policy may change while the override lasts'
  elseif string.match(text, '^%s*([%a_]+)') == 'concurrency' then
    return leases.limit(text)
  end
  local limit, err = limits.of(text)
  if err then
    return nil, err
  elseif limit.capacity == 0 then
    return nil, 'an override does not take the count 0; to deny keys, use ratelimit_block'
  elseif limit.size > MOST_RATES then
    return nil, string.format('%d rates; an override has at most %d', limit.size, MOST_RATES)
  end
  return limit
end

-- limit parses the limit of an override. It returns the limit, or nil and the error. Only a
-- concurrency limit has the field lease.
overrides.limit = numbers.remembered(function(text) return limits.checked(text, parse) end, {}, true)

-- save returns an override, followed by its states, as a list of parts, and when the key expires.
local function save(override, at)
  local parts, expiry = override.limit.form.save(override.limit, at)
  parts[1] = overrides.part(override, expiry) .. parts[1]
  return parts, math.max(override.ends, expiry)
end

local function write(key, override, at) states.put_parts(key, save(override, at)) end

local form = { load = states.load_other, write = write, save = save }

-- part reads the override with which a value begins. It returns the limit, its text, the end of the override, the expiry of the
-- state after it, the position of this state, and the texts before and after the expiry, or nil if the override is broken.
local function part(value)
  local before, ends, expiry, after, length, at = string.match(value, PART)
  if not ends or ends + expiry >= numbers.MOST then return nil end
  local text = string.sub(value, at, at + length - 1)
  local limit = #text == length + 0 and overrides.limit(text)
  if not limit or limit.lease then return nil end
  at = at + length
  return limit, text, ends + 0, expiry + 0, at, before, string.sub(value, after, at - 1)
end

-- read returns the override that begins after byte `from` of a key's value. It also returns the first
-- bytes of the state after the override, and whether these bytes are the whole state. If the value is
-- broken, read returns nil. value is the part of the key's value after byte `from`. If value is nil,
-- read reads this part.
function overrides.read(key, from, value)
  value = value or redis.call('GETRANGE', key, from, from + LAST)
  local limit, text, ends, expiry, at = part(value)
  if not limit then return nil end
  return {
    algorithm = limit.algorithm, size = limit.size, capacity = limit.capacity, form = form, probe = limits.unprobed, limit = limit, text = text, ends = ends,
    from = from + at - 1, expiry = expiry, left = expiry - clock.ms(),
  }, string.sub(value, at), #value <= LAST
end

-- probe reads a value that begins with an override of gcra in effect, for src/61_one_key.lua. It returns the limit, what
-- gcra_expiry.behind returns, and what gcra_expiry.commit_behind needs, or nil if the states have to be loaded: that takes longer.
-- left is the key's PTTL, or nil.
function overrides.probe(key, value, left)
  local limit, _, ends, expiry, at, before, after = part(value)
  if not limit or #value > SHORT or limit.form ~= gcra_expiry.form then return nil end
  local now = clock.ms()
  if ends <= now or (left or redis.call('PTTL', key)) < 0 then return nil end
  local free, debt = gcra_expiry.behind(limit, string.sub(value, at), expiry - now)
  return limit, free, debt, ends, before, after
end

-- active returns the override in the result of states.look, if it has not ended.
function overrides.active(found)
  local override = found.override
  return override and override.ends > clock.ms() and override or nil
end
