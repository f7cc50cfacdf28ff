-- A state is what a rate stores in a key, as read by a call. A call loads a key into states if its limit's function probe
-- cannot tell how many units fit (src/60_decisions.lua), and for a refund.
--
-- A key holds a string with an expiry. (The leases of concurrency are a sorted set; a usage record
-- is a hash.) The form of the string shows which algorithm wrote it, so a key of another kind is
-- rejected before anything is written. functions/STATE.md lists the forms.
--
-- A call fills one table in states.list for each rate of each key. The next call reuses the tables.
-- All algorithms set
--   rate     the rate of the limit
--   free     how many units fit now; -1 if the key is blocked. A charge or a refund updates it
--   ends_in  ms until the key's block or another algorithm's state in the key ends; 0 if there is neither
--   reset    ms until the rate is full again, once the state is charged or refunded; false before
--   delay    ms that an admitted call has to wait; a charge of leaky_bucket sets it
--   room     true if an impossible state was replaced by one with room for a cost above 1 (states.most_spent); nil after
--            states.begin. free must then be at least states.needs, because a state with room never denies the call
-- states.new sets rate, ends_in, reset and delay. Algorithms set free, and add their own fields.

local list = {}
states.list = list

-- States are kept for the next call, unless this call has more than MOST_KEPT states or reads more than
-- SMALL bytes or buckets.
local MOST_KEPT, SMALL = 64, 10000
local large = false -- whether this call must free its states

-- new returns the state at a position in the list. The algorithm must then set its own fields.
function states.new(at, rate)
  local state = list[at]
  if not state then
    state = {}
    list[at] = state
    if at > MOST_KEPT then large = true end
  end
  state.rate, state.ends_in, state.reset, state.delay = rate, 0, false, 0
  return state
end

-- If the limit was lowered or the clock was set back, a state can deny a call for longer than the limit
-- takes to refill. Such a state is called impossible for this call, and is replaced. The new state leaves
-- room for exactly this call. states.needs returns how many units that is: the cost, or 1 if the cost is 0 or never fits, and
-- what FLOOR keeps free. If this is everything, it returns 1.
function states.needs(capacity, cost)
  return states.wanted(capacity, cost, states.kept(capacity, states.floor))
end

-- wanted does the same for a call that keeps this many units free.
function states.wanted(capacity, cost, kept)
  if kept >= capacity then return 1 end
  return (cost > 1 and cost <= capacity - kept and cost or 1) + kept
end

-- floor is the FLOOR of the call, in percent, while it loads a key into states.
states.floor = 0

-- kept returns the units of a capacity that a call with FLOOR keeps free: this percentage, rounded up. The product may be above
-- 2^53, so whole hundreds are multiplied alone.
function states.kept(capacity, percent)
  local rest = capacity % 100
  return (capacity - rest) / 100 * percent + math.ceil(rest * percent / 100)
end

-- load_above loads a key into states with FLOOR.
function states.load_above(percent, key, limit, at, cost, head, left)
  states.floor = percent
  local done, result = pcall(limit.form.load, key, limit, at, cost, head, left)
  states.floor = 0
  if not done then error(result, 0) end
  return result
end

-- most_spent returns how many units count as spent in the state that replaces an impossible one.
function states.most_spent(state, cost)
  local capacity = state.rate.capacity
  local units = states.needs(capacity, cost)
  if units > 1 then state.room, states.any_room = true, true end
  return capacity - units
end

-- most_owed returns the maximum number of units that can count as spent after a call with FORCE. It
-- is at most twice the capacity, so a key denies calls for at most two full refills.
function states.most_owed(capacity) return math.min(2 * capacity, numbers.MOST) end

------------------------------------------------------------------- what one call may read

-- A call may read more than its own limits would write, because a larger limit may have written the keys.
-- So the bytes and buckets that one call reads are bounded, too. One key never exceeds these bounds: it
-- has at most 3,016 buckets and 200,000 calls in logs (2.4 MB).
local MOST = { bytes = 2500000, buckets = 6000 }
local MOST_OF_SEVERAL = 1250000 -- bytes that a call without limits copies, if more than one key has any
local read = {} -- bytes and buckets read by this call

-- begin starts counting what a call reads. A call must run begin before it loads states. any_room is
-- then false, until a state is replaced by one with room for a cost above 1.
function states.begin()
  read.bytes, read.buckets = 0, 0
  if not states.any_room then return end
  states.any_room = false
  for at = 1, #list do
    list[at].room = nil
  end
