-- sliding_log is exact: it allows at most n units in any span of one period. Each allowed call is
-- stored until it is one period old.
--
-- State: "sliding_log:" and a log. The entries have a fixed width, so that a long log can be
-- searched and extended in place without reading all of it:
--   5 bytes         units charged before the first entry
--   12 bytes each   the time (us, 7 bytes), and the units charged up to and including this call (5 bytes), big-endian
-- The sums wrap around: after SUMS - 1 comes 0. Only differences of two sums are used. The key
-- expires when the last entry has left the window.
--
-- A new n or period takes effect at once and also applies to the stored entries. If entries have later
-- times than now, the clock was set back. A charge combines them into one entry at the current time. If a
-- call would have to wait until such an entry leaves, which takes longer than a period, one entry at the
-- current time replaces the log, with few enough units to leave room for this call. Another algorithm's
-- state also counts as one entry at the current time.
--
-- The fields of a state:
--   text     what has been read: a log, or the value of a key, or the first part of it
--   offset   the position in the value at which text begins, in bytes
--   skip     the position in the value at which the log begins
--   key      the key with the rest of the value
--   entries  the number of entries
--   base     the sum before the first entry
--   last     the time of the last entry
--   sum      the sum of the last entry
--   live     the first entry that counts
--   used     the units that count
--   added    the entry that is written at the end: after a charge, the new entry, or '' if FORCE has no room even for
--            debt; after a refund, the last entry that is left
--   before   the number of entries that stay before the added one

local PREFIX = 'sliding_log:'
local BASE, ENTRY = 5, 12
local SHORTEST = BASE + ENTRY
local CHUNK, LAST = 2048, '2047' -- bytes of the first read
local SUMS = 246952198016 -- below 0x3a00000000, so a log never begins with ':', which marks the texts of several rates
local LONGEST = 100000000 -- units in a log; a log with more is broken

-- entry returns the time and the sum of entry i. Entry 0 is the base.
local function entry(state, i)
  if i == 0 then return 0, state.base end
  local at = state.skip + BASE + ENTRY * (i - 1)
  local text, offset = state.text, state.offset
  if at - offset + ENTRY <= #text then return struct.unpack('>I7I5', text, at - offset + 1) end
  return struct.unpack('>I7I5', redis.call('GETRANGE', state.key, at, at + ENTRY - 1))
end

-- search returns the number of an entry in the range from low to high: the first entry that is
-- later than since and has at most `units` units after it. If there is none, search returns high.
local function search(state, low, high, since, units)
  while low < high do
    local middle = (low + high - (low + high) % 2) / 2
    local at, sum = entry(state, middle)
    if at <= since or (state.sum - sum) % SUMS > units then
      low = middle + 1
    else
      high = middle
    end
  end
  return low
end

-- leaving returns the time and the index of the first live entry that is followed by at most the given
-- number of units. In a full log, this is usually the first live entry.
local function leaving(state, units)
  local i = state.live
  local at, sum = entry(state, i)
  if (state.sum - sum) % SUMS > units then
    i = search(state, i + 1, state.entries, 0, units)
    at = entry(state, i)
  end
  return at, i
end

-- set updates used and free.
local function set(state, used)
  local rate = state.rate
  state.used = used
  state.free = used < rate.capacity and rate.capacity - used or 0
end

local function reset(state)
  return state.used > 0 and clock.ceil_ms(state.last + state.rate.period * 1000 - state.now) or 0
end

-- restart gives a state a log with one entry at the current time, or an empty log for 0 units.
local function restart(state, units)
  local now = state.now
  state.text, state.offset, state.skip = struct.pack('>I5I7I5', 0, now, units), 0, 0
  state.entries, state.base, state.last, state.sum = units > 0 and 1 or 0, 0, now, units
  state.live, state.added = 1, nil
  set(state, units)
end

-- check fills in a state from its log. size is the length of the log in bytes, and base, first and
-- first_sum are its first numbers. check returns false if the log is broken.
local function check(state, size, cost, base, first, first_sum)
  local entries = (size - BASE) / ENTRY
  if entries % 1 ~= 0 or base >= SUMS then return false end
  local last, sum = first, first_sum
  state.entries, state.base = entries, base
  if entries > 1 then last, sum = entry(state, entries) end
  local units, before = (sum - base) % SUMS, sum
  if first > last or (first_sum - base) % SUMS > units or units > LONGEST then return false end
  state.last, state.sum, state.live, state.added = last, sum, 1, nil
  local now, rate = state.now, state.rate
  local since, capacity = now - rate.period * 1000, rate.capacity
  local used = units
  if first <= since then
    if last <= since then
      state.live = entries + 1
    else
      state.live = search(state, 2, entries, since, SUMS)
      before = select(2, entry(state, state.live - 1))
    end
    used = (sum - before) % SUMS
  end
  if used > units then
    used = 0 -- an entry between the first and the last is invalid
  elseif last > now then
    local most = capacity - states.needs(capacity, cost)
    if used > most and leaving(state, most) > now then
      restart(state, states.most_spent(state, cost))
      return true
    end
  end
  set(state, used)
  return true
