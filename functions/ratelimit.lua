#!lua name=ratelimit
-- Built from functions/src; do not edit. `make generate` builds it anew.

--@ src/00_library.lua
-- This library limits rates on the server. Each call makes one atomic decision.
--
-- This file opens the library. The build (functions/build.go) joins the sources in this order:
-- src/*.lua by name, src/algorithms/*.lua, src/verbs/*.lua. Each file except this one has its own
-- scope. A file in src exports to the others through the table named after it: src/40_limits.lua
-- fills `limits`.
--
-- While Redis loads a library, only redis.register_function, redis.log and the version constants
-- exist: no string, no math, no redis.call. Top-level code may therefore only build tables and
-- functions. functions/CONTRACT.md describes the arguments and replies.

local VERSION = '0.1.0'
local CONTRACT = 1
local BUILD_ID = 'fdbbab20198e'

-- From Redis 7.2 on, the time does not change during a call. In earlier versions, two commands of
-- one call can see different milliseconds, so a time must not be written back as a difference to
-- "now". Valkey reports 7.2.4 here and behaves like it.
local CLOCK_STANDS = (redis.REDIS_VERSION_NUM or 0) >= 0x00070200

-- Algorithms by name, filled by src/algorithms/*.lua. src/40_limits.lua documents their fields.
local algorithms = {}

--@ src/10_errors.lua
local errors = {}
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

-- unusable returns the error for a key that holds something other than expected. what describes its
-- type or length, never its bytes.
function errors.unusable(key, what)
  return errors.new('BADSTATE', 'key %s %s; give the limiter a key of its own, or delete this one', errors.quote(key), what)
end

-- failed returns the error for a command that failed on a key. expected describes a key of the
-- wrong type.
function errors.failed(key, failure, expected)
  if string.sub(failure.err, 1, 9) == 'WRONGTYPE' then return errors.unusable(key, expected) end
  return failure
end
end

--@ src/15_clock.lua
local clock = {}
do
-- The server's time, read once per call so that all limits of a call use the same moment, even on
-- Redis 7.0, where the time advances during a call. Every function first clears clock.now:
-- clock.register does it for most of them, and ratelimit_take does it itself to save a function
-- call.

-- register registers a function like redis.register_function, and makes it clear clock.now first.
function clock.register(definition)
  local callback = definition.callback
  definition.callback = function(keys, args)
    clock.now = nil
    return callback(keys, args)
  end
  redis.register_function(definition)
end

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
  return (over > 0 and us + 1000 - over or us) / 1000
end
end

--@ src/20_numbers.lua
local numbers = {}
do
-- Numbers as callers write them. A Lua number is a double, so whole numbers are exact only up to
-- 2^53. tonumber also accepts "inf", "nan", "0x10" and "1e3", which must never reach a decision.

local LARGEST = '9007199254740992' -- 2^53

numbers.MOST = 9007199254740992

numbers.WHOLE = 'a whole number from %s to ' .. LARGEST

-- whole parses decimal digits. It returns nil for anything else, and for numbers above 2^53,
-- because 2^53 + 1 would round down to 2^53.
function numbers.whole(text)
  if not string.find(text, '^%d+$') then
    return nil
  elseif #text >= #LARGEST then
    text = string.match(text, '^0*(%d+)$')
    if #text > #LARGEST or (#text == #LARGEST and text > LARGEST) then return nil end
  end
  return tonumber(text)
end

-- digits is whole for a text that is known to be decimal digits or empty. It returns nil for an
-- empty text.
function numbers.digits(text)
  local n = tonumber(text)
  if not n or n < numbers.MOST then return n end
  return numbers.whole(text)
end

-- arg returns a whole number as a command's argument. Redis 7.0 needs 0.3 to 0.7 us to format a
-- number, which is more than string.format needs. Later versions are fast.
function numbers.arg(n)
  if CLOCK_STANDS then return n end
  return string.format('%d', n)
end

-- positive parses a whole number of at least 1, or returns nil.
function numbers.positive(text)
  local n = numbers.whole(text)
  return n ~= 0 and n or nil
end

-- positive_option parses the value of a limit's option. It returns the number, or nil and a
-- description of what was expected.
function numbers.positive_option(text)
  return numbers.positive(text), string.format(numbers.WHOLE, '1')
end

local MOST_KNOWN = 5000 -- texts of a generation

-- remembered returns a function that memoizes read. read returns nil and optionally an error for a
-- text that it cannot parse; failures are not memoized. A table lookup costs a tenth of a pattern
-- match. memory.known holds the texts of the current generation. If it is full, it becomes the
-- previous one, from which texts that are used again return; the rest is forgotten. So up to 10,000
-- texts are kept, and the last 5,000 always.
function numbers.remembered(read, memory)
  local size, previous = 0, {}
  memory.known = {}
  return function(text)
    local value, err = memory.known[text], nil
    if value then return value end
    value = previous[text]
    if not value then
      value, err = read(text)
    end
    if value then
      if size == MOST_KNOWN then
        previous = memory.known
        memory.known = {}
        size = 0
      end
      size = size + 1
      memory.known[text] = value
    end
    return value, err
  end
end

-- common_divisor returns the greatest common divisor of two positive whole numbers (Euclid's
-- algorithm).
function numbers.common_divisor(a, b)
  while b > 0 do
    local rest = a % b
    a = b
    b = rest
  end
  return a
end
end

--@ src/28_lease_sets.lua
local lease_sets = {}
do
-- A sorted set holds the leases of a key. A lease is the member "lease:<id>", whose score is the
-- time in ms since the epoch at which it lapses. A block is the member "blocked", whose score is
-- the end of the block. The key expires when the last of them lapses.
--
-- The set also records how long each lease was granted for, in members with negative scores, which
-- are never times. If all leases have the same length, it is the member "length", with minus the
-- ms. Otherwise each lease has a member "given:<id>", with minus the time at which it was granted.

lease_sets.MEMBER = 'lease:'
lease_sets.BLOCK = 'blocked'
lease_sets.LENGTH = 'length'
lease_sets.GIVEN = 'given:'

local NO_LEASES = 'does not hold leases'
local EARLIEST = 1000000000000 -- ms since the epoch, 2001: no lease has an earlier score

-- last returns when the last member of a key lapses, in ms since the epoch, or 0 if the key is
-- empty. If the key holds anything else, it returns nil and the error. from is '-1', or '-2' for a
-- call that may remove the last member. With '-2', the score of the member before it is also
-- checked and returned, because the key then expires with that member.
function lease_sets.last(key, from)
  local last = redis.pcall('ZRANGE', key, from, '-1', 'WITHSCORES')
  local size = #last
  if last.err then
    return nil, errors.failed(key, last, NO_LEASES)
  elseif size == 0 then
    return 0
  end
  local member, lapses, before = last[size - 1], tonumber(last[size]), tonumber(last[2])
  local is_ours = member == lease_sets.BLOCK or string.sub(member, 1, #lease_sets.MEMBER) == lease_sets.MEMBER
  if not is_ours or lapses < EARLIEST or lapses > numbers.MOST or lapses % 1 ~= 0 or before % 1 ~= 0 then
    return nil, lease_sets.unusable(key)
  end
  return lapses, before
end

-- unusable returns the error for a key whose scores no limiter wrote.
function lease_sets.unusable(key)
  return errors.unusable(key, NO_LEASES)
end

-- settle sets the key's expiry to the time at which its last member lapses.
function lease_sets.settle(key)
  local last = redis.call('ZRANGE', key, '-1', '-1', 'WITHSCORES')
  if last[2] then
    redis.call('PEXPIREAT', key, last[2])
  end
end

-- blocked_until returns the end of the block in ms since the epoch, or 0 if there is none.
function lease_sets.blocked_until(key)
  return tonumber(redis.call('ZSCORE', key, lease_sets.BLOCK) or 0)
end

-- outlived returns how many ms remain of the block of a key whose leases have all lapsed. It
-- returns nil if a lease remains or the key is not a set of leases.
function lease_sets.outlived(key)
  local now = clock.ms()
  local left = lease_sets.last(key, '-2') and lease_sets.blocked_until(key) - now or -1
  return left >= 0 and redis.call('ZCOUNT', key, now, '+inf') == 1 and left or nil
end

function lease_sets.block(key, ends)
  redis.call('ZADD', key, ends, lease_sets.BLOCK)
  lease_sets.settle(key)
end

function lease_sets.unblock(key)
  redis.call('ZREM', key, lease_sets.BLOCK)
  lease_sets.settle(key)
end
end

--@ src/30_states.lua
local states = {}
do
-- States: the content of a key, and the part of it that a call has read.
--
-- A key holds a string with an expiry. (The leases of concurrency are a sorted set; a usage record
-- is a hash.) The form of the string shows what wrote it, so a key of another kind is rejected
-- before anything is written. functions/STATE.md lists the forms.
--
-- A call fills one table in states.list for each rate of each key. The next call reuses the tables.
-- All algorithms set
--   rate     the rate of the limit
--   free     how many units fit now, updated by a charge or a refund; -1 if the key is blocked
--   foreign  ms until the key's block or another algorithm's state in the key ends; 0 if there is neither
-- src/60_decisions.lua sets
--   index    the position of the key in the call, from 1
--   cost     the cost of the call for this key
--   group    the limits that decide together: the enforced ones, or those of one shadow policy
--   reset    ms until the rate is full again
-- Algorithms add their own fields.

local list = {}
states.list = list

-- new returns the state at a position in the list, for its algorithm to fill in.
function states.new(at, rate)
  local state = list[at]
  if not state then
    state = {}
    list[at] = state
  end
  state.rate, state.foreign = rate, 0
  return state
end

-- leaves_room returns the most units that can count as spent and still leave room for this call. It
-- replaces a stored state that is impossible under this limit.
function states.leaves_room(capacity, cost)
  return capacity - (cost > 1 and cost <= capacity and cost or 1)
end

------------------------------------------------------------------- what one call may read

-- A state that a larger limit left takes as long to read as under that limit, so a call may only
-- read a certain number of them. The most that one key can hold under any limit is below these
-- bounds: 200,000 calls in logs, which are 2.4 MB, and 5,016 buckets.
local MOST_BYTES, MOST_BUCKETS = 2500000, 20000
local MOST_KEPT, SMALL = 64, 10000 -- states, and bytes of them, that are kept for the next call
local bytes, buckets = 0, 0 -- read by this call

-- begin begins a decision.
function states.begin()
  bytes, buckets = 0, 0
end

-- finish frees the states of a decision that was large. It returns its arguments.
function states.finish(...)
  if bytes > SMALL or buckets > SMALL or list[MOST_KEPT + 1] then
    for at = #list, 1, -1 do
      list[at] = nil
    end
  end
  return ...
end

-- too_much counts bytes of a key's value before they are read, beyond the first 2048. It returns
-- the error, or nil.
function states.too_much(more)
  bytes = bytes + more
  if bytes <= MOST_BYTES then return nil end
  return errors.new('BADKEYS', 'the keys hold more than %d bytes, the most that one call reads; name fewer keys', MOST_BYTES)
end

-- too_many counts buckets of sliding_window that were read. Call it with 0 before reading the next
-- state. It returns the error, or nil.
function states.too_many(more)
  buckets = buckets + more
  if buckets <= MOST_BUCKETS then return nil end
  return errors.new('BADKEYS', 'the keys hold more than %d buckets, the most that one call reads; name fewer keys',
    MOST_BUCKETS)
end

------------------------------------------------------------------- what a key holds

local HEAD = 128 -- bytes of a value that show its kind and the end of its block

-- missing_expiry returns the error for a limiter's state whose expiry was removed (by PERSIST, or
-- by SET without KEEPTTL).
function states.missing_expiry(key)
  return errors.unusable(key, 'holds a limiter state without an expiry')
end

states.REQUEST = 'the reply to a request (ONCE)'

-- in_use returns the error for a key that the library uses for something else.
function states.in_use(key, what)
  return errors.new('BADSTATE', 'key %s holds %s; give each use a key of its own', errors.quote(key), what)
end

-- unreadable returns the error for a string that no limiter wrote, although it may look like a
-- state. The error does not show the string, because it may be a secret and errors are logged.
function states.unreadable(key)
  local size = redis.call('STRLEN', key)
  return errors.unusable(key, string.format('holds a string of length %d, which no limiter wrote', size))
end

-- owner returns the algorithm that wrote a string, given its first bytes, or nil.
function states.owner(head)
  for _, algorithm in pairs(algorithms) do
    if algorithm.holds(head) then return algorithm end
  end
  return nil
end

-- The result of look:
--   leases   whether the key is a set of leases that have all lapsed under a block
--   request  whether the key holds the reply to a request (ONCE)
--   blocked  ms for which the key is still blocked, 0 if it is not
--   from     where the state begins in the value, in bytes: after the words of a block, if there is one
--   expiry   of a state under a block, in ms since the epoch; 0 if there is none
--   owner    the algorithm that wrote the state, nil if there is none
--   left     ms until the state expires, or below 0 if there is no state. A state exists to the end
--            of the ms in which it expires, whether it is under a block or not
local found = {}

-- look finds out what a key holds and reads only the first bytes of it. It returns found, or nil
-- and the error for a key that no limiter can have written.
function states.look(key)
  local head = redis.pcall('GETRANGE', key, '0', HEAD - 1)
  found.leases, found.request, found.blocked = false, false, 0
  found.from, found.expiry, found.owner, found.left = 0, 0, nil, -1
  if type(head) == 'table' then
    found.leases, found.blocked = true, lease_sets.outlived(key)
    if not found.blocked then return nil, errors.failed(key, head, 'is not a string') end
    return found
  elseif head == '' then
    return found
  end
  local ends, expiry, from = string.match(head, '^blocked:(%d+):(%d+):()')
  ends, expiry = numbers.digits(ends or ''), numbers.digits(expiry or '')
  local blocked = ends and expiry
  if blocked then
    found.from, found.expiry = from - 1, expiry
  end
  local state = string.sub(head, found.from + 1)
  found.owner = states.owner(state)
  found.request = not blocked and string.sub(state, 1, 5) == 'once:'
  if not (found.owner or found.request or blocked and state == '') then
    return nil, states.unreadable(key)
  end
  found.left = redis.call('PTTL', key)
  if found.left < 0 then
    return nil, states.missing_expiry(key)
  elseif blocked then
    local now = math.max(ends, expiry) - found.left
    found.blocked, found.left = math.max(0, ends - now), expiry - now
  end
  return found
end

-- adopt opens a limit over a key that does not hold the limit's usual state: the key is blocked, or
-- it holds another algorithm's state or another form of the limit's own. It returns the error, or
-- nil.
--
-- Another algorithm's state is carried over. A change of algorithm therefore grants no second burst
-- and does not lock the key, and callers with the old and the new limit share one allowance. The
-- old state counts as units spent now. If those units deny a call, it has to wait until the old
-- state has expired. A state that lasts longer than the rate needs to refill leaves room for just
-- this call.
function states.adopt(key, limit, at, cost)
  local it, err = states.look(key)
  if not it then
    return err
  elseif it.request then
    return states.in_use(key, states.REQUEST)
  elseif it.blocked > 0 then
    for i, rate in ipairs(limit.rates) do
      local state = states.new(at + i - 1, rate)
      state.free, state.foreign = -1, it.blocked
    end
    return nil
  end
  local owner, left = it.owner, it.left
  if not owner or left < 0 or left == 0 and owner ~= limit.owner then
    return limit.fresh(limit, at)
  elseif owner == limit.owner then
    return limit.reopen(key, limit, at, cost, it)
  end
  local counted = nil
  if owner.spent then
    counted, err = owner.spent(key, it.from)
    if err then return err end
  end
  limit.fresh(limit, at)
  for i, rate in ipairs(limit.rates) do
    local state, most = list[at + i - 1], rate.capacity
    if left * rate.count > most * rate.period then
      most = states.leaves_room(most, cost)
    end
    most = math.min(most, counted or math.ceil(left * rate.count / rate.period))
    if most > 0 then
      rate.spend(state, most)
    end
    state.foreign = left
  end
  return nil
end

------------------------------------------------------------------- what is written to keys

-- put stores a string in a key that expires at expiry, in ms since the epoch. gcra, fixed_window
-- and sliding_log have cheaper ways for common calls and set the expiry themselves.
function states.put(key, value, expiry)
  redis.call('SET', key, value, 'PXAT', numbers.arg(expiry))
end
end

--@ src/35_packed.lua
local packed = {}
do
-- Stores the states of a limit as texts in the key's value: "<algorithm>:<text>" for one rate, and
-- "<algorithm>::<length>:<text><length>:<text>..." for several. A call needs one read, one TIME and
-- one SET, however many rates there are.
--
-- Rates are identified by position: the first rate of a changed limit reads the state of the
-- previous first one. The text of a full rate is ''. The algorithm provides
--   prefix                        "<algorithm>:"
--   open(state, value, from, to, now, cost)  fills in the state from the bytes from..to of value, as of now (us). An
--                                 empty text is a full rate. An impossible state leaves room for this cost. Returns
--                                 false if the text is not the algorithm's. The value ends at `to`
--   in_place                      optional: true if open accepts a value that continues after `to`, which saves a copy
--   save(state)                   returns the text, and when the rate is full (ms since the epoch)
--   plain(value, expiry)          optional: returns the text or texts for the algorithm's own value in another form that
--                                 expires at expiry (ms)

local HEAD, LAST = 512, '511' -- bytes: most values are shorter

-- next_text returns the first and last byte of the text at byte `at` in a value of several rates.
-- After the last text it returns an empty range. It returns nil if the value is broken.
local function next_text(value, at)
  if at > #value then return at, at - 1 end
  local _, last, digits = string.find(value, '^(%d+):', at)
  local length = numbers.digits(digits or '')
  if not length or last + length > #value then return nil end
  return last + 1, last + length
end

-- fill opens all rates of a limit from a value, ignoring its first `skipped` bytes. It returns the
-- error, or nil.
local function fill(key, limit, at, cost, value, skipped)
  local now, open, rate, from, to = clock.us(), limit.algorithm.open, limit.rate, skipped + 1, #value
  if from > to and skipped > 0 then
    return states.unreadable(key)
  end
  if rate then
    local readable, err = open(states.new(at, rate), value, from, to, now, cost)
    if readable or err then return err end
  end
  local several, in_place = string.byte(value, from) == 58, limit.algorithm.in_place -- ':'
  if several then
    to = from
  end
  for i = 1, limit.size do
    local state, readable, err = states.new(at + i - 1, limit.rates[i]), false, nil
    if several or i > 1 then
      from, to = next_text(value, to + 1)
    end
    if from and several and not in_place then
      readable, err = open(state, string.sub(value, from, to), 1, to - from + 1, now, cost)
    elseif from then
      readable, err = open(state, value, from, to, now, cost)
    end
    if not readable then return err or states.unreadable(key) end
  end
  return nil
end

local function fresh(limit, at)
  return fill(nil, limit, at, 1, '', 0)
end

local function open(key, limit, at, cost)
  local value = redis.pcall('GETRANGE', key, '0', LAST)
  local prefix = limit.prefix
  if value ~= '' then
    if type(value) ~= 'string' or string.sub(value, 1, #prefix) ~= prefix then
      return states.adopt(key, limit, at, cost)
    elseif #value == HEAD then
      local err = states.too_much(redis.call('STRLEN', key))
      if err then return err end
      value = redis.call('GET', key)
    end
  end
  return fill(key, limit, at, cost, value, value ~= '' and #prefix or 0)
end

-- reopen reads the limit's own state under a block that has ended, or in another form.
function packed.reopen(key, limit, at, cost, found)
  local algorithm, prefix = limit.algorithm, limit.prefix
  local err = states.too_much(redis.call('STRLEN', key))
  if err then return err end
  local value = redis.call('GETRANGE', key, found.from, '-1')
  if string.sub(value, 1, #prefix) == prefix or not algorithm.plain then
    return fill(key, limit, at, cost, value, #prefix)
  end
  local expiry = found.from > 0 and found.expiry or redis.call('PEXPIRETIME', key)
  return fill(key, limit, at, cost, algorithm.plain(value, expiry), 0)
end

local parts = {} -- the parts of a value that is being built; reused by the next one

function packed.write(key, limit, at)
  local save, list = limit.algorithm.save, states.list
  if limit.rate then
    local state = list[at]
    if state.reset == 0 then return redis.call('DEL', key) end
    local text, full = save(state)
    return states.put(key, limit.prefix .. text, full)
  end
  local last, expiry = 1, 0
  parts[1] = limit.several
  for i = at, at + limit.size - 1 do
    local state, text = list[i], ''
    if state.reset > 0 then
      local full
      text, full = save(state)
      if full > expiry then expiry = full end
    end
    parts[last + 1], parts[last + 2] = string.format('%d:', #text), text
    last = last + 2
  end
  if expiry == 0 then return redis.call('DEL', key) end
  states.put(key, table.concat(parts, '', 1, last), expiry)
end

-- complete sets the functions of a limit that read and write its key.
function packed.complete(limit)
  limit.open, limit.fresh, limit.reopen, limit.write = open, fresh, packed.reopen, packed.write
  limit.several = limit.prefix .. ':'
end

-- prefixed returns a function that reports whether a value begins with prefix.
function packed.prefixed(prefix)
  return function(head)
    return string.sub(head, 1, #prefix) == prefix
  end
end

-- first returns the first and last byte of the first rate's text in a key's value. The prefix
-- begins at byte `from`.
function packed.first(key, from, prefix)
  from = from + #prefix
  local digits = string.match(redis.call('GETRANGE', key, from, from + 20), '^:(%d+):')
  if digits then
    from = from + #digits + 2
    return from, from + (numbers.digits(digits) or 0) - 1
  end
  return from, -1
end

-- first_text returns the first rate's text.
function packed.first_text(key, from, prefix)
  return redis.call('GETRANGE', key, packed.first(key, from, prefix))
end
end

--@ src/40_limits.lua
local limits = {}
do
-- Limit expressions. Only this file parses them.
--
--   [algorithm] rate [, rate ...]      rate = n/period [option=value ...]      period = [k]unit, unit = ms s m h d
--   @policy
--
-- A parsed limit has these fields: algorithm; owner, the algorithm whose state it stores; rates
-- (one or more); size, their number; rate, if there is only one; capacity, the smallest of theirs;
-- asks, its sum of the quantity that its algorithm bounds; weight, its share of a call's budget;
-- and the functions that read and write its key. A rate has count (n), period (ms), the values of
-- its options by name, and fields that the algorithm adds. src/30_states.lua describes states.
--
-- An algorithm (src/algorithms/NAME.lua) is a table in `algorithms`:
--   name      the name used in limits
--   options   option name -> function(text) that returns its value, or nil and what was expected; {} for none
--   rate      function(rate): completes a rate, or returns what is wrong with it. Sets capacity, which is field 2 of the
--             reply: the most that can be taken at once. Also sets functions that change or query a state:
--               charge(state, units)  takes units, and updates free
--               refund(state, units)  gives units back, never beyond full
--               spend(state, units)   charges a state that was full; usually the same as charge
--               reset(state)          returns the ms until the rate is full again
--               wait(state, cost)     returns the ms until a cost from 1 to the capacity fits that does not fit now
--   limit     function(limit): completes a limit, or returns what is wrong with it. packed.complete does so for an
--             algorithm that stores its states as texts in the value (see src/35_packed.lua). Sets
--               open(key, limit, at, cost)  reads the key into states.list, from position `at` on, one state for each
--                                             rate. A stored state that is impossible under this limit leaves room for
--                                             a call of this cost. Returns the error, or nil
--               fresh(limit, at)              the same for an empty key
--               reopen(key, limit, at, cost, found)  the same for the limit's own state under a block that has ended, or
--                                             in another form. found is the result of states.look
--               write(key, limit, at)         stores the states, with the expiry at which all are full, or deletes the key
--             and may set
--               take(key, limit, cost, reply)  decides over one key and writes without states, if that is much cheaper.
--                                             Fills in the six fields and returns true, or returns false if the call
--                                             needs open
--   holds     function(head): reports whether this algorithm wrote a string that begins with head
--   spent     optional function(key, from): returns the units that count as spent in the state at byte `from` of the
--             value. The default is what the new limit refills until the state expires
--   most      optional, bounds a quantity in one call: field, a field of the rates; sum, the largest sum of that field
--             in a call; what and advice, for the errors
-- An algorithm for leases (concurrency) has name, holds, leases, a function that parses the whole
-- text of a limit, and acquire, renew and release, functions(key, limit, lease id) that return the
-- reply.

local UNITS = { ms = 1, s = 1000, m = 60000, h = 3600000, d = 86400000 }
local LONGEST_TEXT = 1024 -- bytes
local MOST_RATES = 16
limits.MOST_RATES = 250 -- in a call
local LONGEST_PERIOD = 32 -- bytes
local LONGEST = 36500 * UNITS.d -- ms; in microseconds twice this is still below 2^53

limits.LONGEST = LONGEST

local function refuse(text, what, ...)
  return nil, errors.new('BADLIMIT', '%s: %s', errors.quote(text), string.format(what, ...))
end

local function names(of)
  local list = {}
  for name in pairs(of) do
    list[#list + 1] = name
  end
  table.sort(list)
  return #list > 0 and table.concat(list, ', ') or 'none'
end

-- period parses a period such as "m" or "10s" and returns ms, or nil and what is wrong with it.
function limits.period(text)
  local k, unit = '', text
  if #text <= LONGEST_PERIOD then
    k, unit = string.match(text, '^(.-)(%a*)$')
  end
  if not UNITS[unit] then
    return nil, string.format('the unit of the period %s is none of ms, s, m, h, d', errors.quote(text))
  end
  local factor = k == '' and 1 or numbers.positive(k)
  if not factor then
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
  local rate = { count = numbers.positive(count) }
  if not rate.count then
    return nil, string.format('the count %s is not ' .. numbers.WHOLE, errors.quote(count), '1')
  end
  local wrong
  rate.period, wrong = limits.period(period)
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
  wrong = algorithm.rate(rate)
  if wrong then
    return nil, wrong
  elseif rate.capacity * rate.period > LONGEST * rate.count then
    return nil, 'it takes longer than 36500d to refill; use a smaller burst or a faster rate'
  end
  return rate
end

-- parse_rates parses the rates of a limit. It returns the limit, or nil and what is wrong.
local function parse_rates(text, algorithm)
  local limit = { algorithm = algorithm, owner = algorithm, prefix = algorithm.prefix, rates = {}, asks = 0 }
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
  limit.rate = #limit.rates == 1 and limit.rates[1] or nil
  limit.size = #limit.rates
  limit.weight = limit.size / limits.MOST_RATES + (most and limit.asks / most.sum or 0)
  local wrong = algorithm.limit(limit)
  if wrong then return nil, wrong end
  return limit
end

local function parse(text)
  if #text > LONGEST_TEXT then return refuse(text, 'a limit has at most %d bytes', LONGEST_TEXT) end
  if string.sub(text, 1, 1) == '@' then
    return limits.policy(text) -- src/45_policies.lua
  end
  local word, rates = string.match(text, '^%s*([%a_][%w_]*)%s+(.*)$')
  local algorithm = algorithms[word or 'gcra']
  if not algorithm then
    return refuse(text, 'unknown algorithm %s; there are %s', errors.quote(word), names(algorithms))
  elseif algorithm.leases then
    return refuse(text, '%s is for ratelimit_acquire, ratelimit_renew and ratelimit_release', word)
  end
  local limit, wrong = parse_rates(rates or text, algorithm)
  if not limit then return refuse(text, '%s', wrong) end
  return limit
end

local function parse_leases(text)
  if #text > LONGEST_TEXT then return refuse(text, 'a limit has at most %d bytes', LONGEST_TEXT) end
  local algorithm = algorithms[string.match(text, '^%s*([%a_]+)')]
  if not algorithm or not algorithm.leases then
    return refuse(text, 'not a limit for leases; write it as concurrency n lease=30s')
  end
  local limit, wrong = algorithm.leases(text)
  if not limit then return refuse(text, '%s', wrong) end
  limit.algorithm = algorithm
  return limit
end

-- leases returns the parsed limit of ratelimit_acquire, ratelimit_renew and ratelimit_release, or
-- nil and the error.
limits.leases = numbers.remembered(parse_leases, {})

-- of returns the parsed limit, which is shared and must not be changed, or nil and the error to
-- reply. limits.known caches parsed limits, because parsing costs more than deciding. A policy that
-- is more than one limit has the field `policy` (src/45_policies.lua).
limits.of = numbers.remembered(parse, limits)
end

--@ src/45_policies.lua
local policies = {}
do
-- Policies: named limits, which the build (functions/policies.go) writes into this text, so that
-- "@name" reads no key.
--
-- name -> { limit, limit ..., keys = { name of its key, ... }, shadow = true, track = true }
local POLICIES = {}

-- find returns the policy for "@name", or nil and the error.
function policies.find(text)
  local policy = POLICIES[string.sub(text, 2)]
  if policy then return policy end
  return nil, errors.new('NOPOLICY', '%s: no such policy in build %s; ratelimit_info lists the policies',
    errors.quote(text), BUILD_ID)
end

-- names returns the sorted names of all policies, or only of the shadow policies.
function policies.names(shadows_only)
  local names = {}
  for name, policy in pairs(POLICIES) do
    if policy.shadow or not shadows_only then
      names[#names + 1] = name
    end
  end
  table.sort(names)
  return names
end

-- limits.policy returns the parsed limit of a policy that is one limit and nothing more. For any
-- other policy it returns { policy = "@name", limits = parsed limits, keys =, shadow =, track = },
-- which policies.join adds to a request.
function limits.policy(text)
  local policy, err = policies.find(text)
  if not policy then
    return nil, err
  elseif #policy == 1 and not policy.shadow and not policy.track then
    return limits.of(policy[1])
  end
  local whole = { policy = text, limits = {}, keys = policy.keys, shadow = policy.shadow, track = policy.track }
  for i, part in ipairs(policy) do
    whole.limits[i], err = limits.of(part)
    if not whole.limits[i] then return nil, err end
  end
  return whole
end

-- lease returns the text of the limit in a policy for leases and, if the policy is a shadow, the
-- policy's name. If there is no such limit, it returns nil and the error.
function policies.lease(text)
  local policy, err = policies.find(text)
  if not policy then
    return nil, err
  elseif #policy > 1 then
    return nil, errors.new('BADLIMIT', '%s: a policy of %d limits; a lease takes one', errors.quote(text), #policy)
  end
  return policy[1], policy.shadow and string.sub(text, 2)
end

-- join adds the limits of a policy to a request after its first `count`. It sets these fields of
-- the request: composed, the policies in it; tracks, if one of them has track; groups, its shadow
-- policies; group_of, from a limit's position to its shadow policy. It returns the new number of
-- limits.
function policies.join(request, whole, count)
  request.composed = request.composed or {}
  request.composed[#request.composed + 1] = whole
  request.tracks = request.tracks or whole.track
  local group = nil
  if whole.shadow then
    group = { name = string.sub(whole.policy, 2), denies = false }
    request.groups, request.group_of = request.groups or {}, request.group_of or {}
    request.groups[#request.groups + 1] = group
  else
    request.enforced = true
  end
  for i, limit in ipairs(whole.limits) do
    request.limits[count + i] = limit
    if group then
      request.group_of[count + i] = group
    end
  end
  return count + #whole.limits
end

-- wanted_keys lists the keys that a request's policies take, for an error about the number of keys.
-- tracks reports whether this verb takes a usage key.
function policies.wanted_keys(request, tracks)
  local text = ''
  for _, whole in ipairs(request.composed or {}) do
    local wants = whole.keys and table.concat(whole.keys, ', ') or 'a key'
    text = text .. '; ' .. whole.policy .. ' takes ' .. wants .. (tracks and whole.track and ', and a usage key last' or '')
  end
  return text
end
end

--@ src/50_requests.lua
local requests = {}
do
-- The arguments of take, peek and refund:
--   limit [limit ...] [COST c | COST c1 ... cn] [UPTO] [ONCE ttl_ms] [TRACK]
-- The keys are one for each limit, then one for ONCE and one for TRACK, in the order of these
-- options.
--
-- A request has these fields: limits, and count, their number; costs, one for each; UPTO, the
-- requested cost; ONCE and TRACK, their keys; ttl, in ms; enforced, whether any limit is not in a
-- shadow policy; and those that policies.join adds.

local OPTIONS = {
  COST = 'COST', UPTO = 'UPTO', ONCE = 'ONCE', TRACK = 'TRACK', cost = 'COST', upto = 'UPTO', once = 'ONCE', track = 'TRACK',
}
local MOST_LIMITS = 50

-- ONES holds the costs of a call without COST. It never changes.
local ONES = {}
for i = 1, MOST_LIMITS do
  ONES[i] = 1
end

-- The request of the current call. The next call reuses it. optional reports whether it has more
-- than limits.
local request = { limits = {}, costs = ONES }

-- renew clears what the last call had besides limits.
local function renew()
  request.COST, request.UPTO, request.ONCE, request.TRACK, request.ttl, request.tracks = nil, nil, nil, nil, nil, nil
  request.costs, request.composed, request.groups, request.group_of, request.optional = ONES, nil, nil, nil, false
end

-- read_limits reads the limits. It returns the position after them, or nil and the error.
local function read_limits(args)
  if request.optional then renew() end
  local list, known, at, count, weight, rates = request.limits, limits.known, 1, 0, 0, 0
  request.enforced = false
  local text = args[1]
  while text and not OPTIONS[text] do
    local limit = known[text]
    if not limit then
      local err
      limit, err = limits.of(text)
      if not limit then return nil, err end
    end
    if limit.policy then
      request.optional = true
      count = policies.join(request, limit, count)
      weight = 2
    else
      count = count + 1
      list[count], request.enforced = limit, true
      weight = weight + limit.weight
      rates = rates + limit.size
    end
    if count > MOST_LIMITS then
      return nil, errors.new('BADARGS', '%d limits; one call takes at most %d', count, MOST_LIMITS)
    elseif rates > limits.MOST_RATES then
      return nil, errors.new('BADARGS', '%d rates; one call takes at most %d', rates, limits.MOST_RATES)
    end
    at = at + 1
    text = args[at]
  end
  request.count, request.weight = count, weight
  return at
end

-- misnumbered returns the error for a number of costs that is not that of the limits.
local function misnumbered(costs)
  return errors.new('BADARGS', 'the number of costs is %d and the number of limits %d; give one cost for all, or one for each',
    costs, request.count)
end

-- read_costs reads the numbers from position at on. It returns them, or nil and the error.
local function read_costs(args, at)
  local costs, last = {}, at
  while args[last] and not OPTIONS[args[last]] do
    last = last + 1
  end
  if last - at > MOST_LIMITS then return nil, misnumbered(last - at) end
  for i = at, last - 1 do
    local cost = numbers.whole(args[i])
    if not cost then
      return nil, errors.new('BADCOST', '%s: a cost is ' .. numbers.WHOLE, errors.quote(args[i]), '0')
    end
    costs[#costs + 1] = cost
  end
  return costs
end

-- read_options reads the arguments after the limits. allowed lists the options of the verb. It
-- returns the number of keys that the request needs, or nil and the error.
local function read_options(keys, args, at, allowed)
  local used = request.count
  request.optional = true
  while at <= #args do
    local word = OPTIONS[args[at]]
    if not word or not allowed[word] then
      return nil, errors.new('BADARGS', '%s: not an option here', errors.quote(args[at]))
    elseif request[word] then
      return nil, errors.new('BADARGS', '%s is given twice', word)
    end
    at = at + 1
    if word == 'COST' then
      local err
      request.COST, err = read_costs(args, at)
      if err then return nil, err end
      at = at + #request.COST
    elseif word == 'UPTO' then
      request.UPTO = 1
    else
      used = used + 1
      request[word] = keys[used] or ''
    end
    if word == 'ONCE' then
      request.ttl = numbers.positive(args[at] or '')
      if not request.ttl or request.ttl > limits.LONGEST then
        return nil, errors.new('BADARGS', '%s: ONCE is followed by the ms for which it holds, a whole number from 1 to %d',
          errors.quote(args[at] or ''), limits.LONGEST)
      end
      at = at + 1
    end
  end
  if request.tracks and allowed.TRACK and not request.TRACK then
    used = used + 1
    request.TRACK = keys[used] or ''
  end
  return used
end

-- within_capacity returns the costs of an UPTO call: for each limit, at most the smallest capacity
-- among the limits that decide together.
local function within_capacity()
  local group_of, least, costs = request.group_of or {}, {}, {}
  for i = 1, request.count do
    local group = group_of[i] or false
    least[group] = math.min(least[group] or request.UPTO, request.limits[i].capacity)
  end
  for i = 1, request.count do
    costs[i] = least[group_of[i] or false]
  end
  return costs
end

-- spread sets a cost for each limit of the request. It returns the error, or nil.
local function spread()
  local count, costs, upto = request.count, request.COST or { 1 }, request.UPTO
  if upto and #costs ~= 1 then
    return errors.new('BADARGS', 'the number of costs is %d; UPTO takes the same from every key: give it one', #costs)
  elseif #costs ~= 1 and #costs ~= count then
    return misnumbered(#costs)
  elseif upto then
    request.UPTO = costs[1]
    costs = within_capacity()
  end
  for i = #costs + 1, count do
    costs[i] = costs[1]
  end
  request.costs = costs
  return nil
end

-- excess returns the error for limits that exceed the bounds of one call, or nil.
local function excess()
  local rates, sums = 0, {}
  for i = 1, request.count do
    local limit = request.limits[i]
    local most = limit.algorithm.most
    rates = rates + limit.size
    if most then
      sums[most] = (sums[most] or 0) + limit.asks
      if sums[most] > most.sum then
        return errors.new('BADARGS', '%d %s; one call takes at most %d%s', sums[most], most.what, most.sum, most.advice)
      end
    end
  end
  return rates > limits.MOST_RATES and errors.new('BADARGS', '%d rates; one call takes at most %d', rates, limits.MOST_RATES) or nil
end

-- repeated returns the error for a key that is given twice, or nil.
function requests.repeated(keys)
  local a, b, c, d = keys[1], keys[2], keys[3], keys[4]
  if not d and a ~= b and a ~= c and (b ~= c or not c) then return nil end
  local seen = {}
  for i = 1, #keys do
    if seen[keys[i]] then
      return errors.new('BADKEYS', '%s is given twice; name each key once', errors.quote(keys[i]))
    end
    seen[keys[i]] = true
  end
  return nil
end

-- read returns the request, or nil and the error.
function requests.read(keys, args, allowed)
  if #keys == 0 then
    return nil, errors.new('BADKEYS', 'the number of keys is 0; give each limit one key')
  end
  local at, err = read_limits(args)
  if not at then return nil, err end
  local count = request.count
  local used = count
  if count == 0 then
    return nil, errors.new('BADARGS', 'no limit after the keys; give one such as 100/m for each key')
  elseif at <= #args or request.tracks then
    used, err = read_options(keys, args, at, allowed)
  end
  if not err and (request.COST or request.UPTO) then
    err = spread()
  end
  if not err and #keys ~= used then
    err = errors.new('BADKEYS', 'the number of keys is %d and the number of limits %d; give each limit one key, in order%s%s',
      #keys, count, used > count and ', then one for ONCE and one for TRACK' or '',
      policies.wanted_keys(request, allowed.TRACK))
  end
  err = err or requests.repeated(keys)
  if not err and request.weight > 1 then
    err = excess()
  end
  if err then return nil, err end
  return request
end
end

--@ src/55_shadows.lua
local shadows = {}
do
-- The number of calls that each shadow policy would have denied but that were allowed, since the
-- library was loaded on this node.
local denied = {}

local function note(name)
  denied[name] = (denied[name] or 0) + 1
end

-- count counts the shadow policies that would have denied a take.
function shadows.count(request)
  for _, group in ipairs(request.passes and request.groups or {}) do
    if group.denies then
      note(group.name)
    end
  end
end

-- counts returns { name, count, ... } for every shadow policy.
function shadows.counts()
  local list = {}
  for _, name in ipairs(policies.names(true)) do
    list[#list + 1] = name
    list[#list + 1] = denied[name] or 0
  end
  return list
end

-- lease rewrites the reply of acquire or renew under a shadow policy. A lease that would have been
-- denied is not held.
function shadows.lease(name, reply)
  if reply.err then
    return reply
  elseif reply[1] == 0 then
    note(name)
  end
  return { 1, reply[2], reply[3], 0, reply[5], reply[6], reply[1], reply[4], reply[6] }
end
end

--@ src/60_decisions.lua
local decisions = {}
do
-- One decision over the rates of one or several keys: either all are charged, or none. First, every
-- key is read into one state for each rate (src/30_states.lua). Then the states decide, are charged
-- and are summed up. Finally, the charged states are written. A call that returns an error has
-- therefore changed nothing.
--
-- Shadow policies decide but never deny: they try a limit on real traffic before it is enforced.
-- The enforced limits of a call make one decision. Each shadow policy (a group) makes another: it
-- is charged if it would allow, and the call continues in either case. If the enforced limits deny,
-- nothing is charged.
--
-- The reply is { allowed, limit, remaining, retry_after_ms, reset_after_ms, index }. With shadow
-- policies it also has would_allowed, would_retry_after_ms and would_index: the result if no policy
-- of the call were a shadow.

local list = states.list
local ENFORCED = {} -- the group of the limits that are enforced

-- open reads every key of a request into states, and marks the groups that deny. It returns the
-- error, or nil.
local function open(keys, request, verb)
  local asked, costs, group_of, refund, count = request.limits, request.costs, request.group_of, verb == 'refund', 0
  ENFORCED.denies = false
  states.begin()
  for i = 1, request.count do
    local limit, cost, group = asked[i], costs[i], group_of and group_of[i] or ENFORCED
    if refund then cost = 1 end
    local err = limit.open(keys[i], limit, count + 1, cost)
    if err then return err end
    if refund then cost = 0 end -- a refund takes nothing, so only a block denies it
    local last = count + limit.size
    for at = count + 1, last do
      local state = list[at]
      state.index, state.cost, state.group = i, cost, group
      if cost > state.free then group.denies = true end
    end
    count = last
  end
  request.states = count
  return nil
end

-- fit lowers the cost of a group to the number of units that fit, at most `most` (UPTO). It returns
-- that number, or 0 if not even one fits.
local function fit(count, group, most)
  local fits = most
  for i = 1, count do
    if list[i].group == group then
      fits = math.min(fits, list[i].cost, math.max(0, list[i].free))
    end
  end
  for i = 1, count do
    if list[i].group == group then
      list[i].cost = math.max(1, fits)
    end
  end
  group.denies = fits == 0
  return fits
end

-- wait returns the ms after which a rate that denies would allow, or -1 for never.
local function wait(state)
  if state.cost > state.rate.capacity then return -1 end
  return state.foreign > 0 and state.foreign or state.rate.wait(state, state.cost)
end

-- sum_up fills in the six fields of a reply from the states of a group, or from all states if group
-- is nil: the smallest remaining, the longest waits, and the binding rate, which is the first that
-- denies or else the first with the smallest remaining. With upto, field 1 is the number of units
-- taken.
local function sum_up(reply, count, group, upto)
  local binding, denied, units, least = nil, false, upto and numbers.MOST or 1, numbers.MOST
  local longest_wait, longest_reset = 0, 0
  for i = 1, count do
    local state = list[i]
    if not group or state.group == group then
      local rate, free, cost, ms, reset = state.rate, state.free, state.cost, 0, 0
      if cost > free and not state.group.charged then -- this rate denies
        ms, reset = wait(state), state.foreign
        if not denied then
          binding, denied, longest_wait = state, true, 0
        end
      elseif not denied then
        if free < least or not binding then binding = state end
        if rate.delays and cost > 0 and state.group.charged then ms = state.delay end
      end
      if reset == 0 then
        reset = rate.reset(state)
        state.reset = reset
      end
      if reset > longest_reset then longest_reset = reset end
      if ms ~= 0 and longest_wait ~= -1 and (ms > longest_wait or ms == -1) then longest_wait = ms end
      if free < least then least = free > 0 and free or 0 end
      if upto and cost < units then units = cost end
    end
  end
  reply[1] = denied and 0 or units
  reply[2], reply[3], reply[4], reply[5], reply[6] = binding.rate.capacity, least, longest_wait, longest_reset, binding.index
  return reply
end

-- The reply of a call. All calls share one table, because Redis converts it to integers before the
-- next call begins. A new table for each call costs 4 % of a denied call (bench/README.md).
local usual = { 0, 0, 0, 0, 0, 1 }

-- reply_to returns the reply for the decision.
local function reply_to(request)
  local count, upto = request.states, request.UPTO
  if not request.groups then return sum_up(usual, count, nil, upto) end
  local would = sum_up({}, count, nil, upto)
  local reply = sum_up({}, count, request.enforced and ENFORCED, upto)
  if not request.enforced then
    reply[1], reply[4] = upto or 1, 0
  end
  reply[7], reply[8], reply[9] = would[1], would[4], would[6]
  return reply
end

-- decide_groups sets which groups are charged.
local function decide_groups(request, verb)
  local count, units = request.states, request.UPTO
  if units and units > 0 and request.enforced then
    units = fit(count, ENFORCED, units)
  end
  ENFORCED.charged = not ENFORCED.denies
  for _, group in ipairs(request.groups or {}) do
    if units and request.costs[1] > 0 then
      fit(count, group, math.max(1, units))
    end
    group.charged = not group.denies and (ENFORCED.charged or verb == 'refund')
  end
end

-- decide decides a request and charges the states, but writes nothing. With the verb refund it
-- gives back units, to each group separately: a blocked key under a shadow policy does not prevent
-- a refund to the others. It returns the reply, or nil and the error.
function decisions.decide(keys, request, verb)
  local err = open(keys, request, verb)
  if err then return nil, err end
  if request.UPTO or request.groups then
    decide_groups(request, verb)
  else
    ENFORCED.charged = not ENFORCED.denies
  end
  request.passes = ENFORCED.charged
  for i = 1, (request.passes or request.groups) and request.states or 0 do
    local state = list[i]
    local cost = state.cost
    if verb == 'refund' then cost = request.costs[state.index] end
    if cost > 0 and state.group.charged then
      err = state.rate[verb](state, cost)
      if err then return nil, err end
    end
  end
  return reply_to(request)
end

-- write stores the states that decide changed. It reports whether there were any.
function decisions.write(keys, request)
  local asked, costs, at, any = request.limits, request.costs, 1, false
  for i = 1, (request.passes or request.groups) and request.count or 0 do
    local limit = asked[i]
    if costs[i] > 0 and list[at].group.charged then
      limit.write(keys[i], limit, at)
      any = true
    end
    at = at + limit.size
  end
  return any
end

-- one is decide and write for the common call: one key and a limit with one rate, or with a fast
-- path (limit.take). It returns the reply or the error, or nil if the call needs a request.
function decisions.one(key, limit, cost)
  if limit.take and cost > 0 and limit.take(key, limit, cost, usual) then return usual end
  local rate = limit.rate
  if not rate then return nil end
  states.begin()
  local err = limit.open(key, limit, 1, cost)
  if err then return err end
  local state = list[1]
  local remaining, retry, reset = state.free, 0, state.foreign
  if cost > remaining then
    state.cost = cost
    usual[1], retry = 0, wait(state)
    remaining, reset = remaining > 0 and remaining or 0, reset > 0 and reset or rate.reset(state)
  else
    if cost > 0 then
      rate.charge(state, cost)
      remaining, retry = state.free, rate.delays and state.delay or 0
    end
    usual[1], reset = 1, rate.reset(state)
    state.reset = reset
    if cost > 0 then limit.write(key, limit, 1) end
  end
  usual[2], usual[3], usual[4], usual[5], usual[6] = rate.capacity, remaining, retry, reset, 1
  return usual
end

-- take is decide and write. It returns the reply and whether anything was charged, or nil and the
-- error.
function decisions.take(keys, request)
  if request.count == 1 and not request.UPTO and not request.groups then
    local cost = request.costs[1]
    local reply = decisions.one(keys[1], request.limits[1], cost)
    if reply and reply.err then
      return nil, reply
    elseif reply then
      request.passes = reply[1] == 1
      return reply, request.passes and cost > 0
    end
  end
  local reply, err = decisions.decide(keys, request, 'charge')
  if not reply then return nil, err end
  return reply, decisions.write(keys, request)
end
end

--@ src/65_tracking.lua
local tracking = {}
do
-- TRACK records in a separate key how much a caller asks for: totals, first and last use, and a
-- count per minute for the last hour. It also counts denied calls, so it is separate from the
-- limiter, which a denied call does not change.
--
-- State: a hash with the fields allowed, denied, cost (of allowed calls), first, last (ms since the
-- epoch), and a<minute>, d<minute>: calls allowed and denied in that minute (minutes since the
-- epoch). The key expires a day after the last use.

local NO_RECORD = 'does not hold a usage record'
local MINUTE = 60000
local SERIES = 60 -- minutes
local KEPT = 86400000 -- ms

-- empty returns a list of n zeros if the key holds an empty string, which counts as no key, and
-- otherwise nil and the error of the command that failed.
local function empty(key, n, failure)
  if redis.pcall('GETRANGE', key, '0', '0') ~= '' then return nil, errors.failed(key, failure, NO_RECORD) end
  local zeros = {}
  for i = 1, n do
    zeros[i] = 0
  end
  return zeros
end

-- fields returns fields of a record as numbers, 0 for absent ones, or nil and the error for a key
-- that holds anything else.
local function fields(key, ...)
  local values, any = redis.pcall('HMGET', key, ...), false
  if values.err then return empty(key, select('#', ...), values) end
  for i = 1, #values do
    local text = values[i]
    if text then
      any = true
      values[i] = numbers.whole(text)
      if not values[i] then return nil, errors.unusable(key, NO_RECORD) end
    else
      values[i] = 0
    end
  end
  if not any and redis.call('PTTL', key) ~= -2 then return nil, errors.unusable(key, NO_RECORD) end
  return values
end

-- The minute of the last decision, and its fields for allowed and denied calls. They are cached
-- because most calls come in the same minute.
local current, allowed_now, denied_now = 0, '', ''

-- The values that read has read and note adds to.
local values

-- read reads the fields that a decision may change. It runs before the decision, so that nothing
-- can fail after it. It returns the error, or nil.
function tracking.read(key)
  local now = clock.ms()
  local minute = (now - now % MINUTE) / MINUTE
  if minute ~= current then
    current, allowed_now, denied_now = minute, string.format('a%d', minute), string.format('d%d', minute)
  end
  local err
  values, err = fields(key, 'allowed', 'denied', allowed_now, denied_now, 'cost', 'first')
  return err
end

local function forget_old(key, minute)
  for _, field in ipairs(redis.call('HKEYS', key)) do
    local at = numbers.whole(string.match(field, '^[ad](%d+)$') or '')
    if at and (at <= minute - SERIES or at > minute) then
      redis.call('HDEL', key, field)
    end
  end
end

-- sum adds to a number of a record. The sum is at most 2^53.
local function sum(number, more)
  local result = number + more
  return numbers.arg(result < numbers.MOST and result or numbers.MOST)
end

-- note adds a decision to the record that read has read.
function tracking.note(key, allowed, cost)
  local now, total, in_minute, at = clock.ms(), 'denied', denied_now, 2
  if allowed then
    total, in_minute, at = 'allowed', allowed_now, 1
  end
  if values[1] + values[2] + values[6] == 0 then
    redis.call('DEL', key) -- an empty string
  end
  redis.call('HSET', key, 'last', numbers.arg(now), total, sum(values[at], 1), in_minute, sum(values[at + 2], 1), 'cost',
    sum(values[5], cost))
  if values[6] == 0 then
    redis.call('HSET', key, 'first', now)
  end
  redis.call('PEXPIREAT', key, numbers.arg(now + KEPT))
  if values[at + 2] == 0 then forget_old(key, current) end
end

-- check returns the error for a key that holds anything but a record, or nil.
function tracking.check(key)
  local _, err = fields(key, 'first', 'last', 'allowed', 'denied', 'cost')
  return err
end

-- usage returns what ratelimit_usage replies.
function tracking.usage(key)
  local held, series = {}, {}
  local flat = redis.pcall('HGETALL', key) -- an error of an empty string, which has no entries
  for i = 1, #flat, 2 do
    held[flat[i]] = numbers.whole(flat[i + 1]) or 0
  end
  local newest = math.floor((held.last or 0) / MINUTE)
  for minute = newest - SERIES + 1, newest do
    local name = string.format('%d', minute)
    local allowed, denied = held['a' .. name], held['d' .. name]
    if allowed or denied then
      series[#series + 1] = { minute * MINUTE, allowed or 0, denied or 0 }
    end
  end
  return {
    'allowed', held.allowed or 0, 'denied', held.denied or 0, 'cost', held.cost or 0, 'first_ms', held.first or 0,
    'last_ms', held.last or 0, 'interval_ms', MINUTE, 'series', series,
  }
end
end

--@ src/70_once.lua
local once = {}
do
-- ONCE makes a retry safe. The reply of a charged call is stored under the request's key for the
-- time that the caller specifies. Every further call with that key gets the same reply and is not
-- charged. A call that was denied or cost nothing stores nothing, so its retry is decided again.
--
-- State: "once:<the fields of the reply>" (nine if a shadow policy took part, otherwise six). It
-- expires after the caller's ttl.

local SIX = '^once:(%d+),(%d+),(%d+),(%d+),(%d+),(%d+)'

-- read returns the reply stored under key, or nil if there is none; or nil and the error.
function once.read(key)
  local value = redis.pcall('GETRANGE', key, '0', '255') -- longer than any reply
  if value == '' then
    return nil
  elseif type(value) == 'table' then
    return nil, errors.failed(key, value, 'is not a string')
  end
  local reply = { string.match(value, SIX .. '$') }
  if #reply == 0 then
    reply = { string.match(value, SIX .. ',(%d+),(-?%d+),(%d+)$') }
  end
  local readable = #reply > 0
  for i = 1, #reply do
    reply[i] = reply[i] == '-1' and -1 or numbers.whole(reply[i]) or nil
    readable = readable and reply[i]
  end
  if readable then return reply end
  local owner = states.owner(value)
  if owner then
    return nil, states.in_use(key, 'the state of a limit (' .. owner.name .. ')')
  elseif string.find(value, '^blocked:') then
    return nil, states.in_use(key, 'a block')
  end
  return nil, states.unreadable(key)
end

function once.keep(key, reply, ttl)
  local fields = 'once:%d,%d,%d,%d,%d,%d'
  if #reply > 6 then
    fields = fields .. ',%d,%d,%d'
  end
  redis.call('PSETEX', key, ttl, string.format(fields, unpack(reply)))
end
end

--@ src/75_leases.lua
local leases = {}
do
-- The arguments of acquire, renew and release: one key, a limit for leases, and the lease's id.

local LONGEST_ID = 256 -- bytes

-- call returns the result of the algorithm's function named verb.
function leases.call(verb, keys, args)
  if #keys ~= 1 then
    return errors.new('BADKEYS', 'the number of keys is %d; %s takes one', #keys, verb)
  elseif #args ~= 2 then
    return errors.new('BADARGS', 'the number of arguments is %d; %s takes a limit and a lease id', #args, verb)
  end
  local text, shadow = args[1], nil
  if string.sub(text, 1, 1) == '@' then
    text, shadow = policies.lease(text)
    if not text then
      return shadow -- the error
    end
  end
  local limit, err = limits.leases(text)
  if not limit then return err end
  local id = args[2]
  if #id == 0 or #id > LONGEST_ID then
    return errors.new('BADARGS', 'the lease id %s is not of 1 to %d bytes', errors.quote(id), LONGEST_ID)
  end
  local reply = limit.algorithm[verb](keys[1], limit, id)
  if shadow and verb ~= 'release' then return shadows.lease(shadow, reply) end
  return reply
end
end

--@ src/80_holdings.lua
local holdings = {}
do
-- The checks of the verbs that take keys without a limit: reset, block, unblock.

local MOST_KEYS = 250
local MOST_BYTES = 2500000

-- of describes what a key holds, or returns nil and the error.
--   leases   whether the key is a set of leases
--   blocked  ms for which the key is blocked, 0 if it is not
--   from     for a string: where the state begins in the value, in bytes
--   expiry   of a state under a block, in ms since the epoch; 0 if there is none
--   in_use   what the key holds, if it cannot be blocked
local function of(key)
  local found, err = states.look(key)
  if found and not found.leases then
    return {
      blocked = found.blocked, from = found.from, expiry = found.expiry, in_use = found.request and states.REQUEST or nil,
    }
  elseif lease_sets.last(key, '-2') then
    return { leases = true, blocked = math.max(0, lease_sets.blocked_until(key) - clock.ms()) }
  elseif not tracking.check(key) then
    return { blocked = 0, in_use = 'a usage record' }
  end
  return nil, err
end

-- all checks the arguments of a verb that takes keys and `want` more words. It returns a
-- description of each key (see of), or nil and the error.
function holdings.all(verb, keys, args, want)
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
-- block copies all states, unblock those of blocked keys.
function holdings.too_large(keys, list, verb)
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
end

--@ src/algorithms/concurrency.lua
do
-- concurrency n lease=30s: at most n leases at a time. The caller chooses a lease's ID. A lease is
-- held until it is released or, by the server's clock, is not renewed in time. A caller that
-- crashed therefore blocks nobody for long.
--
-- State: a sorted set, see src/28_lease_sets.lua.
--
-- A new n takes effect at once: if n is lowered, existing leases stay. A new lease time takes
-- effect at the next acquire or renew. Each lease has its own length, the time for which it was
-- last granted, so callers with different lease times may share a key. A lease that would last
-- longer than its own length is far: the clock was set back. An acquire or renew shortens it to its
-- length.

local MEMBER, BLOCK, LENGTH, GIVEN = lease_sets.MEMBER, lease_sets.BLOCK, lease_sets.LENGTH, lease_sets.GIVEN
local MOST = 5000 -- leases
local AT_ONCE = 2000 -- words of a command

-- The data that a call has read from a key:
--   now      ms since the epoch
--   last     when the last member lapses; 0 if the key holds no set
--   before   the score of the member before the last, for release
--   string   whether the key holds a block without a state under it
--   blocked  ms for which the key is blocked, 0 if it is not
--   lapses   when the lease with this ID lapses, 0 if there is none
--   same     whether the set records one length for all leases and it equals this limit's lease time
--   length   the length of all leases in ms; nil if the set records when each was granted
--   live     the number of members that have not lapsed
--   far      the number of far leases
local held = {}

-- look finds out whether a key holds a set of leases. from is passed to lease_sets.last. It returns
-- the error, or nil.
local function look(key, from)
  local last, before = lease_sets.last(key, from) -- or the error
  held.now, held.last, held.before, held.string = clock.ms(), last or 0, before, false
  held.blocked, held.lapses, held.same, held.length = 0, 0, false, nil
  if last then return nil end
  local found = states.look(key)
  if not found or found.request or found.left >= 0 then return before end
  held.blocked, held.string = found.blocked, true
  return nil
end

-- read calls look and reads what else a decision needs. It returns the error, or nil.
local function read(key, limit, id)
  local err = look(key, '-1')
  if err or held.last == 0 then return err end
  local scores = redis.call('ZMSCORE', key, MEMBER .. id, BLOCK, LENGTH)
  local length = scores[3]
  held.lapses = tonumber(scores[1] or 0)
  held.blocked = math.max(0, (scores[2] or 0) - held.now)
  if length == limit.length then
    held.same, held.length = true, limit.lease
  elseif length then
    length = -tonumber(length)
    if length < 1 or length > limits.LONGEST or length % 1 ~= 0 then return lease_sets.unusable(key) end
    held.length = length
  elseif redis.call('ZCOUNT', key, '-inf', '(0') == 0 then
    held.length = limit.lease -- an older build, which recorded no lengths, wrote the set
  end
  return held.blocked % 1 ~= 0 and lease_sets.unusable(key) or nil
end

-- far_ones returns the number of far leases.
local function far_ones(key)
  local length = held.length
  if not length then return redis.call('ZCOUNT', key, '-inf', string.format('(-%d', held.now)) end
  local latest = held.now + length
  if held.last <= latest then return 0 end
  local far = redis.call('ZCOUNT', key, string.format('(%d', latest), '+inf')
  return held.blocked > length and far - 1 or far
end

-- count returns how many leases are held, and how many count against a limit. If all leases are
-- far, one fewer than n counts, to leave room for one.
local function count(key, limit)
  held.live, held.far = 0, 0
  if held.last <= held.now then return 0, 0 end
  local all, far = redis.call('ZCOUNT', key, string.format('(%d', held.now), '+inf'), far_ones(key)
  held.live, held.far = all, far
  if held.blocked > 0 then
    all = all - 1
  end
  return all, far > 0 and far == all and math.min(all, limit.capacity - 1) or all
end

-- last_lease returns when the last lease lapses. The result is before now if there is none.
local function last_lease(key)
  local two = redis.call('ZRANGE', key, '-2', '-1', 'WITHSCORES')
  return tonumber(two[two[#two - 1] == BLOCK and #two - 2 or #two] or 0)
end

-- add adds any number of scores and members to the set, in several commands if needed.
local function add(key, words)
  for from = 1, #words, AT_ONCE do
    redis.call('ZADD', key, unpack(words, from, math.min(from + AT_ONCE - 1, #words)))
  end
end

-- given_of returns the member that records when a lease was granted.
local function given_of(member)
  return GIVEN .. string.sub(member, #MEMBER + 1)
end

-- part converts a set with one length for all leases into one that records when each lease was
-- granted. It also removes lapsed leases and shortens far ones.
local function part(key)
  local now, length, words = held.now, held.length, {}
  local latest, just_now = string.format('%d', now + length), string.format('-%d', now)
  redis.call('ZREMRANGEBYSCORE', key, '-inf', now)
  local list = redis.call('ZRANGE', key, '0', '-1', 'WITHSCORES')
  for i = 1, #list, 2 do
    local member, given, size = list[i], list[i + 1] - length, #words
    if member ~= BLOCK then
      words[size + 1], words[size + 2] = given > now and just_now or string.format('-%d', given), given_of(member)
      if given > now then
        words[size + 3], words[size + 4] = latest, member
      end
    end
  end
  add(key, words)
end

-- cut_each shortens the far leases of a set that records when each was granted. It shortens at most
-- AT_ONCE of them, because more would take too long.
local function cut_each(key)
  local now, members, words, texts = held.now, {}, {}, {}
  local just_now = string.format('-%d', now)
  local far = redis.call('ZRANGE', key, '-inf', '(' .. just_now, 'BYSCORE', 'LIMIT', '0', AT_ONCE, 'WITHSCORES')
  for i = 1, #far, 2 do
    members[#members + 1] = MEMBER .. string.sub(far[i], #GIVEN + 1)
  end
  for i, lapses in ipairs(redis.call('ZMSCORE', key, unpack(members))) do
    if lapses then
      local length, size = lapses + far[2 * i], #words
      texts[length] = texts[length] or string.format('%d', now + length)
      words[size + 1], words[size + 2], words[size + 3], words[size + 4] = texts[length], members[i], just_now, far[2 * i - 1]
    end
  end
  add(key, words)
end

-- drop_each removes lapsed leases and the members that record when they were granted.
local function drop_each(key)
  local members = redis.call('ZRANGE', key, '0', held.now, 'BYSCORE')
  for i = 1, #members do
    if members[i] ~= BLOCK then
      members[#members + 1] = given_of(members[i])
    end
  end
  for from = 1, #members, AT_ONCE do
    redis.call('ZREM', key, unpack(members, from, math.min(from + AT_ONCE - 1, #members)))
  end
end

-- cut makes all leases that lapse after ms lapse at ms.
local function cut(key, ms)
  local words = {}
  for _, member in ipairs(redis.call('ZRANGE', key, string.format('(%d', ms), '+inf', 'BYSCORE')) do
    if member ~= BLOCK then
      words[#words + 1] = ms
      words[#words + 1] = member
    end
  end
  add(key, words)
end

-- keep stores a lease and removes lapsed ones. others is the number of other leases held. It
-- returns the reply.
local function keep(key, limit, id, others)
  local now, lease, member = held.now, limit.lease, MEMBER .. id
  local reset, lapses = lease, numbers.arg(now + lease)
  if others > 0 and held.length ~= lease then
    if held.length then
      part(key)
    else
      if held.far > 0 then cut_each(key) end
      drop_each(key)
    end
    redis.call('ZADD', key, lapses, member, -now, GIVEN .. id)
    reset = math.ceil(last_lease(key)) - now
  else
    if held.last == 0 then
      if held.string then
        redis.call('DEL', key)
      end
    elseif not held.same then
      redis.call('ZREMRANGEBYSCORE', key, '-inf', now)
    elseif redis.call('ZCARD', key) > held.live + 1 then
      redis.call('ZREMRANGEBYSCORE', key, '0', now)
    end
    if held.far > 0 then cut(key, now + lease) end
    if held.same then
      redis.call('ZADD', key, lapses, member)
    else
      redis.call('ZADD', key, lapses, member, limit.length, LENGTH)
    end
  end
  if held.blocked > lease or reset > lease then
    lapses = numbers.arg(now + math.max(reset, held.blocked))
  end
  redis.call('PEXPIREAT', key, lapses)
  return { 1, limit.capacity, math.max(0, limit.capacity - others - 1), 0, reset, 1 }
end

-- refuse returns the reply to a call that gets no lease. counted is the number of leases that
-- count.
local function refuse(key, limit, counted, retry)
  local last = held.last
  if held.blocked > 0 and last > 0 then
    last = last_lease(key)
  end
  return { 0, limit.capacity, math.max(0, limit.capacity - counted), retry, math.max(0, last - held.now), 1 }
end

-- acquire takes a lease, or renews the one that this ID holds, so that a retry does not take a
-- second one.
local function acquire(key, limit, id)
  local err = read(key, limit, id)
  if err then
    return err
  elseif held.blocked > 0 then
    return { 0, limit.capacity, 0, held.blocked, held.blocked, 1 }
  end
  local all, counted = count(key, limit)
  if held.lapses > held.now then
    return keep(key, limit, id, all - 1)
  elseif counted < limit.capacity then
    return keep(key, limit, id, all)
  end
  local freeing = redis.call('ZRANGE', key, string.format('(%d', held.now), '+inf', 'BYSCORE', 'LIMIT', counted - limit.capacity, '1',
    'WITHSCORES')
  return refuse(key, limit, counted, math.ceil(freeing[2] - held.now))
end

-- renew extends a held lease, even while the key is blocked. A lapsed lease stays lost: retry_after
-- is -1.
local function renew(key, limit, id)
  local err = read(key, limit, id)
  if err then return err end
  local all, counted = count(key, limit)
  if held.lapses > held.now then return keep(key, limit, id, all - 1) end
  return refuse(key, limit, counted, -1)
end

-- release gives a lease back. It returns 1, or 0 if this ID no longer holds one.
local function release(key, _, id)
  local err = look(key, '-2')
  if err or held.last == 0 then return err or 0 end
  local lapses = tonumber(redis.call('ZSCORE', key, MEMBER .. id) or 0)
  if lapses <= held.now then
    return 0
  elseif lapses < held.last then
    redis.call('ZREM', key, MEMBER .. id, GIVEN .. id)
  elseif held.before > held.now then
    redis.call('ZREM', key, MEMBER .. id, GIVEN .. id)
    redis.call('PEXPIREAT', key, numbers.arg(held.before))
  else
    redis.call('DEL', key)
  end
  return 1
end

-- parse parses "concurrency n lease=30s". It returns the limit, or nil and what is wrong.
local function parse(text)
  local n, lease = string.match(text, '^%s*concurrency%s+(%S+)%s+lease=(%S+)%s*$')
  if not n then return nil, 'not of the form concurrency n lease=30s' end
  local limit = { capacity = numbers.positive(n) }
  if not limit.capacity then
    return nil, string.format('the count %s is not ' .. numbers.WHOLE, errors.quote(n), '1')
  elseif limit.capacity > MOST then
    return nil, string.format('%d leases; a limit takes at most %d', limit.capacity, MOST)
  end
  local wrong
  limit.lease, wrong = limits.period(lease)
  if wrong then return nil, wrong end
  limit.length = string.format('-%d', limit.lease) -- as stored in a set
  return limit
end

algorithms.concurrency = {
  name = 'concurrency',
  leases = parse,
  holds = function() return false end,
  acquire = acquire,
  renew = renew,
  release = release,
}
end

--@ src/algorithms/fixed_window.lua
do
-- fixed_window: n per window. A window opens at the first take, or with align=clock at whole
-- multiples of the period since the epoch (UTC). It ends one period later. Times are in whole
-- milliseconds. For a key with one rate, take opens the window; otherwise open does.
--
-- State. The key expires at the end of the window.
--   one rate:        the count, a plain integer; the window's end is the expiry
--   several rates:   each "<count>:<end of the window, ms since the epoch>", see src/35_packed.lua
--
-- A new n takes effect at once, for what the open window has already counted too. A new period or
-- align takes effect when the window ends. But if the window would stay open for longer than the
-- period, because the period was lowered or the clock was set back, a new window replaces it. In
-- the new window, the old count leaves room for just this call.

local PREFIX = 'fixed_window:'

local prefixed = packed.prefixed(PREFIX)

-- plain_count parses the value of one rate.
local plain_count = numbers.remembered(function(value)
  return string.find(value, '^[1-9]%d*$') and numbers.whole(value)
end, {})

-- length returns the length in ms of a window that opens now.
local function length(rate)
  if rate.align then return rate.period - clock.ms() % rate.period end
  return rate.period
end

local function set(state, count)
  local free = state.rate.capacity - count
  state.count = count
  state.free = free > 0 and free or 0
end

local function charge(state, units)
  set(state, state.count + units)
end

local function refund(state, units)
  set(state, math.max(0, state.count - units))
end

local function reset(state)
  return state.count > 0 and state.left or 0
end

local function wait(state)
  return state.left
end

-- parse parses "<count>:<end>", or returns nil.
local function parse(text, from)
  local count, ending = string.match(text, '^(%d+):(%d+)$', from)
  return numbers.digits(count or ''), numbers.digits(ending or '')
end

-- open sets the count, and left, the ms until the window ends. If no window is open, or one for too
-- long, it opens a new one.
local function open(state, value, from, to, now, cost)
  local rate, count, ending = state.rate, 0, 0
  if to >= from then
    count, ending = parse(value, from)
    if not count or not ending then return false end
  end
  state.now = (now - now % 1000) / 1000
  state.left = ending - state.now
  if state.left <= 0 then
    count = 0
  elseif state.left > rate.period then
    count = math.min(count, states.leaves_room(rate.capacity, cost))
  end
  if state.left <= 0 or state.left > rate.period then
    state.left = length(rate)
  end
  set(state, count)
  return true
end

local function save(state)
  local ending = state.now + state.left
  return string.format('%d:%d', state.count, ending), ending
end

local function plain(value, expiry)
  return string.format('%s:%d', value, expiry)
end

------------------------------------------------------------------- one rate: the count is the value

-- take decides the common call without a state, if the key holds a count or nothing. It fills in
-- the reply and returns true, or returns false if the call needs open.
local function take(key, limit, cost, reply)
  local rate = limit.rate
  local value = redis.pcall('GETRANGE', key, '0', '31')
  local count = value == '' and 0 or type(value) == 'string' and plain_count(value)
  if not count then return false end
  local left = count > 0 and redis.call('PTTL', key) or length(rate)
  if left <= 0 or left > rate.period then return false end
  local free = rate.capacity - count
  reply[2], reply[6] = rate.capacity, 1
  if cost > free then
    reply[1], reply[3] = 0, free > 0 and free or 0
    reply[4], reply[5] = cost > rate.capacity and -1 or left, count > 0 and left or 0
    return true
  end
  reply[1], reply[3], reply[4], reply[5] = 1, free - cost, 0, left
  local units = cost == 1 and '1' or numbers.arg(cost)
  if count > 0 then
    redis.call('INCRBY', key, units)
  elseif rate.align then
    states.put(key, units, clock.ms() + left) -- on Redis 7.0, time has advanced since the window's length was computed
  else
    redis.call('PSETEX', key, left == rate.period and rate.period_text or numbers.arg(left), units)
  end
  return true
end

local function write(key, _, at)
  local state = states.list[at]
  if state.count == 0 then return redis.call('DEL', key) end
  states.put(key, numbers.arg(state.count), state.now + state.left)
end

-------------------------------------------------------------------------------------------

local function complete_rate(rate)
  rate.capacity, rate.period_text = rate.count, string.format('%d', rate.period)
  rate.charge, rate.refund, rate.spend, rate.reset, rate.wait = charge, refund, charge, reset, wait
end

local function complete(limit)
  packed.complete(limit)
  if limit.rate then
    limit.take, limit.write = take, write
  end
end

algorithms.fixed_window = {
  name = 'fixed_window',
  prefix = PREFIX,
  options = {
    align = function(text) return text == 'clock' and text or nil, '"clock"' end,
  },
  rate = complete_rate,
  limit = complete,
  holds = function(head) return prefixed(head) or plain_count(head) ~= nil end,
  spent = function(key, from)
    return plain_count(redis.call('GETRANGE', key, from, from + 31)) or parse(packed.first_text(key, from, PREFIX)) or 0
  end,
  open = open,
  save = save,
  plain = plain,
}
end

--@ src/algorithms/gcra.lua
do
-- gcra: continuous refill at n/period, capacity b (default n). This is the virtual scheduling form
-- of the generic cell rate algorithm (ITU-T I.371, ATM Forum TM 4.0). It keeps one theoretical
-- arrival time, TAT, which each unit taken advances by the emission interval T = period/n. A call
-- is allowed while TAT is at most b*T after now. (golang.org/x/time/rate keeps the same as a number
-- of tokens: b - (TAT - now)/T.) The debt is TAT - now: the time until the rate is full again.
--
-- Debts are counted in ticks. A tick is small enough that all debts are whole numbers, so only
-- replies and expiries are rounded. T is rate.interval ticks, b*T is rate.full ticks, and a unit of
-- the clock (1 ms or 1 us) is rate.ticks ticks. TAT is stored in one of two ways:
--
--   limit                      clock  the key's value                            its expiry
--   one rate, T of 1 ms or more   ms  "gcra", or "gcra-<k>": TAT is k ticks       TAT, rounded up. It is the state: PTTL
--                                     before the expiry                          gives the debt, without TIME
--   any other                     us  "gcra:<us>", or "gcra:<us>+<k>": TAT, and   TAT, rounded up
--                                     k ticks more; for several rates see src/35_packed.lua
--
-- A limit stored in one way reads states stored in the other. TAT is kept when n, period or burst
-- change: what was taken under the old limit stays taken. k is in ticks of the limit that wrote it.
-- If a unit of the clock has at most k ticks under the current limit, TAT is rounded up to the
-- unit.
--
-- A stored debt above (2b - 1)T is replaced. A call of this limit leaves at most b*T. A limit with
-- twice the burst leaves at most 2b*T, which is (2b - 1)T after one T. A larger debt was stored
-- before the period was lowered or the clock was set back, and would lock the key for longer than a
-- full refill. The debt that replaces it leaves room for just this call: the key is usable at once
-- at the new rate, but does not grant the old burst again.
--
-- leaky_bucket uses the same state and arithmetic.

local list = states.list
local FINENESS = 1000000000 -- if T is rounded up, the error is below T / FINENESS

-- ceil converts ticks into a longer unit of that many ticks, rounded up.
local function ceil(debt, ticks)
  if ticks == 1 then return debt end
  local over = debt % ticks
  return (over > 0 and debt + ticks - over or debt) / ticks
end

-- set sets the debt of a state. It replaces a debt above (2b - 1)T with one that leaves room for
-- this call, and reports whether it kept the debt.
local function set(state, debt, cost)
  local rate = state.rate
  local interval, full = rate.interval, rate.full
  local reached = debt + interval <= 2 * full
  if not reached then
    debt = interval * states.leaves_room(rate.capacity, cost)
  end
  local room = full - debt
  state.debt = debt
  state.free = room > 0 and (room - room % interval) / interval or 0
  return reached
end

local function charge(state, units)
  state.debt, state.free = state.debt + units * state.rate.interval, state.free - units
end

local function refund(state, units)
  set(state, math.max(0, state.debt - units * state.rate.interval), 1)
end

local function reset(state)
  return ceil(state.debt, state.rate.ticks_per_ms)
end

local function wait(state, cost)
  local rate = state.rate
  return ceil(state.debt + cost * rate.interval - rate.full, rate.ticks_per_ms)
end

------------------------------------------------------------------- the clock in us: TAT is in the value

-- Times of 16 digits in microseconds are in the years 2001 to 2286.
local TIME = '%d%d%d%d%d%d%d%d%d%d%d%d%d%d%d%d'

local function open(state, value, from, to, now, cost)
  local debt = 0
  if to >= from then
    local us, part, last = string.match(value, '^' .. TIME, from), '', from + 15
    if to > last then
      part = string.match(string.sub(value, last + 1, to), '^%+(%d+)$')
    end
    if not us or not part or to < last then
      return false
    elseif us - now >= 0 then
      local ticks = state.rate.ticks
      debt = (us - now) * ticks
      if part ~= '' then
        debt = debt + math.min(ticks, numbers.digits(part) or ticks)
      end
    end
  end
  state.now = now
  set(state, debt, cost)
  return true
end

local function save(state)
  local ticks = state.rate.ticks
  local part = state.debt % ticks
  local us = state.now + (state.debt - part) / ticks
  if part > 0 then return string.format('%d+%d', us, part), clock.ceil_ms(us + 1) end
  return string.format('%d', us), clock.ceil_ms(us)
end

local tats = {} -- the TAT of each rate of a call, in us; reused by the next call

-- take_us decides the common call without states. It applies if each T is a whole number of us and
-- the key holds nothing or the state of such a limit. It fills in the reply and returns true, or
-- returns false if the call needs open.
local function take_us(key, limit, cost, reply)
  local value = redis.pcall('GETRANGE', key, '0', '511')
  local held = value ~= ''
  if held and (type(value) ~= 'string' or not string.find(value, limit.shape)) then return false end
  local now, rates, size, at = clock.us(), limit.rates, limit.size, limit.first
  local binding, retry = 0, 0
  for i = 1, size do
    local rate, tat = rates[i], now
    if held then
      tat = tonumber(string.sub(value, at, at + 15))
      at = at + 19 -- 16 digits, then "16:" before the next time
      if tat < now then tat = now end
    end
    local full, units = rate.full, cost * rate.interval
    local debt = tat - now
    if debt + rate.interval > 2 * full then return false end
    tats[i] = tat
    if debt + units > full then
      if binding == 0 then binding = i end
      local ms = cost > rate.capacity and -1 or clock.ceil_ms(debt + units - full)
      if retry ~= -1 and (ms == -1 or ms > retry) then retry = ms end
    end
  end
  local allowed, least, last = binding == 0, numbers.MOST, 0
  for i = 1, size do
    local rate, tat = rates[i], tats[i]
    if allowed then
      tat = tat + cost * rate.interval
      tats[i] = tat
    end
    local room = rate.full - tat + now
    local free = room > 0 and (room - room % rate.interval) / rate.interval or 0
    if free < least then
      least = free
      if allowed then binding = i end
    end
    if tat > last then last = tat end
  end
  reply[1], reply[2], reply[3], reply[4] = allowed and 1 or 0, rates[binding].capacity, least, retry
  reply[5], reply[6] = clock.ceil_ms(last - now), 1
  if allowed then
    states.put(key, string.format(limit.format, unpack(tats, 1, size)), clock.ceil_ms(last))
  end
  return true
end

-- plain returns the texts for a value that does not begin with "gcra:".
local function plain(value, expiry)
  local old = 'leaky_bucket:' -- the prefix of leaky_bucket before 0.1.0
  if string.sub(value, 1, #old) == old then return string.sub(value, #old + 1) end
  return string.format('%d', expiry * 1000)
end

------------------------------------------------------------------- the clock in ms: TAT is the expiry

local VALUE = 'gcra'

-- part_of returns the k of a value, and text_of returns the value for a k.
local part_of = numbers.remembered(function(value)
  return value == VALUE and 0 or numbers.digits(string.match(value, '^gcra%-(%d+)$') or '')
end, {})
local text_of = numbers.remembered(function(part)
  return part == 0 and VALUE or string.format('gcra-%d', part)
end, {})

-- store writes a debt to a key. value is what the key holds, or nil to write the value in any case.
-- left is the ms until the key expires. If the value does not change, only the expiry is set. On
-- Redis 7.0, where the time advances during a call, the new expiry is computed from the old one and
-- not from now.
local function store(key, rate, debt, value, left)
  local ms, text = debt, VALUE
  if rate.ticks > 1 then
    ms = ceil(debt, rate.ticks)
    text = text_of(ms * rate.ticks - debt)
  end
  if text == value and CLOCK_STANDS then
    redis.call('PEXPIRE', key, ms)
  elseif text == value then
    redis.call('PEXPIREAT', key, string.format('%d', redis.call('PEXPIRETIME', key) + ms - left))
  elseif CLOCK_STANDS or not value then
    -- SET would store the value in a buffer sized for an earlier, longer argument.
    redis.call('PSETEX', key, ms == rate.ms and rate.ms_text or numbers.arg(ms), text)
  else
    redis.call('SET', key, text, 'PXAT', string.format('%d', redis.call('PEXPIRETIME', key) + ms - left))
  end
  return ms
end

-- take_ms decides the common call without a state. It applies if the key holds nothing or the state
-- of such a limit. It fills in the reply and returns true, or returns false if the call needs
-- open_ms.
local function take_ms(key, limit, cost, reply)
  local rate = limit.rate
  local interval, full, ticks = rate.interval, rate.full, rate.ticks
  local left, value = redis.call('PTTL', key), nil
  local debt = left * ticks
  local after = debt + cost * interval
  if left == -2 then
    debt, after = 0, cost * interval
  elseif left <= 0 or debt + interval > 2 * full then
    return false
  else
    value = redis.pcall('GETRANGE', key, '0', '31')
    if value ~= VALUE then
      local part = type(value) == 'string' and part_of(value)
      if not part then
        return false
      elseif part < ticks then
        debt, after = debt - part, after - part
      end
    end
  end
  reply[2], reply[6] = rate.capacity, 1
  local room = full - after
  if room >= 0 then
    reply[1], reply[3], reply[4] = 1, (room - room % interval) / interval, rate.delays and ceil(debt, ticks) or 0
    reply[5] = store(key, rate, after, value, left)
    return true
  end
  local missing = after - full
  room = full - debt
  if ticks > 1 then
    missing, debt = ceil(missing, ticks), ceil(debt, ticks)
  end
  reply[1], reply[3] = 0, room > 0 and (room - room % interval) / interval or 0
  reply[4], reply[5] = cost > rate.capacity and -1 or missing, debt
  return true
end

-- begin fills in a state. Its debt is the key's remaining ms, minus the k of its value (part).
-- value is as for store.
local function begin(at, rate, left, part, value, cost)
  local state, debt = states.new(at, rate), left * rate.ticks
  if part > 0 and part < rate.ticks and debt > 0 then
    debt = debt - part
  end
  state.left, state.value = left, value
  if not set(state, debt, cost) or left == 0 then state.value = nil end
end

local function fresh_ms(limit, at)
  begin(at, limit.rate, 0, 0, nil, 1)
end

local function open_ms(key, limit, at, cost)
  local left, value, part = redis.call('PTTL', key), nil, 0
  if left == -2 then
    left = 0
  else
    value = redis.pcall('GETRANGE', key, '0', '31')
    if value ~= VALUE then
      part = type(value) == 'string' and part_of(value)
      if not part then return states.adopt(key, limit, at, cost) end
    end
    if left < 0 then return states.missing_expiry(key) end
  end
  return begin(at, limit.rate, left, part, value, cost)
end

-- reopen_ms reads a state of gcra under a block that has ended, or one stored in us. The expiry of
-- a single rate is its TAT. The expiry of several rates is the latest TAT, so reopen_ms reads the
-- text of the first rate.
local function reopen_ms(key, limit, at, cost, found)
  local value, left = redis.call('GETRANGE', key, found.from, found.from + 31), found.left
  local prefix = string.match(value, '^([%a_]+:):')
  if prefix then
    local text = packed.first_text(key, found.from, prefix)
    local us = string.match(text, '^' .. TIME)
    left = 0
    if us then
      left = math.max(0, clock.ceil_ms(us + (#text == 16 and 0 or 1)) - clock.ms())
    end
  end
  begin(at, limit.rate, left, part_of(value) or 0, nil, cost)
end

local function write_ms(key, limit, at)
  local state = list[at]
  if state.debt == 0 then return redis.call('DEL', key) end
  store(key, limit.rate, state.debt, state.value, state.left)
end

------------------------------------------------------------------- limits

-- divide sets a rate's ticks for a clock with that many units in a ms. It reports whether all debts
-- can be counted in them, which requires that none exceeds 2^53.
local function divide(rate, units_per_ms)
  local period, count = rate.period * units_per_ms, rate.count
  local divisor = numbers.common_divisor(period, count)
  rate.ticks, rate.interval = count / divisor, period / divisor
  rate.full, rate.ticks_per_ms = rate.interval * rate.capacity, rate.ticks * units_per_ms
  rate.ms = ceil(rate.interval, rate.ticks) -- the expiry that the first take sets, in ms; ms_text for Redis 7.0
  rate.ms_text = string.format('%d', rate.ms)
  return 2 * rate.full <= numbers.MOST
end

-- round sets a rounded-up T for a rate that divide cannot handle: the smallest fraction interval /
-- ticks of a us that is above T and keeps all debts at or below 2^53. It narrows a lower and an
-- upper bound of T down the Stern-Brocot tree, many steps at a time as in Euclid's algorithm. below
-- and above are the distances of the bounds from T, times count and the ticks of the bound.
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

local function complete_rate(rate)
  rate.capacity = rate.burst or rate.count
  rate.charge, rate.refund, rate.spend, rate.reset, rate.wait = charge, refund, charge, reset, wait
end

local function complete(limit)
  limit.owner, limit.prefix = algorithms.gcra, 'gcra:'
  local rates = limit.rates
  if limit.rate and limit.rate.period >= limit.rate.count and divide(limit.rate, 1) then
    limit.open, limit.fresh, limit.reopen, limit.write, limit.take = open_ms, fresh_ms, reopen_ms, write_ms, take_ms
    return nil
  end
  packed.complete(limit)
  local whole = true
  for _, rate in ipairs(rates) do
    local wrong = not divide(rate, 1000) and round(rate) or nil
    if wrong then return wrong end
    whole = whole and rate.ticks == 1 and not rate.delays
  end
  if whole then
    limit.take = take_us
    limit.shape, limit.format, limit.first = '^gcra:' .. TIME .. '$', 'gcra:%d', 6
    if not limit.rate then
      limit.shape = '^gcra::' .. string.rep('16:' .. TIME, limit.size) .. '$'
      limit.format, limit.first = 'gcra::' .. string.rep('16:%d', limit.size), 10
    end
  end
  return nil
end

algorithms.gcra = {
  name = 'gcra',
  options = { burst = numbers.positive_option },
  rate = complete_rate,
  limit = complete,
  holds = function(head)
    return string.find(head, '^gcra:') ~= nil or part_of(head) ~= nil or string.find(head, '^leaky_bucket:') ~= nil
  end,
  charge = charge,
  open = open,
  save = save,
  plain = plain,
  in_place = true,
}
end

--@ src/algorithms/leaky_bucket.lua
do
-- leaky_bucket: a queue that drains at n/period and holds at most b (default n). A call that finds
-- room is admitted. Its retry_after_ms says how long to wait before it proceeds, so that admitted
-- calls are evenly spaced. The state and arithmetic are those of gcra: TAT is when the last
-- admitted call has left the queue. A call waits for those before it, which is the debt before it
-- is charged.

local gcra = algorithms.gcra

local function charge(state, units)
  state.delay = state.rate.reset(state)
  gcra.charge(state, units)
end

local function complete_rate(rate)
  gcra.rate(rate)
  rate.charge, rate.delays = charge, true
end

algorithms.leaky_bucket = {
  name = 'leaky_bucket',
  options = gcra.options,
  rate = complete_rate,
  limit = gcra.limit,
  holds = function() return false end, -- it writes states of gcra
  open = gcra.open,
  save = gcra.save,
  plain = gcra.plain,
  in_place = gcra.in_place,
}
end

--@ src/algorithms/sliding_log.lua
do
-- sliding_log is exact: never more than n in any span of one period. Each allowed call is stored
-- until it is one period old.
--
-- State: "sliding_log:" and a log of fixed-width entries. A long log is therefore searched and
-- extended in place, and never read as a whole:
--   5 bytes         units charged before the first entry
--   12 bytes each   the time (us, 7 bytes), and the units charged up to and including this call (5 bytes), big-endian
-- The sums wrap around: after SUMS - 1 comes 0. Only differences of two sums are used. The key
-- expires when the last entry has left the window.
--
-- A new n or period takes effect at once, for the stored entries too. A log with n units in the
-- future (the clock was set back) leaves room for just this call. Another algorithm's state counts
-- as one entry at the current time.
--
-- A state's log begins after byte `skip` of a value. `text` holds the value, or its first part,
-- from byte `offset` on; the rest is in `key`. A state has entries, their number; base, the sum
-- before the first entry; last and sum, the time and sum of the last entry; live, the first entry
-- that counts; and used, the units that count. added is the entry that a charge adds, and kept is
-- the log after a refund.

local PREFIX = 'sliding_log:'
local BASE, ENTRY = 5, 12
local SHORTEST = BASE + ENTRY
local CHUNK, LAST = 2048, '2047' -- bytes of the first read
local SUMS = 246952198016 -- below 0x3a00000000: a log never begins with ':', as the texts of several rates do
local LONGEST = 100000000 -- units in a log; a log with more is broken

-- entry returns the time and the sum of entry i. Entry 0 is the base.
local function entry(state, i)
  if i == 0 then return 0, state.base end
  local at = state.skip + BASE + ENTRY * (i - 1)
  local text, offset = state.text, state.offset
  if at - offset + ENTRY <= #text then return struct.unpack('>I7I5', text, at - offset + 1) end
  return struct.unpack('>I7I5', redis.call('GETRANGE', state.key, at, at + ENTRY - 1))
end

-- search returns the first entry from low to high for which passed(state, time, sum, value) is
-- false, or high if there is none.
local function search(state, low, high, passed, value)
  while low < high do
    local middle = (low + high - (low + high) % 2) / 2
    local at, sum = entry(state, middle)
    if passed(state, at, sum, value) then
      low = middle + 1
    else
      high = middle
    end
  end
  return low
end

local function is_over(_, at, _, since)
  return at <= since
end

local function leaves_more(state, _, sum, units)
  return (state.sum - sum) % SUMS > units
end

-- leaving returns the time and the number of the first live entry after which at most this many
-- units are left. In a full log it is usually the first.
local function leaving(state, units)
  local i = state.live
  local at, sum = entry(state, i)
  if leaves_more(state, at, sum, units) then
    i = search(state, i + 1, state.entries, leaves_more, units)
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
  state.text, state.offset, state.skip, state.stored = struct.pack('>I5I7I5', 0, now, units), 0, 0, false
  state.entries, state.base, state.first, state.last, state.sum = units > 0 and 1 or 0, 0, now, now, units
  state.live, state.added, state.kept = 1, nil, nil
  set(state, units)
end

-- read opens a state's log of size bytes, whose first base and entry are given. It returns false if
-- the log is broken.
local function read(state, size, cost, base, first, first_sum)
  local entries = (size - BASE) / ENTRY
  if entries % 1 ~= 0 or base >= SUMS then return false end
  local last, sum = first, first_sum
  state.entries, state.base = entries, base
  if entries > 1 then
    last, sum = entry(state, entries)
  end
  local units, before = (sum - base) % SUMS, sum
  if first > last or (first_sum - base) % SUMS > units or units > LONGEST then return false end
  state.last, state.sum, state.live, state.added, state.kept = last, sum, 1, nil, nil
  local now, rate = state.now, state.rate
  local since, capacity = now - rate.period * 1000, rate.capacity
  local used = units
  if first <= since then
    if last <= since then
      state.live = entries + 1
    else
      state.live = search(state, 2, entries, is_over, since)
      local _
      _, before = entry(state, state.live - 1)
    end
    used = (sum - before) % SUMS
  end
  if used > units then
    used = 0 -- the log is broken between its ends
  elseif used >= capacity and last > now and leaving(state, capacity - 1) > now then
    restart(state, states.leaves_room(capacity, cost))
    return true
  end
  set(state, used)
  return true
end

local function charge(state, units)
  local now = state.now
  if state.entries == 0 or now > state.last then
    state.last = now
  end
  state.sum = (state.sum + units) % SUMS
  state.added = struct.pack('>I7I5', state.last, state.sum)
  state.used, state.free = state.used + units, state.free - units
end

-- log_of returns a log of the live entries up to entry `to`, followed by the entry `more`.
local function log_of(state, to, more)
  local _, base = entry(state, state.live - 1)
  local from, after = state.skip + BASE + ENTRY * (state.live - 1), state.skip + BASE + ENTRY * to
  local entries = ''
  if after - state.offset <= #state.text then
    entries = string.sub(state.text, from - state.offset + 1, after - state.offset)
  elseif after > from then
    entries = redis.call('GETRANGE', state.key, from, after - 1)
  end
  return struct.pack('>I5', base) .. entries .. more
end

-- refund gives back the newest units first. It copies the entries before them, and returns the
-- error if these are too many, or nil.
local function refund(state, units)
  local left = state.used - units
  if left > 0 then
    local at, i = leaving(state, units)
    local err = states.too_much(ENTRY * (i - state.live))
    if err then return err end
    local _, base = entry(state, state.live - 1)
    state.last, state.sum = at, (base + left) % SUMS
    state.kept = log_of(state, i - 1, struct.pack('>I7I5', at, state.sum))
  end
  set(state, left > 0 and left or 0)
end

local function wait(state, cost)
  return clock.ceil_ms(leaving(state, state.rate.capacity - cost) + state.rate.period * 1000 - state.now)
end

-- expiry returns when the last entry leaves the window, in ms since the epoch.
local function expiry(state)
  return clock.ceil_ms(state.last + state.rate.period * 1000)
end

-- goes_on reports whether a new entry can be appended without rewriting the log: at most half of
-- its entries have left the window.
local function goes_on(state)
  return state.entries > 0 and state.live - 1 <= state.entries / 2
end

local function save(state)
  if goes_on(state) then state.live = 1 end
  return state.kept or log_of(state, state.entries, state.added or ''), expiry(state)
end

local function open(state, value, from, to, now, cost)
  state.now, state.text, state.offset, state.skip, state.stored = now, value, 0, from - 1, false
  if to - from + 1 >= SHORTEST then return read(state, to - from + 1, cost, struct.unpack('>I5I7I5', value, from)) end
  restart(state, 0)
  return to < from
end

------------------------------------------------------------------- one rate: a log in a key of its own

-- begin opens the log that starts after byte `offset` of a key's value. text is the part already
-- read. If the value is not a single log, begin calls another instead: the value may hold several
-- rates, or no limiter wrote it.
local function begin(key, limit, at, cost, text, offset, another)
  if #text < #PREFIX + SHORTEST then return another(key, limit, at, cost) end
  local prefix, base, first, first_sum = struct.unpack('>c12I5I7I5', text)
  if prefix ~= PREFIX or base >= SUMS then return another(key, limit, at, cost) end
  local state, size = states.new(at, limit.rate), #text
  if size == CHUNK then
    size = redis.call('STRLEN', key) - offset
  end
  state.key, state.text, state.offset, state.skip = key, text, offset, offset + #PREFIX
  state.stored = offset == 0 and size >= CHUNK -- a shorter log is rewritten, because APPEND allocates twice the memory
  state.now = clock.us()
  return not read(state, size - #PREFIX, cost, base, first, first_sum) and states.unreadable(key) or nil
end

local function open_key(key, limit, at, cost)
  local text = redis.pcall('GETRANGE', key, '0', LAST)
  if text == '' then
    return limit.fresh(limit, at)
  elseif type(text) == 'string' then
    return begin(key, limit, at, cost, text, 0, states.adopt)
  end
  return states.adopt(key, limit, at, cost)
end

local function reopen(key, limit, at, cost, found)
  local text = redis.call('GETRANGE', key, found.from, found.from + CHUNK - 1)
  return begin(key, limit, at, cost, text, found.from, function()
    return packed.reopen(key, limit, at, cost, found)
  end)
end

local function write_key(key, limit, at)
  local state = states.list[at]
  if not state.added or state.skip ~= #PREFIX or not goes_on(state) then
    packed.write(key, limit, at)
  elseif state.stored then
    redis.call('APPEND', key, state.added)
    redis.call('PEXPIREAT', key, numbers.arg(expiry(state)))
  else
    states.put(key, state.text .. state.added, expiry(state))
  end
end

-------------------------------------------------------------------------------------------

-- spent returns the units of the first rate's log, without reading it.
local function spent(key, from)
  local first, last = packed.first(key, from, PREFIX)
  local base = redis.call('GETRANGE', key, first, first + BASE - 1)
  local sum = redis.call('GETRANGE', key, last - BASE + 1, last)
  if last >= 0 and last - first < BASE or #base < BASE or #sum < BASE then
    return 0 -- the rate is full
  end
  base, sum = (struct.unpack('>I5', base)), (struct.unpack('>I5', sum))
  return (sum - base) % SUMS
end

local function complete_rate(rate)
  rate.capacity = rate.count
  rate.charge, rate.refund, rate.spend, rate.reset, rate.wait = charge, refund, restart, reset, wait
end

local function complete(limit)
  packed.complete(limit)
  if limit.rate then
    limit.open, limit.reopen, limit.write = open_key, reopen, write_key
  end
end

algorithms.sliding_log = {
  name = 'sliding_log',
  prefix = PREFIX,
  options = {},
  most = { field = 'count', sum = 100000, what = 'calls to be kept in logs', advice = '; sliding_window takes more' },
  rate = complete_rate,
  limit = complete,
  holds = packed.prefixed(PREFIX),
  spent = spent,
  in_place = true,
  open = open,
  save = save,
}
end

--@ src/algorithms/sliding_window.lua
do
-- sliding_window: n per sliding window, estimated from buckets=k counters per window (default 1).
-- Buckets begin at whole multiples of their width w = period/k since the epoch. The current bucket
-- and the k-1 before it count fully. The bucket before those counts for the part that the window
-- still covers. With k = 1 this is the two-counter estimate. Under steady traffic, the error
-- shrinks with k. Memory grows with it: k+1 small numbers. The worst case does not shrink: n units
-- at the end of a bucket, and as many as fit at the end of the k-th after it, are almost 2n within
-- one period.
--
-- State: "sliding_window:<w in ms>:<number of the newest bucket>:<its count>,<the one before>,...".
-- The key expires when the last count has left the window. Times are in whole milliseconds.
--
-- A new n takes effect at once. Counters of another width (another period or k) count from the
-- beginning of their bucket. If the state was written in the future (the clock was set back), its
-- sum leaves room for just this call.
--
-- Sums of counts are at most 2^53: counts of other limits may add up to more.
--
-- A state's counts are indexed by their distance from the current bucket: counts[0] is the current
-- one, and counts[k] the oldest that counts.

local PREFIX = 'sliding_window:'
local MOST_BUCKETS = 1000
local STATE = '^(%d+):(%d+):(%d[%d,]*)$'

-- set computes free, the units that still fit.
local function set(state)
  local rate, counts, sum = state.rate, state.counts, 0
  local last, width = rate.buckets, rate.width
  for i = 0, last - 1 do
    sum = sum + counts[i]
  end
  if sum > numbers.MOST then sum = numbers.MOST end
  local free = rate.capacity - sum - math.ceil(counts[last] * (width - state.into) / width)
  state.free = free > 0 and free or 0
end

local function reset(state)
  local counts, last = state.counts, state.rate.buckets
  for i = 0, last do
    if counts[i] > 0 then return (last + 1 - i) * state.rate.width - state.into end
  end
  return 0
end

-- place parses a text and adds its counts to the buckets in which they count now. It returns false
-- if the text is not a state.
local function place(state, value, from, now, cost)
  local rate, counts = state.rate, state.counts
  local width, bucket, list = string.match(value, STATE, from)
  width, bucket = numbers.digits(width or ''), numbers.digits(bucket or '')
  if not width or width == 0 or not bucket then return false end
  local err = states.too_many(0)
  if err then return false, err end
  local ahead, newest, sum = bucket * width > now, bucket, 0
  for digits in string.gmatch(list, '%d+') do
    local count = numbers.digits(digits)
    if not count then return false end
    local at = state.current - (width == rate.width and bucket or math.floor(bucket * width / rate.width))
    if at <= rate.buckets and not ahead then
      counts[at] = math.min(counts[at] + count, numbers.MOST)
    end
    sum = sum + count
    bucket = bucket - 1
  end
  states.too_many(newest - bucket)
  if ahead then
    counts[0] = math.min(sum, states.leaves_room(rate.capacity, cost))
  end
  return true
end

local function open(state, value, from, to, now_us, cost)
  local rate = state.rate
  local now = (now_us - now_us % 1000) / 1000
  state.counts = state.counts or {}
  for i = 0, rate.buckets do
    state.counts[i] = 0
  end
  state.now, state.into = now, now % rate.width
  state.current = (now - state.into) / rate.width
  if to >= from then
    local readable, err = place(state, value, from, now, cost)
    if not readable then return false, err end
  end
  set(state)
  return true
end

local function charge(state, units)
  state.counts[0] = state.counts[0] + units
  state.free = state.free - units
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
end

-- wait finds the bucket that does not fit beside the newer ones and the cost. The call fits when
-- enough of this bucket has left the window.
local function wait(state, cost)
  local rate, counts = state.rate, state.counts
  local width, room, at = rate.width, rate.capacity - cost, 0
  while at < rate.buckets and counts[at] <= room do
    room = room - counts[at]
    at = at + 1
  end
  return (rate.buckets - at) * width + math.ceil((counts[at] - room) * width / counts[at]) - state.into
end

-- save returns the counts as a text, without the empty ones at the end.
local function save(state)
  local counts, width = state.counts, state.rate.width
  local last = state.rate.buckets
  while counts[last] == 0 and last > 0 do
    last = last - 1
  end
  local text = string.format('%d:%d:%d', width, state.current, counts[0])
  if last == 1 then
    text = string.format('%s,%d', text, counts[1])
  elseif last > 1 then
    local list = {}
    for i = 0, last do
      list[i + 1] = string.format('%d', counts[i])
    end
    text = string.format('%d:%d:', width, state.current) .. table.concat(list, ',')
  end
  return text, state.now + state.reset
end

local function spent(key, from)
  local counts = string.match(packed.first_text(key, from, PREFIX), '^%d+:%d+:([%d,]+)$')
  local sum, read = 0, 0
  for digits in string.gmatch(counts or '', '%d+') do
    sum = sum + digits
    read = read + 1
  end
  return sum, states.too_many(read)
end

local function complete_rate(rate)
  rate.capacity, rate.buckets = rate.count, rate.buckets or 1
  rate.width = rate.period / rate.buckets
  rate.charge, rate.refund, rate.spend, rate.reset, rate.wait = charge, refund, charge, reset, wait
  if rate.buckets > MOST_BUCKETS then
    return string.format('buckets=%d is above %d', rate.buckets, MOST_BUCKETS)
  elseif rate.width % 1 ~= 0 then
    return string.format('buckets=%d does not divide the period into whole milliseconds', rate.buckets)
  end
end

algorithms.sliding_window = {
  name = 'sliding_window',
  prefix = PREFIX,
  options = { buckets = numbers.positive_option },
  most = { field = 'buckets', sum = 5000, what = 'buckets', advice = '' },
  rate = complete_rate,
  limit = packed.complete,
  holds = packed.prefixed(PREFIX),
  spent = spent,
  open = open,
  save = save,
}
end

--@ src/algorithms/token_bucket.lua
do
-- token_bucket: n tokens are added at each whole period since the first take, up to the capacity b
-- (default n). A full bucket starts over: the periods begin at the next take.
--
-- State: "token_bucket:<tokens>:<us>", the tokens left and when tokens were last added. The key
-- expires when the bucket is full.
--
-- If the limit changes, its n, b and period apply from the last addition on. Tokens above a lowered
-- b are lost. If the clock was set back, the remaining tokens can still be taken. An empty bucket
-- that would wait for longer than one full refill leaves room for just this call.

-- refill_us returns how many us it takes to add this many tokens.
local function refill_us(tokens, rate)
  local over = tokens % rate.count
  return ((tokens - over) / rate.count + (over > 0 and 1 or 0)) * rate.period * 1000
end

local function open(state, value, from, to, now, cost)
  local rate, tokens, added = state.rate, state.rate.capacity, now
  if to >= from then
    tokens, added = string.match(value, '^(%d+):(%d+)$', from)
    tokens, added = numbers.digits(tokens or ''), numbers.digits(added or '')
    if not tokens or not added then return false end
    local period, capacity = rate.period * 1000, rate.capacity
    if added < now then
      local periods = (now - added - (now - added) % period) / period
      tokens = tokens + periods * rate.count
      added = added + periods * period
    end
    if tokens >= capacity then
      tokens, added = capacity, now
    elseif tokens == 0 and added + period - now > refill_us(capacity, rate) then
      tokens, added = capacity - states.leaves_room(capacity, cost), now
    end
  end
  state.now, state.added, state.tokens, state.free = now, added, tokens, tokens
  return true
end

local function charge(state, units)
  local tokens = state.tokens - units
  state.tokens, state.free = tokens, tokens
end

local function refund(state, units)
  charge(state, -math.min(units, state.rate.capacity - state.tokens))
end

-- reset also stores in state.full when the bucket is full, in us.
local function reset(state)
  local missing = state.rate.capacity - state.tokens
  state.full = missing > 0 and state.added + refill_us(missing, state.rate) or state.now
  return clock.ceil_ms(state.full - state.now)
end

local function wait(state, cost)
  return clock.ceil_ms(state.added + refill_us(cost - state.tokens, state.rate) - state.now)
end

local function save(state)
  return string.format('%d:%d', state.tokens, state.added), clock.ceil_ms(state.full)
end

local function complete_rate(rate)
  rate.capacity = rate.burst or rate.count
  rate.charge, rate.refund, rate.spend, rate.reset, rate.wait = charge, refund, charge, reset, wait
end

algorithms.token_bucket = {
  name = 'token_bucket',
  prefix = 'token_bucket:',
  options = { burst = numbers.positive_option },
  rate = complete_rate,
  limit = packed.complete,
  holds = packed.prefixed('token_bucket:'),
  open = open,
  save = save,
}
end

--@ src/verbs/acquire.lua
do
-- ratelimit_acquire takes one of n leases, or renews the one that this ID already holds (a retry
-- takes no second one).
--   KEYS   one
--   ARGV   concurrency n lease=<period> or @policy, lease id (1 to 256 bytes)
--   Output { allowed, n, remaining, retry_after_ms, reset_after_ms, 1 }
--   Errors BADARGS BADLIMIT BADKEYS BADSTATE NOPOLICY

clock.register{
  function_name = 'ratelimit_acquire',
  description = 'Takes a lease, or prolongs the one that this id holds.',
  callback = function(keys, args)
    return leases.call('acquire', keys, args)
  end,
}
end

--@ src/verbs/block.lua
do
-- ratelimit_block denies the keys for a time, whatever their limits. Units taken before stay taken
-- under the block and continue to refill. A second block replaces the first, unless EXTEND is given
-- and the first ends later.
--   KEYS   one or more
--   ARGV   ms [EXTEND]
--   Output the number of keys, which are all blocked now
--   Errors BADARGS BADKEYS BADSTATE (a key is a request's or a usage key, or no limiter wrote it; no key is then blocked)

local OPTIONS = { EXTEND = true, extend = true }

-- block denies a key until `ends`, in ms since the epoch.
local function block(key, holding, ends)
  if holding.leases then return lease_sets.block(key, ends) end
  local expiry = holding.expiry
  local state = redis.call('GETRANGE', key, holding.from, '-1')
  if holding.from == 0 and state ~= '' then
    expiry = redis.call('PEXPIRETIME', key)
  end
  redis.call('SET', key, string.format('blocked:%d:%d:', ends, expiry) .. state, 'PXAT', math.max(ends, expiry))
end

clock.register{
  function_name = 'ratelimit_block',
  description = 'Denies the keys for some milliseconds, whatever their limits.',
  callback = function(keys, args)
    local extend = OPTIONS[args[2]]
    local list, err = holdings.all('block', keys, args, extend and 2 or 1)
    if not list then return err end
    local ms = numbers.positive(args[1])
    if not ms or ms > limits.LONGEST then
      return errors.new('BADARGS', '%s: the ms of a block are a whole number from 1 to %d', errors.quote(args[1]),
        limits.LONGEST)
    end
    for i, key in ipairs(keys) do
      if list[i].in_use then return states.in_use(key, list[i].in_use) end
    end
    err = holdings.too_large(keys, list, 'block')
    if err then return err end
    for i, key in ipairs(keys) do
      if not extend or list[i].blocked < ms then
        block(key, list[i], clock.ms() + ms)
      end
    end
    return #keys
  end,
}
end

--@ src/verbs/info.lua
do
-- ratelimit_info describes the deployed library.
--   KEYS none, ARGV none or a limit
--   Output { "version", text, "contract", integer, "build_id", text, "policies", { name, ... },
--            "shadow_denied", { name, count, ... } }; with a limit also
--            "limit", { for each key: { 1 if a shadow policy, else 0; for each rate: n, period in ms, capacity }, ... },
--            "algorithms", { the name of the algorithm for each key, ... }
--   Errors BADARGS BADKEYS BADLIMIT NOPOLICY

-- readings returns two lists with one entry for each key: the numbers read from the limit, and the
-- name of its algorithm.
local function readings(limit)
  local list, names = {}, {}
  for i, part in ipairs(limit.limits or { limit }) do
    list[i], names[i] = { limit.shadow and 1 or 0 }, part.algorithm.name
    for _, rate in ipairs(part.rates) do
      for _, number in ipairs{ rate.count, rate.period, rate.capacity } do
        list[i][#list[i] + 1] = number
      end
    end
  end
  return list, names
end

clock.register{
  function_name = 'ratelimit_info',
  description = 'Returns the version, the contract, the build id and the policies of this library.',
  flags = { 'no-writes', 'allow-stale' },
  callback = function(keys, args)
    if #keys > 0 then
      return errors.new('BADKEYS', '%s: info takes no key', errors.quote(keys[1]))
    elseif #args > 1 then
      return errors.new('BADARGS', '%s: info takes one limit, or none', errors.quote(args[2]))
    end
    local names = policies.names()
    local reply = {
      'version', VERSION, 'contract', CONTRACT, 'build_id', BUILD_ID, 'policies', names, 'shadow_denied', shadows.counts(),
    }
    if args[1] then
      local limit, err = limits.of(args[1])
      if not limit then return err end
      local list, kinds = readings(limit)
      for _, field in ipairs{ 'limit', list, 'algorithms', kinds } do
        reply[#reply + 1] = field
      end
    end
    return reply
  end,
}
end

--@ src/verbs/peek.lua
do
-- ratelimit_peek returns what ratelimit_take would, and writes nothing. It also runs with FCALL_RO
-- and on replicas.
--   KEYS   one for each limit
--   ARGV   limit [limit ...] [COST c | COST c1 ... cn] [UPTO]
--   Output { allowed, limit, remaining, retry_after_ms, reset_after_ms, index }, and three more with a shadow policy
--   Errors BADARGS BADLIMIT BADCOST BADKEYS BADSTATE NOPOLICY

local OPTIONS = { COST = true, UPTO = true }

clock.register{
  function_name = 'ratelimit_peek',
  description = 'Returns what ratelimit_take would, and changes nothing.',
  flags = { 'no-writes' },
  callback = function(keys, args)
    local request, err = requests.read(keys, args, OPTIONS)
    if not request then return err end
    local reply
    reply, err = decisions.decide(keys, request, 'charge')
    return states.finish(reply or err)
  end,
}
end

--@ src/verbs/refund.lua
do
-- ratelimit_refund gives units back to all keys, or to none if one of them is blocked. allowed is
-- then 0. A key never gets more than it needs to be full.
--   KEYS   one for each limit
--   ARGV   limit [limit ...] [COST c | COST c1 ... cn]
--   Output { allowed, limit, remaining, retry_after_ms, reset_after_ms, index }, and three more with a shadow policy
--   Errors BADARGS BADLIMIT BADCOST BADKEYS BADSTATE NOPOLICY

local OPTIONS = { COST = true }

clock.register{
  function_name = 'ratelimit_refund',
  description = 'Gives cost back to the keys, never beyond full.',
  callback = function(keys, args)
    local request, err = requests.read(keys, args, OPTIONS)
    if not request then return err end
    local reply
    reply, err = decisions.decide(keys, request, 'refund')
    if reply then decisions.write(keys, request) end
    return states.finish(reply or err)
  end,
}
end

--@ src/verbs/release.lua
do
-- ratelimit_release gives a lease back. It cannot free another caller's lease, or free one twice.
--   KEYS   one
--   ARGV   concurrency n lease=<period> or @policy, lease id (1 to 256 bytes)
--   Output 1, or 0 if this ID holds no lease, or no longer does
--   Errors BADARGS BADLIMIT BADKEYS BADSTATE NOPOLICY

clock.register{
  function_name = 'ratelimit_release',
  description = 'Gives a lease back: 1, or 0 if this id holds none.',
  flags = { 'allow-oom' },
  callback = function(keys, args)
    return leases.call('release', keys, args)
  end,
}
end

--@ src/verbs/renew.lua
do
-- ratelimit_renew extends a held lease. A lapsed lease stays lost: allowed is 0 and retry_after_ms
-- is -1.
--   KEYS   one
--   ARGV   concurrency n lease=<period> or @policy, lease id (1 to 256 bytes)
--   Output { allowed, n, remaining, retry_after_ms, reset_after_ms, 1 }
--   Errors BADARGS BADLIMIT BADKEYS BADSTATE NOPOLICY

clock.register{
  function_name = 'ratelimit_renew',
  description = 'Prolongs a lease that is held.',
  callback = function(keys, args)
    return leases.call('renew', keys, args)
  end,
}
end

--@ src/verbs/reset.lua
do
-- ratelimit_reset deletes the keys with all that they hold: states, blocks, leases, replies (ONCE)
-- and usage records.
--   KEYS   one or more
--   ARGV   none
--   Output the number of keys that existed
--   Errors BADARGS BADKEYS BADSTATE (no limiter wrote one of the keys; no key is then deleted)

clock.register{
  function_name = 'ratelimit_reset',
  description = 'Forgets the keys; returns how many held something.',
  flags = { 'allow-oom' },
  callback = function(keys, args)
    local list, err = holdings.all('reset', keys, args, 0)
    if not list then return err end
    local changed = 0
    for _, key in ipairs(keys) do
      changed = changed + redis.call('UNLINK', key)
    end
    return changed
  end,
}
end

--@ src/verbs/take.lua
do
-- ratelimit_take decides, and consumes if every limit allows.
--   KEYS   one for each limit, then one for ONCE and one for TRACK, in the order of these options
--   ARGV   limit [limit ...] [COST c | COST c1 ... cn] [UPTO] [ONCE ttl_ms] [TRACK]
--   Output { allowed, limit, remaining, retry_after_ms, reset_after_ms, index }, and three more with a shadow policy
--   Errors BADARGS BADLIMIT BADCOST BADKEYS BADSTATE NOPOLICY

local OPTIONS = { COST = true, UPTO = true, ONCE = true, TRACK = true }

local decide_one = decisions.one

local function take(keys, request)
  if request.ONCE then
    local before, err = once.read(request.ONCE)
    if before or err then return before or err end
  end
  local err = request.TRACK and tracking.read(request.TRACK)
  if err then return err end
  local reply, charged = decisions.take(keys, request)
  if not reply then
    return charged -- the error
  end
  if request.groups then shadows.count(request) end
  if charged and request.ONCE then
    once.keep(request.ONCE, reply, request.ttl)
  end
  if request.TRACK then
    tracking.note(request.TRACK, request.passes, not request.passes and 0 or request.UPTO and reply[1] or request.costs[1])
  end
  return reply
end

redis.register_function{
  function_name = 'ratelimit_take',
  description = 'Decides whether a call may pass, and charges it if so: all limits or none.',
  callback = function(keys, args)
    clock.now = nil
    local limit = limits.known[args[1]]
    if limit and not limit.policy and #keys == 1 then -- the common call needs no request
      local cost = 1
      if #args > 1 then
        cost = #args == 3 and args[2] == 'COST' and numbers.whole(args[3])
      end
      local reply = cost and decide_one(keys[1], limit, cost)
      if reply then return reply end
    end
    local request, err = requests.read(keys, args, OPTIONS)
    return states.finish(request and take(keys, request) or err)
  end,
}
end

--@ src/verbs/unblock.lua
do
-- ratelimit_unblock lifts the blocks of the keys. Units taken from them before the block count
-- again.
--   KEYS   one or more
--   ARGV   none
--   Output the number of keys that were blocked
--   Errors BADARGS BADKEYS BADSTATE (no limiter wrote one of the keys; no key is then changed)

-- unblock lifts the block of a key and keeps the state under it, with its expiry. A state that
-- expires in this very millisecond is not stored, because Valkey would drop it at once.
local function unblock(key, holding)
  if holding.leases then return lease_sets.unblock(key) end
  local state = redis.call('GETRANGE', key, holding.from, '-1')
  if state == '' or holding.expiry <= clock.ms() then
    redis.call('DEL', key)
  else
    redis.call('SET', key, state, 'PXAT', holding.expiry)
  end
end

clock.register{
  function_name = 'ratelimit_unblock',
  description = 'Lifts the blocks of the keys; returns how many were blocked.',
  flags = { 'allow-oom' },
  callback = function(keys, args)
    local list, err = holdings.all('unblock', keys, args, 0)
    err = err or holdings.too_large(keys, list, 'unblock')
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
end

--@ src/verbs/usage.lua
do
-- ratelimit_usage returns what TRACK has counted under a usage key.
--   KEYS   one
--   ARGV   none
--   Output { "allowed", n, "denied", n, "cost", n, "first_ms", t, "last_ms", t, "interval_ms", 60000,
--            "series", { { start_ms, allowed, denied }, ... } }, times in ms since the epoch, all 0 if there is nothing
--   Errors BADARGS BADKEYS BADSTATE

clock.register{
  function_name = 'ratelimit_usage',
  description = 'Returns what TRACK has counted under a usage key.',
  flags = { 'no-writes' },
  callback = function(keys, args)
    if #keys ~= 1 then
      return errors.new('BADKEYS', 'the number of keys is %d; usage takes one', #keys)
    elseif #args > 0 then
      return errors.new('BADARGS', '%s: usage takes the key only', errors.quote(args[1]))
    end
    return tracking.check(keys[1]) or tracking.usage(keys[1])
  end,
}
end