end

-- drop frees the states if the call was large.
function states.drop()
  for at = large and #list or 0, 1, -1 do
    list[at] = nil
  end
  large = false
end

-- too_much adds `more` to the number of bytes or buckets that this call has read. If the sum is too
-- large, it returns the error, otherwise nil. Bytes are added before they are copied. The buckets of
-- a state are added after they are read, because their number is not known earlier. If `more` is 0,
-- too_much only checks the sum. limitless is true for a call that has no limits, whose sum would bound its keys.
function states.too_much(what, more, limitless)
  local sum = read[what] + more
  read[what] = sum
  large = large or sum > SMALL
  local most = limitless and sum > more and more > 0 and MOST_OF_SEVERAL or MOST[what]
  if sum <= most then return nil end
  return errors.new('BADKEYS', 'the keys hold more than %d %s, the most that one call reads; name fewer keys', most, what)
end

------------------------------------------------------------------- what a key holds

local HEAD = 128 -- length of the part of a value that shows its kind, its block, and whether it has an override

-- in_use returns the error for a key that the library uses for something else.
function states.in_use(key, what)
  return errors.new('BADSTATE', 'key %s holds %s; give each use a key of its own', errors.quote(key), what)
end

-- unreadable returns the error for a string that was not written by a limiter, although it may look
-- like a state. The error does not show the string, because it may be a secret and errors are
-- logged.
function states.unreadable(key)
  return errors.unusable(key, string.format('holds a string of length %d, which no limiter wrote', redis.call('STRLEN', key)))
end

-- owner returns the algorithm that wrote a string, or nil. head is the string, or its first bytes.
function states.owner(head)
  local name, text = string.match(head, '^([%a_]+):(.*)$')
  local named = algorithms[name]
  if named and named.prefix == name .. ':' then
    return (string.find(text, '^:%d+:') or string.find(text, named.shape)) and named or nil
  end
  for _, algorithm in pairs(algorithms) do
    local holds = algorithm.holds
    if holds and holds(head) then return algorithm end
  end
  return nil
end

-- The block of a key is the beginning of its value: "blocked:<end>:<expiry>:", and after a block with
-- GROW also "<length>:<forgotten>:". expiry is when the state that follows expires, 0 if none follows.
-- length is how long the block was, and forgotten when this is forgotten. The times are in ms since the
-- epoch, the length in ms. No state begins with digits and a colon.

-- block returns these numbers and the position of the state, or nil if a value does not begin with a
-- block. length and forgotten are 0 without GROW.
local function block(head)
  local ends, expiry, from = string.match(head, '^blocked:(%d+):(%d+):()')
  if not ends then return nil end
  local length, forgotten, after = string.match(head, '^(%d+):(%d+):()', from)
  length, forgotten = (length or 0) + 0, (forgotten or 0) + 0
  if ends + expiry + length + forgotten >= numbers.MOST then return nil end
  return ends + 0, expiry + 0, after or from, length, forgotten
end

-- with_block puts a block before the parts of a value that expires at expiry, and returns when the key
-- expires. grown is what GROW remembers: see states.look.
function states.with_block(parts, expiry, ends, grown)
  local head = string.format('blocked:%d:%d:', ends, expiry)
  if grown then head = head .. string.format('%d:%d:', grown.length, grown.forgotten) end
  parts[1] = head .. parts[1]
  return math.max(ends, expiry, grown and grown.forgotten or 0)
end

-- grown returns what GROW remembers at the time now: a table with ends, length and forgotten, or nil if
-- the block had no GROW or is forgotten, or if the clock was set back to before it began.
function states.grown(now, ends, length, forgotten)
  return forgotten > now and ends - now <= length and { ends = ends, length = length, forgotten = forgotten } or nil
end