end

-- charge returns the error if the log has to be copied and is too long, otherwise nil.
local function charge(state, units)
  local now, entries = state.now, state.entries
  state.before, state.added = entries, ''
  if units > 0 then
    if state.last > now then
      local before = search(state, state.live, entries, now, SUMS) - 1
      local err = state.offset == 0 and states.too_much('bytes', ENTRY * (before - state.live + 1)) -- with an offset, loading has already counted these bytes
      if err then return err end
      state.before = before
    end
    state.last, state.sum = now, (state.sum + units) % SUMS
    state.added = struct.pack('>I7I5', now, state.sum)
  end
  state.used, state.free = state.used + units, state.free - units
  state.reset = reset(state)
  return nil
end

-- refund gives back the newest units first. If there are too many older entries to copy, it returns
-- the error, otherwise nil.
local function refund(state, units)
  local left = state.used - units
  state.before = -1
  if left > 0 then
    local at, i = leaving(state, units)
    local err = state.offset == 0 and states.too_much('bytes', ENTRY * (i - state.live)) -- otherwise, loading has already added them
    if err then return err end
    local _, base = entry(state, state.live - 1)
    state.last, state.sum, state.before = at, (base + left) % SUMS, i - 1
    state.added = struct.pack('>I7I5', at, state.sum)
  end
  set(state, left > 0 and left or 0)
  state.reset = reset(state)
  return nil
end

local function spare(state) return math.max(0, states.most_owed(state.rate.capacity) - state.used) end

local function wait(state, cost)
  local units = state.rate.capacity - cost
  if state.added then -- FORCE has added an entry
    local _, sum = entry(state, state.before)
    if (state.sum - sum) % SUMS > units then return reset(state) end
  end
  return clock.ceil_ms(leaving(state, units) + state.rate.period * 1000 - state.now)
end

-- expiry returns the time, in ms since the epoch, at which the last entry leaves the window.
local function expiry(state) return clock.ceil_ms(state.last + state.rate.period * 1000) end

-- goes_on reports whether a new entry can be appended without rewriting the log. At most half of the
-- entries may have left the window. The log must also have fewer than 2n entries. Otherwise it could
-- grow too long, because debts may leave more than n entries in the window.
local function goes_on(state)
  local entries = state.entries
  return state.added == ''
    or entries == state.before and entries > 0 and entries < 2 * state.rate.capacity and state.live - 1 <= entries / 2
end

