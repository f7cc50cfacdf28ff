#!lua name=ratelimit
-- Built from functions/src; do not edit: run `make generate`.

--@ src/00_library.lua
-- This library limits rates on the server. Each call makes one atomic decision.
--
-- This file is the first of the library. The build (functions/build.go) joins the sources in this order:
-- src/*.lua by name, src/algorithms/*.lua, src/verbs/*.lua. Each file except this one has its own scope.
-- A file in src exports its functions in a table named after it: src/45_limits.lua fills `limits`.
--
-- While Redis loads a library, only redis.register_function, redis.log and the version constants
-- exist: no string, no math, no redis.call. Top-level code may therefore only build tables and
-- functions. functions/CALLS.md describes the arguments and replies.

local VERSION = '0.1.0'
local CONTRACT = 1
local BUILD_ID = 'dc73649c6c0e'

-- From Redis 7.2 on, the time does not change during a call. In earlier versions, two commands of
-- one call can see different milliseconds, so a duration read with PTTL must not be written back
-- with PEXPIRE. Valkey reports version 7.2.4 and behaves like it.
local CLOCK_STANDS = (redis.REDIS_VERSION_NUM or 0) >= 0x00070200

-- algorithms holds the algorithms by name; src/algorithms/*.lua fill it. src/45_limits.lua
-- documents their fields.
local algorithms = {}

-- sorted_keys returns the keys of a table, sorted.
local function sorted_keys(of)
  local keys = {}
  for key in pairs(of) do
    keys[#keys + 1] = key
  end
  table.sort(keys)
  return keys
end
local errors = {}
local clock = {}
local numbers = {}
local states = {}
local packed = {}
local gcra_debt = {}
local gcra_expiry = {}
local gcra_value = {}
local policies = {}
local calendar = {}
local limits = {}
local never = {}
local requests = {}
local decisions = {}
local borrowing = {}
local tracking = {}
local once = {}
local overrides = {}
local leases = {}
local contents = {}

--@ src/10_errors.lua
do
-- Errors are replies of the form `RATELIMIT <REASON> "<value>": what is wrong, and what to do`.
-- They are returned and never raised, because servers add different suffixes to raised errors. A
-- call that returns an error has changed nothing.

local SHOWN = 60 -- bytes of a rejected value that the error shows

-- quote returns a caller's value as one line of printable ASCII, cut to SHOWN bytes.
function errors.quote(value)
  local shown = string.gsub(string.sub(value, 1, SHOWN), '[^\32-\126]', function(c)
    return string.format('\\x%02x', string.byte(c))
  end)
  if #value > SHOWN then return string.format('"%s..." (%d bytes)', shown, #value) end
  return '"' .. shown .. '"'
end

-- new returns an error reply. reason is one of BADARGS BADLIMIT BADCOST BADKEYS BADSTATE NOPOLICY.
-- text is a format.
function errors.new(reason, text, ...)
  return redis.error_reply('RATELIMIT ' .. reason .. ' ' .. string.format(text, ...))
end

-- unusable returns the error for a key that holds something other than expected. The parameter what
-- describes the value's type or length, never its bytes.
function errors.unusable(key, what)
  return errors.new('BADSTATE', 'key %s %s; give the limiter a key of its own, or delete this one', errors.quote(key), what)
end

-- failed returns the error for a command that failed on a key. If the key has the wrong type, the
-- error's text contains the parameter expected, such as 'is not a string'.
function errors.failed(key, failure, expected)
  if string.sub(failure.err, 1, 9) == 'WRONGTYPE' then return errors.unusable(key, expected) end
  return failure
end
end

--@ src/15_clock.lua
do
-- This file reads the server's time once per call, so that all limits of a call use the same time, even
-- on Redis 7.0, where the time advances during a call. Each function that uses the time first sets
-- clock.now to nil: ratelimit_take does so itself, and the others call requests.read, contents.of_all or
-- leases.call.

-- us returns the time in whole microseconds since the epoch.
function clock.us()
  local now = clock.now
  if not now then
    local time = redis.call('TIME')
    now = time[1] * 1000000 + time[2]
    clock.now = now
  end
  return now
end

-- ms returns the time in whole milliseconds since the epoch, rounded down as Redis does when it
-- expires keys.
function clock.ms()
  local now = clock.us()
  return (now - now % 1000) / 1000
end

-- ceil_ms rounds microseconds up to milliseconds.
function clock.ceil_ms(us)
  local over = us % 1000
  return (over > 0 and us - over + 1000 or us) / 1000
end
end

--@ src/20_numbers.lua
do
-- This file parses the numbers that callers write. A Lua number is a double, so whole numbers are
-- exact only up to 2^53. tonumber also accepts "inf", "nan", "0x10" and "1e3", which must not reach
-- a decision.

local LARGEST = '9007199254740992' -- 2^53

numbers.MOST = 9007199254740992

numbers.WHOLE = 'a whole number from %s to ' .. LARGEST

local small = {} -- the numbers below 1000 that parse has parsed; a table lookup takes a tenth of the time of a pattern match

-- parse parses decimal digits. It returns nil for anything else, and for numbers above 2^53, because
-- 2^53 + 1 would round down to 2^53. Most texts are short and have no leading zeros: for these, adding
-- 0 is faster than tonumber.
function numbers.parse(text)
  local n = small[text]
  if n then return n end
  n = string.find(text, '^[1-9]%d*$') and text + 0
  if n and n < numbers.MOST then
    if n < 1000 then small[text] = n end
    return n
  end
  text = string.match(text, '^0*(%d+)$')
  if not text or #text > #LARGEST or #text == #LARGEST and text > LARGEST then return nil end
  return tonumber(text)
end

-- parse_digits is like parse, but does not check the text. The text must be nil, or digits that a
-- pattern has matched, with or without a minus sign. parse_digits returns nil for nil.
function numbers.parse_digits(text)
  local n = tonumber(text or '')
  if not n or n < numbers.MOST then return n end
  return numbers.parse(text)
end

-- parse_positive parses a whole number of at least 1, or returns nil.
function numbers.parse_positive(text)
  local n = numbers.parse(text)
  return n ~= 0 and n or nil
end

-- positive_option parses the value of a limit's option. It returns the number, or nil and a
-- description of what was expected.
function numbers.positive_option(text)
  return numbers.parse_positive(text), string.format(numbers.WHOLE, '1')
end

local last, last_text = 0, '0'

-- argument formats a whole number as an argument of a command. Redis 7.0 needs 0.3 to 0.7 us to format a
-- number, which is slower than string.format. The first takes of a limit all set the same expiry, so
-- argument keeps the last text. Later versions of Redis format numbers fast, so argument returns n
-- unchanged.
function numbers.argument(n)
  if CLOCK_STANDS then return n end
  if n ~= last then
    last = n
    last_text = string.format('%d', n)
  end
  return last_text
end

local MOST_KNOWN = 5000 -- results in one generation
local SHORT = 64 -- bytes; a longer text counts as one more result for each 64 bytes

-- remembered returns a function that memoizes read. If read cannot parse its argument, it returns
-- nil and optionally an error; failures are not memoized. A table lookup takes a tenth of the time
-- of a pattern match. memory.known holds the results of the current generation. When it is full, it
-- becomes the previous generation, and the old previous generation is dropped. A result found in
-- the previous generation is added to the current one. So at most 10,000 results are kept, always
-- including the 5,000 most recently used. If sized is true, a result counts as result.size results. A long
-- text counts as several results, so that the texts of a generation have at most 320,000 bytes.
function numbers.remembered(read, memory, sized)
  local size, previous = 0, {}
  memory.known = {}
  return function(text)
    local value, err = memory.known[text], nil
    if value then return value end
    value = previous[text]
    if not value then value, err = read(text) end
    if value then
      if size >= MOST_KNOWN then
        previous = memory.known
        memory.known = {}
        size = 0
      end
      local bytes = type(text) == 'string' and #text or 0
      size = size + (sized and value.size or 1) + (bytes - bytes % SHORT) / SHORT
      memory.known[text] = value
    end
    return value, err
  end
end
end

--@ src/30_states.lua
do
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
--   room     true if an impossible state was replaced by one with room for a cost above 1; nil after states.begin
-- Algorithms add their own fields.

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
  return states.wanted(capacity, cost, states.floor > 0 and states.kept(capacity, states.floor) or 0)
end

-- wanted does the same for a call that keeps this many units free.
function states.wanted(capacity, cost, kept)
  if kept >= capacity then return 1 end
  return (cost > 1 and cost <= capacity - kept and cost or 1) + kept
end

-- floor is the FLOOR of the call, in percent, while it loads a key into states.
states.floor = 0

-- kept returns the units of a capacity that a call with FLOOR keeps free: this percentage, rounded up. The product may be above
-- 2^53, so whole hundreds are multiplied by themselves.
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
-- has at most 5,016 buckets and 200,000 calls in logs (2.4 MB).
local MOST = { bytes = 2500000, buckets = 10000 }
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
-- too_much only checks the sum.
function states.too_much(what, more)
  local sum = read[what] + more
  read[what] = sum
  large = large or sum > SMALL
  if sum <= MOST[what] then return nil end
  return errors.new('BADKEYS', 'the keys hold more than %d %s, the most that one call reads; name fewer keys', MOST[what], what)
end

------------------------------------------------------------------- what a key holds

local HEAD = 128 -- length of the part of a value that shows its kind, its block, and whether it has an override

-- missing_expiry returns the error for a limiter's state whose expiry was removed (by PERSIST, or
-- by SET without KEEPTTL).
function states.missing_expiry(key) return errors.unusable(key, 'holds a limiter state without an expiry') end

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

-- block returns the end of the block with which a value begins, the expiry of the state after it, both in ms since the epoch,
-- and the position of this state. If the value does not begin with a block, it returns nil.
local function block(head)
  local ends, expiry, from = string.match(head, '^blocked:(%d+):(%d+):()')
  if not ends or ends + expiry >= numbers.MOST then return nil end
  return ends + 0, expiry + 0, from
end

-- look determines what a key holds. It reads only the first bytes of the value. If the caller has
-- already read them, head is the reply: at least HEAD bytes of the value, the whole value if it is
-- shorter, or an error. If the caller has already read the key's PTTL, left is the reply. If no limiter
-- can have written the key, look returns nil and the error. Otherwise, it returns a table:
--   leases   whether the key is a blocked set of leases that have all expired
--   use      false, or a description of the content if the library uses the key for another purpose (ONCE)
--   blocked  ms until the block ends, or 0 if the key is not blocked
--   ends     the end of the block, which may have passed, in ms since the epoch; nil if there is none
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
  local found = { leases = false, use = false, blocked = 0, from = 0, expiry = 0, owner = nil, left = -1 }
  if type(head) == 'table' then
    found.leases, found.blocked = true, leases.outlived(key)
    if not found.blocked then return nil, errors.failed(key, head, 'is not a string') end
    return found
  elseif head == '' then
    found.empty = true
    return found
  end
  local ends, expiry, from = block(head)
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
    return nil, states.missing_expiry(key)
  elseif ends then
    local now = math.max(ends, expiry) - found.left
    found.blocked, found.left = math.max(0, ends - now), expiry - now
  end
  return found
end

-- blocked returns the ms for which a key is blocked, or nil if it is not blocked or look has to tell: look takes longer. head
-- and left are as in look.
function states.blocked(key, head, left)
  local ends, expiry, from = block(head)
  if not ends then return nil end
  local state = string.sub(head, from)
  if state ~= '' and not states.owner(state) then return nil end
  left = left or redis.call('PTTL', key)
  local ms = ends - (ends > expiry and ends or expiry) + left
  return left >= 0 and ms > 0 and ms or nil
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

-- load_other loads a key that the limit's own load function cannot read, because the key has a block, an
-- override, the state of another algorithm, or a state that load_found has to convert. head and left are
-- the parameters of states.look. If an override is active, load_other loads it instead of the limit, and
-- returns it. Otherwise, it returns nil or an error.
function states.load_other(key, limit, at, cost, head, left)
  local found, err = states.look(key, head, left)
  if err then
    return err
  elseif found.use then
    return states.in_use(key, found.use)
  end
  local override, inner = overrides.active(found), found.override or found
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
  return err or override
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
end

--@ src/35_packed.lua
do
-- This file stores the states of a limit as texts in the key's value: "<algorithm>:<text>" for one
-- rate, and "<algorithm>::<length>:<text><length>:<text>..." for several. A call needs one read,
-- one TIME and one SET, however many rates there are.
--
-- Rates are identified by position: the first rate of a changed limit reads the state of the
-- previous first one. The text of a full rate is ''. The algorithm provides
--   prefix                        "<algorithm>:"
--   read(state, text, now, cost)  fills in the state from a text, as of now (us). If the text is impossible (see
--                                 states.needs), the state leaves room for this cost. Returns true, or false and
--                                 optionally an error if the text is not the algorithm's
--   save(state)                   returns the text of a state that a charge or a refund has changed, and when the rate
--                                 is full (ms since the epoch). A long text may be a list of parts, with their size
--   head                          optional: how many bytes `read` needs of a text in a long value. `read` gets only
--                                 these, and the position of the whole text: key, offset and size
--   convert(value, expiry)        optional: returns the text or texts for a value that the algorithm wrote in another
--                                 form and that expires at expiry (ms)

local HEAD, LAST = 512, '511' -- bytes of the first read; most values are shorter
local LONG = 8192 -- bytes; the texts in a longer value are read one by one
local LONGEST_TO_CONVERT = 2048 -- bytes

-- find returns the positions of a text's first and last byte in a key's value, or nil. The length of the
-- text is at position `from` and matches pattern. If value is nil, find reads the key.
local function find(key, value, from, pattern)
  local head = value and string.sub(value, from, from + 20) or redis.call('GETRANGE', key, from - 1, from + 19)
  local digits, after = string.match(head, pattern)
  if not digits then return nil end
  local first = from + after - 1
  return first, first + (numbers.parse_digits(digits) or numbers.MOST) - 1
end

-- read_texts fills in the states of all rates of a limit from their texts, which begin at byte `from`
-- of value. If size is not nil, value is only the beginning of a long state. The key's value then has
-- size bytes, and the state begins after `offset` bytes. read_texts returns the error, or nil.
local function read_texts(key, limit, at, cost, value, from, offset, size)
  local now, algorithm, is_list = clock.us(), limit.algorithm, string.byte(value, from) == 58 -- ':'
  local following, stop = is_list and from + 1 or from, size or #value
  if size then following, value = following + offset, nil end
  for i = 1, limit.size do
    local first, last, readable, err = following, stop, false, nil
    if is_list and following <= stop then first, last = find(key, value, following, '^(%d+):()') end
    if first and last <= stop then
      local state = states.new(at + i - 1, limit.rates[i])
      following = last + 1
      if value then
        readable, err = algorithm.read(state, string.sub(value, first, last), now, cost)
      else
        local text = redis.call('GETRANGE', key, first - 1, math.min(last, first + (algorithm.head or size) - 1) - 1)
        readable, err = algorithm.read(state, text, now, cost, key, first - 1, last - first + 1)
      end
    end
    if not readable then return err or states.unreadable(key) end
  end
  return nil
end

local function load_empty(limit, at) return read_texts(nil, limit, at, 1, '', 1) end

-- load_value loads the state of the limit's algorithm that begins at byte `from` of a key. value is
-- the beginning of the state, or all of it. The prefix alone is not a state.
local function load_value(key, limit, at, cost, value, from)
  local first, size = #limit.algorithm.prefix + 1, nil
  if #value >= HEAD then
    size = redis.call('STRLEN', key)
    local err = states.too_much('bytes', size - from)
    if err then return err end
    if size <= LONG then value, size = redis.call('GETRANGE', key, from, '-1'), nil end
  elseif #value < first then
    return states.unreadable(key)
  end
  return read_texts(key, limit, at, cost, value, first, from, size)
end

local function load(key, limit, at, cost, head)
  local value = head or redis.pcall('GETRANGE', key, '0', LAST)
  if value == '' then return load_empty(limit, at) end
  local prefix = limit.algorithm.prefix
  if type(value) ~= 'string' or string.sub(value, 1, #prefix) ~= prefix then
    return states.load_other(key, limit, at, cost, value)
  end
  return load_value(key, limit, at, cost, value, '0')
end

-- load_found loads a state of the limit's algorithm that load cannot read, because it follows a
-- block or an override in the value, or has to be converted.
local function load_found(key, limit, at, cost, found)
  local convert, prefix = limit.algorithm.convert, limit.algorithm.prefix
  local value = found.value or redis.call('GETRANGE', key, found.from, found.from + LONGEST_TO_CONVERT - 1)
  if string.sub(value, 1, #prefix) == prefix or not convert then
    return load_value(key, limit, at, cost, value, found.from)
  end
  local expiry = found.from > 0 and found.expiry or redis.call('PEXPIRETIME', key)
  return read_texts(key, limit, at, cost, convert(value, expiry), 1)
end

-- save_all returns the value that stores the states of a limit, as a list of parts, and when it
-- expires (ms since the epoch). If all rates are full, it returns an empty value and 0.
local function save_all(limit, at)
  local save, list, parts, expiry = limit.algorithm.save, states.list, { limit.algorithm.prefix, not limit.rate and ':' or nil }, 0
  for i = at, at + limit.size - 1 do
    local state, text, full = list[i], ''
    if state.reset > 0 then
      text, full = save(state)
      if full > expiry then expiry = full end
    end
    local is_list = type(text) == 'table'
    if not limit.rate then parts[#parts + 1] = string.format('%d:', is_list and text.size or #text) end
    if not is_list then
      parts[#parts + 1] = text
    else
      parts.long = parts.long or text.long
      for _, part in ipairs(text) do
        parts[#parts + 1] = part
      end
    end
  end
  if expiry == 0 then return { '' }, 0 end
  return parts, expiry
end

local function write(key, limit, at)
  local parts, expiry = save_all(limit, at)
  if expiry == 0 then return redis.call('DEL', key) end
  states.put_parts(key, parts, expiry)
end

packed.form = { load = load, load_empty = load_empty, load_found = load_found, write = write, save = save_all }

-- first returns the offsets of the first and last byte of the first rate's text in a key's value. If
-- the text extends to the end of the value, the second offset is -1. The prefix begins after `from`
-- bytes.
function packed.first(key, from, prefix)
  from = from + #prefix
  local first, last = find(key, nil, from + 1, '^:(%d+):()')
  return first and first - 1 or from, last and last - 1 or -1
end

-- first_text returns the first rate's text.
function packed.first_text(key, from, prefix)
  return redis.call('GETRANGE', key, packed.first(key, from, prefix))
end
end

--@ src/36_gcra_debt.lua
do
-- The arithmetic of gcra and leaky_bucket. Read src/algorithms/gcra.lua first: it explains TAT, T
-- and b. The debt of a rate is TAT - now: the time until the rate is full again. Debts are counted
-- in ticks. A tick is so small that all debts are whole numbers, so only replies and expiries are
-- rounded. T is rate.interval ticks, b*T is rate.full ticks, and a unit of the clock (1 ms or 1 us)
-- is rate.ticks ticks.
--
-- A take leaves a debt of at most b*T, where b is the burst. A larger stored debt comes from a limit with a
-- longer period or a larger burst, or from before the clock was set back. If it would deny this call for
-- longer than a full refill, it is replaced by a debt that leaves room for just this call: the key is
-- usable at once at the new rate, but the old burst is not granted again.
--
-- FORCE leaves a debt of up to (2b - 1)T. A debt above b*T that FORCE has left is stored with a mark,
-- because it must be paid off. It is replaced only if it is larger than FORCE can leave.

-- ceil converts a debt in ticks into a longer unit, which has the given number of ticks, and rounds
-- up.
local function ceil(debt, ticks)
  if ticks == 1 then return debt end
  local over = debt % ticks
  return (over > 0 and debt - over + ticks or debt) / ticks
end
gcra_debt.ceil = ceil

gcra_debt.MARK = '-debt' -- the end of a stored text, if FORCE has left a debt above b*T

-- set sets the debt of a state. forced says whether the stored debt has the mark. set replaces an
-- impossible debt with one that leaves room for this call, and reports whether it kept the debt.
function gcra_debt.set(state, debt, cost, forced)
  local rate = state.rate
  local interval, full = rate.interval, rate.full
  local room, keeps = full - debt, true
  if room < 0 then
    keeps = -room <= full - interval * (forced and 1 or states.needs(rate.capacity, cost))
    if not keeps then
      debt = interval * states.most_spent(state, cost)
      room = full - debt
    end
    state.forced = forced -- only used while the debt is above b*T
  end
  state.debt = debt
  state.free = room > 0 and (room - room % interval) / interval or 0
  return keeps
end

function gcra_debt.charge(state, units)
  local rate = state.rate
  local debt = state.debt + units * rate.interval
  state.debt, state.free, state.reset = debt, state.free - units, ceil(debt, rate.ticks_per_ms)
  if debt > rate.full then state.forced = true end
end

function gcra_debt.refund(state, units)
  gcra_debt.set(state, math.max(0, state.debt - units * state.rate.interval), 1, state.forced)
  state.reset = gcra_debt.reset(state)
end

-- marked reports whether the debt of a state is stored with the mark.
function gcra_debt.marked(state) return state.debt > state.rate.full and state.forced end

-- spare returns how many units FORCE may charge. The debt stays at or below (2b - 1)T, because set
-- would replace a larger one.
function gcra_debt.spare(state)
  local rate = state.rate
  local interval = rate.interval
  local room = 2 * rate.full - interval - state.debt
  return (room - room % interval) / interval
end

function gcra_debt.reset(state) return ceil(state.debt, state.rate.ticks_per_ms) end

function gcra_debt.wait(state, cost)
  local rate = state.rate
  return ceil(state.debt - (rate.full - cost * rate.interval), rate.ticks_per_ms)
end
end

--@ src/37_gcra_expiry.lua
do
-- This file implements gcra and leaky_bucket for one rate whose T is at least 1 ms. Read
-- src/algorithms/gcra.lua first. The key's expiry is TAT, and its value is "gcra" or "gcra-<k>",
-- with "-debt" after it for a debt that src/36_gcra_debt.lua marks. The clock is in ms.

local ceil = gcra_debt.ceil
local VALUE = 'gcra'

-- part_of returns the number k in a value "gcra-<k>", 0 for "gcra", and nil for any other value.
-- text_of does the reverse.
local part_of = numbers.remembered(function(value)
  local digits = value ~= VALUE and string.match(value, '^gcra%-(%d+)$')
  return value == VALUE and 0 or digits and numbers.parse_digits(digits)
end, {})
local text_of = numbers.remembered(function(part)
  return part == 0 and VALUE or string.format('gcra-%d', part)
end, {})

-- unmarked returns a value without its suffix "-debt", or nil if it has no such suffix.
local function unmarked(value) return string.match(value, '^(gcra.*)%-debt$') end

-- holds reports whether a value has the form "gcra" or "gcra-<k>", with or without the mark of a debt.
function gcra_expiry.holds(value) return part_of(value) ~= nil or part_of(unmarked(value) or '') ~= nil end

-- debt_in returns the debt in a value that expires in `left` ms, or nil if the value has a mark or if
-- this algorithm did not write it.
local function debt_in(value, left, ticks)
  local part, debt = type(value) == 'string' and part_of(value), left * ticks
  if not part then return nil end
  return part < ticks and left > 0 and debt - part or debt
end

-- read returns the debt in a key that expires in `left` ms, and the key's value. If the key does
-- not exist, or expires in the current ms, the value is nil, so that commit writes it again. If this
-- algorithm did not write the value, the debt is nil.
local function read(key, left, ticks)
  if left == -2 then return 0, nil end
  local value = redis.pcall('GETRANGE', key, '0', '127')
  local debt = value == VALUE and left * ticks or debt_in(value, left, ticks)
  if left == 0 then value = nil end
  return debt, value
end

-- value_of returns the value for a debt, and the ms until it expires.
local function value_of(rate, debt)
  local ms = ceil(debt, rate.ticks)
  return text_of(ms * rate.ticks - debt), ms
end
gcra_expiry.value_of = value_of

-- time_left returns what PTTL returns, as of the time now (ms).
local function time_left(key, now)
  local expiry = redis.call('PEXPIRETIME', key)
  return expiry < 0 and expiry or expiry > now and expiry - now or 0
end

-- probe, commit and waits decide on a key: see src/45_limits.lua. They go on with the debt, the key's value
-- and its PTTL. A debt above b*T may be impossible for this call, so its states are loaded.
local function probe(key, limit, _, now)
  local rate, left = limit.rate, now and time_left(key, now) or redis.call('PTTL', key)
  if left == -2 then return rate.capacity, 0 end
  local value, ticks = redis.pcall('GETRANGE', key, '0', '127'), rate.ticks
  local debt = value == VALUE and left * ticks or debt_in(value, left, ticks)
  if left == 0 then value = nil end -- the key expires in the current ms: commit writes it again
  if not debt then return nil, value, left end
  local interval, room = rate.interval, rate.full - debt
  if room < 0 or debt < 0 then return nil end
  return (room - room % interval) / interval, debt, value, left
end

-- commit sets only the expiry if the value does not change. value is nil if it has to be written. left is the key's PTTL, read
-- earlier in the call. On Redis 7.0, time has passed since then. Unless value is nil, commit therefore adds the debt to the time
-- at which left was read: now (ms) or, if now is nil, the key's expiry minus left.
local function commit(key, limit, units, debt, value, left, now)
  local rate = limit.rate
  local ms, text = debt + units * rate.interval, VALUE
  if rate.ticks > 1 then text, ms = value_of(rate, ms) end
  if not key then
    return ms, limit.delays and ceil(debt, rate.ticks) or 0
  elseif CLOCK_STANDS and text == value then
    redis.call('PEXPIRE', key, ms)
  elseif CLOCK_STANDS or not value then
    -- SET would waste memory: Redis would keep the argument's buffer, which can be longer than the value.
    redis.call('PSETEX', key, numbers.argument(ms), text)
  else
    local expiry = string.format('%d', ms + (now or redis.call('PEXPIRETIME', key) - left))
    if text == value then
      redis.call('PEXPIREAT', key, expiry)
    else
      redis.call('SET', key, text, 'PXAT', expiry)
    end
  end
  return ms, limit.delays and ceil(debt, rate.ticks) or 0
end

local function waits(limit, cost, debt)
  local rate = limit.rate
  local ticks, wait = rate.ticks, 0
  if cost then wait = cost > rate.capacity and -1 or ceil(debt + cost * rate.interval - rate.full, ticks) end
  return ceil(debt, ticks), wait
end

-- fill_in creates the state of a rate with this debt. For forced, see gcra_debt.set; for value and now,
-- see commit.
local function fill_in(at, rate, debt, value, cost, now, forced)
  local state = states.new(at, rate)
  if not gcra_debt.set(state, debt, cost, forced) then value = nil end
  state.value, state.now = value, now
end

local function load_empty(limit, at) fill_in(at, limit.rate, 0, nil, 1) end

local function load(key, limit, at, cost, head, left)
  if head then return states.load_other(key, limit, at, cost, head, left) end
  local now
  if CLOCK_STANDS then
    left = redis.call('PTTL', key)
  else
    now = clock.ms()
    left = time_left(key, now)
  end
  local debt, value = read(key, left, limit.rate.ticks)
  if not debt then
    return states.load_other(key, limit, at, cost, value, left)
  elseif left == -1 then
    return states.missing_expiry(key)
  end
  fill_in(at, limit.rate, debt, value, cost, now)
  return nil
end

-- load_found loads a state that load cannot read, because it follows a block or an override in the
-- value, or has the form of src/38_gcra_value.lua.
local function load_found(key, limit, at, cost, found)
  local ticks, value = limit.rate.ticks, found.value or redis.call('GETRANGE', key, found.from, found.from + 31)
  local debt, forced = debt_in(value, found.left, ticks), false
  if not debt then
    debt, forced = debt_in(unmarked(value), found.left, ticks), true
  end
  if not debt then
    debt, forced = gcra_value.left(key, found.from)
    debt = debt * ticks
  end
  fill_in(at, limit.rate, debt, nil, cost, nil, forced)
end

local function save(limit, at)
  local state = states.list[at]
  local text, ms = value_of(limit.rate, state.debt)
  if ms == 0 then return { '' }, 0 end
  return { text, gcra_debt.marked(state) and gcra_debt.MARK or nil }, clock.ms() + ms
end

local function write(key, limit, at)
  local state = states.list[at]
  if state.debt == 0 then
    redis.call('DEL', key)
  elseif gcra_debt.marked(state) then
    states.put_parts(key, save(limit, at))
  else
    commit(key, limit, 0, state.debt, state.value, nil, state.now)
  end
end

local form = { load = load, load_empty = load_empty, load_found = load_found, write = write, save = save }
gcra_expiry.form = form

-- overridden returns the debt in the state after an override, or nil if the debt has a mark or is above b*T, or if another
-- algorithm wrote the state. left is the time in ms until the state expires.
function gcra_expiry.overridden(limit, state, left)
  local rate = limit.rate
  local debt = state == '' and 0 or debt_in(state, left > 0 and left or 0, rate.ticks)
  return debt and debt <= rate.full and debt or nil
end

-- complete completes a limit that stores its states in this way.
function gcra_expiry.complete(limit)
  limit.form, limit.probe, limit.commit, limit.waits, limit.delays = form, probe, commit, waits, limit.algorithm.delays
end
end

--@ src/38_gcra_value.lua
do
-- This file implements gcra and leaky_bucket for several rates, or for T below 1 ms. Read
-- src/algorithms/gcra.lua first. The key's value contains the TAT. The clock is in us.

-- Times in microseconds have 16 digits in the years 2001 to 2286.
local TIME = '%d%d%d%d%d%d%d%d%d%d%d%d%d%d%d%d'
local TEXT = '^(' .. TIME .. ')(%+?)(%d*)(.*)$'
local MARK = gcra_debt.MARK

gcra_value.SHAPE = '^' .. TIME .. '%+?%d*%-?d?e?b?t?$' -- with or without the mark

-- read and save are the algorithm's functions for src/35_packed.lua.
function gcra_value.read(state, text, now, cost)
  local debt, ticks, mark = 0, state.rate.ticks, ''
  if text ~= '' then
    local us, plus, part
    us, plus, part, mark = string.match(text, TEXT)
    if not us or (plus == '') ~= (part == '') or mark ~= '' and mark ~= MARK then return false end
    if us - now >= 0 then debt = (us - now) * ticks + (part ~= '' and math.min(ticks, numbers.parse_digits(part) or ticks) or 0) end
  end
  state.now = now
  gcra_debt.set(state, debt, cost, mark ~= '')
  return true
end

function gcra_value.save(state)
  local ticks = state.rate.ticks
  local part = state.debt % ticks
  local us, mark = state.now + (state.debt - part) / ticks, gcra_debt.marked(state) and MARK or ''
  if part > 0 then return string.format('%d+%d', us, part) .. mark, clock.ceil_ms(us + 1) end
  return string.format('%d', us) .. mark, clock.ceil_ms(us)
end

-- convert implements the function convert of src/35_packed.lua, for the values of
-- src/37_gcra_expiry.lua. The TAT is the key's expiry.
function gcra_value.convert(value, expiry)
  return string.format('%d', expiry * 1000) .. (string.match(value, '%-debt$') or '')
end

-- left returns the time in ms until the first rate of a value is full, and whether the rate has a marked
-- debt. The value begins at byte `from`.
function gcra_value.left(key, from)
  local text = packed.first_text(key, from, 'gcra:')
  local us, plus, _, mark = string.match(text, TEXT)
  if not us then return 0, false end
  return math.max(0, clock.ceil_ms(us + (plus == '' and 0 or 1)) - clock.ms()), mark == MARK
end

local tats_of = {} -- for each key of a call, the TAT of each rate in us; reused by the next call

-- probe, commit and waits decide on a key (see src/45_limits.lua) for a limit in which each T is a whole number of
-- us. They go on with the TATs and the position of the rate with the fewest units. A TAT more than b*T after now may
-- be impossible for this call, so its states are loaded.
local function probe(key, limit, _, _, number)
  local value = redis.pcall('GETRANGE', key, '0', '511')
  local held = value ~= ''
  if held and (type(value) ~= 'string' or not string.find(value, limit.shape)) then return nil, value end
  local now, rates, at, tats = clock.us(), limit.rates, limit.first, tats_of[number or 1]
  if not tats then
    tats = {}
    tats_of[number or 1] = tats
  end
  local least, binding = numbers.MOST, 1
  for i = 1, limit.size do
    local rate, tat = rates[i], now
    if held then
      tat = string.sub(value, at, at + 15) + 0
      at = at + 19 -- 16 digits, then "16:" before the next time
      if tat < now then tat = now end
    end
    tats[i] = tat
    local interval, room = rate.interval, rate.full - tat + now
    if room < 0 then return nil end
    local free = (room - room % interval) / interval
    if free < least then least, binding = free, i end
  end
  return least, tats, binding
end

local function commit(key, limit, units, tats, binding)
  local rates, size, last = limit.rates, limit.size, 0
  for i = 1, size do
    local tat = tats[i] + units * rates[i].interval
    tats[i] = tat
    if tat > last then last = tat end
  end
  if key then states.put(key, string.format(limit.format, unpack(tats, 1, size)), clock.ceil_ms(last)) end
  return clock.ceil_ms(last - clock.us()), 0, rates[binding].capacity
end

local function waits(limit, cost, tats, binding)
  local now, rates, last, wait, first = clock.us(), limit.rates, 0, 0, nil
  for i = 1, limit.size do
    local rate, tat = rates[i], tats[i]
    if tat > last then last = tat end
    local over = cost and tat + cost * rate.interval - now - rate.full or 0
    if over > 0 then
      first = first or i
      if cost > rate.capacity then wait = -1 end
      if wait >= 0 and over > wait then wait = over end
    end
  end
  return clock.ceil_ms(last - now), wait < 0 and -1 or clock.ceil_ms(wait), rates[first or binding].capacity
end

-- complete sets the fields with which probe decides on a limit, unless the algorithm delays calls or a rate counts in
-- parts of a us.
function gcra_value.complete(limit)
  for _, rate in ipairs(limit.rates) do
    if rate.ticks > 1 or limit.algorithm.delays then return nil end
  end
  limit.probe, limit.commit, limit.waits = probe, commit, waits
  limit.shape, limit.format, limit.first = '^gcra:' .. TIME .. '$', 'gcra:%d', 6
  if not limit.rate then
    limit.shape = '^gcra::' .. string.rep('16:' .. TIME, limit.size) .. '$'
    limit.format, limit.first = 'gcra::' .. string.rep('16:%d', limit.size), 10
  end
end
end

--@ src/40_policies.lua
do
-- Policies are named limits. The build (functions/policies.go) writes them into this file, so that a
-- call with "@name" need not read them from a Redis key.
--
-- name -> { limit, limit ..., keys = { name of the limit's key, ... }, canary = { limit, limit ..., share = 50, shadow = true },
--           shadow = true, track = true, classes = { name = percent, ... },
--           borrow = percent }
--
-- With borrow, the policy is a guarantee and a pool: see src/62_borrowing.lua.
--
-- A call names one of the classes, which stands for a FLOOR of this percentage. classes is true if the policy takes any
-- class, as 0. A call without CLASS and FLOOR belongs to the class "default".
--
-- A canary has as many limits as its policy. They apply to a share of the keys, in thousandths. Once
-- a policy or a canary is used, it also has
--   calls   { [0] = denied calls, allowed calls }, counted since the library was loaded on this
--           server. For a shadow, they are the calls that it would have denied and allowed
--   by      the calls that named a class, which are not in calls, by the class; '' for those with FLOOR
local POLICIES = {}

-- find returns the policy for "@name", or nil and the error.
function policies.find(text)
  local policy = POLICIES[string.sub(text, 2)]
  if policy then return policy end
  return nil, errors.new('NOPOLICY', '%s: no such policy in build %s; ratelimit_info lists the policies',
    errors.quote(text), BUILD_ID)
end

local sorted -- the sorted names of all policies; nil before the first call of policies.names

-- names returns the sorted names of all policies.
function policies.names()
  sorted = sorted or sorted_keys(POLICIES)
  return sorted
end

-- share_of returns the number, 0 to 999, that decides whether "<policy's name>:<key>" is in the share of a canary. SHA-1 takes as
-- long as two commands, so the numbers of the keys used last are remembered.
local share_of = numbers.remembered(function(text) return tonumber(string.sub(redis.sha1hex(text), 1, 8), 16) % 1000 end, {})

-- in_canary reports whether a key is in the share of a policy's canary. The result depends only on
-- the name of the policy, the key and the share, so it is the same on all servers. A larger share
-- keeps the keys of a smaller one.
function policies.in_canary(canary, name, key)
  return share_of(name .. ':' .. key) < canary.share
end

-- side returns a policy that is a result of parse_side (src/45_limits.lua), or its canary if the key belongs to the canary.
function policies.side(policy, key)
  local canary = policy.canary
  return canary and policies.in_canary(canary, policy.name, key) and canary or policy
end

-- lease returns the policy for "@name", or its canary if the key belongs to the canary. If the
-- policy is unknown or has several limits, lease returns nil and the error.
function policies.lease(text, key)
  local policy, err = policies.find(text)
  if not policy then
    return nil, err
  elseif #policy > 1 then
    return nil, errors.new('BADLIMIT', '%s: a policy of %d limits; a lease takes one', errors.quote(text), #policy)
  end
  local canary = policy.canary
  if not canary or not policies.in_canary(canary, string.sub(text, 2), key) then return policy end
  canary.classes = policy.classes
  return canary
end

-- calls returns the counts of a policy or a canary, for the caller to add to. class is the class that a call names, '' for
-- FLOOR, and nil for neither.
function policies.calls(side, class)
  if not class or class == 'default' or not side.classes then
    side.calls = side.calls or { [0] = 0, 0 }
    return side.calls
  end
  side.by = side.by or {}
  side.by[class] = side.by[class] or { [0] = 0, 0 }
  return side.by[class]
end

-- class returns the percentage for which a class stands under a limit of a policy, or nil and the error.
function policies.class(limit, name)
  local classes = limit.classes
  if type(classes) == 'table' then
    if classes[name] then return classes[name] end
    return nil, errors.new('BADARGS', '%s: no such class of @%s; its classes are %s', errors.quote(name), limit.name, table.concat(sorted_keys(classes), ', '))
  elseif classes then
    return 0
  elseif limit.name then
    return nil, errors.new('BADARGS', '%s: @%s has no classes; give it some, or classes: any', errors.quote(name), limit.name)
  end
  return nil, errors.new('BADARGS', '%s: only policies have classes; with a limit, give FLOOR and a percentage', errors.quote(name))
end

local NO_CALLS = { [0] = 0, 0 }

-- total returns the counts of a policy or a canary over all classes.
local function total(side)
  local calls = side.calls or NO_CALLS
  local allowed, denied = calls[1], calls[0]
  for _, more in pairs(side.by or {}) do
    allowed, denied = allowed + more[1], denied + more[0]
  end
  return allowed, denied
end

-- of_class returns the counts of one class.
local function of_class(side, class)
  return class == 'default' and side.calls or class ~= 'default' and side.by and side.by[class] or NO_CALLS
end

-- counts returns three lists for ratelimit_info, in the order of the names. The first has { name,
-- allowed, denied } for each policy, and also share, allowed and denied of the canary if there is
-- one. The second is { name, count, ... } for the policies that are shadows or have a shadow
-- canary. Each count is the number of calls that the shadow policy and the shadow canary would have
-- denied. The third has { name, class, allowed, denied } for each class of each policy, and the fourth { name, guaranteed,
-- borrowed, denied } for each policy of a guarantee and a pool.
function policies.counts(names)
  local list, shadows, by_class, borrows = {}, {}, {}, {}
  for i, name in ipairs(names) do
    local policy = POLICIES[name]
    local canary, allowed, denied = policy.canary, total(policy)
    local entry, shadow_denied = { name, allowed, denied }, policy.shadow and denied
    if canary then
      entry[4], entry[5], entry[6] = canary.share, total(canary)
      if canary.shadow then shadow_denied = (shadow_denied or 0) + entry[6] end
    end
    list[i] = entry
    if policy.borrow then
      local borrowed = (policy.calls and policy.calls.borrowed or 0) + (canary and canary.calls and canary.calls.borrowed or 0)
      borrows[#borrows + 1] = { name, allowed + (entry[5] or 0) - borrowed, borrowed, denied + (entry[6] or 0) }
    end
    for _, class in ipairs(type(policy.classes) == 'table' and sorted_keys(policy.classes) or {}) do
      local calls, other = of_class(policy, class), of_class(canary or {}, class)
      by_class[#by_class + 1] = { name, class, calls[1] + other[1], calls[0] + other[0] }
    end
    if shadow_denied then
      shadows[#shadows + 1] = name
      shadows[#shadows + 1] = shadow_denied
    end
  end
  return list, shadows, by_class, borrows
end
end

--@ src/42_calendar.lua
do
-- This file implements the calendar of fixed_window with align=clock: the periods w (weeks from Monday),
-- mo and y, and the options zone and from. Dates are in the proleptic Gregorian calendar.
-- calendar.complete sets two fields of a rate:
--   shift   ms to add to a time to find its window; nil if the rate needs no calendar
--   months  the months in a window; nil for windows of equal length

local DAY = 86400000 -- ms
local THURSDAY = 3 -- the epoch's day of the week, in days after Monday
local MOST_ZONE = 18 * 60 -- minutes

-- Months are counted from March of the year 0, so that a leap day is the last day of a year.
local EPOCH = 719468 -- days from March 1 of the year 0 to January 1, 1970
local JANUARY = 10
local MONTHS = { mo = 1, y = 12 }

-- LONGEST holds the length in ms of the longest window of each unit.
calendar.LONGEST = { w = 7 * DAY, mo = 31 * DAY, y = 366 * DAY }

-- zone parses the value of the option zone. It returns ms, or nil and what was expected.
function calendar.zone(text)
  local sign, hours, minutes = string.match(text, '^([+-])(%d%d):([0-5]%d)$')
  local offset = sign and tonumber(hours) * 60 + tonumber(minutes)
  if not offset or offset > MOST_ZONE then
    return nil, 'an offset from -18:00 to +18:00, such as +05:30; a zone with summer time would need a table of its changes on '
      .. 'every server, so write one offset for the whole year'
  end
  return (sign == '-' and -offset or offset) * 60000
end

-- from parses the value of `from=`. It returns the day of the month, or nil and what was expected.
function calendar.from(text)
  local day = numbers.parse_positive(text)
  return day and day <= 31 and day or nil, 'a day of the month from 1 to 31'
end

-- complete sets rate.shift and rate.months. It returns a message if the options of the rate
-- contradict each other, otherwise nil.
function calendar.complete(rate)
  local unit = rate.unit
  if unit and not rate.align then
    return string.format('the period %s ends with the calendar; add align=clock', unit)
  elseif rate.zone and not (rate.align and rate.period % DAY == 0) then
    return 'zone is only for align=clock with a period of whole days, w, mo or y'
  elseif rate.from and unit ~= 'mo' then
    return 'from is only for the period mo'
  elseif unit or rate.zone then
    rate.shift = (rate.zone or 0) + (unit == 'w' and THURSDAY * DAY or 0)
    rate.months = MONTHS[unit]
  end
  return nil
end

-- first_day returns the first day of a month, in days since the epoch.
local function first_day(month)
  local year = math.floor(month / 12)
  local leap_days = math.floor(year / 4) - math.floor(year / 100) + math.floor(year / 400)
  return 365 * year + leap_days + math.floor((153 * (month % 12) + 2) / 5) - EPOCH
end

-- left returns the time in ms until the open window ends, for a rate with align=clock.
function calendar.left(rate, now)
  local here, step, from = now + (rate.shift or 0), rate.months, rate.from or 1
  if not step then return rate.period - here % rate.period end
  -- 400 years have 4800 months and 146097 days, so this estimate of the current month is off by at most
  -- one. Subtracting 2 makes the loop start at a window that has already begun.
  local month = math.floor((here / DAY + EPOCH) * 4800 / 146097) - 2
  month = month - (month - JANUARY) % step
  local begins
  repeat
    month = month + step
    begins = math.min(first_day(month) + from, first_day(month + 1)) - 1
  until begins * DAY > here
  return begins * DAY - here
end
end

--@ src/45_limits.lua
do
-- This file parses limits. No other file does.
--
--   [algorithm] rate [, rate ...]      rate = n/period [option=value ...]      period = [k]unit, unit = ms s m h d
--                                      period = w, mo or y, for fixed_window: see src/42_calendar.lua
--                                      n = 0: see src/46_never.lua
--   @policy
--
-- A parsed limit has these fields:
--   algorithm   a table in `algorithms`, see below
--   rates       a list of one or more rates
--   size        the number of rates
--   rate        the rate, if there is only one
--   capacity    the smallest capacity of the rates
--   asks        the limit's part of the algorithm's bound for one call (see most, below): the sum of the field
--               most.field over its rates, or 0 if the algorithm has no bound
--   plain       whether take decides on the limit by itself without options; nil for a limit of a policy with the class default
--   probe, commit, waits  the functions that decide on the limit's key, see below
--   form        a table of the functions that load and write the key's states, see below
--   shape, format, first   only in limits that src/38_gcra_value.lua decides: the pattern of a value,
--               the format of one, and the position of the first time in it
-- The limits of a policy also have name, side, classes and floor, and the first has calls and span: see parse_side. A rate has algorithm, count (n),
-- period (ms; for months and years the longest), unit (w, mo, y or nil), capacity (field 2 of the reply:
-- burst=b, or n), the values of its other options by name, and fields that the algorithm adds.
-- src/30_states.lua describes states.
--
-- An algorithm (src/algorithms/NAME.lua) is a table in `algorithms`:
--   name      the name used in limits
--   options   option name -> function(text) that returns its value, or nil and what was expected; {} for none
--   charge    function(state, units): takes units, and updates free and reset
--   refund    function(state, units): the same, but gives units back, never beyond full. Returns an error, or nil
--   spare     function(state): returns how many units FORCE may charge: those that fit, and those that may become debt
--   reset     function(state): returns the time in ms until the rate is full
--   wait      function(state, cost): returns the time in ms until cost fits. cost is from 1 to the capacity and does not fit now
-- and the fields of src/35_packed.lua, which stores states as texts in the key's value. It may also
-- have
--   complete_rate  function(rate): completes a rate, or returns what is wrong with it. If it is calendar.complete, periods
--             may be w, mo and y
--   complete  function(limit): completes a limit, or returns what is wrong with it
--   probe     for limits of one rate: function(key, limit, cost, now, number), which reads a key, and returns how many
--             units fit now and up to three values for commit and waits. If the key may hold anything else than
--             such a limit stores, or an impossible state (see states.needs), it returns nil, and optionally what
--             form.load takes as head and left. src/60_decisions.lua then loads the key's states. now is the time
--             in ms if other keys are read too and the time advances during a call, and otherwise nil. number is the
--             key's position in the call. Without probe, all decisions load states
--   commit    function(key, limit, units, ...): takes units that fit, at least 1, and writes, unless key is nil (peek). It
--             returns the time in ms until the limit is full, the ms that the call has to wait (leaky_bucket), and
--             for several rates the capacity of the binding one. ... are the values of probe, and now
--   waits     function(limit, cost, ...): returns the time in ms until the limit is full, the time until a cost that does
--             not fit does (-1 for never), and for several rates the capacity of the binding one. cost is false if the
--             second is not needed
--   form      for limits of one rate, if src/35_packed.lua does not store their states: a table of the functions
--               load(key, limit, at, cost, head, left)  reads the key into states.list, from position `at` on, one state
--                                             for each rate. An impossible state (see states.needs) leaves room
--                                             for a call of this cost. head and left are nil, or what probe has
--                                             returned. Returns the error, or the override (see
--                                             src/72_overrides.lua) that was loaded instead of the limit, or nil
--               load_empty(limit, at)         the same for an empty key
--               load_found(key, limit, at, cost, found)  the same for this algorithm's own state if it follows a block
--                                             or an override in the value, or is in another form. found is the
--                                             result of states.look, or the override in it
--               write(key, limit, at)         stores the states until the time at which all are full, or deletes the key if
--                                             they are full now
--               save(limit, at)               returns the value that write would store, as a list of parts (see
--                                             states.put_parts), and its expiry in ms since the epoch; { '' } and 0 if
--                                             all are full
--   spend     function(state, units): charges a state that was full. The default is charge
--   delays    true if charge also sets delay of the state
--   stored_as the algorithm whose states it stores, if they are not its own
--   shape     the pattern of a state of one rate behind the prefix, from its first 80 bytes on. Not used with stored_as
--   holds     function(head): reports whether this algorithm wrote a value that begins with head. Needed only if it
--             writes values that do not begin with prefix
--   spent     function(key, from): returns how many units are spent in the state at byte `from` of the value, and
--             perhaps an error. It is called when a limit of another algorithm reads the state (see carry_over in
--             src/30_states.lua). If the number is not stored, spent returns nil, nil and how many units are left, if
--             known. By default, neither number is known
--   most      the algorithm's bound for one call: field, the name of a field of its rates; sum, the maximum of that field
--             added up over all rates of a call; what and advice, texts for the errors
--   refusal   the error for every take with this algorithm. Such an algorithm needs no other field

local UNITS = { ms = 1, s = 1000, m = 60000, h = 3600000, d = 86400000 }
local LONGEST_TEXT = 1024 -- bytes
local MOST_RATES = 16
local LONGEST_PERIOD = 32 -- bytes
local LONGEST = 36500 * UNITS.d -- ms; twice this period in microseconds is below 2^53

limits.LONGEST = LONGEST

-- unprobed is the function probe of limits whose states are always loaded.
function limits.unprobed() return nil end

-- refuse returns nil and the error for a limit. The second parameter is a format string.
local function refuse(text, what, ...)
  return nil, errors.new('BADLIMIT', '%s: %s', errors.quote(text), string.format(what, ...))
end

-- names returns the keys of a table as text for an error message.
local function names(of) return next(of) and table.concat(sorted_keys(of), ', ') or 'none' end

local FROM_LARGEST = { 'd', 'h', 'm', 's', 'ms' }

-- in_one_unit returns a sum of periods such as "1m30s" as one period. It returns nil for any other
-- text, for 0 and for more than LONGEST.
local function in_one_unit(text)
  local ms = 0
  local rest = string.gsub(text, '(%d+)(%a+)', function(k, unit)
    ms = ms + k * (UNITS[unit] or math.huge)
    return ''
  end)
  if rest ~= '' or ms == 0 or ms > LONGEST then return nil end
  for _, unit in ipairs(FROM_LARGEST) do
    if ms % UNITS[unit] == 0 then return string.format('%d%s', ms / UNITS[unit], unit) end
  end
end

-- period parses a period such as "m" or "10s" and returns ms, or nil and what is wrong with it. If
-- with_calendar is true, it also accepts the units of the calendar, and returns ms, nil and the
-- unit.
function limits.period(text, with_calendar)
  local k, unit = '', text
  if #text <= LONGEST_PERIOD then k, unit = string.match(text, '^(.-)(%a*)$') end
  local longest = calendar.LONGEST[unit]
  if not (UNITS[unit] or longest and with_calendar) then
    local others = with_calendar and ', w, mo, y' or longest and '; only fixed_window with align=clock has w, mo and y' or ''
    return nil, string.format('the unit of the period %s is none of ms, s, m, h, d%s', errors.quote(text), others)
  end
  local factor = k == '' and 1 or numbers.parse_positive(k)
  if longest and factor == 1 then
    return longest, nil, unit
  elseif longest then
    return nil, string.format('the period %s is not one week, month or year; write w, mo or y', errors.quote(text))
  elseif not factor then
    local other = in_one_unit(text)
    if other then return nil, string.format('the period %s has more than one unit; write %s', errors.quote(text), other) end
    return nil, string.format('the period %s does not begin with ' .. numbers.WHOLE, errors.quote(text), '1')
  end
  if factor * UNITS[unit] > LONGEST then
    return nil, string.format('the period %s is longer than 36500d', errors.quote(text))
  end
  return factor * UNITS[unit]
end

-- not_an_option returns a message that suggests what a word after a rate may have meant.
local function not_an_option(word, algorithm)
  if algorithm.options[word] then
    return string.format('the option %s has no value; write %s=..., without blanks', errors.quote(word), word)
  elseif string.find(word, '/', 1, true) then
    return string.format('%s is a second rate without a comma before it', errors.quote(word))
  end
  return string.format('%s is not an option of %s (its options: %s)', errors.quote(word), algorithm.name,
    names(algorithm.options))
end

-- exceeds reports whether a/b > c/d. The products a*d and c*b may be above 2^53, so it compares the whole parts,
-- and then the reciprocals of the rest. math.fmod is exact.
local function exceeds(a, b, c, d)
  local left, right = math.fmod(a, b), math.fmod(c, d)
  local whole, other = (a - left) / b, (c - right) / d
  if whole ~= other then return whole > other end
  return left > 0 and (right == 0 or exceeds(d, right, b, left))
end

-- parse_rate parses `n/period [option=value ...]`. It returns the rate, or nil and what is wrong
-- with it.
local function parse_rate(text, algorithm)
  local head, rest = string.match(text, '^%s*(%S+)(.*)$')
  local count, period = string.match(head or '', '^([^/]*)/(.*)$')
  if algorithms[head] and #rest > 0 then
    return nil, string.format('the algorithm is named again before %s; name it once, in front', errors.quote(rest))
  elseif not count then
    return nil, 'no rate such as 100/m or 5/10s; the keys come first, and a limit with blanks is one argument'
  end
  local rate = { algorithm = algorithm, count = numbers.parse(count) }
  if not rate.count then
    return nil, string.format('the count %s is not ' .. numbers.WHOLE, errors.quote(count), '0')
  end
  local wrong
  rate.period, wrong, rate.unit = limits.period(period, algorithm.complete_rate == calendar.complete)
  if wrong then return nil, wrong end
  for word in string.gmatch(rest, '%S+') do
    local name, value = string.match(word, '^([%a_]+)=(.*)$')
    local read = name and algorithm.options[name]
    if not read then
      return nil, not_an_option(word, algorithm)
    elseif rate[name] ~= nil then
      return nil, string.format('the option %s is given twice', errors.quote(name))
    end
    rate[name], wrong = read(value)
    if rate[name] == nil then
      return nil, string.format('%s=%s is not %s', name, errors.quote(value), wrong)
    end
  end
  if rate.count == 0 then return never.rate(rate, rest) end
  rate.capacity, rate.burst = rate.burst or rate.count, nil
  wrong = algorithm.complete_rate and algorithm.complete_rate(rate)
  if wrong then
    return nil, wrong
  elseif exceeds(rate.capacity, rate.count, LONGEST, rate.period) then
    return nil, 'it takes longer than 36500d to refill; use a smaller burst or a faster rate'
  end
  return rate
end

-- parse_rates parses the rates of a limit. It returns the limit, or nil and what is wrong.
local function parse_rates(text, algorithm)
  local limit = { algorithm = algorithm, rates = {}, asks = 0, plain = true, probe = limits.unprobed, form = packed.form }
  local most = algorithm.most
  for part in string.gmatch(text .. ',', '([^,]*),') do
    local rate, wrong = parse_rate(part, algorithm)
    if not rate then return nil, wrong end
    limit.rates[#limit.rates + 1] = rate
    limit.capacity = math.min(limit.capacity or rate.capacity, rate.capacity)
    limit.asks = limit.asks + (most and rate[most.field] or 0)
  end
  if #limit.rates > MOST_RATES then
    return nil, string.format('%d rates; a limit has at most %d', #limit.rates, MOST_RATES)
  end
  if most and limit.asks > most.sum then
    return nil, string.format('%d %s; a limit takes at most %d%s', limit.asks, most.what, most.sum, most.advice)
  end
  limit.size = #limit.rates
  if limit.size == 1 then
    limit.rate = limit.rates[1]
    limit.form = algorithm.form or limit.form
    limit.probe, limit.commit, limit.waits = algorithm.probe or limit.probe, algorithm.commit, algorithm.waits
  end
  local complete = limit.capacity == 0 and never.complete or algorithm.complete
  local wrong = complete and complete(limit)
  if wrong then return nil, wrong end
  return limit
end

-- checked parses a limit's text with the function read. It returns the result, or nil and the
-- error.
function limits.checked(text, read)
  if #text > LONGEST_TEXT then return refuse(text, 'a limit has at most %d bytes', LONGEST_TEXT) end
  local limit, wrong = read(text)
  if type(wrong) == 'string' then return refuse(text, '%s', wrong) end
  return limit, wrong
end

local function parse_limit(text)
  local word, rates = string.match(text, '^%s*([%a_][%w_]*)%s+(.*)$')
  local algorithm = algorithms[word or 'gcra']
  if not algorithm then
    return nil, string.format('unknown algorithm %s; there are %s', errors.quote(word), names(algorithms))
  elseif algorithm.refusal then
    return nil, algorithm.refusal
  end
  return parse_rates(rates or text, algorithm)
end

-- parse_side parses the limits of a policy, or of its canary. It returns a table (`whole` below), or nil
-- and the error. Each limit gets the fields name, the policy's name; side; classes, those of the policy; and floor, the percentage
-- of the class default, or nil. The first limit gets calls, and span, which is the number of limits. The result has the field alone, which is the limit, if it is the only one and has no other settings.
local function parse_side(name, side, policy)
  local classes = policy.classes
  side.classes = classes
  local calls, floor = policies.calls(side), type(classes) == 'table' and classes.default or nil
  local whole = {
    name = name, limits = {}, calls = calls, keys = policy.keys, shadow = side.shadow, track = policy.track, share = side.share,
    borrow = side.borrow or policy.borrow, size = 0, asks = 0,
  }
  for i, part in ipairs(side) do
    local limit, err = limits.checked(part, parse_limit)
    if err then return nil, err end
    whole.limits[i], whole.size, whole.asks = limit, whole.size + limit.size, whole.asks + limit.asks
    limit.name, limit.side, limit.classes, limit.floor = name, side, classes, floor
    if floor then limit.plain = nil end
  end
  local first = whole.limits[1]
  first.calls, first.span = calls, #side
  if not (side[2] or side.shadow or policy.track or floor and not first.rate) then whole.alone = first end
  return whole
end

-- parse_policy returns the limit itself if the policy has a single limit and no other settings. For any
-- other policy it returns the result of parse_side, which src/50_requests.lua adds to a request. For a
-- policy with a canary, the field canary holds the result of parse_side for the canary.
local function parse_policy(text)
  local policy, missing = policies.find(text)
  if not policy then return nil, missing end
  local name, canary = string.sub(text, 2), policy.canary
  local whole, err = parse_side(name, policy, policy)
  if whole and canary then whole.canary, err = parse_side(name, canary, policy) end
  if err then return nil, err end
  return not canary and whole.alone or whole
end

local function parse(text) return (string.sub(text, 1, 1) == '@' and parse_policy or parse_limit)(text) end

-- read parses a limit or @policy. It returns the parsed limit, or nil and the error to reply. A policy
-- with more than one limit, or with other settings, has the field `limits`: see parse_policy.
function limits.read(text) return limits.checked(text, parse) end

-- of is like read. Parsing takes longer than deciding, so numbers.remembered keeps the parsed limits in
-- limits.known. They are shared and must not be changed.
limits.of = numbers.remembered(limits.read, limits, true)
end

--@ src/46_never.lua
do
-- Limits with a count of 0, such as 0/m, never allow a cost above 0. They write no key, and read a
-- key only to see whether it has an override. A block or a state in the key does not matter.

local function nothing() end

local function zero() return 0 end

local algorithm = { charge = nothing, refund = nothing, reset = zero, spare = zero }

local HEAD = '127' -- enough to find an override, which begins at byte 42 at the latest (after a block)

local function read(key) return redis.pcall('GETRANGE', key, '0', HEAD) end

local function may_override(head) return type(head) == 'string' and string.find(head, overrides.PREFIX) end

local form = {
  load = function(key, limit, at, cost, head)
    states.new(at, limit.rate).free = 0
    head = head or read(key)
    local found = may_override(head) and states.look(key, head)
    return found and overrides.active(found) and states.load_other(key, limit, at, cost, head)
  end,
  write = nothing,
}

-- probe and waits decide on a key without an override: see src/45_limits.lua.
local function probe(key)
  local head = read(key)
  if may_override(head) then return nil, head end
  return 0
end

local function waits(_, cost) return 0, cost and -1 or 0 end

-- rate completes a rate with a count of 0. rest is the text after the period. rate returns the rate, or
-- nil and the reason why it is invalid.
function never.rate(rate, rest)
  if rate.unit or string.find(rest, '%S') then
    return nil, 'the count 0 never allows; it takes no option, and a period in ms, s, m, h or d'
  end
  rate.algorithm, rate.capacity = algorithm, 0
  return rate
end

-- complete completes a limit that has a rate with a count of 0, or returns what is wrong with it.
function never.complete(limit)
  if limit.size > 1 then return 'the count 0 never allows; it takes no other rate' end
  limit.form, limit.probe, limit.waits = form, probe, waits
  return nil
end
end

--@ src/50_requests.lua
do
-- The arguments of take, peek and refund:
--   limit [limit ...] [COST c | COST c1 ... cn] [UPTO | FORCE] [FLOOR percent | CLASS name] [BORROW [percent]] [PAID 1 | PAID 2]
--   [ONCE ttl_ms] [TRACK] [EACH]
-- The keys are one for each limit, then one for ONCE and one for TRACK, in the order in which these
-- options are given.
--
-- A request has these fields:
--   limits, count   the limits, and their number. src/60_decisions.lua replaces an overridden limit
--   costs           the cost for each limit; with UPTO, at most what the capacities allow
--   COST            the number of costs in the arguments
--   UPTO            the requested cost
--   FORCE           whether the cost is charged even if it does not fit
--   EACH            whether the reply also contains the separate result of each limit
--   ONCE, TRACK     the key for ONCE, the key for TRACK
--   ttl             the ttl_ms of ONCE
--   FLOOR, CLASS    the percentage; the name
--   floors          the percentage of each limit's capacities that the call keeps free, or nil if none
--   calls_of        from a limit's position to the counts for this call, if they differ from limit.calls
--   groups          its shadow policies, see src/60_decisions.lua
--   group_of        from a limit's position to its shadow policy, if there are groups
--   shadows         the number of limits in shadow policies
--   composed        its policies with several limits, shadow, track or a canary
--   track           whether any of its policies has track
--   counted         whether any limit is in a policy
--   looks_again     whether the costs of UPTO are those of overrides (src/60_decisions.lua)

local OPTIONS = {
  COST = 'COST', UPTO = 'UPTO', FORCE = 'FORCE', ONCE = 'ONCE', TRACK = 'TRACK', EACH = 'EACH', FLOOR = 'FLOOR', CLASS = 'CLASS',
  BORROW = 'BORROW', PAID = 'PAID',
  cost = 'COST', upto = 'UPTO', force = 'FORCE', once = 'ONCE', track = 'TRACK', each = 'EACH', floor = 'FLOOR', class = 'CLASS',
  borrow = 'BORROW', paid = 'PAID',
}
local MOST_LIMITS, MOST_RATES_IN_CALL = 50, 250
requests.MOST_LIMITS = MOST_LIMITS
local LONGEST_KEY, LONGEST_CLASS = 65536, 64 -- bytes
requests.LONGEST_KEY = LONGEST_KEY
local FEW = 5000 -- the lowest bound of an algorithm: if the limits' fields asks add up to at most this, none is exceeded

local request -- the request of the current call
local limits_of_call, costs_of_call = {}, {} -- its limits and costs; reused by the next call

-- join adds the limits of a policy to the request, which has `count` limits so far. It returns the
-- new number of limits.
local function join(policy, count)
  local size, group = #policy.limits, nil
  request.composed, request.track = request.composed or {}, request.track or policy.track
  request.composed[#request.composed + 1] = policy
  if policy.shadow then
    group = { denies = false }
    request.groups, request.group_of, request.shadows = request.groups or {}, request.group_of or {}, (request.shadows or 0) + size
    request.groups[#request.groups + 1] = group
  end
  for i, limit in ipairs(policy.limits) do
    request.limits[count + i], request.costs[count + i] = limit, 1
    if group then request.group_of[count + i] = group end
  end
  return count + size
end

-- excess returns the error for limits that together exceed the bound of an algorithm, or nil.
local function excess()
  local sums = {}
  for i = 1, request.count do
    local limit = request.limits[i]
    local most = limit.algorithm.most
    if most then
      sums[most] = (sums[most] or 0) + limit.asks
      if sums[most] > most.sum then
        return errors.new('BADARGS', '%d %s; one call takes at most %d%s', sums[most], most.what, most.sum, most.advice)
      end
    end
  end
  return nil
end

-- read_limits reads the limits, and stops when there are too many. It returns the position after
-- them, or nil and the error.
local function read_limits(keys, args)
  local known, list, costs = limits.known, request.limits, request.costs
  local at, count, rates, asked, text = 1, 0, 0, 0, args[1]
  while text and not OPTIONS[text] do
    local limit, err = known[text]
    if not limit then limit, err = limits.of(text) end
    if err then return nil, err end
    if limit.calls then
      request.counted = true
      limit = policies.side(limit, keys[count + 1] or '')
    end
    if limit.limits then
      count = join(limit, count)
    else
      count = count + 1
      list[count], costs[count] = limit, 1
    end
    rates, asked, at = rates + limit.size, asked + limit.asks, at + 1
    if count > MOST_LIMITS then
      return nil, errors.new('BADARGS', '%d limits; one call takes at most %d', count, MOST_LIMITS)
    elseif rates > MOST_RATES_IN_CALL then
      return nil, errors.new('BADARGS', '%d rates; one call takes at most %d', rates, MOST_RATES_IN_CALL)
    end
    text = args[at]
  end
  request.count = count
  if count == 0 then
    return nil, errors.new('BADARGS', 'no limit after the keys; give one such as 100/m for each key')
  end
  return at, asked > FEW and excess() or nil
end

-- misnumbered returns the error for a number of costs that differs from the number of limits.
local function misnumbered(costs)
  return errors.new('BADARGS', 'the number of costs is %d and the number of limits %d; give one cost for all, or one for each',
    costs, request.count)
end

-- read_costs reads the costs, which begin at args[at]. It returns their number, or nil and the
-- error.
local function read_costs(args, at)
  local given, costs = 0, request.costs
  while args[at + given] and not OPTIONS[args[at + given]] do
    given = given + 1
  end
  if given > MOST_LIMITS then return nil, misnumbered(given) end
  for i = 1, given do
    local text = args[at + i - 1]
    costs[i] = numbers.parse(text)
    if not costs[i] then
      return nil, errors.new('BADCOST', '%s: a cost is ' .. numbers.WHOLE, errors.quote(text), '0')
    end
  end
  return given
end

-- read_options reads the arguments from position `at` on, which follow the limits. allowed has the
-- options that the verb accepts. read_options returns the number of keys that the request needs, or
-- nil and the error.
local function read_options(keys, args, at, allowed)
  local used = request.count
  while at <= #args do
    local word, err = OPTIONS[args[at]]
    if not word or not allowed[word] then
      return nil, errors.new('BADARGS', '%s: not an option here', errors.quote(args[at]))
    elseif request[word] then
      return nil, errors.new('BADARGS', '%s is given twice', word)
    end
    at = at + 1
    if word == 'COST' then
      request.COST, err = read_costs(args, at)
      if err then return nil, err end
      at = at + request.COST
    elseif word == 'ONCE' or word == 'TRACK' then
      used = used + 1
      request[word] = keys[used] or ''
    elseif word == 'FLOOR' or word == 'CLASS' then
      request[word], err = (word == 'FLOOR' and requests.percent or requests.class)(args[at])
      if err then return nil, err end
      at = at + 1
    elseif word == 'BORROW' then
      request.BORROW = 0
      if args[at] and not OPTIONS[args[at]] then
        request.BORROW, err = requests.percent(args[at], word)
        if err then return nil, err end
        at = at + 1
      end
    elseif word == 'PAID' then
      request.PAID = args[at] == '1' and 1 or args[at] == '2' and 2 or nil
      if not request.PAID then
        return nil, errors.new('BADARGS', '%s: PAID is followed by 1 or 2, the index of the take', errors.quote(args[at] or ''))
      end
      at = at + 1
    else
      request[word] = 1
    end
    if word == 'ONCE' then
      request.ttl = numbers.parse_positive(args[at] or '')
      if not request.ttl or request.ttl > limits.LONGEST then
        return nil, errors.new('BADARGS', '%s: ONCE is followed by the ms for which it holds, a whole number from 1 to %d',
          errors.quote(args[at] or ''), limits.LONGEST)
      end
      at = at + 1
    end
  end
  if request.UPTO and request.FORCE then
    return nil, errors.new('BADARGS', 'UPTO and FORCE are both given; UPTO takes what fits, FORCE also what does not: give one')
  elseif request.FLOOR and request.CLASS then
    return nil, errors.new('BADARGS', 'FLOOR and CLASS are both given; a class stands for a percentage: give one')
  elseif request.FORCE and (request.FLOOR or request.CLASS) then
    return nil, errors.new('BADARGS', '%s and FORCE are both given; FORCE keeps nothing free: give one', request.FLOOR and 'FLOOR' or 'CLASS')
  end
  if request.track and allowed.TRACK and not request.TRACK then
    used = used + 1
    request.TRACK = keys[used] or ''
  end
  return used
end

-- percent parses the percentage of FLOOR. It returns nil and the error for any other text.
function requests.percent(text, word)
  local percent = numbers.parse(text or '')
  if percent and percent <= 100 then return percent end
  return nil, errors.new('BADARGS', '%s: %s is followed by a whole percentage from 0 to 100', errors.quote(text or ''), word or 'FLOOR')
end

-- class checks the name of a class.
function requests.class(text)
  if text and #text > 0 and #text <= LONGEST_CLASS then return text end
  return nil, errors.new('BADARGS', '%s: CLASS is followed by a name of 1 to %d bytes', errors.quote(text or ''), LONGEST_CLASS)
end

-- borrowed checks a request with BORROW, or with a policy of a guarantee and a pool. It returns the error, or nil.
local function borrowed(refunds)
  local composed, percent, what = request.composed or {}, request.BORROW, nil
  local policy = composed[1]
  for _, other in ipairs(composed) do
    if other.borrow then
      policy, what = other, '@' .. other.name
      percent = percent or other.borrow
    end
  end
  if not percent then
    return request.PAID and errors.new('BADARGS', 'PAID is given without BORROW; it says who paid for a take with BORROW')
  elseif what and request.BORROW then
    return errors.new('BADARGS', '%s and BORROW are both given; the policy has a guarantee and a pool: leave BORROW out', what)
  elseif what and request.count ~= 2 then
    return errors.new('BADARGS', '%s and other limits are given; it has a guarantee and a pool, which decide by themselves', what)
  elseif not what and request.count ~= 2 then
    return errors.new('BADARGS', 'the number of limits is %d; BORROW takes two, a guarantee and a pool', request.count)
  end
  for i = 1, what and 0 or 2 do
    local limit = request.limits[i]
    if policy or limit.name then
      return errors.new('BADARGS', '@%s and BORROW are both given; BORROW takes two limits, which are no policies', limit.name or policy.name)
    elseif not limit.rate then
      return errors.new('BADARGS', 'limit %d has %d rates; a guarantee and a pool have one each', i, limit.size)
    end
  end
  for _, word in ipairs{ 'UPTO', 'FORCE', 'EACH', 'FLOOR', 'CLASS' } do
    if request[word] then
      return errors.new('BADARGS', '%s and %s are both given; a guarantee and a pool do not take it', word, what or 'BORROW')
    end
  end
  if request.COST and request.COST > 1 then
    return errors.new('BADARGS', 'the number of costs is %d; a guarantee and a pool are charged the same: give one', request.COST)
  elseif refunds and not request.PAID then
    return errors.new('BADARGS', 'PAID is missing; a refund says who paid, with the index of the take')
  end
  request.BORROW = percent
  return nil
end

-- floors sets the percentages that a request for a take or a peek keeps free, and which counts it changes. It returns the
-- error, or nil.
local function floors()
  local percent, class = request.FLOOR, request.CLASS
  if request.FORCE then return nil end
  for i = 1, request.count do
    local limit, err = request.limits[i], nil
    local own = percent or limit.floor
    if class then
      own, err = policies.class(limit, class)
      if err then return err end
    end
    if own and own > 0 then
      request.floors = request.floors or {}
      request.floors[i] = own
    end
    if limit.calls and (class or percent) then
      request.calls_of = request.calls_of or {}
      request.calls_of[i] = policies.calls(limit.side, class or '')
    end
  end
  return nil
end

-- limit_costs sets the costs of an UPTO call. The cost for a limit is the requested cost, but at most
-- the smallest capacity among the limits that decide together, less what FLOOR keeps free.
function requests.limit_costs(of)
  local group_of, percents, least = of.group_of, of.floors, {}
  for i = 1, of.count do
    local group, most = group_of and group_of[i] or 0, of.limits[i].capacity
    if percents and percents[i] then most = most - states.kept(most, percents[i]) end
    least[group] = math.min(least[group] or of.UPTO, math.max(1, most))
  end
  for i = 1, of.count do
    of.costs[i] = least[group_of and group_of[i] or 0]
  end
end

-- spread sets the cost for each limit. It returns the error, or nil.
local function spread()
  local given, costs, upto = request.COST or 1, request.costs, request.UPTO
  if upto and given ~= 1 then
    return errors.new('BADARGS', 'the number of costs is %d; UPTO takes the same from every key: give it one', given)
  elseif given ~= 1 and given ~= request.count then
    return misnumbered(given)
  end
  for i = given + 1, request.count do
    costs[i] = costs[1]
  end
  if upto then
    request.UPTO = costs[1]
    requests.limit_costs(request)
  end
  return nil
end

-- too_long returns the error for a key with too many bytes, or nil. A call must check its keys before it
-- hashes them (policies.in_canary) or passes them to a command.
function requests.too_long(keys)
  for i = 1, #keys do
    if #keys[i] > LONGEST_KEY then
      return errors.new('BADKEYS', '%s: a key has at most %d bytes', errors.quote(keys[i]), LONGEST_KEY)
    end
  end
  return nil
end

-- repeated returns the error for a key that is given twice, or nil.
function requests.repeated(keys)
  for i = 2, #keys do
    for other = 1, i - 1 do
      if keys[other] == keys[i] then
        return errors.new('BADKEYS', '%s is given twice; name each key once', errors.quote(keys[i]))
      end
    end
  end
  return nil
end

-- misnamed returns the error for a wrong number of keys. allowed.TRACK is set if the verb takes a
-- usage key.
local function misnamed(keys, used, allowed)
  local text = ''
  for _, policy in ipairs(request.composed or {}) do
    local wants = policy.keys and table.concat(policy.keys, ', ') or 'a key'
    text = text .. '; @' .. policy.name .. ' takes ' .. wants .. (allowed.TRACK and policy.track and ', and a usage key last' or '')
  end
  return errors.new('BADKEYS', 'the number of keys is %d and the number of limits %d; give each limit one key, in order%s%s',
    #keys, request.count, used > request.count and ', then one for ONCE and one for TRACK' or '', text)
end

local plain_request = { limits = limits_of_call, costs = costs_of_call } -- reused by the next call

-- plain returns the request of a call that has one known limit of one rate for each key, and no other arguments. For
-- any other call it returns nil. read takes longer.
function requests.plain(keys, args)
  local known, number, asked, counted = limits.known, #keys, 0, nil
  if number ~= #args or number == 0 or number > MOST_LIMITS then return nil end
  for i = 1, number do
    local limit = known[args[i]]
    if not limit or not limit.rate or limit.floor then return nil end
    asked, counted = asked + limit.asks, counted or limit.calls
    limits_of_call[i], costs_of_call[i] = limit, 1
  end
  if asked > FEW or requests.too_long(keys) or requests.repeated(keys) then return nil end
  clock.now = nil
  plain_request.count, plain_request.counted = number, counted
  return plain_request
end

-- read returns the request, or nil and the error.
function requests.read(keys, args, allowed)
  clock.now = nil
  if #keys == 0 then return nil, errors.new('BADKEYS', 'the number of keys is 0; give each limit one key') end
  request = { limits = limits_of_call, costs = costs_of_call, count = 0 }
  local at, used
  local err = requests.too_long(keys)
  if err then return nil, err end
  at, err = read_limits(keys, args)
  if err then return nil, err end
  used, err = read_options(keys, args, at, allowed)
  err = err or borrowed(allowed.PAID) or allowed.FLOOR and floors() or spread() or #keys ~= used and misnamed(keys, used, allowed) or requests.repeated(keys)
  if err then return nil, err end
  return request
end
end

--@ src/60_decisions.lua
do
-- A call makes one decision on the rates of one or several keys: either all are charged, or none.
-- First, every key is read with its limit's function probe, which returns how many units fit. If probe
-- cannot tell, and for a refund, the key is loaded into one state for each rate (src/30_states.lua), and
-- these are charged. Then each key is written, with its limit's function commit or from its states, and
-- gives its part of the reply. A call that returns an error has therefore changed nothing.
--
-- The enforced limits of a call make one decision. Each shadow policy (a group of limits) makes a
-- separate decision: it is charged if it would allow the call, and the call continues in either case.
-- Shadow policies never deny a call: they try a limit on real traffic before it is enforced. If the
-- enforced limits deny the call, nothing is charged.
--
-- The reply is { allowed, limit, remaining, retry_after_ms, reset_after_ms, index }. With shadow
-- policies it also has would_allowed, would_retry_after_ms and would_index: the result that the
-- call would have if no policy were a shadow policy. With EACH, one more element is a list with the
-- first five fields for each limit by itself, and with shadow policies the units that were charged.

local list = states.list

-- reply is the reply to a call. All calls share one table, because Redis converts it to integers
-- before the next call begins. With a new table for each call, a denied call would take 4 % longer
-- (bench/README.md).
local reply = {}

local ENFORCED = {} -- the group of the limits that are not in a shadow policy

-- For each key of the call, by its position: how many units fit (-1 if the key is blocked), and what probe has returned.
-- For a key that is loaded into states, first is list, and second the position of its first state. All calls share
-- these tables. kept has what FLOOR keeps free, for limits of one rate; it is only set in calls with floors.
local rooms, first, second, third, kept = {}, {}, {}, {}, {}

-- load loads a key into states, from position `at` of list on. If an override is loaded instead of the limit, it also
-- takes its place in the request. load returns the limit, how many units fit, and the override, or nil and the error.
local function load(key, request, i, at, cost, head, left)
  local limit, least, percent = request.limits[i], numbers.MOST, request.floors and request.floors[i]
  local override
  if percent then
    override = states.load_above(percent, key, limit, at, cost, head, left)
  else
    override = limit.form.load(key, limit, at, cost, head, left)
  end
  if override then
    if override.err then return nil, override end
    override.calls, override.span = limit.calls, limit.span -- the call still counts for the limit's policy
    request.limits[i], limit = override, override
  end
  for j = at, at + limit.size - 1 do
    local free = list[j].free
    if percent and free > 0 then free = math.max(0, free - states.kept(list[j].rate.capacity, percent)) end
    if free < least then least = free end
  end
  first[i], second[i] = list, at
  return limit, least, override
end

decisions.load = load

-- look finds how many units fit into every key of a request, and marks the groups that deny. It returns the number
-- of states that it has loaded, or nil and the error. If probe has failed for the only key, probed is true, and head
-- and left are what it returned. The costs of UPTO depend on the capacities, so if look finds overrides, it looks again.
local function look(keys, request, verb, now, probed, head, left)
  local named, costs, shadows, size, overridden = request.limits, request.costs, request.group_of, 0, false
  local takes, probes, floors = verb == 'charge', verb ~= 'refund' and not probed, request.floors
  ENFORCED.denies = false
  for i = 1, request.count do
    local limit, cost, free, a, b, c = named[i], costs[i], nil, head, left, nil
    local percent = floors and floors[i]
    kept[i] = percent and states.kept(limit.capacity, percent) or 0
    if percent and probes then
      if limit.rate then free, a, b, c = limit.probe(keys[i], limit, states.wanted(limit.capacity, cost, kept[i]), now, i) end -- kept differs between rates
      free = free and math.max(0, free - kept[i])
    elseif probes then
      free, a, b, c = limit.probe(keys[i], limit, cost, now, i)
      if free and cost >= free and not takes then free, a, b = nil, nil, nil end -- FORCE may leave a debt
    end
    if free then
      first[i], second[i], third[i] = a, b, c
    else
      if size == 0 then states.begin() end
      local override
      limit, free, override = load(keys[i], request, i, size + 1, verb == 'refund' and 1 or cost, a, b)
      if not limit then return nil, free end
      size, overridden = size + limit.size, overridden or override
    end
    rooms[i] = free
    if free < (takes and cost or 0) then (shadows and shadows[i] or ENFORCED).denies = true end -- only a block denies a refund, or FORCE
  end
  if overridden and request.UPTO and not request.looks_again then
    request.looks_again = true
    requests.limit_costs(request)
    return look(keys, request, verb, now)
  end
  return size
end

-- fit finds how many units, up to `most`, every limit of a group can allow (UPTO). It returns this
-- number, and makes it the cost of these limits. If it is 0, the group denies, and the cost is 1.
local function fit(request, group, most)
  local shadows, costs, fits = request.group_of, request.costs, most
  for i = 1, request.count do
    if (shadows and shadows[i] or ENFORCED) == group then fits = math.min(fits, costs[i], math.max(0, rooms[i])) end
  end
  for i = 1, request.count do
    if (shadows and shadows[i] or ENFORCED) == group then costs[i] = math.max(1, fits) end
  end
  group.denies = fits == 0
  return fits
end

-- decide_groups sets which groups are charged. A refund is decided for each group separately: a
-- blocked key under a shadow policy does not prevent a refund to the other keys.
local function decide_groups(request, verb)
  local units = request.UPTO
  if units and units > 0 then units = fit(request, ENFORCED, units) end
  ENFORCED.charged = not ENFORCED.denies
  for _, group in ipairs(request.groups or {}) do
    if units and request.UPTO > 0 then fit(request, group, math.max(1, units)) end
    group.charged = not group.denies and (ENFORCED.charged or verb == 'refund')
  end
end

-- force charges a state even if the units do not fit, up to the state's maximum debt.
local function force(state, units)
  local algorithm = state.rate.algorithm
  local err = algorithm.charge(state, math.min(units, algorithm.spare(state)))
  state.free, state.ends_in = math.max(0, state.free), 0
  return err
end

-- charge applies verb, which is charge, force or refund, to the states of the keys that are charged. It returns the
-- error, or nil.
local function charge(request, verb)
  local costs, shadows = request.costs, request.group_of
  for i = 1, request.count do
    local units, at = costs[i], second[i]
    if first[i] == list and units > 0 and (shadows and shadows[i] or ENFORCED).charged then
      for j = at, at + request.limits[i].size - 1 do
        local state = list[j]
        local err = (verb == 'force' and force or state.rate.algorithm[verb])(state, units)
        if err then return err end
      end
    end
  end
  return nil
end

-- restore loads the keys that are not charged again, as for a cost of 1, if an impossible state was
-- replaced by one with room for more. The new state is not stored, so the reply must not count this
-- room. Such a state still does not deny: it keeps its field room.
local function restore(keys, request)
  local kept, named, shadows = {}, request.limits, request.group_of -- kept: from the position of such a state to its key
  for i = 1, request.count do
    local at = first[i] == list and not (shadows and shadows[i] or ENFORCED).charged and second[i]
    for j = at or 1, at and at + named[i].size - 1 or 0 do
      if list[j].room then kept[j] = i end
    end
  end
  states.begin()
  local restored = {}
  for _, i in pairs(kept) do
    if not restored[i] then states.load_above(request.floors and request.floors[i] or 0, keys[i], named[i], second[i], 1) end
    restored[i] = true
  end
  for j in pairs(kept) do
    list[j].room, states.any_room = true, true
  end
end

-- sought returns how many units of a capacity must be free for a cost if FLOOR keeps `above` units free; math.huge if they never
-- are. The sum may be above 2^53, and rounded.
local function sought(capacity, cost, above) return cost <= capacity - above and cost + above or math.huge end

-- wait returns the time in ms until cost units of a rate are free, or -1 for never.
local function wait(state, cost)
  local rate = state.rate
  if cost > rate.capacity then return -1 end
  return state.ends_in > 0 and state.ends_in or rate.algorithm.wait(state, cost)
end

-- longer returns the longer of two waits in ms; -1 is the longest.
local function longer(a, b) return (a < 0 or b < 0) and -1 or a > b and a or b end

decisions.wait, decisions.longer = wait, longer

-- sum_up returns a key's part of the reply from its states: reset, retry, the capacity of the binding rate, remaining, and
-- whether the key denies. cost is 0 if only a block denies. If forced is true, the wait of an allowed call is the
-- time until one unit fits. percent is the FLOOR of the key, or nil.
local function sum_up(at, size, cost, charged, forced, percent)
  local binding, denies, least, retry, longest = nil, false, numbers.MOST, 0, 0
  for j = at, at + size - 1 do
    local state = list[j]
    local free, reset, ms, above = state.free, state.reset, 0, percent and states.kept(state.rate.capacity, percent) or 0
    if above > 0 and free > 0 then free = math.max(0, free - above) end
    if cost > free and not charged and not (state.room and cost <= state.rate.capacity - above) then -- this rate denies
      ms, reset = wait(state, sought(state.rate.capacity, cost, above)), state.ends_in > 0 and state.ends_in
      if not denies then binding, denies, retry = state, true, 0 end
    elseif not denies then
      if free < least or not binding then binding = state end
      if forced and free == 0 then
        ms = wait(state, 1)
      elseif not forced then
        ms = state.delay
      end
    end
    reset = reset or state.rate.algorithm.reset(state)
    if reset > longest then longest = reset end
    if ms ~= 0 then retry = longer(retry, ms) end
    if free < least then least = free > 0 and free or 0 end
  end
  return longest, retry, binding.rate.capacity, least, denies
end

local would_be = {} -- the fields 1, 3, 4 and 6 of the reply if no policy were a shadow

-- add adds key i to would_be, in the same way as decide adds it to the reply.
local function add(i, retry, left, denies)
  local whole = would_be
  if denies then
    if whole[1] == 1 then whole[1], whole[4], whole[6] = 0, 0, i end
  elseif whole[1] == 0 then
    retry = 0
  elseif left < whole[3] or i == 1 then
    whole[6] = i
  end
  if left < whole[3] then whole[3] = left end
  whole[4] = longer(whole[4], retry)
end

local results = {} -- the list that EACH adds to the reply; reused by the next call

local denials = {} -- whether each key of a call with policies denies; reused by the next call

-- count adds a call to the counts of its policies. If the enforced limits deny a call, it is counted
-- only for the enforced policies that deny it.
local function count(request)
  for i = 1, request.count do
    local limit, group = request.limits[i], request.group_of and request.group_of[i]
    local calls, allowed = request.calls_of and request.calls_of[i] or limit.calls, nil
    if calls and ENFORCED.charged then
      allowed = group and group.denies and 0 or 1
    elseif calls and not group then
      for j = i, i + limit.span - 1 do
        if denials[j] then allowed = 0 end
      end
    end
    if allowed then calls[allowed] = calls[allowed] + 1 end
  end
end

local decide

-- as_enforced returns the reply to a call with UPTO if none of its policies were a shadow policy, or the
-- error. All limits then decide together how many units fit, so it is a decision of its own. A call
-- without UPTO has the same costs in both, so this reply can be added up from the same keys.
local function as_enforced(keys, request)
  local groups, group_of, wants_each = request.groups, request.group_of, request.EACH
  request.groups, request.group_of, request.EACH = nil, nil, nil
  requests.limit_costs(request)
  local whole = decide(keys, request, 'charge', true)
  request.groups, request.group_of, request.EACH = groups, group_of, wants_each
  requests.limit_costs(request)
  return whole
end

function decide(keys, request, verb, peeks, probed, head, left)
  local groups, upto, each, counted, number = request.groups, request.UPTO, request.EACH, request.counted, request.count
  local would = groups and upto and as_enforced(keys, request)
  if would and would.err then return would end
  local takes, forced, now = verb == 'charge', verb == 'force', number > 1 and not CLOCK_STANDS and clock.ms() or nil
  local size, err = look(keys, request, verb, now, probed, head, left)
  if err then return err end
  ENFORCED.charged = not ENFORCED.denies
  if groups or upto then decide_groups(request, verb) end
  if size > 0 then
    err = charge(request, verb)
    if err then return err end
    if states.any_room then restore(keys, request) end
  end
  local named, costs, shadows, enforced, changes, floors = request.limits, request.costs, request.group_of, true, false, request.floors
  local allowed, binding, capacity, least, longest_wait, longest = 1, 0, 0, numbers.MOST, 0, 0
  if groups then
    enforced = request.shadows < number
    would_be[1], would_be[3], would_be[4] = 1, numbers.MOST, 0
  end
  -- The reply has the smallest remaining and the longest waits. The binding key is the first that denies. If no key
  -- denies, it is the first with the smallest remaining.
  for i = 1, number do
    local limit, cost, group, free, a = named[i], costs[i], shadows and shadows[i] or ENFORCED, rooms[i], first[i]
    local charged, denies, reset, retry, most = group.charged, false
    if a == list then
      reset, retry, most, free, denies = sum_up(second[i], limit.size, takes and cost or 0, charged, forced, floors and floors[i])
      if charged and cost > 0 then
        if not peeks then limit.form.write(keys[i], limit, second[i]) end
        changes = true
      end
    elseif charged and cost > 0 then
      reset, retry, most = limit.commit(not peeks and keys[i], limit, cost, a, second[i], third[i], now)
      free, changes = free - cost, true
      if forced then retry = 0 end
    else
      denies = takes and not charged and cost > free
      reset, retry, most = limit.waits(limit, denies and sought(limit.capacity, cost, kept[i]), a, second[i], third[i])
    end
    if counted then denials[i] = denies end
    if each then
      local entry = results[i] or {}
      results[i] = entry
      entry[1], entry[2], entry[3], entry[4], entry[5] = denies and 0 or upto and cost or 1, most or limit.capacity, free, retry, reset
      entry[6] = groups and (charged and cost or 0) or nil
    end
    if groups then add(i, retry, free, denies) end
    if group == ENFORCED or not enforced then
      if denies then
        if allowed > 0 then allowed, binding, capacity, longest_wait = 0, i, most or limit.capacity, 0 end
      elseif allowed == 0 then
        retry = 0
      elseif free < least or binding == 0 then
        binding, capacity = i, most or limit.capacity
      end
      if free < least then least = free end
      if retry ~= 0 then longest_wait = longer(longest_wait, retry) end
      if reset > longest then longest = reset end
    end
  end
  if upto and allowed == 1 then allowed = costs[binding] end
  local whole = (groups or each) and {} or reply
  whole[1], whole[2], whole[3], whole[4], whole[5], whole[6] = allowed, capacity, least, longest_wait, longest, binding
  if groups then
    would = would or would_be
    if not enforced then whole[1], whole[4] = upto or 1, 0 end
    whole[7], whole[8], whole[9] = would[1], would[4], would[6]
  end
  if each then
    for i = number + 1, #results do
      results[i] = nil
    end
    whole[#whole + 1] = results
  end
  if counted and not peeks and verb ~= 'refund' then count(request) end
  return whole, changes and not peeks, ENFORCED.charged
end

-- decide carries out a request. If peeks is true, it writes nothing. verb is charge, force or
-- refund. decide returns the reply, whether anything was charged or given back, and whether the enforced
-- limits allow the request. If the request fails, decide returns only the error. For probed, head and left see look.
function decisions.decide(keys, request, verb, peeks, probed, head, left)
  local whole, charges, passes = decide(keys, request, verb, peeks, probed, head, left)
  states.drop()
  return whole, charges, passes
end

local key_of_one, one = {}, { limits = {}, costs = {}, count = 1 } -- the request of decisions.one; reused by the next call
local reply_of_one = { 1, 0, 0, 0, 0, 1 } -- its reply

-- answer fills in the reply to a call with one key, and counts the call for its policy.
local function answer(calls, allowed, capacity, free, retry, reset)
  if calls then
    local at = allowed > 0 and 1 or 0
    calls[at] = calls[at] + 1
  end
  local whole = reply_of_one
  whole[1], whole[2], whole[3], whole[4], whole[5] = allowed, capacity, free, retry, reset
  return whole
end

-- beyond is one for a call with an option, or for a key that probe cannot tell. It decides on keys that are blocked or have
-- an override, and leaves all others to decide. free, a, b and c are what probe has returned. percent is that of FLOOR, or
-- nil, and calls the counts of the limit's policy, or nil.
local function beyond(key, limit, cost, option, percent, calls, free, a, b, c)
  local named, commit, allowed, above, head, left = limit, limit.commit, 1, percent and states.kept(limit.capacity, percent) or 0, nil, nil
  if not free then
    head, left = a, b
    if type(head) == 'string' then
      local blocked = limit.capacity > 0 and states.blocked(key, head, left)
      if blocked then
        local never = option ~= 'FORCE' and (option and 1 or cost) > limit.capacity - above
        return answer(calls, 0, limit.rates[1].capacity, 0, never and -1 or blocked, blocked)
      end
      limit, free, a, b, c = overrides.probe(key, head, left)
      commit, above = overrides.commit, free and percent and states.kept(limit.capacity, percent) or 0
    end
  end
  if free and above > 0 then free = math.max(0, free - above) end
  if option == 'FORCE' and free and cost >= free then
    free = nil -- it may leave a debt
  elseif option == 'UPTO' and free then
    cost = math.min(cost, math.max(1, free))
    allowed = cost
  end
  if not free then
    key_of_one[1], one.limits[1], one.costs[1], one.counted, one.UPTO, one.looks_again = key, named, cost, calls, nil, nil
    one.floors, one.calls_of = percent and { percent }, calls ~= named.calls and { calls } or nil
    if option == 'UPTO' then
      one.UPTO = cost
      requests.limit_costs(one)
    end
    return (decisions.decide(key_of_one, one, option == 'FORCE' and 'force' or 'charge', false, true, head, left))
  elseif cost > free or cost == 0 then
    local reset, retry, capacity = limit.waits(limit, cost > free and sought(limit.capacity, cost, above), a, b, c)
    return answer(calls, cost > free and 0 or allowed, capacity or limit.capacity, free, retry, reset)
  end
  local reset, retry, capacity = commit(key, limit, cost, a, b, c)
  return answer(calls, allowed, capacity or limit.capacity, free - cost, option == 'FORCE' and 0 or retry, reset)
end

-- above is one for a call with FLOOR, or for the calls of a class. option is UPTO or nil.
function decisions.above(key, limit, cost, option, percent, calls)
  if not limit.rate then return beyond(key, limit, cost, option, percent, calls) end -- what is kept free differs between the rates
  local above = states.kept(limit.capacity, percent)
  local free, a, b, c = limit.probe(key, limit, states.wanted(limit.capacity, cost, above))
  if not free or option or cost == 0 or cost > free - above then
    return beyond(key, limit, cost, option, percent, calls, free, a, b, c)
  end
  local reset, retry, capacity = limit.commit(key, limit, cost, a, b, c)
  return answer(calls, 1, capacity or limit.capacity, free - above - cost, retry, reset)
end

-- one decides on one key, and writes: decide for a call with one limit and at most the option UPTO or FORCE, if the
-- key can be read without states.
function decisions.one(key, limit, cost, option)
  local free, a, b, c = limit.probe(key, limit, cost)
  if not free or option or cost == 0 then
    return beyond(key, limit, cost, option, nil, limit.calls, free, a, b, c)
  elseif cost > free then
    local reset, retry, capacity = limit.waits(limit, cost, a, b, c)
    return answer(limit.calls, 0, capacity or limit.capacity, free, retry, reset)
  end
  local reset, retry, capacity = limit.commit(key, limit, cost, a, b, c)
  return answer(limit.calls, 1, capacity or limit.capacity, free - cost, retry, reset)
end
end

--@ src/62_borrowing.lua
do
-- A call with BORROW has two limits: a guarantee, which one caller has, and a pool, which all callers share. A cost
-- that fits the guarantee is charged to both keys, and may put the pool into debt, as FORCE would. Any other cost is charged to
-- the pool alone, if the pool then still has the percentage that borrowers leave. These are the two rates of RFC 4115 with the
-- coupling, where the second key is common to all callers.
--
-- The reply is a decision whose index says who paid, 1 the guarantee with the pool or 2 the pool. If the call is denied, it is 2
-- if only the debt of the pool is too large.

local list = states.list
local load, wait, longer = decisions.load, decisions.wait, decisions.longer
local floors = {} -- the floors of a request; reused by the next call
local GUARANTEE, POOL = 1, 2

-- position returns the positions in states.list of a key's first and last state.
local function position(request, i)
  local first = i == POOL and request.limits[GUARANTEE].size + 1 or 1
  return first, first + request.limits[i].size - 1
end

-- load_pool loads the pool's key. It must have room for the cost if the guarantee has, and otherwise also for what borrowers
-- leave. It returns the error, or nil.
local function load_pool(keys, request, cost, fits)
  floors[POOL] = not fits and request.BORROW > 0 and request.BORROW or nil
  request.floors = floors
  local limit, err = load(keys[POOL], request, POOL, position(request, POOL), cost)
  request.floors = nil
  return not limit and err or nil
end

-- load_both loads both keys for a cost of at least 1. It returns the error, or nil.
local function load_both(keys, request, cost)
  local limit, free = load(keys[GUARANTEE], request, GUARANTEE, 1, cost)
  if not limit then return free end
  return load_pool(keys, request, cost, free >= cost)
end

-- most_debt returns how many units of debt FORCE can leave.
local function most_debt(rate)
  if rate.algorithm.spare == gcra_debt.spare then return rate.capacity - 1 end
  return states.most_owed(rate.capacity) - rate.capacity
end

-- left returns how many units the guarantee has, how many a guaranteed call may charge to the pool, and how many the pool has
-- for borrowers.
local function left(request)
  local guaranteed, spare, lent = numbers.MOST, numbers.MOST, numbers.MOST
  local first, last = position(request, POOL)
  for j = 1, last do
    local state, rate = list[j], list[j].rate
    if j < first then
      guaranteed = math.min(guaranteed, state.free)
    else
      spare = math.min(spare, rate.algorithm.spare(state))
      lent = math.min(lent, math.max(0, state.free - states.kept(rate.capacity, request.BORROW)))
    end
  end
  return guaranteed, spare, lent
end

-- until_left returns the time in ms until a key has room for a cost and the percentage of its capacities, or -1 for never.
local function until_left(request, i, cost, percent)
  local ms = 0
  for j = position(request, i), select(2, position(request, i)) do
    local state = list[j]
    local capacity = state.rate.capacity
    local kept = states.kept(capacity, percent)
    if cost > capacity - kept then
      return -1
    elseif cost + kept > state.free then
      ms = math.max(ms, wait(state, cost + kept))
    end
  end
  return ms
end

-- until_spare returns the time in ms until the pool can be charged a cost into debt, or -1 for never.
local function until_spare(request, cost)
  local ms = 0
  for j = position(request, POOL), select(2, position(request, POOL)) do
    local state = list[j]
    local rate = state.rate
    if cost > rate.capacity + most_debt(rate) then
      return -1
    elseif cost > rate.algorithm.spare(state) then
      ms = math.max(ms, wait(state, cost - most_debt(rate)))
    end
  end
  return ms
end

-- block returns the first blocked key, and the time in ms until no block is left, or nil if no key is blocked.
local function block(request)
  local blocked, ms = nil, 0
  for i = GUARANTEE, POOL do
    local state = list[position(request, i)]
    if state.free < 0 then blocked, ms = blocked or i, math.max(ms, state.ends_in) end
  end
  return blocked, ms
end

-- most returns the highest cost that full keys would allow.
local function most(request)
  local guaranteed, lent, first, last = numbers.MOST, numbers.MOST, position(request, POOL)
  for j = 1, last do
    local rate = list[j].rate
    local capacity = rate.capacity
    guaranteed = math.min(guaranteed, j < first and capacity or capacity + most_debt(rate))
    if j >= first then lent = math.min(lent, capacity - states.kept(capacity, request.BORROW)) end
  end
  return math.max(guaranteed, lent)
end

-- change charges or refunds the keys from the first on, and writes them unless peeks is true. It returns the longest delay of a
-- leaky_bucket, or nil and the error.
local function change(keys, request, from, verb, cost, peeks)
  local delay = 0
  for j = position(request, from), select(2, position(request, POOL)) do
    local state = list[j]
    local err = state.rate.algorithm[verb](state, cost)
    if err then return nil, err end
    if state.free < 0 then state.free = 0 end
    state.ends_in, delay = 0, math.max(delay, state.delay)
  end
  for i = from, peeks and 0 or POOL do
    request.limits[i].form.write(keys[i], request.limits[i], position(request, i))
  end
  return delay
end

-- load_again loads the keys before `from`, which were not changed, as a call with a cost of 1 finds them, if states were replaced
-- that leave room for more. It returns the error, or nil.
local function load_again(keys, request, from)
  if not states.any_room or from == GUARANTEE then return nil end
  states.begin()
  if from > POOL then return load_both(keys, request, 1) end
  local limit, err = load(keys[GUARANTEE], request, GUARANTEE, 1, 1)
  return not limit and err or nil
end

-- reset_of returns the time in ms until a key is full.
local function reset_of(request, i, denies)
  local longest = 0
  for j = position(request, i), select(2, position(request, i)) do
    local state = list[j]
    local blocked = (denies or state.free < 0) and state.ends_in > 0
    longest = math.max(longest, blocked and state.ends_in or state.reset or state.rate.algorithm.reset(state))
  end
  return longest
end

-- decide carries out a request with BORROW. For verb, peeks and the results see decisions.decide.
local function decide(keys, request, verb, peeks)
  local cost, refunds = request.costs[1], verb == 'refund'
  states.begin()
  local err = load_both(keys, request, refunds and 1 or math.max(1, cost))
  if err then return err end
  local index, ms = block(request)
  local allowed, from, denies_pool, denies_guarantee = 0, POOL + 1, false, false -- the keys from `from` on are changed
  local guaranteed, spare, lent = left(request)
  if index then
    if not refunds and cost > most(request) then ms = -1 end
  elseif refunds then
    allowed, index, ms = 1, request.PAID, 0
    from = cost > 0 and index or from
    if cost > 0 then err = load_pool(keys, request, 1, true) end
  elseif cost == 0 then
    allowed, index = 1, GUARANTEE
  elseif cost <= guaranteed and cost <= spare then
    allowed, index, from = 1, GUARANTEE, GUARANTEE
  elseif cost <= guaranteed then
    index, ms, denies_pool = POOL, until_spare(request, cost), true
  elseif cost <= lent then
    allowed, index, from = 1, POOL, POOL
  else
    local own, borrowed = longer(until_left(request, GUARANTEE, cost, 0), until_spare(request, cost)), until_left(request, POOL, cost, request.BORROW)
    index, ms, denies_pool, denies_guarantee = GUARANTEE, (own < 0 or borrowed >= 0 and borrowed < own) and borrowed or own, true, true
  end
  if not err and from <= POOL then
    ms, err = change(keys, request, from, verb, cost, peeks)
    if refunds then ms = 0 end
  end
  err = err or load_again(keys, request, from)
  if err then return err end
  guaranteed, spare, lent = left(request)
  local blocked = block(request)
  local reset = math.max(reset_of(request, GUARANTEE, denies_guarantee), reset_of(request, POOL, denies_pool))
  local remaining = blocked and 0 or math.max(math.min(guaranteed, spare), lent)
  local calls = request.limits[GUARANTEE].calls
  if calls and not peeks and not refunds then
    calls[allowed] = calls[allowed] + 1
    if allowed == 1 and index == POOL then calls.borrowed = (calls.borrowed or 0) + 1 end
  end
  return { allowed, request.limits[index].capacity, remaining, ms, reset, index }, from <= POOL and not peeks, allowed == 1
end

function borrowing.decide(...)
  local reply, charges, passes = decide(...)
  states.drop()
  return reply, charges, passes
end
end

--@ src/65_tracking.lua
do
-- TRACK records the usage of a caller: totals, first and last use, and a count per minute for the
-- last hour. The record also counts denied calls. It has its own key, because a denied call does not
-- change the state of a limit.
--
-- State: a hash with the fields first, last (ms since the epoch), cost (of allowed calls), allowed and
-- denied (at least one of them), and a<minute>, d<minute>: calls allowed and denied in that minute
-- (minutes since the epoch). It has no other fields. The first call in a minute sets the expiry
-- to a day and a minute later.

local parse, argument = numbers.parse, numbers.argument

local NO_RECORD = 'does not hold a usage record'
local MINUTE = 60000
local SERIES = 60 -- minutes
local MOST_FIELDS = 5 + 2 * SERIES
local KEPT = '86460000' -- ms: a day, and a minute in which no other call sets the expiry
local TOTALS = { first = true, last = true, cost = true, allowed = true, denied = true }

-- current is the minute of the last decision. allowed_now and denied_now are the names of the fields
-- that count its calls. They are cached because most decisions fall in the same minute as the previous
-- one.
local current, allowed_now, denied_now = 0, '', ''

local now -- ms since the epoch, from the last call of fetch

-- values holds what the last call of read found: the fields cost, allowed, allowed in this minute, denied
-- and denied in this minute, with false for absent fields. values.empty is set if there is no record, and
-- values.replace if the key holds an empty string, which counts as an absent key. values.outdated has the
-- fields that the first call in a minute deletes.
local values

-- examine checks that a key holds a record with everything that note writes and nothing else, or does not
-- exist. It checks the number of fields before it reads their names. It returns the error, or nil.
local function examine(key)
  local left, is_record = redis.call('PTTL', key), false
  if left == -2 then
    values.empty = true
    return nil
  elseif left >= 0 and values[1] and (values[2] or values[4]) and redis.call('HLEN', key) <= MOST_FIELDS then
    local times, outdated = redis.call('HMGET', key, 'first', 'last'), {}
    is_record = times[1] and parse(times[1]) and times[2] and parse(times[2])
    for _, field in ipairs(redis.call('HKEYS', key)) do
      local at = numbers.parse_digits(string.match(field, '^[ad](%d+)$'))
      is_record = is_record and (at or TOTALS[field])
      if at and (at <= current - SERIES or at > current) then outdated[#outdated + 1] = field end
    end
    if outdated[1] then values.outdated = outdated end
  end
  return not is_record and errors.unusable(key, NO_RECORD) or nil
end

-- fetch reads the fields that a call changes into values. It returns the error, or nil.
local function fetch(key)
  now = clock.ms()
  local minute = (now - now % MINUTE) / MINUTE
  if minute ~= current then
    current, allowed_now, denied_now = minute, string.format('a%d', minute), string.format('d%d', minute)
  end
  values = redis.pcall('HMGET', key, 'cost', 'allowed', allowed_now, 'denied', denied_now)
  if values.err then
    local err = errors.failed(key, values, NO_RECORD)
    values = { false, false, false, false, false, empty = true, replace = true }
    return redis.pcall('GETRANGE', key, '0', '0') ~= '' and err or nil
  end
  for i = 1, 5 do
    local text = values[i]
    if text then
      local number = parse(text)
      if not number then return errors.unusable(key, NO_RECORD) end
      values[i] = number
    end
  end
  return nil
end

-- check returns an error if the key holds anything but a usage record. Otherwise, it returns nil.
function tracking.check(key)
  local err = fetch(key)
  return err or not values.empty and examine(key) or nil
end

-- read is like check, but does not examine a record that was examined earlier in this minute, when its
-- first call was made. It runs before the decision, so that nothing can fail after the call is charged and
-- counted.
function tracking.read(key)
  local err = fetch(key)
  if err or values.empty then return err end
  local is_current = values[1] and (values[2] and values[3] or values[4] and values[5])
  if is_current and redis.call('PTTL', key) >= 0 then return nil end
  return examine(key)
end

-- sum adds to a field of a record. The sum is at most 2^53.
local function sum(number, more)
  local result = (number or 0) + more
  return argument(result < numbers.MOST and result or numbers.MOST)
end

-- note adds a decision to the record of a key. tracking.read must have read the same key.
function tracking.note(key, allowed, cost)
  local total, in_minute, at = 'allowed', allowed_now, 2
  if not allowed then
    total, in_minute, at, cost = 'denied', denied_now, 4, 0
  end
  local last = argument(now)
  if values.replace then redis.call('DEL', key) end
  redis.call('HSET', key, 'last', last, total, sum(values[at], 1), in_minute, sum(values[at + 1], 1), 'cost', sum(values[1], cost))
  if values.empty then redis.call('HSET', key, 'first', last) end
  if not (values[3] or values[5]) then redis.call('PEXPIRE', key, KEPT) end
  if values.outdated then redis.call('HDEL', key, unpack(values.outdated)) end
end

-- usage returns the reply of ratelimit_usage. tracking.check must have checked the key.
function tracking.usage(key)
  local held, series = {}, {}
  local flat = redis.pcall('HGETALL', key) -- if the key holds an empty string, HGETALL fails, and flat has no elements
  for i = 1, #flat, 2 do
    held[flat[i]] = parse(flat[i + 1]) or 0
  end
  local newest = math.floor((held.last or 0) / MINUTE)
  for minute = newest - SERIES + 1, newest do
    local name = string.format('%d', minute)
    local allowed, denied = held['a' .. name], held['d' .. name]
    if allowed or denied then series[#series + 1] = { minute * MINUTE, allowed or 0, denied or 0 } end
  end
  return {
    'allowed', held.allowed or 0, 'denied', held.denied or 0, 'cost', held.cost or 0, 'first_ms', held.first or 0,
    'last_ms', held.last or 0, 'interval_ms', MINUTE, 'series', series,
  }
end
end

--@ src/70_once.lua
do
-- ONCE makes a retry safe. The reply to a charged call, or to a refund, is stored under the
-- request's key for the time that the caller specifies. Every further call with this key gets the
-- same reply and changes nothing. A call that charged or gave back nothing stores nothing, so its
-- retry gets a new decision.
--
-- State: "once:<the fields of the reply>" (nine if a shadow policy took part, otherwise six), and
-- with EACH ";<fields>" for each limit (six with a shadow policy, otherwise five). It expires after
-- the caller's ttl.

local SIX = '^(%d+),(%d+),(%d+),(-?%d+),(%d+),(%d+)'
local FIVE = '^(%d+),(%d+),(%d+),(-?%d+),(%d+)'
local PLAIN = '^once:(%d+),(%d+),(%d+),(%-?%d+),(%d+),(%d+)$'
local LONGEST = '5119' -- a reply with 50 limits has fewer than 5120 bytes

-- parse returns the numbers that a pattern finds in a text, or nil.
local function parse(text, pattern)
  local fields = { string.match(text, pattern) }
  for i = 1, #fields do
    fields[i] = fields[i] == '-1' and -1 or numbers.parse(fields[i])
    if not fields[i] then return nil end
  end
  return fields[1] and fields
end

-- parse_reply returns the reply stored in a value, or nil if there is none.
local function parse_reply(value)
  local fields, entries = string.match(value, '^once:([^;]*)(.*)$')
  local reply = fields and (parse(fields, SIX .. '$') or parse(fields, SIX .. ',(%d+),(-?%d+),(%d+)$'))
  if not reply or entries == '' then return reply end
  local each = {}
  for limit in string.gmatch(entries, ';([^;]*)') do
    each[#each + 1] = parse(limit, FIVE .. '$') or parse(limit, FIVE .. ',(%d+)$') or ''
    if each[#each] == '' then return nil end
  end
  reply[#reply + 1] = each
  return reply
end

local repeated = {} -- the reply of plain_reply; reused by the next call

-- plain_reply returns a stored reply of six fields, or nil. It is faster than parse_reply.
local function plain_reply(value)
  local allowed, limit, remaining, retry, reset, index = string.match(value, PLAIN)
  if not allowed or allowed + limit + remaining + reset + index >= numbers.MOST then return nil end
  retry = retry == '0' and 0 or retry == '-1' and -1 or numbers.parse(retry)
  repeated[1], repeated[2], repeated[3], repeated[4], repeated[5], repeated[6] = allowed + 0, limit + 0, remaining + 0, retry, reset + 0, index + 0
  return retry and repeated
end

-- holds reports whether a key that holds a string holds a reply.
function once.holds(key) return parse_reply(redis.call('GETRANGE', key, '0', LONGEST)) ~= nil end

-- read returns the reply stored under key, nil if there is none, or the error.
function once.read(key)
  local value = redis.pcall('GETRANGE', key, '0', LONGEST)
  if value == '' then
    return nil
  elseif type(value) == 'table' then
    return errors.failed(key, value, 'is not a string')
  end
  local reply = plain_reply(value) or parse_reply(value)
  if reply then return reply end
  local owner = states.owner(value)
  if owner then
    return states.in_use(key, 'the state of a limit (' .. owner.name .. ')')
  elseif string.find(value, '^blocked:') then
    return states.in_use(key, 'a block')
  elseif overrides.begins(value) then
    return states.in_use(key, 'an override')
  end
  return states.unreadable(key)
end

-- keep stores a reply.
function once.keep(key, reply, ttl)
  local value = string.format('once:%d,%d,%d,%d,%d,%d', unpack(reply, 1, 6))
  if #reply > 8 then value = value .. string.format(',%d,%d,%d', unpack(reply, 7, 9)) end
  local each = reply[#reply]
  if type(each) == 'table' then
    for _, limit in ipairs(each) do
      value = value .. string.format(limit[6] and ';%d,%d,%d,%d,%d,%d' or ';%d,%d,%d,%d,%d', unpack(limit))
    end
  end
  redis.call('PSETEX', key, numbers.argument(ttl), value)
end
end

--@ src/72_overrides.lua
do
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
local PART = '^limit:(%d+):(%d+):(%d+):()'
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

-- write stores an override, followed by its states.
local function write(key, override, at)
  local parts, expiry = override.limit.form.save(override.limit, at)
  parts[1] = overrides.part(override, expiry) .. parts[1]
  states.put_parts(key, parts, math.max(override.ends, expiry))
end

local form = { load = states.load_other, write = write }

-- part reads the override with which a value begins. It returns the limit, its text, the end of the override, the expiry of the
-- state after it, and the position of this state, or nil if the override is broken.
local function part(value)
  local ends, expiry, length, at = string.match(value, PART)
  if not ends or ends + expiry >= numbers.MOST then return nil end
  local text = string.sub(value, at, at + length - 1)
  local limit = #text == length + 0 and overrides.limit(text)
  if not limit or limit.lease then return nil end
  return limit, text, ends + 0, expiry + 0, at + length
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

-- probe reads a value that begins with an override of gcra in effect, for decisions.one. It returns the limit, how many
-- units fit, the debt, the override's end and its text, or nil if the states have to be loaded: that takes longer. left is the
-- key's PTTL, or nil.
function overrides.probe(key, value, left)
  local limit, text, ends, expiry, at = part(value)
  if not limit or #value > SHORT or limit.form ~= gcra_expiry.form then return nil end
  local now = clock.ms()
  if ends <= now or (left or redis.call('PTTL', key)) < 0 then return nil end
  local rate, debt = limit.rate, gcra_expiry.overridden(limit, string.sub(value, at), expiry - now)
  if not debt then return nil end
  local room = rate.full - debt
  return limit, (room - room % rate.interval) / rate.interval, debt, ends, text
end

-- commit takes units from a key that probe has read, as the function commit of a limit does.
function overrides.commit(key, limit, units, debt, ends, text)
  local rate = limit.rate
  local state, ms = gcra_expiry.value_of(rate, debt + units * rate.interval)
  local expiry = clock.ms() + ms
  states.put(key, string.format('limit:%d:%d:%d:%s%s', ends, expiry, #text, text, state), ends > expiry and ends or expiry)
  return ms, limit.delays and gcra_debt.ceil(debt, rate.ticks) or 0
end

-- active returns the override in the result of states.look, if it has not ended.
function overrides.active(found)
  local override = found.override
  return override and override.ends > clock.ms() and override or nil
end
end

--@ src/75_leases.lua
do
-- Leases, for limits such as "concurrency n lease=30s": callers hold at most n leases of a key at
-- the same time. The caller chooses the ID of its lease. A lease ends when it is released. It
-- expires if it is not renewed within its lease time, by the server's clock, so a caller that
-- crashed does not block others for long.
--
-- State: a sorted set with an expiry. A lease is the member "lease:<id>", whose score is the time in ms since the
-- epoch at which it expires. A block is the member "blocked", whose score is the end of the block.
-- The key expires with the last lease, or when the block ends, whichever is later.
--
-- The set also records how long each lease was granted for, in members with negative scores, which
-- are never times. If all leases have the same length, the score of the member "length" is minus
-- that length in ms. Otherwise each lease has a member "given:<id>", whose score is minus the time
-- at which the lease was granted; its length is its expiry minus that time.
--
-- An override (see src/72_overrides.lua) is the member "override:<end, ms>:<n>:<lease, ms>". Its
-- score, numbers.MOST, is above those of all other members, so that reading the last member finds
-- it. The key expires when the last lease, the block and the override have ended.
--
-- A new n takes effect at once, but a lower n ends no existing lease. A new lease time takes effect
-- at the next acquire or renew. Each lease has its own length, the time for which it was
-- last granted, so callers with different lease times may share a key. If a lease has more time
-- left than its own length, the clock was set back. Such a lease is called overlong. An acquire or
-- renew shortens it to its length. Nothing else shortens a lease: if the lease time of an acquire or
-- renew is shorter than the time that its lease has left, the lease is granted for the time left. So
-- it lasts as long as its holder was told, even if the reply to a later renewal is lost.

local MEMBER, BLOCK, LENGTH, GIVEN = 'lease:', 'blocked', 'length', 'given:'
local OVERRIDE = '^override:(%d+):(%d+):(%d+)$'
local LAST = '(9007199254740992' -- above all scores but that of an override
local NO_LEASES = 'does not hold leases'
local EARLIEST = 1000000000000 -- lowest score of a lease: a time in 2001, in ms since the epoch
local MOST = 5000 -- leases
local AT_ONCE = 2000 -- the maximum number of scores and members in one command, and of leases that cut_each shortens
local MOST_RECORDED = '-1000' -- record_given records at most the last 1000 members
local LONGEST_ID = 256 -- bytes
local WORDS = { FLOOR = 'FLOOR', floor = 'FLOOR', CLASS = 'CLASS', class = 'CLASS' } -- what may follow the lease ID of acquire

-- read_override returns the override in a member, or nil.
local function read_override(member)
  local ends, n, lease = string.match(member, OVERRIDE)
  ends = numbers.parse_digits(ends)
  local limit = ends and leases.limit(string.format('concurrency %s lease=%sms', n, lease))
  return limit and { member = member, ends = ends, limit = limit }
end

-- last reads the last members of a set of leases. It returns three values:
--   the end of the last lease or of the block, whichever is later, in ms since the epoch; 0 if there is neither
--   if from is '-2', the score of the member before it
--   the override, or nil
-- If the key holds anything else, last returns nil and the error.
--
-- from is '-1', or '-2' for a call that may remove the last member. After the removal, the key
-- expires with the member before it. last therefore also reads and checks the score of that member.
-- Only the recursive call passes override: the override that it has just read.
function leases.last(key, from, override)
  local last = redis.pcall('ZRANGE', key, from, override and '-2' or '-1', 'WITHSCORES')
  local size = #last
  if last.err then
    return nil, errors.failed(key, last, NO_LEASES)
  elseif size == 0 then
    return 0, nil, override
  end
  local member, lapses, before = last[size - 1], tonumber(last[size]), tonumber(last[2])
  local is_ours = member == BLOCK or string.sub(member, 1, #MEMBER) == MEMBER
  if override and lapses < 0 then
    return 0, nil, override -- no lease is left: members with negative scores are not leases
  elseif not is_ours and lapses == numbers.MOST and not override then
    override = read_override(member)
    if override then return leases.last(key, from == '-1' and '-2' or '-3', override) end
  end
  if not is_ours or lapses < EARLIEST or lapses > numbers.MOST or lapses % 1 ~= 0 or before % 1 ~= 0 then
    return nil, errors.unusable(key, NO_LEASES)
  end
  return lapses, before, override
end

-- check checks the rest of a set whose last member leases.last has accepted: the expiry, and the name of the
-- member with the lowest score. It returns the error, or nil.
function leases.check(key)
  local first = redis.call('ZRANGE', key, '0', '0')[1]
  local is_ours = first == LENGTH or first == BLOCK or string.find(first, '^lease:') or string.find(first, '^given:') or read_override(first)
  if is_ours and redis.call('PTTL', key) >= 0 then return nil end
  return errors.unusable(key, NO_LEASES)
end

-- blocked_until returns the end of the block in ms since the epoch, or 0 if there is none.
function leases.blocked_until(key) return tonumber(redis.call('ZSCORE', key, BLOCK) or 0) end

-- outlived returns the remaining ms of a key's block, if all leases of the key have expired. It
-- returns nil if a lease or an override is in effect, or if the key is not a set of leases with a
-- block.
function leases.outlived(key)
  local now = clock.ms()
  local last, _, override = leases.last(key, '-2')
  local left = last and leases.blocked_until(key) - now or -1
  if left < 0 or override and override.ends >= now then return nil end
  return redis.call('ZCOUNT', key, now, LAST) == 1 and not leases.check(key) and left or nil
end

-- put implements contents.put for a set of leases, and for a string that contains only a block. The
-- key expires when the last of its leases, block and override ends.
function leases.put(key, content, blocked, override)
  if not content.leases then redis.call('DEL', key) end
  local _, _, old = leases.last(key, '-1')
  redis.call('ZREM', key, BLOCK, old and old.member or BLOCK)
  if blocked > 0 then redis.call('ZADD', key, blocked, BLOCK) end
  local last = leases.last(key, '-1') or 0
  if override then
    local limit = override.limit
    redis.call('ZADD', key, numbers.MOST, string.format('override:%d:%d:%d', override.ends, limit.capacity, limit.lease))
    last = math.max(last, override.ends)
  end
  redis.call('PEXPIREAT', key, last)
end

-- set is the data that a call has read from a key:
--   now      ms since the epoch
--   last     when the last lease or the block ends, whichever is later; 0 if there is neither
--   before   the score of the member before that lease or block, for release
--   override the override, which may have ended, or nil
--   string   whether the key is a string with a block and no state
--   blocked  ms for which the key is blocked, 0 if it is not
--   lapses   when the lease with this ID expires, 0 if there is none
--   same     whether the set records one length for all leases, and it is this limit's lease time
--   length   the length of all leases in ms; nil if the set records when each was granted
--   live     the number of leases that have not expired, plus 1 if the key is blocked
--   overlong the number of overlong leases
--   kept     the number of leases that FLOOR keeps free
local set = {}

-- look sets the fields of `set` for a key. It returns an error if the key holds anything but leases or
-- a block. from is passed to leases.last.
local function look(key, from)
  local last, before, override = leases.last(key, from) -- before is the error if last is nil
  set.now, set.last, set.before, set.override, set.string = clock.ms(), last or 0, before, override, false
  set.blocked, set.lapses, set.same, set.length = 0, 0, false, nil
  if last then return nil end
  local found = states.look(key)
  if not found or found.use or found.left >= 0 then return before end
  set.blocked, set.string = found.blocked, true
  return nil
end

-- read calls look and reads everything else that a decision needs. It returns the effective limit,
-- which is the override's limit while an override is in effect, or nil and the error.
local function read(key, limit, id)
  local err, override = look(key, '-1'), set.override
  if err then return nil, err end
  if override and override.ends > set.now then limit = override.limit end
  if set.last == 0 then return limit end
  local scores = redis.call('ZMSCORE', key, MEMBER .. id, BLOCK, LENGTH)
  local length = scores[3]
  set.lapses = tonumber(scores[1] or 0)
  set.blocked = math.max(0, (scores[2] or 0) - set.now)
  if length == limit.length then
    set.same, set.length = true, limit.lease
  elseif length then
    length = -tonumber(length)
    if length < 1 or length > limits.LONGEST or length % 1 ~= 0 then return nil, errors.unusable(key, NO_LEASES) end
    set.length = length
  else
    err = leases.check(key)
    if err then return nil, err end
  end
  if set.blocked % 1 ~= 0 then return nil, errors.unusable(key, NO_LEASES) end
  return limit
end

-- count returns how many leases are held, and how many of them count against the limit. If all are
-- overlong (see the top of this file), at most n - 1 count, less what FLOOR keeps free, so that one more can be granted.
local function count(key, limit)
  local now, length, overlong = set.now, set.length, 0
  set.live, set.overlong = 0, 0
  if set.last <= now then return 0, 0 end
  local all = redis.call('ZCOUNT', key, string.format('(%d', now), LAST)
  if not length then
    overlong = redis.call('ZCOUNT', key, '-inf', string.format('(-%d', now))
  elseif set.last > now + length then
    overlong = redis.call('ZCOUNT', key, string.format('(%d', now + length), LAST) - (set.blocked > length and 1 or 0)
  end
  set.live, set.overlong = all, overlong
  if set.blocked > 0 then all = all - 1 end
  return all, overlong > 0 and overlong == all and math.min(all, math.max(0, limit.capacity - 1 - set.kept)) or all
end

-- last_lease returns when the last lease expires. If there is no lease, the result is before now.
local function last_lease(key)
  local override = set.override
  local two = redis.call('ZRANGE', key, override and '-3' or '-2', override and '-2' or '-1', 'WITHSCORES')
  return tonumber(two[two[#two - 1] == BLOCK and #two - 2 or #two] or 0)
end

-- add adds any number of scores and members to the set, in several commands if needed.
local function add(key, words)
  for from = 1, #words, AT_ONCE do
    redis.call('ZADD', key, unpack(words, from, math.min(from + AT_ONCE - 1, #words)))
  end
end

-- given_of returns the member that records when a lease was granted.
local function given_of(member) return GIVEN .. string.sub(member, #MEMBER + 1) end

-- record_given converts a set with one length for all leases into one that records when each lease
-- was granted. It also removes expired leases. It records only the leases that expire last (see
-- MOST_RECORDED), because recording more would take too long. The other leases do not count as
-- overlong until they are extended.
local function record_given(key)
  local words = {}
  redis.call('ZREMRANGEBYSCORE', key, '-inf', set.now)
  local list = redis.call('ZRANGE', key, MOST_RECORDED, set.override and '-2' or '-1', 'WITHSCORES')
  for i = 1, #list, 2 do
    if list[i] ~= BLOCK then
      words[#words + 1] = string.format('-%d', list[i + 1] - set.length)
      words[#words + 1] = given_of(list[i])
    end
  end
  redis.call('ZADD', key, unpack(words))
end

-- cut_each shortens the overlong leases of a set that records when each was granted. It shortens at
-- most AT_ONCE of them, because shortening more would take too long.
local function cut_each(key)
  local now, members, words = set.now, {}, {}
  local granted = string.format('-%d', now)
  local overlong = redis.call('ZRANGE', key, '-inf', '(' .. granted, 'BYSCORE', 'LIMIT', '0', AT_ONCE, 'WITHSCORES')
  for i = 1, #overlong, 2 do
    members[#members + 1] = MEMBER .. string.sub(overlong[i], #GIVEN + 1)
  end
  for i, lapses in ipairs(redis.call('ZMSCORE', key, unpack(members))) do
    if lapses then
      local length, size = lapses + overlong[2 * i], #words
      words[size + 1], words[size + 2], words[size + 3], words[size + 4] = numbers.argument(now + length), members[i], granted, overlong[2 * i - 1]
    end
  end
  add(key, words)
end

-- drop_each removes expired leases and the members that record when they were granted.
local function drop_each(key)
  local members = redis.call('ZRANGE', key, '0', set.now, 'BYSCORE')
  for i = 1, #members do
    if members[i] ~= BLOCK then members[#members + 1] = given_of(members[i]) end
  end
  for from = 1, #members, AT_ONCE do
    redis.call('ZREM', key, unpack(members, from, math.min(from + AT_ONCE - 1, #members)))
  end
end

-- cut shortens the overlong leases.
local function cut(key)
  if not set.length then return cut_each(key) end
  local words, ms = {}, string.format('%d', set.now + set.length)
  for _, member in ipairs(redis.call('ZRANGE', key, '(' .. ms, LAST, 'BYSCORE')) do
    if member ~= BLOCK then
      words[#words + 1] = ms
      words[#words + 1] = member
    end
  end
  add(key, words)
end

-- reply is the reply to acquire and renew. All calls share one table, as in decisions.answer.
local reply = {}

-- answer returns the reply to acquire and renew. lease is the time in ms for which the lease with
-- this ID is held, or 0.
local function answer(allowed, capacity, remaining, retry, reset, lease)
  reply[1], reply[2], reply[3], reply[4], reply[5], reply[6], reply[7] = allowed, capacity, remaining, retry, reset, 1, lease
  return reply
end

-- extended returns the limit that extends the held lease with this ID: the given one or, if the
-- lease has more time left than limit.lease, one for the time left. The time left of an overlong
-- lease is its length.
local function extended(key, limit, id)
  local left, length = math.floor(set.lapses - set.now), set.length
  if left <= limit.lease then return limit end
  if not length then
    local given = tonumber(redis.call('ZSCORE', key, GIVEN .. id))
    length = given and set.lapses + given or left
  end
  left = math.min(left, length)
  return left > limit.lease and { capacity = limit.capacity, lease = left, length = string.format('-%d', left) } or limit
end

-- keep stores a lease, removes expired ones, and returns the reply. others is the number of other
-- held leases.
local function keep(key, limit, id, others)
  local now, lease, member, override = set.now, limit.lease, MEMBER .. id, set.override
  local reset, lapses, stays = lease, numbers.argument(now + lease), set.blocked
  if override and override.ends <= now then
    redis.call('ZREM', key, override.member)
    set.override = nil
  elseif override then
    stays = math.max(stays, override.ends - now)
  end
  if set.overlong > 0 then cut(key) end
  if others > 0 and set.length ~= lease then
    if set.length then record_given(key) end
    drop_each(key)
    redis.call('ZADD', key, lapses, member, -now, GIVEN .. id)
    reset = math.ceil(last_lease(key)) - now
  else
    if set.last == 0 then
      if set.string then redis.call('DEL', key) end
    elseif not set.same then
      redis.call('ZREMRANGEBYSCORE', key, '-inf', now)
    elseif redis.call('ZCARD', key) > set.live + 1 then
      redis.call('ZREMRANGEBYSCORE', key, '0', now)
    end
    if set.same then
      redis.call('ZADD', key, lapses, member)
    else
      redis.call('ZADD', key, lapses, member, limit.length, LENGTH)
    end
  end
  if stays > lease or reset > lease then lapses = numbers.argument(now + math.max(reset, stays)) end
  redis.call('PEXPIREAT', key, lapses)
  return answer(1, limit.capacity, math.max(0, limit.capacity - others - 1 - set.kept), 0, reset, lease)
end

-- grant takes a lease, or extends the one that this ID holds, even while the key is blocked. So a
-- retry does not take a second lease, and a caller that is denied holds no lease. If renews is true,
-- it only extends a held lease. An expired lease cannot be renewed: retry_after is -1. percent is that of FLOOR.
local function grant(key, limit, id, renews, percent)
  local err
  limit, err = read(key, limit, id)
  set.kept = limit and states.kept(limit.capacity, percent)
  if err then
    return err
  elseif set.lapses > set.now then
    return keep(key, extended(key, limit, id), id, count(key, limit) - 1)
  elseif set.blocked > 0 and not renews then
    return answer(0, limit.capacity, 0, set.kept < limit.capacity and set.blocked or -1, set.blocked, 0)
  end
  local all, counted = count(key, limit)
  local free, retry, last = limit.capacity - counted - set.kept, -1, set.last
  if not renews and set.kept < limit.capacity then
    if free > 0 then return keep(key, limit, id, all) end
    local freeing = redis.call('ZRANGE', key, string.format('(%d', set.now), '+inf', 'BYSCORE', 'LIMIT', 0 - free, '1',
      'WITHSCORES')
    retry = math.ceil(freeing[2] - set.now)
  end
  if set.blocked > 0 and last > 0 then last = last_lease(key) end
  return answer(0, limit.capacity, math.max(0, free), retry, math.max(0, last - set.now), 0)
end

-- release gives a lease back. It returns 1, or 0 if this ID no longer holds one.
local function release(key, _, id)
  local err = look(key, '-2')
  if err or set.last == 0 then return err or 0 end
  local lapses, before, override = tonumber(redis.call('ZSCORE', key, MEMBER .. id) or 0), set.before, set.override
  local stays = override and override.ends > before and override.ends or before
  if lapses <= set.now then
    return 0
  elseif lapses < set.last or stays > set.now then
    redis.call('ZREM', key, MEMBER .. id, GIVEN .. id)
    if lapses >= set.last then redis.call('PEXPIREAT', key, numbers.argument(stays)) end
  else
    err = leases.check(key)
    if err then return err end
    redis.call('DEL', key)
  end
  return 1
end

-- parse parses "concurrency n lease=30s". It returns the limit, or nil and what is wrong.
local function parse(text)
  if string.match(text, '^%s*([%a_]+)') ~= 'concurrency' then
    return nil, 'not a limit for leases; write it as concurrency n lease=30s'
  end
  local n, lease = string.match(text, '^%s*concurrency%s+(%S+)%s+lease=(%S+)%s*$')
  if not n then return nil, 'not of the form concurrency n lease=30s' end
  local limit = { capacity = numbers.parse_positive(n) }
  if not limit.capacity then
    return nil, string.format('the count %s is not ' .. numbers.WHOLE, errors.quote(n), '1')
  elseif limit.capacity > MOST then
    return nil, string.format('%d leases; a limit takes at most %d', limit.capacity, MOST)
  end
  local wrong
  limit.lease, wrong = limits.period(lease)
  if wrong then return nil, wrong end
  limit.length = string.format('-%d', limit.lease) -- the score of the member "length"
  return limit
end

-- limit returns the parsed limit, or nil and the error.
leases.limit = numbers.remembered(function(text) return limits.checked(text, parse) end, {})

algorithms.concurrency = { refusal = 'concurrency is for ratelimit_acquire, ratelimit_renew and ratelimit_release' }

-- floor_of reads what follows the lease ID: FLOOR and a percentage, CLASS and a name, or nothing. policy is that of the call, or
-- nil, and name its name. It returns the percentage, and the class for policies.calls, or nil and the error.
local function floor_of(policy, name, word, text)
  local classes, percent, err = policy and policy.classes, nil, nil
  if not word then
    return type(classes) == 'table' and classes.default or 0
  elseif word == 'FLOOR' then
    percent, err = requests.percent(text)
    return percent, err or ''
  end
  text, err = requests.class(text)
  if err then return nil, err end
  percent, err = policies.class({ classes = classes, name = name }, text)
  return percent, err or text
end

-- call executes a verb. It checks the arguments, which are one key, a limit and a lease ID, and
-- returns the reply or an error.
function leases.call(verb, keys, args)
  clock.now = nil
  if #keys ~= 1 then
    return errors.new('BADKEYS', 'the number of keys is %d; %s takes one', #keys, verb)
  end
  local word = verb == 'acquire' and WORDS[args[3]]
  if #args ~= 2 and not (word and #args <= 4) then
    return errors.new('BADARGS', 'the number of arguments is %d; %s takes a limit and a lease id', #args, verb)
  end
  local err = requests.too_long(keys)
  if err then return err end
  local text, policy, limit, name = args[1]
  if string.sub(text, 1, 1) == '@' then
    name = string.sub(text, 2)
    policy, err = policies.lease(text, keys[1])
    if not policy then return err end
    text = policy[1]
  end
  limit, err = leases.limit(text)
  if not limit then return err end
  local id = args[2]
  if #id == 0 or #id > LONGEST_ID then
    return errors.new('BADARGS', 'the lease id %s is not of 1 to %d bytes', errors.quote(id), LONGEST_ID)
  end
  local percent, class = 0, nil
  if verb == 'acquire' then
    percent, class = floor_of(policy, name, word, args[4])
    if not percent then return class end
  end
  local got = (verb == 'release' and release or grant)(keys[1], limit, id, verb == 'renew', percent)
  if not policy or verb == 'release' or got.err then return got end
  if verb == 'acquire' then
    local calls = policies.calls(policy, class)
    calls[got[1]] = calls[got[1]] + 1
  end
  if not policy.shadow then return got end
  return { 1, got[2], got[3], 0, got[5], got[6], got[1], got[4], got[6], got[7] } -- allowed, even without a lease
end
end

--@ src/80_contents.lua
do
-- This file reads and changes what keys hold, for the verbs that do not decide: reset, block, unblock,
-- override, override_end.

local MOST_KEYS = 250

local WANT = {
  block = ', the ms for which they are denied, and EXTEND or nothing',
  override = ', a limit, and the ms for which it applies',
}

-- of returns a table that describes what a key holds. For a state or a block, it is the result of
-- states.look. For a usage record, it has only blocked and use. For a set of leases, it has only leases,
-- blocked, override and held; held is whether a lease or an override is in effect. If the key holds
-- anything else, of returns nil and the error.
local function of(key)
  local found, err = states.look(key)
  if found and not found.leases then return found end
  local last, _, override = leases.last(key, '-2')
  if last then
    err = leases.check(key)
    if err then return nil, err end
    return { leases = true, held = not found, blocked = math.max(0, leases.blocked_until(key) - clock.ms()), override = override }
  elseif not tracking.check(key) then
    return { blocked = 0, use = 'a usage record' }
  end
  return nil, err
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
      local err = states.too_much('bytes', content.size)
      if err then return err end
    end
  end
  return nil
end

-- duration parses the length of a block or an override. It returns ms, or nil and the error.
function contents.duration(text, what)
  local ms = numbers.parse_positive(text)
  if ms and ms <= limits.LONGEST then return ms end
  return nil, errors.new('BADARGS', '%s: the ms of %s are a whole number from 1 to %d', errors.quote(text), what, limits.LONGEST)
end

-- put replaces the block and the override of a key, and keeps its state. blocked is the end of the
-- block in ms since the epoch, 0 for no block, or nil to keep the old block. override is nil for no
-- override. If the state, the block and the override all end by the current millisecond, put deletes
-- the key, because Valkey would delete it at once.
function contents.put(key, content, blocked, override)
  blocked = blocked or content.leases and leases.blocked_until(key) or content.ends or 0
  local is_set, inner, parts, expiry = content.leases, content.override or content, { '' }, 0
  if override then is_set = override.limit.lease end
  if is_set then return leases.put(key, content, blocked, override) end
  if not content.leases then
    states.copy(parts, key, inner.from, content.size - 1)
    expiry = inner.from == 0 and parts[2] and redis.call('PEXPIRETIME', key) or inner.expiry
  end
  if override then parts[1], expiry = overrides.part(override, expiry), math.max(override.ends, expiry) end
  if blocked > 0 then
    parts[1], expiry = string.format('blocked:%d:%d:', blocked, expiry) .. parts[1], math.max(blocked, expiry)
  end
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
end

--@ src/algorithms/fixed_window.lua
do
-- fixed_window: n per window. A window opens at the first take, or with align=clock at whole
-- multiples of the period since the epoch (UTC). It ends one period later; src/42_calendar.lua
-- describes the periods of the calendar. Times are in whole milliseconds. The function probe opens
-- the windows of most calls, and the function open those of states.
--
-- State. The key expires at the end of the window.
--   one rate:        "400" and the count in 16 digits; the window's end is the expiry
--   several rates:   each "<count>:<end of the window, ms since the epoch>", see src/35_packed.lua
--
-- A new n takes effect at once and also applies to what the open window has already counted. A new
-- period or align takes effect when the window ends. But if the window would stay open for longer
-- than the period, because the period was lowered or the clock was set back, a new window replaces
-- it. The new window keeps the old count, lowered if necessary to leave room for this call.
--
-- "400" shows that the library wrote the value. A bare count would look like any number that another
-- program stores with an expiry. The value is a whole number of 64 bits, 4 * 10^18 + count, so INCRBY adds
-- to the count. It is above 2^53, so Lua must not read it as a number.

local PREFIX = 'fixed_window:'
local MARKED = '^400(%d+)$'
local FORMAT, ONE = '400%016d', '4000000000000000001'
local SIZE = 19 -- bytes

local small = {} -- from the value to the count, for the counts below 1000 that marked_count has parsed; see numbers.parse

-- marked_count parses the value of one rate. It returns nil for any other text.
local function marked_count(value)
  local count = small[value]
  if count then return count end
  local digits = #value == SIZE and string.match(value, MARKED)
  if not digits then return nil end
  count = digits + 0
  if count >= numbers.MOST then
    return numbers.parse(digits)
  elseif count == 0 then
    return nil
  elseif count < 1000 then
    small[value] = count
  end
  return count
end

-- length returns the length in ms of a window that opens now.
local function length(rate) return rate.align and calendar.left(rate, clock.ms()) or rate.period end

local function reset(state) return state.count > 0 and state.left or 0 end

local function set(state, count)
  local free = state.rate.capacity - count
  state.count = count
  state.free = free > 0 and free or 0
  state.reset = reset(state)
end

local function charge(state, units) set(state, state.count + units) end

local function refund(state, units) set(state, math.max(0, state.count - units)) end

local function spare(state) return math.max(0, states.most_owed(state.rate.capacity) - state.count) end

local function wait(state) return state.left end

-- parse parses "<count>:<end>", or returns nil.
local function parse(text)
  local count, ending = string.match(text, '^(%d+):(%d+)$')
  return numbers.parse_digits(count), numbers.parse_digits(ending)
end

-- open sets the fields count and left of a state. left is the time in ms until the window ends. If
-- the window has ended, or would end too late, open begins a new one.
local function open(state, count, ending, now, cost)
  local rate = state.rate
  state.now = (now - now % 1000) / 1000
  state.left = ending - state.now
  if state.left <= 0 then
    count, state.left = 0, length(rate)
  elseif state.left > rate.period then
    count, state.left = math.min(count, states.most_spent(state, cost)), length(rate)
  end
  set(state, count)
end

local function read(state, text, now, cost)
  local count, ending = 0, 0
  if text ~= '' then
    count, ending = parse(text)
    if not count or not ending then return false end
  end
  open(state, count, ending, now, cost)
  return true
end

local function save(state)
  local ending = state.now + state.left
  return string.format('%d:%d', state.count, ending), ending
end

local function convert(value, expiry) return string.format('%d:%d', marked_count(value), expiry) end

------------------------------------------------------------------- one rate: the value is the mark and the count

-- probe, commit and waits decide on a key: see src/45_limits.lua. They go on with the count and the ms that the window
-- stays open.
local function probe(key, limit, _, now)
  local value = redis.pcall('GETRANGE', key, '0', '511')
  if value == '' then return limit.capacity, 0, length(limit.rate) end
  local count = type(value) == 'string' and marked_count(value)
  if not count then return nil, value end
  local left = now and redis.call('PEXPIRETIME', key) - now or redis.call('PTTL', key)
  if left <= 0 or left > limit.rate.period then return nil end
  local free = limit.capacity - count
  return free > 0 and free or 0, count, left
end

local function commit(key, limit, units, count, left, _, now)
  if not key then
    return left, 0
  elseif count > 0 then
    redis.call('INCRBY', key, units == 1 and '1' or numbers.argument(units)) -- the sum is at most 4 * 10^18 + capacity
    return left, 0
  end
  local value = units == 1 and ONE or string.format(FORMAT, units)
  if now or limit.rate.align then
    states.put(key, value, clock.ms() + left) -- an absolute expiry, because on Redis 7.0 time has passed since left was computed
  else
    redis.call('PSETEX', key, numbers.argument(left), value)
  end
  return left, 0
end

local function waits(limit, cost, count, left)
  return count > 0 and left or 0, not cost and 0 or cost > limit.capacity and -1 or left
end

local function load(key, limit, at, cost, head)
  local value = head or redis.pcall('GETRANGE', key, '0', '511')
  if value == '' then return packed.form.load_empty(limit, at) end
  local count = type(value) == 'string' and marked_count(value)
  local expiry = count and redis.call('PEXPIRETIME', key) or -1
  if expiry < 0 then return packed.form.load(key, limit, at, cost, value) end
  open(states.new(at, limit.rate), count, expiry, clock.us(), cost)
  return nil
end

local function write(key, _, at)
  local state = states.list[at]
  if state.count == 0 then return redis.call('DEL', key) end
  states.put(key, string.format(FORMAT, state.count), state.now + state.left)
end

-------------------------------------------------------------------------------------------

algorithms.fixed_window = {
  name = 'fixed_window',
  prefix = PREFIX,
  shape = '^%d+:%d+$',
  options = {
    align = function(text) return text == 'clock' and text or nil, '"clock"' end,
    zone = calendar.zone,
    from = calendar.from,
  },
  complete_rate = calendar.complete,
  probe = probe, commit = commit, waits = waits,
  form = {
    load = load, load_empty = packed.form.load_empty, load_found = packed.form.load_found, write = write, save = packed.form.save,
  },
  holds = marked_count,
  spent = function(key, from)
    return marked_count(redis.call('GETRANGE', key, from, from + 31)) or parse(packed.first_text(key, from, PREFIX)) or 0
  end,
  charge = charge, refund = refund, spare = spare, reset = reset, wait = wait, read = read, save = save,
  convert = convert,
}
end

--@ src/algorithms/gcra.lua
do
-- gcra: continuous refill at n/period, capacity b (default n). This is the virtual scheduling form
-- of the generic cell rate algorithm (ITU-T I.371, ATM Forum TM 4.0). It keeps one theoretical
-- arrival time, TAT, which each unit taken advances by the emission interval T = period/n. A call
-- is allowed if TAT is then at most b*T after now. (golang.org/x/time/rate stores the equivalent
-- number of tokens, b - (TAT - now)/T.) src/36_gcra_debt.lua implements this arithmetic.
--
-- TAT is stored in one of two ways. For each way, one file loads and writes keys:
--   src/37_gcra_expiry.lua   one rate with T of at least 1 ms; the clock is in ms. The key's expiry is
--                            TAT, rounded up. The value is "gcra", or "gcra-<k>" if TAT is k ticks
--                            before the expiry. PTTL gives the debt, without TIME.
--   src/38_gcra_value.lua    any other limit; the clock is in us. The value is "gcra:<us>", or
--                            "gcra:<us>+<k>" if TAT is k ticks later (for several rates see
--                            src/35_packed.lua). The expiry is TAT, rounded up.
-- k counts back from the expiry, which is rounded up so that no key expires before TAT, and on from the us, which
-- are rounded down so that a TAT in whole us needs no k.
-- A debt that FORCE has left above b*T ends with "-debt" in both.
--
-- A limit stored in one way reads states stored in the other. If n, period or burst change, TAT stays
-- the same, so units taken under the old limit stay taken. k counts ticks of the limit that wrote it.
-- If k ticks of the current limit add up to 1 ms (or us) or more, TAT is rounded up.

local FINENESS = 1000000000 -- if T is rounded up, the error is below T / FINENESS

-- common_divisor returns the greatest common divisor of two positive whole numbers (Euclid's
-- algorithm).
local function common_divisor(a, b)
  while b > 0 do
    local rest = a % b
    a = b
    b = rest
  end
  return a
end

-- divide sets a rate's ticks for a clock with units_per_ms units in a ms. It reports whether all
-- debts can be counted in ticks, which requires that no debt exceeds 2^53.
local function divide(rate, units_per_ms)
  local period, count = rate.period * units_per_ms, rate.count
  local divisor = common_divisor(period, count)
  rate.ticks, rate.interval = count / divisor, period / divisor
  rate.full, rate.ticks_per_ms = rate.interval * rate.capacity, rate.ticks * units_per_ms
  return 2 * rate.full <= numbers.MOST
end

-- round sets a rounded-up T for a rate that divide cannot handle. The result is interval / ticks in
-- us: the smallest such fraction that is above T and keeps all debts at or below 2^53. round narrows
-- a lower and an upper bound of T by descending the Stern-Brocot tree, many steps at a time, as in
-- Euclid's algorithm. below and above are the distances of the bounds from T, multiplied by count and
-- by the ticks of the bound. above is never 0: the upper bound would then be T itself, whose interval is
-- larger than most, because divide could not handle it.
local function round(rate)
  local most = math.floor(numbers.MOST / (2 * rate.capacity))
  local low, low_ticks, below = 0, 1, rate.period * 1000
  local high, high_ticks, above = 1, 0, rate.count
  while low + high <= most do
    local steps = math.floor(below / above)
    low, low_ticks, below = low + steps * high, low_ticks + steps * high_ticks, below - steps * above
    local room = low > 0 and math.floor((most - high) / low) or math.huge
    steps = below > 0 and math.min(room, math.floor(above / below)) or 0
    high, high_ticks, above = high + steps * low, high_ticks + steps * low_ticks, above - steps * below
  end
  rate.ticks, rate.interval = high_ticks, high
  rate.full, rate.ticks_per_ms = high * rate.capacity, high_ticks * 1000
  if high_ticks == 0 or above * FINENESS >= rate.period * 1000 * high_ticks then
    return 'n/period is too fast for this burst to be counted exactly; use a smaller n or burst'
  end
  return nil
end

-- complete chooses how the limit's states are stored.
local function complete(limit)
  local rate = limit.rate
  if rate and rate.period >= rate.count and divide(rate, 1) then
    return gcra_expiry.complete(limit)
  end
  for _, each in ipairs(limit.rates) do
    local wrong = not divide(each, 1000) and round(each) or nil
    if wrong then return wrong end
  end
  return gcra_value.complete(limit)
end

algorithms.gcra = {
  name = 'gcra',
  prefix = 'gcra:',
  shape = gcra_value.SHAPE,
  options = { burst = numbers.positive_option },
  complete = complete,
  holds = gcra_expiry.holds,
  charge = gcra_debt.charge, refund = gcra_debt.refund, spare = gcra_debt.spare,
  reset = gcra_debt.reset, wait = gcra_debt.wait,
  read = gcra_value.read, save = gcra_value.save, convert = gcra_value.convert,
}
end

--@ src/algorithms/leaky_bucket.lua
do
-- leaky_bucket: a queue that drains at n/period and holds at most b (default n). A call that finds
-- room is admitted. Its retry_after_ms says how long to wait before it proceeds, so that admitted
-- calls are evenly spaced. The state and arithmetic are those of gcra: TAT is when the last
-- admitted call has left the queue. A call waits until the calls before it have left the queue.
-- This wait is the debt before the call is charged.

local gcra = algorithms.gcra

local function charge(state, units)
  state.delay = gcra.reset(state)
  gcra.charge(state, units)
end

algorithms.leaky_bucket = {
  name = 'leaky_bucket',
  prefix = gcra.prefix,
  options = gcra.options,
  complete = gcra.complete,
  stored_as = gcra,
  delays = true,
  charge = charge, refund = gcra.refund, spend = gcra.charge, spare = gcra.spare, reset = gcra.reset, wait = gcra.wait,
  read = gcra.read, save = gcra.save, convert = gcra.convert,
}
end

--@ src/algorithms/sliding_log.lua
do
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

-- probe, commit and waits decide on a key: see src/45_limits.lua. They go on with the text, the first entry that counts
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
    if live - 1 > entries / 2 or entries >= 2 * rate.capacity then -- see goes_on
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
end

--@ src/algorithms/sliding_window.lua
do
-- sliding_window: n per sliding window, estimated from buckets=k counters per window (default 1).
-- Buckets begin at whole multiples of their width w = period/k since the epoch. The current bucket
-- and the k-1 before it count fully. The next older bucket counts for the part that the window
-- still covers. With k = 1 this is the two-counter estimate. As k grows, the error under steady
-- traffic shrinks, and memory grows: k+1 small numbers. The worst case does not shrink: n units at
-- the end of a bucket, and as many as fit at the end of the k-th bucket after it, add up to almost
-- 2n within one period.
--
-- State: "sliding_window:<w in ms>:<number of the newest bucket>:<its count>,<the one before>,...".
-- The key expires when the last count has left the window. Times are in whole milliseconds.
--
-- A new n takes effect at once. A count from a bucket of another width (another period or k) is
-- added to the bucket in which the old bucket begins. If the state was written in the future (the
-- clock was set back), the sum of its counts becomes the count of the current bucket, lowered if
-- necessary to leave room for this call.
--
-- Sums of counts are capped at 2^53, because counts that other limits stored may add up to more.
--
-- A state's counts are indexed by their distance from the current bucket: counts[0] is the current
-- one, and counts[k] the oldest that counts.

local PREFIX = 'sliding_window:'
local MOST_BUCKETS = 1000
local STATE = '^(%d+):(%d+):(%d[%d,]*)$'
local TWO_COUNTS = '^sliding_window:(%d+):(%d+):(%d+),?(%d*)$'

-- units_left returns how many more units can be taken if the limit's capacity is `capacity`.
local function units_left(state, capacity)
  local rate, counts, sum = state.rate, state.counts, 0
  local last, width = rate.buckets, rate.width
  for i = 0, last - 1 do
    sum = sum + counts[i]
  end
  return math.max(0, capacity - sum - math.ceil(counts[last] * (width - state.into) / width))
end

local function set(state) state.free = units_left(state, state.rate.capacity) end

local function spare(state) return units_left(state, states.most_owed(state.rate.capacity)) end

local function reset(state)
  local counts, last = state.counts, state.rate.buckets
  for i = 0, last do
    if counts[i] > 0 then return (last + 1 - i) * state.rate.width - state.into end
  end
  return 0
end

-- place parses a stored text and adds each count to the bucket for its time. It returns false if the
-- text is not a state, or false and the error if the state is too large.
local function place(state, text, now, cost)
  local rate, counts = state.rate, state.counts
  local width, bucket, list = string.match(text, STATE)
  width, bucket = numbers.parse_digits(width), numbers.parse_digits(bucket)
  if not width or width == 0 or not bucket then return false end
  local err = states.too_much('buckets', 0)
  if err then return false, err end
  local ahead, newest, sum = bucket * width > now, bucket, 0
  for digits in string.gmatch(list, '%d+') do
    local count = numbers.parse_digits(digits)
    if not count then return false end
    local at = state.current - (width == rate.width and bucket or math.floor(bucket * width / rate.width))
    if at <= rate.buckets and not ahead then
      local all = counts[at] + count
      counts[at] = all < numbers.MOST and all or numbers.MOST
    end
    sum = sum + count
    bucket = bucket - 1
  end
  states.too_much('buckets', newest - bucket)
  if ahead then counts[0] = math.min(sum, states.most_spent(state, cost)) end
  return true
end

local function read(state, text, now_us, cost)
  local rate = state.rate
  local now = (now_us - now_us % 1000) / 1000
  state.counts = state.counts or {}
  for i = 0, rate.buckets do
    state.counts[i] = 0
  end
  state.now, state.into = now, now % rate.width
  state.current = (now - state.into) / rate.width
  if text ~= '' then
    local readable, err = place(state, text, now, cost)
    if not readable then return false, err end
  end
  set(state)
  return true
end

local function charge(state, units)
  state.counts[0] = state.counts[0] + units
  state.free = state.free - units
  state.reset = reset(state)
end

-- refund gives back units from the newest counters first.
local function refund(state, units)
  local counts = state.counts
  for i = 0, state.rate.buckets do
    local back = math.min(units, counts[i])
    counts[i] = counts[i] - back
    units = units - back
  end
  set(state)
  state.reset = reset(state)
end

-- wait returns the ms until a denied call fits. It subtracts the counts of the buckets from the
-- room, newest first, and stops at the first bucket that does not fit. The call fits when enough of
-- this bucket has left the window.
local function wait(state, cost)
  local rate, counts = state.rate, state.counts
  local width, room, at = rate.width, rate.capacity - cost, 0
  while at < rate.buckets and counts[at] <= room do
    room = room - counts[at]
    at = at + 1
  end
  return (rate.buckets - at) * width + math.ceil((counts[at] - room) * width / counts[at]) - state.into
end

-- save returns the counts as a text, without empty counts at the end.
local function save(state)
  local counts, last, list = state.counts, state.rate.buckets, {}
  while counts[last] == 0 and last > 0 do
    last = last - 1
  end
  for i = 0, last do
    list[i + 1] = string.format('%d', counts[i])
  end
  return string.format('%d:%d:', state.rate.width, state.current) .. table.concat(list, ','), state.now + state.reset
end

-- probe, commit and waits decide on a key: see src/45_limits.lua. They go on with the counts of the current bucket and
-- of the one before it, and the ms since the current bucket began. If the rate has several buckets, or the key holds
-- another kind of state, the states are loaded.
local function probe(key, limit)
  local rate = limit.rate
  if rate.buckets > 1 then return nil end
  local value, now, width, count, before = redis.pcall('GETRANGE', key, '0', '511'), clock.ms(), rate.width, 0, 0
  local into = now % width
  if value ~= '' then
    local stored, bucket, newest, older = string.match(type(value) == 'string' and value or '', TWO_COUNTS)
    local current = (now - into) / width
    local age = current - (tonumber(bucket) or current + 1)
    newest, older = numbers.parse_digits(newest), older == '' and 0 or numbers.parse_digits(older)
    if tonumber(stored) ~= width or age < 0 or not newest or not older then return nil, value end
    if age == 0 then
      count, before = newest, older
    elseif age == 1 then
      before = newest
    end
  end
  local free = rate.capacity - count - math.ceil(before * (width - into) / width)
  return free > 0 and free or 0, count, before, into
end

local function commit(key, limit, units, count, before, into)
  local width, now = limit.rate.width, clock.ms()
  local full = 2 * width - into
  if key then
    local text = before > 0 and 'sliding_window:%d:%d:%d,%d' or 'sliding_window:%d:%d:%d'
    states.put(key, string.format(text, width, (now - into) / width, count + units, before), now + full)
  end
  return full, 0
end

local denied = { counts = {} } -- the state that waits passes to wait(); reused

local function waits(limit, cost, count, before, into)
  local rate, ms = limit.rate, 0
  local full = 2 * rate.width - into
  if cost and cost <= rate.capacity then
    denied.rate, denied.into, denied.counts[0], denied.counts[1] = rate, into, count, before
    ms = wait(denied, cost)
  end
  return count > 0 and full or before > 0 and full - rate.width or 0, cost and cost > rate.capacity and -1 or ms
end

local function spent(key, from)
  local counts = string.match(packed.first_text(key, from, PREFIX), '^%d+:%d+:([%d,]+)$')
  local sum, size = 0, 0
  for digits in string.gmatch(counts or '', '%d+') do
    sum = sum + digits
    size = size + 1
  end
  return sum, states.too_much('buckets', size)
end

local function complete_rate(rate)
  rate.buckets = rate.buckets or 1
  rate.width = rate.period / rate.buckets
  if rate.buckets > MOST_BUCKETS then
    return string.format('buckets=%d is above %d', rate.buckets, MOST_BUCKETS)
  elseif rate.width % 1 ~= 0 then
    return string.format('buckets=%d does not divide the period into whole milliseconds', rate.buckets)
  end
end

algorithms.sliding_window = {
  name = 'sliding_window',
  prefix = PREFIX,
  shape = STATE,
  options = { buckets = numbers.positive_option },
  most = { field = 'buckets', sum = 5000, what = 'buckets', advice = '' },
  complete_rate = complete_rate,
  probe = probe, commit = commit, waits = waits,
  spent = spent,
  charge = charge, refund = refund, spare = spare, reset = reset, wait = wait, read = read, save = save,
}
end

--@ src/algorithms/token_bucket.lua
do
-- token_bucket: n tokens are added at the end of each period, up to the capacity b (default n). The
-- periods begin at the first take. Once the bucket is full, they begin again at the next take.
--
-- State: "token_bucket:<tokens>:<us>", the tokens left and when tokens were last added. The key
-- expires when the bucket is full. FORCE leaves a debt as tokens below 0.
--
-- If the limit changes, its n, b and period apply from the last addition on. Tokens above a lowered
-- b are lost.
--
-- If the clock was set back, the last addition can be later than now. The tokens that are left can still
-- be taken, and a call that takes some makes now the time of the last addition. If a call would have to
-- wait for longer than a full refill, the bucket has just enough tokens for this call. The same applies
-- to a bucket in debt that would be full later than FORCE can leave it.

local PREFIX = 'token_bucket:'

-- refill_ms returns the time, in ms, after which the given number of tokens has been added.
local function refill_ms(tokens, rate)
  local over = tokens % rate.count
  return ((tokens - over) / rate.count + (over > 0 and 1 or 0)) * rate.period
end

-- refill returns the tokens at the time now (us), and the time of the last addition. tokens and
-- added are their stored values.
local function refill(rate, tokens, added, now)
  if added < now then
    local period = rate.period * 1000
    local over = (now - added) % period
    tokens = tokens + (now - added - over) / period * rate.count
    added = now - over
  end
  if tokens >= rate.capacity then return rate.capacity, now end
  return tokens, added
end

-- is_impossible reports whether a state has to be replaced for a call of this cost. ahead is how much
-- later than now the last addition is, in us.
local function is_impossible(rate, tokens, ahead, cost)
  local most = rate.capacity
  local units = states.needs(most, cost) - tokens
  if tokens < 0 then
    units, most = most - tokens, states.most_owed(most)
    if -tokens > most - rate.capacity then return true end -- units can be above 2^53, and rounded
  end
  return ahead > 0 and units > 0 and ahead > (refill_ms(most, rate) - refill_ms(units, rate)) * 1000
end

local function read(state, text, now, cost)
  local rate, tokens, added = state.rate, state.rate.capacity, now
  if text ~= '' then
    tokens, added = string.match(text, '^(%-?%d+):(%d+)$')
    tokens, added = numbers.parse_digits(tokens), numbers.parse_digits(added)
    if not tokens or not added then return false end
    tokens, added = refill(rate, tokens, added, now)
    if is_impossible(rate, tokens, added - now, cost) then
      tokens, added = rate.capacity - states.most_spent(state, cost), now
    end
  end
  state.now, state.added, state.tokens, state.free = now, added, tokens, math.max(0, tokens)
  return true
end

-- wait returns the time in ms until the bucket has `units` tokens.
local function wait(state, units)
  return clock.ceil_ms(state.added - state.now) + refill_ms(units - state.tokens, state.rate)
end

local function reset(state)
  local capacity = state.rate.capacity
  return state.tokens < capacity and wait(state, capacity) or 0
end

local function charge(state, units)
  local tokens = state.tokens - units
  state.tokens, state.free, state.added = tokens, math.max(0, tokens), math.min(state.added, state.now)
  state.reset = reset(state)
end

local function refund(state, units) charge(state, -math.min(units, state.rate.capacity - state.tokens)) end

local function spare(state)
  local capacity = state.rate.capacity
  return states.most_owed(capacity) - capacity + state.tokens
end

local function save(state)
  local rate, tokens, added = state.rate, state.tokens, state.added
  return string.format('%d:%d', tokens, added), clock.ceil_ms(added) + refill_ms(rate.capacity - tokens, rate)
end

-- spent returns 0 if the first rate is full. Otherwise it returns nil, nil, and the number of tokens that
-- the last write left. The number of spent tokens is unknown, because the capacity is not stored.
local function spent(key, from)
  local text = packed.first_text(key, from, PREFIX)
  if text == '' then return 0 end
  return nil, nil, numbers.parse_digits(string.match(text, '^(%d+):'))
end

-- probe, commit and waits decide on a key: see src/45_limits.lua. They go on with the tokens and the time of the last
-- addition. If the key holds debt or the state of another algorithm, or if the clock was set back, its states are
-- loaded.
local function probe(key, limit)
  local value, rate = redis.pcall('GETRANGE', key, '0', '511'), limit.rate
  local now = clock.us()
  if value == '' then return rate.capacity, rate.capacity, now end
  local tokens, added = string.match(type(value) == 'string' and value or '', '^token_bucket:0*(%d+):0*(%d+)$')
  if not tokens or tokens + added >= numbers.MOST then return nil, value end
  tokens, added = refill(rate, tokens + 0, added + 0, now)
  if added > now then return nil, value end
  return tokens, tokens, added
end

local function commit(key, limit, units, tokens, added)
  local rate = limit.rate
  tokens = tokens - units
  local refill_time = refill_ms(rate.capacity - tokens, rate)
  if key then states.put(key, string.format('token_bucket:%d:%d', tokens, added), clock.ceil_ms(added) + refill_time) end
  return clock.ceil_ms(added - clock.us()) + refill_time, 0
end

local function waits(limit, cost, tokens, added)
  local rate = limit.rate
  local capacity, gone, retry = rate.capacity, clock.ceil_ms(added - clock.us()), 0
  if cost then retry = cost > capacity and -1 or gone + refill_ms(cost - tokens, rate) end
  return tokens < capacity and gone + refill_ms(capacity - tokens, rate) or 0, retry
end

algorithms.token_bucket = {
  name = 'token_bucket',
  prefix = PREFIX,
  shape = '^%-?%d+:%d+$',
  options = { burst = numbers.positive_option },
  probe = probe, commit = commit, waits = waits,
  spent = spent,
  charge = charge, refund = refund, spare = spare, reset = reset, wait = wait, read = read, save = save,
}
end

--@ src/verbs/acquire.lua
do
-- ratelimit_acquire takes one of n leases, or renews the lease that this ID already holds, so that
-- a retry does not take a second lease.
--   KEYS   one
--   ARGV   concurrency n lease=<period> or @policy, lease id (1 to 256 bytes)
--   Output { allowed, n, remaining, retry_after_ms, reset_after_ms, 1, lease_ms }
--   Errors BADARGS BADLIMIT BADKEYS BADSTATE NOPOLICY

redis.register_function{
  function_name = 'ratelimit_acquire', description = 'Takes a lease, or prolongs the one that this id holds.',
  callback = function(keys, args) return leases.call('acquire', keys, args) end,
}
end

--@ src/verbs/block.lua
do
-- ratelimit_block denies the keys for a time, regardless of their limits. Units that were taken before
-- still count, and continue to refill. A second block replaces the first, unless EXTEND is given and
-- the first ends later.
--   KEYS   one or more
--   ARGV   ms [EXTEND]
--   Output the number of keys; all of them are blocked now
--   Errors BADARGS BADKEYS BADSTATE (a key holds a reply (ONCE) or a usage record, or was not written by a limiter; no key is then blocked)

local OPTIONS = { EXTEND = true, extend = true }

redis.register_function{
  function_name = 'ratelimit_block', description = 'Denies the keys for some milliseconds, regardless of their limits.',
  flags = { 'allow-oom' }, callback = function(keys, args)
    local extend = OPTIONS[args[2]]
    local list, err = contents.of_all('block', keys, args, extend and 2 or 1)
    if not list then return err end
    local ms
    ms, err = contents.duration(args[1], 'a block')
    if err then return err end
    for i, key in ipairs(keys) do
      if list[i].use then return states.in_use(key, list[i].use) end
    end
    return contents.change(keys, list, nil, function(key, content)
      if not extend or content.blocked < ms then contents.put(key, content, clock.ms() + ms, content.override) end
    end)
  end,
}
end

--@ src/verbs/info.lua
do
-- ratelimit_info describes the deployed library.
--   KEYS none, ARGV none or a limit
--   Output { "version", text, "contract", integer, "build_id", text, "policies", { name, ... } }, and more fields.
--            Without a limit:
--              "shadow_denied", { name, count, ... }
--              "policy_calls", { { name, allowed, denied }, ... }; if the policy has a canary, its entry continues with
--              the canary's share in thousandths and the canary's allowed and denied
--              "class_calls", { { name, class, allowed, denied }, ... }
--              "borrow_calls", { { name, guaranteed, borrowed, denied }, ... }
--            With a limit:
--              "limit", { for each key: { 1 if a shadow policy, else 0; for each rate: n, period in ms, capacity }, ... }
--              "algorithms", { the name of the algorithm for each key, ... }
--            With a policy that has a canary also:
--              "canary_limit", "canary_algorithms"
--            With a policy that has classes also:
--              "classes", { name, percentage, ... }
--   Errors BADARGS BADKEYS BADLIMIT NOPOLICY

-- add adds the fields limit and algorithms to the reply, with prefix in front of their names. Each
-- has one entry for each key.
local function add(reply, prefix, limit)
  local list, names = {}, {}
  for i, part in ipairs(limit.limits or { limit }) do
    local entry = { limit.shadow and 1 or 0 }
    for _, rate in ipairs(part.rates) do
      entry[#entry + 1], entry[#entry + 2], entry[#entry + 3] = rate.count, rate.period, rate.capacity
    end
    list[i], names[i] = entry, part.algorithm.name
  end
  local size = #reply
  reply[size + 1], reply[size + 2], reply[size + 3], reply[size + 4] = prefix .. 'limit', list, prefix .. 'algorithms', names
end

redis.register_function{
  function_name = 'ratelimit_info', description = 'Returns the version, the contract, the build id and the policies of this library.',
  flags = { 'no-writes', 'allow-stale' }, callback = function(keys, args)
    if #keys > 0 then
      return errors.new('BADKEYS', '%s: info takes no key', errors.quote(keys[1]))
    elseif #args > 1 then
      return errors.new('BADARGS', '%s: info takes one limit, or none', errors.quote(args[2]))
    end
    local names = policies.names()
    local reply = { 'version', VERSION, 'contract', CONTRACT, 'build_id', BUILD_ID, 'policies', names }
    if not args[1] then
      local calls, shadows, classes, borrows = policies.counts(names)
      reply[9], reply[10], reply[11], reply[12], reply[13], reply[14] = 'shadow_denied', shadows, 'policy_calls', calls, 'class_calls', classes
      reply[15], reply[16] = 'borrow_calls', borrows
    else
      local limit, err = limits.read(args[1]) -- and not limits.of: info remembers nothing
      if not limit then return err end
      add(reply, '', limit)
      if limit.canary then add(reply, 'canary_', limit.canary) end
      local classes, list = (limit.limits or { limit })[1].classes, {}
      for _, name in ipairs(type(classes) == 'table' and sorted_keys(classes) or {}) do
        list[#list + 1], list[#list + 2] = name, classes[name]
      end
      if list[1] then reply[#reply + 1], reply[#reply + 2] = 'classes', list end
    end
    return reply
  end,
}
end

--@ src/verbs/override.lua
do
-- ratelimit_override sets another limit for the keys for a time. It applies regardless of the limits in
-- the calls. Units that were taken before still count. A second override replaces the first.
--   KEYS   one or more
--   ARGV   limit, ms
--   Output the number of keys; all of them are overridden now
--   Errors BADARGS BADLIMIT BADKEYS BADSTATE (a key has another use; no key is then changed)

redis.register_function{
  function_name = 'ratelimit_override', description = 'Puts another limit on the keys for some milliseconds.',
  flags = { 'allow-oom' }, callback = function(keys, args)
    local list, err = contents.of_all('override', keys, args, 2)
    if err then return err end
    local limit, ms
    limit, err = overrides.limit(args[1])
    if err then return err end
    ms, err = contents.duration(args[2], 'an override')
    if err then return err end
    for i, key in ipairs(keys) do
      local content = list[i]
      local held = content.use or content.held and not limit.lease and 'leases or an override for them'
        or limit.lease and not content.leases and content.left >= 0 and 'the state of a limit or an override for one'
      if held then return states.in_use(key, held) end
    end
    local override = { ends = clock.ms() + ms, limit = limit, text = args[1] }
    return contents.change(keys, list, nil, function(key, content)
      contents.put(key, content, nil, override)
    end)
  end,
}
end

--@ src/verbs/override_end.lua
do
-- ratelimit_override_end removes the overrides of the keys. States, leases and blocks stay.
--   KEYS   one or more
--   ARGV   none
--   Output the number of keys that had an override
--   Errors BADARGS BADKEYS BADSTATE (one of the keys was not written by a limiter; no key is then changed)

redis.register_function{
  function_name = 'ratelimit_override_end', description = 'Removes the overrides of the keys; returns how many had one.',
  flags = { 'allow-oom' }, callback = function(keys, args) return contents.remove('override_end', keys, args, overrides.active, contents.put) end,
}
end

--@ src/verbs/peek.lua
do
-- ratelimit_peek returns what ratelimit_take would, and writes nothing. It also runs with FCALL_RO
-- and on replicas.
--   KEYS   one for each limit
--   ARGV   limit [limit ...] [COST c | COST c1 ... cn] [UPTO] [FLOOR percent | CLASS name] [BORROW [percent]] [EACH]
--   Output { allowed, limit, remaining, retry_after_ms, reset_after_ms, index }, three more with a shadow policy, and a list with EACH
--   Errors BADARGS BADLIMIT BADCOST BADKEYS BADSTATE NOPOLICY

local OPTIONS = { COST = true, UPTO = true, FLOOR = true, CLASS = true, BORROW = true, EACH = true }

redis.register_function{
  function_name = 'ratelimit_peek', description = 'Returns what ratelimit_take would, and changes nothing.',
  flags = { 'no-writes' }, callback = function(keys, args)
    local request, err = requests.plain(keys, args), nil
    if not request then request, err = requests.read(keys, args, OPTIONS) end
    return err or ((request.BORROW and borrowing or decisions).decide(keys, request, 'charge', true))
  end,
}
end

--@ src/verbs/refund.lua
do
-- ratelimit_refund gives units back to all keys. If one of them is blocked, it gives back nothing
-- and allowed is 0. A key never gets more units than it needs to be full.
--   KEYS   one for each limit, then one for ONCE
--   ARGV   limit [limit ...] [COST c | COST c1 ... cn] [BORROW [percent]] [PAID 1 | PAID 2] [ONCE ttl_ms] [EACH]
--   Output { allowed, limit, remaining, retry_after_ms, reset_after_ms, index }, three more with a shadow policy, and a list with EACH
--   Errors BADARGS BADLIMIT BADCOST BADKEYS BADSTATE NOPOLICY

local OPTIONS = { COST = true, BORROW = true, PAID = true, ONCE = true, EACH = true }

redis.register_function{
  function_name = 'ratelimit_refund', description = 'Gives cost back to the keys, never beyond full.',
  callback = function(keys, args)
    local plain = requests.plain(keys, args)
    if plain then return (decisions.decide(keys, plain, 'refund')) end
    local request, err = requests.read(keys, args, OPTIONS)
    if err then return err end
    local request_key = request.ONCE
    local before = request_key and once.read(request_key)
    if before then return before end
    local reply, gives_back = (request.BORROW and borrowing or decisions).decide(keys, request, 'refund')
    if request_key and gives_back then once.keep(request_key, reply, request.ttl) end
    return reply
  end,
}
end

--@ src/verbs/release.lua
do
-- ratelimit_release releases a lease. It cannot release another caller's lease. Releasing a lease twice
-- does nothing.
--   KEYS   one
--   ARGV   concurrency n lease=<period> or @policy, lease id (1 to 256 bytes)
--   Output 1, or 0 if this ID holds no lease
--   Errors BADARGS BADLIMIT BADKEYS BADSTATE NOPOLICY

redis.register_function{
  function_name = 'ratelimit_release', description = 'Gives a lease back: 1, or 0 if this id holds none.',
  flags = { 'allow-oom' }, callback = function(keys, args) return leases.call('release', keys, args) end,
}
end

--@ src/verbs/renew.lua
do
-- ratelimit_renew extends a held lease. An expired lease cannot be renewed: allowed is 0 and
-- retry_after_ms is -1.
--   KEYS   one
--   ARGV   concurrency n lease=<period> or @policy, lease id (1 to 256 bytes)
--   Output { allowed, n, remaining, retry_after_ms, reset_after_ms, 1, lease_ms }
--   Errors BADARGS BADLIMIT BADKEYS BADSTATE NOPOLICY

redis.register_function{
  function_name = 'ratelimit_renew', description = 'Prolongs a lease that is held.',
  flags = { 'allow-oom' }, callback = function(keys, args) return leases.call('renew', keys, args) end,
}
end

--@ src/verbs/reset.lua
do
-- ratelimit_reset deletes the keys and everything in them: states, blocks, overrides, leases,
-- replies (ONCE) and usage records.
--   KEYS   one or more
--   ARGV   none
--   Output the number of keys that held something; an empty string counts as no key
--   Errors BADARGS BADKEYS BADSTATE (one of the keys was not written by a limiter; no key is then deleted)

redis.register_function{
  function_name = 'ratelimit_reset', description = 'Forgets the keys; returns how many held something.',
  flags = { 'allow-oom' }, callback = function(keys, args)
    local list, err = contents.of_all('reset', keys, args, 0)
    if not list then return err end
    local changed = 0
    for i, key in ipairs(keys) do
      if not list[i].empty then changed = changed + redis.call('UNLINK', key) end
    end
    return changed
  end,
}
end

--@ src/verbs/take.lua
do
-- ratelimit_take decides whether a call is allowed, and charges its cost if every limit allows it.
--   KEYS   one for each limit, then one for ONCE and one for TRACK, in the order of these options
--   ARGV   limit [limit ...] [COST c | COST c1 ... cn] [UPTO | FORCE] [FLOOR percent | CLASS name] [BORROW [percent]] [ONCE ttl_ms] [TRACK] [EACH]
--   Output { allowed, limit, remaining, retry_after_ms, reset_after_ms, index }, three more with a shadow policy, and a list with EACH
--   Errors BADARGS BADLIMIT BADCOST BADKEYS BADSTATE NOPOLICY

local one, above, LONGEST_KEY = decisions.one, decisions.above, requests.LONGEST_KEY
local OPTIONS = { COST = true, UPTO = true, FORCE = true, FLOOR = true, CLASS = true, BORROW = true, ONCE = true, TRACK = true, EACH = true }

-- decide_with_options handles a request with any options.
local function decide_with_options(keys, request)
  local request_key, usage_key, limit, cost = request.ONCE, request.TRACK, request.limits[1], request.costs[1]
  local before = request_key and once.read(request_key)
  if before then return before end
  local err = usage_key and tracking.read(usage_key)
  if err then return err end
  local reply, charged, passes
  if request.BORROW then
    reply, charged, passes = borrowing.decide(keys, request, 'charge')
  elseif request.count == 1 and not (request.UPTO == 0 or request.EACH or request.groups) then
    local option, calls = request.UPTO and 'UPTO' or request.FORCE and 'FORCE', request.calls_of and request.calls_of[1]
    if request.floors or calls then
      reply = above(keys[1], limit, request.UPTO or cost, option, request.floors and request.floors[1] or 0, calls or limit.calls)
    else
      reply = one(keys[1], limit, request.UPTO or cost, option)
    end
    passes = reply[1] and reply[1] > 0
    charged = passes and cost > 0
  else
    reply, charged, passes = decisions.decide(keys, request, request.FORCE and 'force' or 'charge')
  end
  if reply.err then return reply end
  if charged and request_key then once.keep(request_key, reply, request.ttl) end
  if usage_key then tracking.note(usage_key, passes, request.UPTO and reply[1] or cost) end
  return reply
end

local single = { limits = {}, costs = {}, count = 1 } -- the request of direct; reused by the next call

-- floor_of returns the percentage of FLOOR or CLASS, and the counts of the call, or nil.
local function floor_of(limit, option, text)
  local floor, classes = nil, limit.classes
  if option == 'FLOOR' then
    floor, text = requests.percent(text), ''
  elseif option == 'CLASS' then
    floor = type(classes) == 'table' and classes[text]
  end
  return floor, limit.calls and floor and policies.calls(limit.side, text)
end

-- direct decides a call with one known limit, and at most COST and one other option. It returns the reply or the error, or nil
-- for any other call.
local function direct(keys, args, limit)
  local number, at, cost = #keys, 2, 1
  if number > 2 or number == 0 or #keys[1] > LONGEST_KEY then return nil end
  if limit.canary then limit = policies.side(limit, keys[1]).alone or limit end
  if args[2] == 'COST' then cost, at = numbers.parse(args[3] or ''), 4 end
  local option, more = args[at], #args - at
  if not limit.probe or not cost then
    return nil
  elseif number == 1 then
    local floor, calls = limit.floor, limit.calls
    if more == 1 then
      floor, calls = floor_of(limit, option, args[at + 1])
      if not floor then return nil end
      option = nil
    elseif option and (more > 0 or option ~= 'FORCE' and (option ~= 'UPTO' or cost == 0)) then
      return nil
    end
    if option == 'FORCE' or not floor then return one(keys[1], limit, cost, option) end
    return above(keys[1], limit, cost, option, floor, calls)
  elseif limit.floor then
    return nil
  end
  local ttl = more == 1 and option == 'ONCE' and numbers.parse_positive(args[at + 1])
  if not ttl and (more ~= 0 or option ~= 'TRACK') or ttl and ttl > limits.LONGEST or keys[1] == keys[2] or #keys[2] > LONGEST_KEY then return nil end
  single.limits[1], single.costs[1], single.ttl, single.ONCE, single.TRACK = limit, cost, ttl, ttl and keys[2], not ttl and keys[2]
  return decide_with_options(keys, single)
end

redis.register_function{
  function_name = 'ratelimit_take', description = 'Decides whether a call may pass, and charges it if so: all limits or none.',
  callback = function(keys, args)
    clock.now = nil
    local limit = limits.known[args[1]]
    if limit then
      if #args == 1 and #keys == 1 and limit.plain and #keys[1] <= LONGEST_KEY then return one(keys[1], limit, 1) end
      local reply = direct(keys, args, limit)
      if reply then return reply end
    end
    local plain = requests.plain(keys, args)
    if plain then return (decisions.decide(keys, plain, 'charge')) end
    local request, err = requests.read(keys, args, OPTIONS)
    return err or decide_with_options(keys, request)
  end,
}
end

--@ src/verbs/unblock.lua
do
-- ratelimit_unblock lifts the blocks of the keys. Units that were taken before still count.
--   KEYS   one or more
--   ARGV   none
--   Output the number of keys that were blocked
--   Errors BADARGS BADKEYS BADSTATE (one of the keys was not written by a limiter; no key is then changed)

local function is_blocked(content) return content.blocked > 0 end

local function unblock(key, content) contents.put(key, content, 0, content.override) end

redis.register_function{
  function_name = 'ratelimit_unblock', description = 'Lifts the blocks of the keys; returns how many were blocked.',
  flags = { 'allow-oom' }, callback = function(keys, args) return contents.remove('unblock', keys, args, is_blocked, unblock) end,
}
end

--@ src/verbs/usage.lua
do
-- ratelimit_usage returns what TRACK has counted in a usage key.
--   KEYS   one
--   ARGV   none
--   Output { "allowed", n, "denied", n, "cost", n, "first_ms", t, "last_ms", t, "interval_ms", 60000,
--            "series", { { start_ms, allowed, denied }, ... } }, times in ms since the epoch, all 0 if nothing was counted
--   Errors BADARGS BADKEYS BADSTATE

redis.register_function{
  function_name = 'ratelimit_usage', description = 'Returns what TRACK has counted under a usage key.',
  flags = { 'no-writes' }, callback = function(keys, args)
    if #keys ~= 1 then
      return errors.new('BADKEYS', 'the number of keys is %d; usage takes one', #keys)
    elseif #args > 0 then
      return errors.new('BADARGS', '%s: usage takes the key only', errors.quote(args[1]))
    end
    return requests.too_long(keys) or tracking.check(keys[1]) or tracking.usage(keys[1])
  end,
}
end