-- look determines what a key holds. It reads only the first bytes of the value. If the caller has
-- already read them, head is the reply: at least HEAD bytes of the value, the whole value if it is
-- shorter, or an error. If the caller has already read the key's PTTL, left is the reply. If no limiter
-- can have written the key, look returns nil and the error, and for a key that is not a string also what
-- leases.content returns. Otherwise, it returns a table:
--   leases   true if the key is a blocked set of leases that have all expired
--   use      false, or a description of the content if the library uses the key for another purpose (ONCE)
--   blocked  ms until the block ends, or 0 if the key is not blocked
--   ends     the end of the block, which may have passed, in ms since the epoch; nil if there is none
--   grown    what GROW remembers of the block, or nil
--   from     the offset of the state in the value, in bytes: 0, or the length of the block's part
--   expiry   when the state under a block expires, in ms since the epoch; 0 if there is none
--   owner    the algorithm that wrote the state, nil if there is none
--   value    the state, if it is short enough to have been read; otherwise nil
--   empty    true if the key does not exist, or holds an empty string, which counts as no key
--   left     ms until the state expires, or below 0 if there is no state. A state still exists during
--            the ms in which it expires (left is 0), whether it is under a block or not
--   override the override in the value (see src/72_overrides.lua), or nil. It may have ended. If there is an override,
--            from, expiry and left describe the override together with the state under it. The override has fields
--            from, expiry, owner, value and left of its own, which describe only that state
function states.look(key, head, left)
  head = head or redis.pcall('GETRANGE', key, '0', HEAD - 1)
  local found = { use = false, blocked = 0, from = 0, expiry = 0, owner = nil, left = -1 }
  if type(head) == 'table' then
    local set = leases.content(key)
    if not set or set.err or set.held then return nil, errors.failed(key, head, 'is not a string'), set end
    return set
  elseif head == '' then
    found.empty = true
    return found
  end
  local ends, expiry, from, length, forgotten = block(head)
  if ends then found.from, found.expiry, found.ends = from - 1, expiry, ends end
  local state, inner = string.sub(head, found.from + 1), found
  local is_whole = #head < HEAD
  if overrides.begins(state) then
    inner, state, is_whole = overrides.read(key, found.from, is_whole and state)
    if not inner then return nil, states.unreadable(key) end
    found.override = inner
  end
  inner.value = is_whole and state or nil
  local bare = not ends and inner == found
  inner.owner = states.owner(state)
  found.use = bare and string.sub(state, 1, 5) == 'once:' and once.holds(key) and 'the reply to a request (ONCE)'
  if not (inner.owner or found.use or not bare and state == '') then
    return nil, states.unreadable(key)
  end
  found.left = left or redis.call('PTTL', key)
  if found.left < 0 then
    return nil, errors.unusable(key, 'holds a limiter state without an expiry') -- after PERSIST, or SET without KEEPTTL
  elseif ends then
    local now = math.max(ends, expiry, forgotten) - found.left
    found.blocked, found.left, found.grown = math.max(0, ends - now), expiry - now, states.grown(now, ends, length, forgotten)
    if length > 0 and not found.grown then found.blocked, found.ends = 0, nil end
  end
  return found
end

-- blocked returns the ms for which a key is blocked, or nil if it is not blocked or look has to tell: look takes longer. If GROW
-- remembers a block that has ended before a state of the limit, and the limit is gcra with one state, it returns nil, and then
-- what gcra_expiry.behind returns and what gcra_expiry.commit_behind needs. head and left are as in look.
function states.blocked(key, head, left, limit)
  local ends, expiry, from, length, forgotten = block(head)
  if not ends then return nil end
  local state = string.sub(head, from)
  left = left or redis.call('PTTL', key)
  local now = math.max(ends, expiry, forgotten) - left -- later than all of these if the key has no expiry
  if length > 0 and ends - now > length then
    return nil
  elseif ends > now then
    return (state == '' or states.owner(state)) and ends - now or nil
  elseif forgotten <= now or #head >= HEAD or limit.form ~= gcra_expiry.form then
    return nil
  end
  local free, debt = gcra_expiry.behind(limit, state, expiry - clock.ms())
  return nil, free, debt, forgotten, string.match(head, '^(blocked:%d+:)%d+(:%d+:%d+:)')
end

------------------------------------------------------------------- a key that the limit's form cannot load