-- save returns the log with the added entry, and when the log expires. It drops the entries that
-- have left the window, unless goes_on returns true.
local function save(state)
  if goes_on(state) then state.live = 1 end
  local _, base = entry(state, state.live - 1)
  local entries, text, offset = state.skip + BASE, state.text, state.offset
  local first, last = entries + ENTRY * (state.live - 1), entries + ENTRY * state.before - 1
  base = struct.pack('>I5', base)
  if last - offset < #text then
    return base .. string.sub(text, first - offset + 1, last - offset + 1) .. state.added, expiry(state)
  end
  local parts = { base, size = BASE + last - first + 1 + #state.added }
  states.copy(parts, state.key, first, last)
  parts[#parts + 1] = state.added
  return parts, expiry(state)
end

local function read(state, text, now, cost, key, offset, size)
  state.now, state.text, state.offset, state.skip, state.key = now, text, offset or 0, offset or 0, key
  if #text >= SHORTEST then return check(state, size or #text, cost, struct.unpack('>I5I7I5', text)) end
  restart(state, 0)
  return text == ''
end

------------------------------------------------------------------- one rate: a log in a key of its own

local function load(key, limit, at, cost, head)
  local text = head or redis.pcall('GETRANGE', key, '0', LAST)
  if text == '' then return packed.form.load_empty(limit, at) end
  local prefix, base, first, first_sum
  if type(text) == 'string' and #text >= #PREFIX + SHORTEST then
    prefix, base, first, first_sum = struct.unpack('>c12I5I7I5', text)
  end
  -- The key may hold several rates, or a value that no limiter wrote.
  if prefix ~= PREFIX or base >= SUMS then return states.load_other(key, limit, at, cost, text) end
  local state, size = states.new(at, limit.rate), #text
  if size == CHUNK then size = redis.call('STRLEN', key) end
  state.now, state.text, state.offset, state.skip, state.key = clock.us(), text, 0, #PREFIX, key
  return not check(state, size - #PREFIX, cost, base, first, first_sum) and states.unreadable(key) or nil
end

local function write(key, limit, at)
  local state = states.list[at]
  if state.skip ~= #PREFIX or #state.text < CHUNK or not goes_on(state) then
    packed.form.write(key, limit, at) -- APPEND would allocate twice the memory of a shorter log
  else
    redis.call('APPEND', key, state.added)
    redis.call('PEXPIREAT', key, numbers.argument(expiry(state)))
  end
end

local short = { offset = 0, skip = #PREFIX } -- the fields of a state that search needs of a log that probe has read; reused

-- probe, commit and waits decide on a key: see src/45_limits.lua. What probe returns for the other two is the text, the first entry that counts
-- and the time of the last one, 0 if none counts. If the log is long, has units later than now or is not one rate's log, its state is
-- loaded.
local function probe(key, limit)
  local text, capacity = redis.pcall('GETRANGE', key, '0', LAST), limit.capacity
  if text == '' then return capacity, text, 1, 0 end
  local size = #text
  local entries = (size - #PREFIX - BASE) / ENTRY
  if entries < 1 or entries % 1 ~= 0 then return nil, text end
  local prefix, base, first, first_sum = struct.unpack('>c12I5I7I5', text)
  local last, sum = struct.unpack('>I7I5', text, size - ENTRY + 1)
  local now, units, live = clock.us(), (sum - base) % SUMS, 1
  local since, used = now - limit.rate.period * 1000, units
  if prefix ~= PREFIX or base >= SUMS or first > last or last > now or (first_sum - base) % SUMS > units or units > LONGEST then
    return nil, text
  elseif last <= since then
    live, used, last = entries + 1, 0, 0
  elseif first <= since then
    short.text, short.sum = text, sum
    live = search(short, 2, entries, since, SUMS)
    local _, before = entry(short, live - 1)
    used = (sum - before) % SUMS
    if used > units then return nil, text end
  end
  local free = capacity - used
  return free > 0 and free or 0, text, live, last
end

local function commit(key, limit, units, text, live)
  local rate, now, size = limit.rate, clock.us(), #text
  if key and size == 0 then
    states.put(key, struct.pack('>c12I5I7I5', PREFIX, 0, now, units), clock.ceil_ms(now + rate.period * 1000))
  elseif key then
    local sum, entries = struct.unpack('>I5', text, size - BASE + 1), (size - #PREFIX - BASE) / ENTRY
    if live - 1 > entries / 2 then -- see goes_on; if half of 2n entries or more have not left, no unit fits
      text = PREFIX .. string.sub(text, ENTRY * live + 1) -- the sum before the first entry that counts, and what follows
    end
    states.put(key, text .. struct.pack('>I7I5', now, (sum + units) % SUMS), clock.ceil_ms(now + rate.period * 1000))
  end
  return rate.period, 0
end

local function waits(limit, cost, text, live, last)
  local size, capacity, retry, gone = #text, limit.capacity, 0, limit.rate.period * 1000 - clock.us()
  if cost and cost > capacity then
    retry = -1
  elseif cost then
    short.text, short.live, short.entries, short.sum = text, live, (size - #PREFIX - BASE) / ENTRY, struct.unpack('>I5', text, size - BASE + 1)
    retry = clock.ceil_ms(leaving(short, capacity - cost) + gone)
  end
  return last > 0 and clock.ceil_ms(last + gone) or 0, retry
end

-------------------------------------------------------------------------------------------

-- spent returns the units of the first rate's log, without reading the whole log.
local function spent(key, from)
  local first, last = packed.first(key, from, PREFIX)
  local base = redis.call('GETRANGE', key, first, first + BASE - 1)
  local sum = redis.call('GETRANGE', key, last - BASE + 1, last)
  if last >= 0 and last - first < BASE or #base < BASE or #sum < BASE then return 0 end -- the rate is full
  return (struct.unpack('>I5', sum) - struct.unpack('>I5', base)) % SUMS
end

algorithms.sliding_log = {
  name = 'sliding_log',
  prefix = PREFIX,
  shape = '^.....[%z\1-\31]', -- the time of the first entry begins with a byte below 9, so no text has this form
  options = {},
  most = { field = 'count', sum = 100000, what = 'calls to be kept in logs', advice = '; sliding_window takes more' },
  probe = probe, commit = commit, waits = waits,
  form = { load = load, load_empty = packed.form.load_empty, load_found = packed.form.load_found, write = write, save = packed.form.save },
  spent = spent, head = CHUNK,
  charge = charge, refund = refund, spend = restart, spare = spare, reset = reset, wait = wait, read = read, save = save,
}