-- carry_over replaces another algorithm's state with states of this limit. Without it, a change of
-- algorithm would grant a second burst, or lock the key. For each rate, the number of
-- units that count as spent is the smallest of
--   - the number that the old algorithm's function `spent` returns or, if it returns none, the units
--     that the rate refills before the old state expires
--   - the capacity, less the units left if `spent` returns these
--   - states.most_spent, if the old state lasts longer than the rate takes to refill
-- If the call is denied, its retry_after is the time until the old state expires. carry_over returns
-- the error, or nil.
local function carry_over(key, limit, at, cost, found)
  local left, spent = found.left, found.owner.spent
  local counted, err, kept
  if spent then
    counted, err, kept = spent(key, found.from)
    if err then return err end
  end
  limit.form.load_empty(limit, at)
  for i, rate in ipairs(limit.rates) do
    local state, most = list[at + i - 1], rate.capacity
    if left * rate.count > most * rate.period then most = states.most_spent(state, cost) end
    most = math.min(most, counted or math.ceil(left * rate.count / rate.period), rate.capacity - (kept or 0))
    if most > 0 then (rate.algorithm.spend or rate.algorithm.charge)(state, most) end
    state.ends_in = left
  end
  return nil
end

-- A remembering limit takes the place of a limit or an override, which is its field under, if a key is
-- no longer blocked, but GROW remembers the block. It writes the block again before the state.
local function write_grown(key, limit, at)
  local under, grown = limit.under, limit.grown
  local parts, expiry = under.form.save(under, at)
  states.put_parts(key, parts, states.with_block(parts, expiry, grown.ends, grown))
end

local function remembering(under, grown)
  local form = { load = states.load_other, write = write_grown }
  return { algorithm = under.algorithm, size = under.size, capacity = under.capacity, form = form, probe = limits.unprobed, under = under, grown = grown }
end

-- load_other loads a key that the limit's own load function cannot read, because the key has a block, an
-- override, the state of another algorithm, or a state that load_found has to convert. head and left are
-- the parameters of states.look. If an override is active, load_other loads it instead of the limit, and
-- returns it. If GROW remembers a block that has ended, it returns a remembering limit. Otherwise, it
-- returns nil or an error.
function states.load_other(key, limit, at, cost, head, left)
  limit = limit.under or limit
  local found, err = states.look(key, head, left)
  if err then
    return err
  elseif found.use then
    return states.in_use(key, found.use)
  end
  local override, inner = overrides.active(found), found.override or found
  local grown = found.blocked == 0 and found.grown and remembering(override or limit, found.grown)
  if override then
    limit = override.limit
    local most = limit.algorithm.most
    err = most and most.field == 'buckets' and states.too_much('buckets', limit.asks)
  end
  local is_own = inner.owner == (limit.algorithm.stored_as or limit.algorithm)
  if found.blocked > 0 then
    for i, rate in ipairs(limit.rates) do
      local state = states.new(at + i - 1, rate)
      state.free, state.ends_in = -1, found.blocked
    end
  elseif not inner.owner or inner.left < 0 or inner.left == 0 and not is_own then
    limit.form.load_empty(limit, at)
  elseif is_own then
    err = err or limit.form.load_found(key, limit, at, cost, inner)
  else
    err = err or carry_over(key, limit, at, cost, inner)
  end
  return err or grown or override
end

-- put stores a string in a key that expires at expiry, in ms since the epoch. gcra, fixed_window
-- and sliding_log have cheaper ways for common calls and set the expiry themselves.
function states.put(key, value, expiry)
  redis.call('SET', key, value, 'PXAT', numbers.argument(expiry))
end

------------------------------------------------------------------- long values

-- The server hashes every string that it passes to Lua or that Lua makes, which takes about 1.2 ms
-- for a MB. Long values are therefore copied in parts, which are never joined.

local LONG = 2048 -- bytes; a state that is not longer is written in one piece, because APPEND allocates twice its memory
local PART = 65536 -- bytes

-- copy appends the bytes `first` to `last` of a key's value to parts. If there are more than LONG,
-- it sets parts.long.
function states.copy(parts, key, first, last)
  if last - first >= LONG then parts.long = true end
  for at = first, last, PART do
    parts[#parts + 1] = redis.call('GETRANGE', key, at, math.min(at + PART - 1, last))
  end
end

-- put_parts is like put, but takes a list of parts, and appends long parts one by one. The expiry
-- must be later than now, because APPEND would otherwise create a new key. The first APPEND adds
-- nothing. If the user may not run APPEND, the call fails there, before SET replaces the value.
function states.put_parts(key, parts, expiry)
  local is_long = parts.long
  if is_long then redis.call('APPEND', key, '') end
  redis.call('SET', key, is_long and parts[1] or table.concat(parts), 'PXAT', numbers.argument(expiry))
  for i = 2, is_long and #parts or 1 do
    redis.call('APPEND', key, parts[i])
  end
end
