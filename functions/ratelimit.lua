#!lua name=ratelimit
-- Built from functions/src; do not edit. `make generate` builds it anew.

--@ src/00_library.lua
-- Rate limiting that decides on the server: one atomic decision a call.
--
-- This file opens the library. The build (functions/build.go) joins the sources in this order: src/*.lua by name,
-- src/algorithms/*.lua, src/verbs/*.lua. Each has a scope of its own, but for this file; what a file of src offers to
-- the others it puts into the table of its name: src/40_limits.lua fills `limits`.
--
-- While Redis loads a library nothing but redis.register_function, redis.log and the version constants exists: no
-- string, no math, no redis.call. Top-level code may therefore only build tables and functions.
-- What the functions take and return is written down in functions/CONTRACT.md.

local VERSION = '0.1.0'
local CONTRACT = 1
local BUILD_ID = '50ae217d318d'

-- Time stands still during a call from Redis 7.2 on. Before, two commands of one call can see two milliseconds, so
-- what is read of the clock must not be written back as a difference to "now". Valkey says 7.2.4 here, rightly.
local CLOCK_STANDS = (redis.REDIS_VERSION_NUM or 0) >= 0x00070200

-- name -> algorithm. Filled by src/algorithms/*.lua; each of them describes itself as src/40_limits.lua asks for.
local algorithms = {}

--@ src/10_errors.lua
local errors = {}
do
-- Errors are replies `RATELIMIT <REASON> "<value>": what is wrong, and what to do`. They are returned, never raised:
-- a raised error gets a suffix that differs between servers. A call that errs has changed nothing.

local SHOWN = 60 -- bytes of a refused value that are repeated in the error

-- quote shows a caller's value in one line of printable ASCII, cut to SHOWN bytes.
function errors.quote(value)
  local shown = string.gsub(string.sub(value, 1, SHOWN), '[^\32-\126]', function(c)
    return string.format('\\x%02x', string.byte(c))
  end)
  if #value > SHOWN then return string.format('"%s..." (%d bytes)', shown, #value) end
  return '"' .. shown .. '"'
end

-- new builds the reply. reason: BADARGS BADLIMIT BADCOST BADKEYS BADSTATE NOPOLICY. text is a format.
function errors.new(reason, text, ...)
  return redis.error_reply('RATELIMIT ' .. reason .. ' ' .. string.format(text, ...))
end

-- unusable is the error for a key that holds something else than it is used for. what names its type or its length, and never
-- its bytes.
function errors.unusable(key, what)
  return errors.new('BADSTATE', 'key %s %s; give the limiter a key of its own, or delete this one', errors.quote(key), what)
end

-- failed is the error for a command that has failed on a key: of another type than expected says.
function errors.failed(key, failure, expected)
  if string.sub(failure.err, 1, 9) == 'WRONGTYPE' then return errors.unusable(key, expected) end
  return failure
end
end

--@ src/15_clock.lua
local clock = {}
do
-- The server's time, read once a call: every limit of a call sees the same moment, also on Redis 7.0, where time goes on
-- during one. Every function begins by forgetting it: clock.register sees to that, and ratelimit_take does so itself, to
-- save a call.

-- register registers a function as redis.register_function does.
function clock.register(definition)
  local callback = definition.callback
  definition.callback = function(keys, args)
    clock.now = nil
    return callback(keys, args)
  end
  redis.register_function(definition)
end

-- us returns whole microseconds since the epoch.
function clock.us()
  local now = clock.now
  if not now then
    local time = redis.call('TIME')
    now = time[1] * 1000000 + time[2]
    clock.now = now
  end
  return now
end

-- ms returns whole milliseconds since the epoch, rounded down as Redis rounds when keys expire.
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
-- Numbers as callers write them. A Lua number is a double: whole numbers are exact up to 2^53 and not beyond, and
-- tonumber takes "inf", "nan", "0x10" and "1e3" as well, none of which may ever reach a decision.

local LARGEST = '9007199254740992' -- 2^53

numbers.MOST = 9007199254740992

numbers.WHOLE = 'a whole number from %s to ' .. LARGEST

-- whole reads decimal digits; nil for anything else, and for numbers above 2^53 (2^53 + 1 would round down to it).
function numbers.whole(text)
  if not string.find(text, '^%d+$') then
    return nil
  elseif #text >= #LARGEST then
    text = string.match(text, '^0*(%d+)$')
    if #text > #LARGEST or (#text == #LARGEST and text > LARGEST) then return nil end
  end
  return tonumber(text)
end

-- digits is whole for a text that is known to be decimal digits, or empty: nil.
function numbers.digits(text)
  local n = tonumber(text)
  if not n or n < numbers.MOST then return n end
  return numbers.whole(text)
end

-- arg returns a whole number as an argument for a command. Redis 7.0 takes 0.3 to 0.7 us to write a number down, more than
-- string.format does; later versions do so at once.
function numbers.arg(n)
  if CLOCK_STANDS then return n end
  return string.format('%d', n)
end

-- positive is whole from 1 on.
function numbers.positive(text)
  local n = numbers.whole(text)
  return n ~= 0 and n or nil
end

-- positive_option reads the value of a limit's option: the number, or nil and what was expected.
function numbers.positive_option(text)
  return numbers.positive(text), string.format(numbers.WHOLE, '1')
end

-- remembered returns a function that reads a text as `read` does, which returns nil and perhaps an error for what it
-- cannot, and that remembers up to 1,000 texts that it could, in `known`: a look into a table costs a tenth of a pattern.
function numbers.remembered(read, known)
  local size = 0
  return function(text)
    if known[text] then return known[text] end
    local value, err = read(text)
    if value then
      if size >= 1000 then
        for forgotten in pairs(known) do
          known[forgotten] = nil
        end
        size = 0
      end
      size = size + 1
      known[text] = value
    end
    return value, err
  end
end

-- common_divisor of two positive whole numbers (Euclid).
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
-- The leases of a key: a sorted set, member "lease:<id>", score the time in ms since the epoch at which it lapses. A block
-- is the member "blocked", which lapses with the block. The key expires when the last of them lapses.
--
-- The set also says how long each lease was given for, in members whose scores are below 0, where no time is: "length", minus
-- the ms, if all leases were given for the same; else "given:<id>" for each lease, minus the time at which it was given.

lease_sets.MEMBER = 'lease:'
lease_sets.BLOCK = 'blocked'
lease_sets.LENGTH = 'length'
lease_sets.GIVEN = 'given:'

local NO_LEASES = 'does not hold leases'
local EARLIEST = 1000000000000 -- ms since the epoch, 2001: what lapses before is no lease

-- last returns the ms since the epoch at which the last member of a key lapses; 0 if it holds nothing. Or nil and the error
-- if it holds anything else. from: '-1', or '-2' for a call that may take the last member away: the key then expires with the
-- one before it, whose score is checked too, and returned.
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

-- unusable is the error for a key with scores that no limiter wrote.
function lease_sets.unusable(key)
  return errors.unusable(key, NO_LEASES)
end

-- settle moves the key's expiry to where its last member lapses.
function lease_sets.settle(key)
  local last = redis.call('ZRANGE', key, '-1', '-1', 'WITHSCORES')
  if last[2] then
    redis.call('PEXPIREAT', key, last[2])
  end
end

-- blocked_until returns when the block ends, ms since the epoch; 0 without one.
function lease_sets.blocked_until(key)
  return tonumber(redis.call('ZSCORE', key, lease_sets.BLOCK) or 0)
end

-- outlived returns for how many ms more a key is blocked whose leases have all lapsed; nil if there is a lease, or no set.
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
-- States: what a key holds, and what a call has read of it.
--
-- A key holds a string with an expiry (the leases of concurrency: a sorted set; a usage record: a hash). The string says
-- by its form who wrote it, so that a key of another kind is refused before anything is written. functions/STATE.md has the forms.
--
-- What a call reads becomes one table for each rate of each key, in states.list. The tables are used again by the next
-- call. All algorithms fill in
--   rate     the rate of the limit
--   free     how many units fit now, and after a charge or a refund how many fit then; -1 if the key is blocked
--   foreign  ms until the block of the key ends, or the state of another algorithm that was found in it; 0 for neither
-- and src/60_decisions.lua
--   index    of the key in the call, from 1
--   cost     what the call costs here
--   group    the limits that decide together: the enforced ones, or those of one shadow policy
--   reset    ms until the rate is full again
-- Further fields belong to the algorithm.

local list = {}
states.list = list

-- new returns the state at a place of the list, for its algorithm to fill in.
function states.new(at, rate)
  local state = list[at]
  if not state then
    state = {}
    list[at] = state
  end
  state.rate, state.foreign = rate, 0
  return state
end

-- leaves_room returns the most units that may count as spent so that just this call finds room: what a state that
-- cannot hold under this limit is taken for.
function states.leaves_room(capacity, cost)
  return capacity - (cost > 1 and cost <= capacity and cost or 1)
end

------------------------------------------------------------------- what a key holds

local HEAD = 128 -- bytes of a value that tell what it is, and until when it is blocked

-- missing_expiry: the state is ours but somebody took its expiry away (PERSIST, SET without KEEPTTL).
function states.missing_expiry(key)
  return errors.unusable(key, 'holds a limiter state without an expiry')
end

states.REQUEST = 'the reply to a request (ONCE)'

-- in_use: the library wrote this, for something else.
function states.in_use(key, what)
  return errors.new('BADSTATE', 'key %s holds %s; give each use a key of its own', errors.quote(key), what)
end

-- unreadable: no limiter wrote the string in this key, although it may look like one of ours. The error does not show it,
-- because it may be a secret and errors end in logs.
function states.unreadable(key)
  local size = redis.call('STRLEN', key)
  return errors.unusable(key, string.format('holds a string of length %d, which no limiter wrote', size))
end

-- owner returns the algorithm that wrote a string, given its beginning; or nil.
function states.owner(head)
  for _, algorithm in pairs(algorithms) do
    if algorithm.holds(head) then return algorithm end
  end
  return nil
end

-- What look finds in a key.
--   leases   whether it is a set of leases, which have all lapsed under a block
--   request  whether it is the reply to a request (ONCE)
--   blocked  ms for which the key is still blocked, 0 if it is not
--   from     where the state begins in the value, in bytes: behind the words of a block, if there is one
--   expiry   of a state under a block, ms since the epoch; 0 if there is none
--   owner    the algorithm whose state it is, nil if there is none
--   left     ms until the state expires: it is there to the end of the ms in which it does, under a block as without one;
--            below 0 if there is none any more
local found = {}

-- look tells what a key holds, and reads no more than the head of it. Returns found; or nil and the error for a key that
-- can be no limiter's.
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

-- adopt opens a limit over a key that does not hold its usual state: one that is blocked, or holds the state of another
-- algorithm or another form of its own. Returns the error, or nil.
--
-- What another algorithm has left is carried over: a change of algorithm neither hands out a second burst nor locks the
-- key out, and callers with the old and the new limit side by side share one allowance. It counts as units spent now;
-- a call that they deny has to wait until the old state has run out. A state that runs for longer than the rate takes to
-- refill leaves room for just this call.
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
  local counted = owner.spent and owner.spent(key, it.from)
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

------------------------------------------------------------------- what is written into keys

-- forget is called with every key into which another state is written than an algorithm may remember of it: gcra does.
function states.forget() end

-- put stores a string in a key until the time of its expiry, ms since the epoch. An algorithm that has something cheaper
-- for a common call sets the expiry itself: gcra, fixed_window, sliding_log.
function states.put(key, value, expiry)
  states.forget(key)
  redis.call('SET', key, value, 'PXAT', numbers.arg(expiry))
end
end

--@ src/35_packed.lua
local packed = {}
do
-- Keeps the states of a limit as texts in the key's value, whatever the number of rates: "<algorithm>:<text>", or of
-- several rates "<algorithm>::<length>:<text><length>:<text>...". One read, one TIME, one SET.
--
-- Rates are known by their place: the first rate of a changed limit reads what the first one before has left. The text
-- of a rate that is full is ''. The algorithm gives
--   prefix                        "<algorithm>:"
--   open(state, value, from, to, now, cost)  fills in the state from the text between two bytes of a value, as it stands
--                                 at now (us), with room for this call; from an empty text: a rate that is full. Returns
--                                 false if the text is none of its own. The value ends at `to`
--   in_place                      optional: true if open can do with a value that goes on after `to`, which saves a copy
--   save(state)                   returns the text, and when the rate is full (ms since the epoch)
--   plain(value, expiry)          optional: the text, or texts, of an own value of another form, that expires then (ms)

local HEAD, LAST = 512, '511' -- bytes: what most values are within

-- next_text returns where the text begins and ends that stands at byte `at` of a value of several rates; an empty one
-- after the last; nil if the value is broken.
local function next_text(value, at)
  if at > #value then return at, at - 1 end
  local _, last, digits = string.find(value, '^(%d+):', at)
  local length = numbers.digits(digits or '')
  if not length or last + length > #value then return nil end
  return last + 1, last + length
end

-- fill opens all rates of a limit from a value, after so many bytes of it. Returns the error, or nil.
local function fill(key, limit, at, cost, value, skipped)
  local now, open, rate, from, to = clock.us(), limit.algorithm.open, limit.rate, skipped + 1, #value
  if from > to and skipped > 0 then
    return states.unreadable(key)
  elseif rate and open(states.new(at, rate), value, from, to, now, cost) then
    return nil
  end
  local several, in_place = string.byte(value, from) == 58, limit.algorithm.in_place -- ':'
  if several then
    to = from
  end
  for i = 1, limit.size do
    local state, readable = states.new(at + i - 1, limit.rates[i]), false
    if several or i > 1 then
      from, to = next_text(value, to + 1)
    end
    if from and several and not in_place then
      readable = open(state, string.sub(value, from, to), 1, to - from + 1, now, cost)
    elseif from then
      readable = open(state, value, from, to, now, cost)
    end
    if not readable then return states.unreadable(key) end
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
      value = redis.call('GET', key)
    end
  end
  return fill(key, limit, at, cost, value, value ~= '' and #prefix or 0)
end

-- reopen reads an own state under a block that has run out, or of another form.
function packed.reopen(key, limit, at, cost, found)
  local algorithm, prefix = limit.algorithm, limit.prefix
  local value = redis.call('GETRANGE', key, found.from, '-1')
  if string.sub(value, 1, #prefix) == prefix or not algorithm.plain then
    return fill(key, limit, at, cost, value, #prefix)
  end
  local expiry = found.from > 0 and found.expiry or redis.call('PEXPIRETIME', key)
  return fill(key, limit, at, cost, algorithm.plain(value, expiry), 0)
end

local parts = {} -- of a value that is put together; the next one uses it again

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

-- complete gives a limit the functions that read and write its key.
function packed.complete(limit)
  limit.open, limit.fresh, limit.reopen, limit.write = open, fresh, packed.reopen, packed.write
  limit.several = limit.prefix .. ':'
end

-- prefixed returns a function that tells whether a value begins with prefix.
function packed.prefixed(prefix)
  return function(head)
    return string.sub(head, 1, #prefix) == prefix
  end
end

-- first returns where the text of the first rate begins and ends in the value of a key: the prefix begins at byte `from`.
function packed.first(key, from, prefix)
  from = from + #prefix
  local digits = string.match(redis.call('GETRANGE', key, from, from + 20), '^:(%d+):')
  if digits then
    from = from + #digits + 2
    return from, from + (numbers.digits(digits) or 0) - 1
  end
  return from, -1
end

-- first_text returns that text.
function packed.first_text(key, from, prefix)
  return redis.call('GETRANGE', key, packed.first(key, from, prefix))
end
end

--@ src/40_limits.lua
local limits = {}
do
-- Limit expressions, parsed here and nowhere else:
--
--   [algorithm] rate [, rate ...]      rate = n/period [option=value ...]      period = [k]unit, unit = ms s m h d
--   @policy
--
-- A parsed limit has algorithm; owner, the algorithm as whose state its own is kept; rates (one or more), size, how many,
-- and rate, the only one; capacity, the least of theirs; asks, how much it asks for of what its algorithm bounds, and
-- weight, what part it is of all that one call may ask for; and the functions that read and write its key. A rate has
-- count (n), period (ms), the values of its options under their names, and what the algorithm adds. States are described in
-- src/30_states.lua.
--
-- An algorithm (src/algorithms/NAME.lua) is a table in `algorithms`:
--   name      as a limit names it
--   options   option name -> function(text) that returns its value, or nil and what was expected; {} for none
--   rate      function(rate): completes a rate, or returns what is wrong with it. Sets capacity, what field 2 of the reply
--             says: the most that can be taken at once; and functions that change a state or ask it:
--               charge(state, units)  takes units, and sets free to what it is afterwards
--               refund(state, units)  gives units back, never beyond full
--               spend(state, units)   puts units on a state that was full; mostly the same as charge
--               reset(state)          returns the ms until the rate is full again
--               wait(state, cost)     returns the ms until a cost fits that does not fit now, from 1 to the capacity
--   limit     function(limit): completes a limit, or returns what is wrong with it. packed.complete does so for an
--             algorithm that keeps its states as texts in the value (src/35_packed.lua says what it must offer). Sets
--               open(key, limit, at, cost)  reads the key into states.list, from place `at` on, one state for each
--                                             rate, with room for a call of this cost where the key holds what this limit
--                                             cannot have left; returns the error, or nil
--               fresh(limit, at)              the same for a key that holds nothing
--               reopen(key, limit, at, cost, found)  the same for an own state under a block that has run out, or of
--                                             another form. found: what states.look has found
--               write(key, limit, at)         stores the states, with an expiry when all are full; or deletes the key
--             and may set
--               take(key, limit, cost, reply)  decides over one key and writes, without states, where that is much cheaper:
--                                             fills in the six fields and returns true; or false where open has to look closer
--   holds     function(head): whether a string that begins so was written by this algorithm
--   spent     optional function(key, from): the units that a state stands for which begins at byte `from` of the value;
--             without it they are taken to be what the other limit refills until the expiry
--   most      optional, the bound of what one call may ask for: field, a field of the rates; sum, the most that these may
--             come to in a call; what and advice, for the errors
-- Or, for leases (concurrency): name, holds, leases, a function that reads the whole text of a limit, and acquire, renew
-- and release, functions(key, limit, lease id) that return the reply.

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

-- period reads "m" or "10s" to ms; nil and what is wrong with it.
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

-- not_an_option says what may have been meant by a word after a rate.
local function not_an_option(word, algorithm)
  if algorithm.options[word] then
    return string.format('the option %s has no value; write %s=..., without blanks', errors.quote(word), word)
  elseif string.find(word, '/', 1, true) then
    return string.format('%s is a second rate without a comma before it', errors.quote(word))
  end
  return string.format('%s is not an option of %s (its options: %s)', errors.quote(word), algorithm.name,
    names(algorithm.options))
end

-- parse_rate reads `n/period [option=value ...]`; returns the rate, or nil and what is wrong with it.
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

-- parse_rates reads the rates of a limit; returns the limit, or nil and what is wrong.
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

-- leases returns the parsed limit of ratelimit_acquire and its sisters; or nil and the error.
limits.leases = numbers.remembered(parse_leases, {})

-- of returns the parsed limit, which is shared and must not be changed, or nil and the error to reply. Parsing costs more
-- than deciding, and an application has few limits: limits.known has those that were asked for. A policy that is more than
-- one limit has `policy` (src/45_policies.lua).
limits.known = {}
limits.of = numbers.remembered(parse, limits.known)
end

--@ src/45_policies.lua
local policies = {}
do
-- Policies: names for limits, written into this text by the build (functions/policies.go), so that "@name" reads no key.
--
-- name -> { limit, limit ..., keys = { name of its key, ... }, shadow = true, track = true }
local POLICIES = {}

-- find returns the policy that "@name" asks for, or nil and the error.
function policies.find(text)
  local policy = POLICIES[string.sub(text, 2)]
  if policy then return policy end
  return nil, errors.new('NOPOLICY', '%s: no such policy in build %s; ratelimit_info lists the policies',
    errors.quote(text), BUILD_ID)
end

-- names returns the names of all policies, or of the shadows, sorted.
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

-- limits.policy returns for limits.of: the parsed limit of a policy that is one limit and nothing more. For another,
-- { policy = "@name", limits = parsed limits, keys =, shadow =, track = }, which policies.join puts into a request.
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

-- lease returns the text of the limit that acquire and its sisters take from a policy, and the policy's name if it is a
-- shadow; or nil and the error.
function policies.lease(text)
  local policy, err = policies.find(text)
  if not policy then
    return nil, err
  elseif #policy > 1 then
    return nil, errors.new('BADLIMIT', '%s: a policy of %d limits; a lease takes one', errors.quote(text), #policy)
  end
  return policy[1], policy.shadow and string.sub(text, 2)
end

-- join puts the limits of such a policy behind the first `count` of a request, which gets: composed, the policies in it;
-- tracks, if one of them says so; groups, the shadow policies in it; group_of, limit's position -> its shadow policy.
-- Returns how many limits there are now.
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

-- wanted_keys names the keys that the policies of a request take, for an error about their number. tracks: whether this
-- verb takes a usage key.
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
-- over one key for each limit, then one for ONCE and one for TRACK, in the order in which these are written.
--
-- A request has limits, and count, how many; costs, one for each; UPTO, its c; ONCE and TRACK, their keys; ttl, in ms;
-- enforced, whether any limit is not a shadow policy's; and what policies.join adds.

local OPTIONS = {
  COST = 'COST', UPTO = 'UPTO', ONCE = 'ONCE', TRACK = 'TRACK', cost = 'COST', upto = 'UPTO', once = 'ONCE', track = 'TRACK',
}
local MOST_LIMITS = 50

-- ONES are the costs of a call without COST. They are never changed.
local ONES = {}
for i = 1, MOST_LIMITS do
  ONES[i] = 1
end

-- The request of a call, which the next call uses again. optional: whether it has more than limits.
local request = { limits = {}, costs = ONES }

-- renew takes from the request what the last call had more than limits.
local function renew()
  request.COST, request.UPTO, request.ONCE, request.TRACK, request.ttl, request.tracks = nil, nil, nil, nil, nil, nil
  request.costs, request.composed, request.groups, request.group_of, request.optional = ONES, nil, nil, nil, false
end

-- read_limits reads the limits. Returns the position after them; or nil and the error.
local function read_limits(args)
  if request.optional then renew() end
  local list, known, at, count, weight = request.limits, limits.known, 1, 0, 0
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
    end
    at = at + 1
    text = args[at]
  end
  request.count, request.weight = count, weight
  return at
end

-- read_costs reads the numbers that begin at position at. Returns them; or nil and the error.
local function read_costs(args, at)
  local costs, text = {}, args[at]
  while text and not OPTIONS[text] do
    local cost = numbers.whole(text)
    if not cost then
      return nil, errors.new('BADCOST', '%s: a cost is ' .. numbers.WHOLE, errors.quote(text), '0')
    end
    costs[#costs + 1] = cost
    text = args[at + #costs]
  end
  return costs
end

-- read_options reads what follows the limits. allowed: the options that the verb has. Returns how many keys have a
-- meaning; or nil and the error.
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

-- within_capacity returns the costs of UPTO: no more than the least capacity of the limits that decide together.
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

-- spread gives the request a cost for each limit. Returns the error, or nil.
local function spread()
  local count, costs, upto = request.count, request.COST or { 1 }, request.UPTO
  if upto and #costs ~= 1 then
    return errors.new('BADARGS', 'the number of costs is %d; UPTO takes the same from every key: give it one', #costs)
  elseif #costs ~= 1 and #costs ~= count then
    return errors.new('BADARGS', 'the number of costs is %d and the number of limits %d; give one cost for all, or one for '
      .. 'each', #costs, count)
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

-- excess returns the error for limits that are too much for one call, or nil.
local function excess()
  if request.count > MOST_LIMITS then
    request.limits = {} -- keeps no list that long
    return errors.new('BADARGS', '%d limits; one call takes at most %d', request.count, MOST_LIMITS)
  end
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

-- read returns the request; or nil and the error.
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
  if not err and (count > MOST_LIMITS or request.weight > 1) then
    err = excess()
  end
  if err then return nil, err end
  return request
end
end

--@ src/55_shadows.lua
local shadows = {}
do
-- How many calls each shadow policy let through that it would have denied: since this library was loaded, on this node.
local denied = {}

local function note(name)
  denied[name] = (denied[name] or 0) + 1
end

-- count notes the shadow policies of a take that would have denied it.
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

-- lease turns the reply of acquire or renew under a shadow policy: a lease that would have been refused is not held.
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
-- One decision over the rates of one or several keys: all of them are charged, or none. First every key is read into a
-- state for each rate (src/30_states.lua); then the states decide, are charged and summed up; what was charged is written
-- last. A call that errs has therefore changed nothing.
--
-- Shadow policies decide and never deny: they are tried on real traffic before they are enforced. In a call, the limits
-- that are enforced make one decision, and each shadow policy (a group) makes one of its own: it is charged if it would
-- allow, and the call goes on whatever it says. If the enforced limits deny, nothing is charged anywhere.
--
-- The reply: { allowed, limit, remaining, retry_after_ms, reset_after_ms, index }, and with shadow policies
-- would_allowed, would_retry_after_ms, would_index: what the call would have been told if no policy of it were a shadow.

local list = states.list
local ENFORCED = {} -- the group of the limits that are enforced
local MOST_KEPT = 64 -- states

-- trim gives the states of a call of very many rates to the collector.
local function trim()
  for at = #list, MOST_KEPT + 1, -1 do
    list[at] = nil
  end
end

-- open reads every key of a request into states, and marks the groups that deny: this is where a call is denied. Returns
-- the error, or nil.
local function open(keys, request, verb)
  local asked, costs, group_of, refund, count = request.limits, request.costs, request.group_of, verb == 'refund', 0
  ENFORCED.denies = false
  if list[MOST_KEPT + 1] then trim() end
  for i = 1, request.count do
    local limit, cost, group = asked[i], costs[i], group_of and group_of[i] or ENFORCED
    if refund then cost = 1 end
    local err = limit.open(keys[i], limit, count + 1, cost)
    if err then return err end
    if refund then cost = 0 end -- it takes nothing, and is denied by a block alone; room is made for one unit
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

-- fit lowers the cost of a group to the units that fit, from 1 to most (UPTO). Returns them, 0 if not even one fits.
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

-- wait returns the ms after which a rate that denies would allow, -1 for never.
local function wait(state)
  if state.cost > state.rate.capacity then return -1 end
  return state.foreign > 0 and state.foreign or state.rate.wait(state, state.cost)
end

-- sum_up writes the six fields of a reply over the states of a group, of all states if it is nil. They are the least
-- remaining, the longest waits, and the binding rate: the first that denies, else the first with least remaining.
-- upto: field 1 is how many units were taken.
local function sum_up(reply, count, group, upto)
  local binding, denied, units, least = nil, false, upto and numbers.MOST or 1, numbers.MOST
  local longest_wait, longest_reset = 0, 0
  for i = 1, count do
    local state = list[i]
    if not group or state.group == group then
      local rate, free, cost, ms, reset = state.rate, state.free, state.cost, 0, 0
      if cost > free and not state.group.charged then -- it denies
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

-- The reply of a call. Redis turns it into integers before the next call begins, so one table serves all calls: a new one
-- each time costs 4 % of a denied call (bench/README.md).
local usual = { 0, 0, 0, 0, 0, 1 }

-- reply_to sums up what was decided.
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

-- decide_groups says which groups are charged.
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

-- decide decides over a request and charges the states, but writes nothing; or, with the verb refund, gives back to them,
-- to each group apart: a blocked key under a shadow policy does not keep the others from it. Returns the reply; or nil and
-- the error.
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
    if cost > 0 and state.group.charged then state.rate[verb](state, cost) end
  end
  return reply_to(request)
end

-- write stores what decide has charged or given back. Returns whether that was anything.
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

-- one is decide and write for one key with one rate, or one that its algorithm takes from without states: the common call.
-- Returns the reply, or the error; or nil where it takes a request.
function decisions.one(key, limit, cost)
  if limit.take and cost > 0 and limit.take(key, limit, cost, usual) then return usual end
  local rate = limit.rate
  if not rate then return nil end
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

-- take is decide and write. Returns the reply, and whether anything was charged; or nil and the error.
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
-- TRACK keeps in a key of its own how much a caller asks for: totals, first and last use, and a count a minute for the
-- last hour. It counts denied calls too, so it is apart from the limiter, which a denied call does not change.
--
-- State: a hash. allowed, denied, cost (of allowed calls), first, last (ms since the epoch), and a<minute>, d<minute>:
-- calls allowed and denied in that minute (minutes since the epoch). The key expires a day after the last use.

local NO_RECORD = 'does not hold a usage record'
local MINUTE = 60000
local SERIES = 60 -- minutes
local KEPT = 86400000 -- ms

-- fields returns some fields of a record as numbers, 0 for those that are not there; or nil and the error for a key that
-- holds anything else.
local function fields(key, ...)
  local values, any = redis.pcall('HMGET', key, ...), false
  if values.err then return nil, errors.failed(key, values, NO_RECORD) end
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

-- The fields of a decision in the minute of the last one, allowed and denied: most calls come in the same minute.
local current, allowed_now, denied_now = 0, '', ''

-- What read has read and note counts on from.
local values

-- read reads what a decision may change in a record, before anything is decided, so that nothing is left to go wrong after
-- it. Returns the error, or nil.
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

-- sum adds to a number of a record, which stops at 2^53.
local function sum(number, more)
  local result = number + more
  return numbers.arg(result < numbers.MOST and result or numbers.MOST)
end

-- note counts a decision in the record that read has read.
function tracking.note(key, allowed, cost)
  local now, total, in_minute, at = clock.ms(), 'denied', denied_now, 2
  if allowed then
    total, in_minute, at = 'allowed', allowed_now, 1
  end
  redis.call('HSET', key, 'last', numbers.arg(now), total, sum(values[at], 1), in_minute, sum(values[at + 2], 1), 'cost',
    sum(values[5], cost))
  if values[6] == 0 then
    states.forget(key)
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
  local flat = redis.call('HGETALL', key)
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
-- ONCE makes a retry safe: the reply of a call that was charged is kept under the request's key for as long as the
-- caller says, and given again, without a charge, to every call with that key. A call that was denied or cost nothing
-- leaves nothing behind, so its retry is decided anew.
--
-- State: "once:<the fields of the reply>" (nine if a shadow policy had a say, else six), expiring after the caller's ttl.

local SIX = '^once:(%d+),(%d+),(%d+),(%d+),(%d+),(%d+)'

-- read returns the reply that is kept under key, nil if there is none; or nil and the error.
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
  states.forget(key)
  redis.call('PSETEX', key, ttl, string.format(fields, unpack(reply)))
end
end

--@ src/75_leases.lua
local leases = {}
do
-- The arguments of acquire, renew and release: one key, a limit for leases, and the lease's id.

local LONGEST_ID = 256 -- bytes

-- call returns what the algorithm's function of that name does.
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
-- What verbs that take keys without a limit need to know of them: reset, block, unblock.

local MOST_KEYS = 250
local MOST_BYTES = 2500000

-- of returns what a key holds; or nil and the error.
--   leases   whether it is a set of leases
--   blocked  ms for which the key is blocked, 0 if it is not
--   from     of a string: where the state begins in the value, in bytes
--   expiry   of a state under a block: ms since the epoch, 0 if there is none
--   in_use   of what no block can cover: what it is
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

-- all checks the arguments of a verb that takes keys and `want` words more, and returns what each key holds; or nil and
-- the error.
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

-- too_large returns the error for blocked keys, or keys to block, whose states are too large to be copied in one call; or nil.
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
-- concurrency n lease=30s: at most n leases at a time. A lease has an id of the caller's choice, is held until it is
-- released, and lapses by the server's clock if it is not renewed in time: a caller that died keeps nobody out.
--
-- State: a sorted set, see src/28_lease_sets.lua.
--
-- A new n counts at once: leases beyond a lowered n are not taken away. A new lease time holds from the next acquire or
-- renew on: each lease has its own length, the time that it was given for last, and callers with several lease times may share
-- a key. A lease that would last for longer than its own length is far: the clock was set back. An acquire or renew cuts it
-- to its length.

local MEMBER, BLOCK, LENGTH, GIVEN = lease_sets.MEMBER, lease_sets.BLOCK, lease_sets.LENGTH, lease_sets.GIVEN
local MOST = 5000 -- leases
local AT_ONCE = 2000 -- words of a command

-- What a call has read of a key.
--   now      ms since the epoch
--   last     when the last member lapses; 0: the key holds no set
--   before   the score of the member before the last, for release
--   string   whether the key holds a block with nothing left under it
--   blocked  ms for which it is blocked, 0 if it is not
--   lapses   when the lease of this id lapses, 0 if it holds none
--   same     whether the set says that all leases were given for as long as this limit gives them
--   length   the ms for which all leases were given; nil if each has the time at which it was given
--   live     how many members have not lapsed
--   far      how many leases are far
local held = {}

-- look finds out whether a key holds a set of leases. from is that of lease_sets.last. Returns the error, or nil.
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

-- read looks, and fills in what else a decision needs. Returns the error, or nil.
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
    held.length = limit.lease -- a build that kept no lengths wrote the set
  end
  return held.blocked % 1 ~= 0 and lease_sets.unusable(key) or nil
end

-- far_ones returns how many leases are far.
local function far_ones(key)
  local length = held.length
  if not length then return redis.call('ZCOUNT', key, '-inf', string.format('(-%d', held.now)) end
  local latest = held.now + length
  if held.last <= latest then return 0 end
  local far = redis.call('ZCOUNT', key, string.format('(%d', latest), '+inf')
  return held.blocked > length and far - 1 or far
end

-- count returns how many leases are held, and how many count for a limit: if all of them are far, they leave room for one.
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

-- last_lease returns when the last lease lapses, below now if there is none.
local function last_lease(key)
  local two = redis.call('ZRANGE', key, '-2', '-1', 'WITHSCORES')
  return tonumber(two[two[#two - 1] == BLOCK and #two - 2 or #two] or 0)
end

-- add sets any number of scores and members, some at a time.
local function add(key, words)
  for from = 1, #words, AT_ONCE do
    redis.call('ZADD', key, unpack(words, from, math.min(from + AT_ONCE - 1, #words)))
  end
end

-- given_of returns the member that says when a lease was given.
local function given_of(member)
  return GIVEN .. string.sub(member, #MEMBER + 1)
end

-- part takes away what has lapsed, cuts what is far, and gives each lease the time at which it was given, where one length was
-- that of all.
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

-- cut_each cuts leases that are far, where each has the time at which it was given; at most AT_ONCE of them, as more would take
-- too long.
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

-- drop_each takes away what has lapsed, with the times at which it was given.
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

-- cut lets all leases that are far lapse at ms.
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

-- keep stores a lease, and takes away what has lapsed. others: how many leases are held beside it. Returns the reply.
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
      states.forget(key)
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

-- refuse returns the reply to a call that gets no lease. counted: how many leases count.
local function refuse(key, limit, counted, retry)
  local last = held.last
  if held.blocked > 0 and last > 0 then
    last = last_lease(key)
  end
  return { 0, limit.capacity, math.max(0, limit.capacity - counted), retry, math.max(0, last - held.now), 1 }
end

-- acquire takes a lease, or prolongs the one that this id holds: a retry does not take a second one.
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

-- renew prolongs a lease that is held, also while the key is blocked; a lease that has lapsed stays lost, and its
-- retry_after is -1.
local function renew(key, limit, id)
  local err = read(key, limit, id)
  if err then return err end
  local all, counted = count(key, limit)
  if held.lapses > held.now then return keep(key, limit, id, all - 1) end
  return refuse(key, limit, counted, -1)
end

-- release gives a lease back: 1, or 0 if this id holds none any more.
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

-- parse reads "concurrency n lease=30s"; returns the limit, or nil and what is wrong.
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
  limit.length = string.format('-%d', limit.lease) -- as a set has it
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
-- fixed_window: n per window. A window opens at the first take, or with align=clock at whole multiples of the period
-- since the epoch (UTC), and ends one period later. Time in whole milliseconds. take opens it where the key has one rate,
-- open anywhere else.
--
-- State. The key expires at the end of the window.
--   one rate:        the count, a plain integer; the window's end is the expiry
--   several rates:   each "<count>:<end of the window, ms since the epoch>", see src/35_packed.lua
--
-- A new n counts at once against what the open window has counted. A new period or align takes effect when the window
-- ends, but a window that would stay open for longer than the period (the period was lowered, or the clock was set
-- back) gives way to a new one, in which what was counted leaves room for just this call.

local PREFIX = 'fixed_window:'

local prefixed = packed.prefixed(PREFIX)

-- plain_count reads the value of one rate.
local plain_count = numbers.remembered(function(value)
  return string.find(value, '^[1-9]%d*$') and numbers.whole(value)
end, {})

-- length returns the ms of a window that opens now.
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

-- parse reads "<count>:<end>"; nil if it is not that.
local function parse(text, from)
  local count, ending = string.match(text, '^(%d+):(%d+)$', from)
  return numbers.digits(count or ''), numbers.digits(ending or '')
end

-- open fills in the count, and left, the ms of the window: of a new one where none is open, or one for too long.
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

-- take is the common call without a state: one key that holds a count, or nothing. Fills in the reply and returns true;
-- or returns false where open has to look closer.
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
  else
    states.forget(key)
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
-- gcra: continuous refill at n/period, capacity b (default n). The virtual scheduling form of the generic cell rate
-- algorithm (ITU-T I.371, ATM Forum TM 4.0): one theoretical arrival time, TAT, moves on by the emission interval
-- T = period/n for each unit taken, and a call is allowed while TAT stays within b*T of now. (golang.org/x/time/rate keeps
-- the same thing as a number of tokens: b - (TAT - now)/T.) Here debt = TAT - now: how long until the rate is full again.
--
-- Debts are counted in ticks, so small that all of them are whole numbers: they are rounded in replies and expiries only.
-- T is rate.interval ticks, b*T is rate.full ticks, and a unit of the clock, 1 ms or 1 us, is rate.ticks ticks. TAT is kept
-- in one of two ways:
--
--   limit                      clock  the key's value                            its expiry
--   one rate, T of 1 ms or more   ms  "gcra", or "gcra-<k>": TAT is k ticks       TAT, rounded up. It is the state: PTTL
--                                     before the expiry                          gives the debt, without TIME
--   any other                     us  "gcra:<us>", or "gcra:<us>+<k>": TAT, and   TAT, rounded up
--                                     k ticks more; of several rates see src/35_packed.lua
--
-- A limit of either way reads what one of the other has written, and TAT is kept when n, period or burst change: what was
-- taken under the old limit stays taken. k is in the ticks of the limit that wrote it; where a unit of the clock has no
-- more than k ticks now, TAT is rounded up to the unit.
--
-- A debt is believed up to (2b - 1)T. A call of this limit leaves at most b*T, and one of a limit with twice the burst at
-- most 2b*T, which is (2b - 1)T after one T. A debt above that was left before the period was lowered or the clock set
-- back, and would lock the key out for longer than a full refill. It is replaced by one that leaves room for just this
-- call: the key is usable at once, at the new rate, and the old burst is not handed out again.
--
-- leaky_bucket is the same state and arithmetic: see there.

local list = states.list
local FINENESS = 1000000000 -- where T has to be rounded up, it is by less than T / FINENESS

-- ceil turns ticks into a longer unit that has so many of them, rounded up.
local function ceil(debt, ticks)
  if ticks == 1 then return debt end
  local over = debt % ticks
  return (over > 0 and debt + ticks - over or debt) / ticks
end

-- set gives a state its debt, or, above (2b - 1)T, one with room for this call. Returns whether it was the debt itself.
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

-- 16 digits of microseconds are the years 2001 to 2286.
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

local tats = {} -- the TAT of each rate of a call, in us; the next call uses the table again

-- take_us decides the common call without states, where each T is a whole number of us and the key holds nothing, or what
-- such a limit has written. Fills in the reply and returns true; or returns false where open has to look closer.
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
      at = at + 19 -- 16 digits, and "16:" before the next
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

-- plain returns the texts of a value that does not begin with "gcra:".
local function plain(value, expiry)
  local old = 'leaky_bucket:' -- until build 0.1.0 a prefix of its own
  if string.sub(value, 1, #old) == old then return string.sub(value, #old + 1) end
  return string.format('%d', expiry * 1000)
end

------------------------------------------------------------------- the clock in ms: TAT is the expiry

local VALUE = 'gcra'

-- part_of reads the k of a value, text_of writes it.
local part_of = numbers.remembered(function(value)
  return value == VALUE and 0 or numbers.digits(string.match(value, '^gcra%-(%d+)$') or '')
end, {})
local text_of = numbers.remembered(function(part)
  return part == 0 and VALUE or string.format('gcra-%d', part)
end, {})

-- A key that denies is asked again and again. Once its value was seen to be "gcra", PTTL alone is enough to deny again.
-- seen has for such a key the ms that PTTL returned then. PTTL falls as long as nobody writes to the key; where it has not
-- fallen, somebody may have, and the value is read again. This saves a seventh of a denied call (bench/README.md). An entry
-- may be dropped at any time, and no call is allowed because of one. peek does not use it: a replica does not see what is
-- written to the key.
local MOST_SEEN = 10000 -- keys
local LONGEST_SEEN = 200 -- bytes of a key
local seen, seen_size = {}, 0

local function remember(key, left)
  if not seen[key] then
    if #key > LONGEST_SEEN then
      return
    elseif seen_size >= MOST_SEEN then
      seen = {}
      seen_size = 0
    end
    seen_size = seen_size + 1
  end
  seen[key] = left
end

function states.forget(key)
  if seen[key] then
    seen[key] = 0
  end
end

-- store writes a debt into a key. value is what the key holds, or nil if it must be written whatever it is; left, the ms until
-- it expires. Where the value stays the same only the expiry is moved. On Redis 7.0, where time goes on during a call, it is
-- moved from where it is, not from now.
local function store(key, rate, debt, value, left)
  local ms, text = debt, VALUE
  if rate.ticks > 1 then
    ms = ceil(debt, rate.ticks)
    text = text_of(ms * rate.ticks - debt)
  end
  if text ~= value then
    states.forget(key)
  end
  if text == value and CLOCK_STANDS then
    redis.call('PEXPIRE', key, ms)
  elseif text == value then
    redis.call('PEXPIREAT', key, string.format('%d', redis.call('PEXPIRETIME', key) + ms - left))
  elseif CLOCK_STANDS or not value then
    -- SET would keep the value in the memory of an earlier, longer argument.
    redis.call('PSETEX', key, ms == rate.ms and rate.ms_text or numbers.arg(ms), text)
  else
    redis.call('SET', key, text, 'PXAT', string.format('%d', redis.call('PEXPIRETIME', key) + ms - left))
  end
  return ms
end

-- take_ms decides the common call without a state, where the key holds nothing, or what such a limit has written. Fills in
-- the reply and returns true; or returns false where open_ms has to look closer.
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
  elseif after <= full or left >= (seen[key] or 0) then
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
  elseif value == VALUE then
    remember(key, left)
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

-- begin fills in a state: its debt is the ms that the key has left, less the k of its value (part). value is as in store.
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

-- reopen_ms reads a state of gcra under a block that has run out, or one that was kept in us. The expiry of one rate is its
-- TAT; that of several is the last of theirs, so there the text of the first rate is read.
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

-- divide gives a rate its ticks, for a clock with so many units in a ms. Returns whether all debts can be counted in them:
-- none is above 2^53.
local function divide(rate, units_per_ms)
  local period, count = rate.period * units_per_ms, rate.count
  local divisor = numbers.common_divisor(period, count)
  rate.ticks, rate.interval = count / divisor, period / divisor
  rate.full, rate.ticks_per_ms = rate.interval * rate.capacity, rate.ticks * units_per_ms
  rate.ms = ceil(rate.interval, rate.ticks) -- what the first take of a key writes, in ms, and as a text for Redis 7.0
  rate.ms_text = string.format('%d', rate.ms)
  return 2 * rate.full <= numbers.MOST
end

-- round gives a rate, where divide cannot, a T that is rounded up: the least fraction interval / ticks of a us above T with
-- which no debt is above 2^53. It narrows a lower and an upper bound of T down the Stern-Brocot tree, many steps at a time
-- as Euclid's algorithm does. below and above are by how much the bounds miss T, times count and the ticks of the bound.
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
-- leaky_bucket: a queue that is left at n/period and holds at most b (default n). A call that finds room is admitted
-- and told in retry_after_ms how long to wait before it proceeds, so that what is admitted comes out evenly spaced.
-- The same arithmetic and the same state as gcra: TAT is when the last one admitted has left; a call waits for those
-- before it, which is its debt before it is charged.

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
  holds = function() return false end, -- what it writes is gcra's
  open = gcra.open,
  save = gcra.save,
  plain = gcra.plain,
  in_place = gcra.in_place,
}
end

--@ src/algorithms/sliding_log.lua
do
-- sliding_log: exact: never more than n in any span of one period. Each allowed call is kept until it is one period old.
--
-- State: "sliding_log:" and a log of fixed-width entries, so that a long one is searched in place and appended to, and
-- never read as a whole:
--   5 bytes         units charged before the first entry
--   12 bytes each   when (us, 7 bytes), and the units charged up to and including this call (5 bytes), big-endian
-- The units are counted round: after SUMS - 1 comes 0. Of two sums only the difference is used.
-- The key expires when the last entry has left the window.
--
-- A new n or period counts at once against the log. A log with n units in the future (the clock was set back) leaves
-- room for just this call. Another algorithm's state counts as one entry of now.
--
-- A state's log begins behind byte `skip` of a value, of which `text` holds what comes behind byte `offset`, or the
-- beginning of that; the rest is in `key`. It has entries, base (the sum before the first), first and first_sum, last and
-- sum; live is the first entry that counts, used the units that do. added is the entry that a charge adds, kept the log
-- after a refund.

local PREFIX = 'sliding_log:'
local BASE, ENTRY = 5, 12
local SHORTEST = BASE + ENTRY
local CHUNK, LAST = 2048, '2047' -- bytes that the first read brings
local SUMS = 246952198016 -- below 0x3a00000000: a log never begins with ':', as the texts of several rates do
local LONGEST = 100000000 -- units in a log; one that says more is broken

-- entry returns the time and the sum of entry i; entry 0 is the base.
local function entry(state, i)
  if i == 0 then return 0, state.base end
  local at = state.skip + BASE + ENTRY * (i - 1)
  local text, offset = state.text, state.offset
  if at - offset + ENTRY <= #text then return struct.unpack('>I7I5', text, at - offset + 1) end
  return struct.unpack('>I7I5', redis.call('GETRANGE', state.key, at, at + ENTRY - 1))
end

-- search returns the first of the entries from low to high for which passed(state, time, sum, value) is false; high if there
-- is none.
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

-- leaving returns the time of the first live entry after which at most so many units are left, and its number. Of a log
-- that is full it is mostly the first.
local function leaving(state, units)
  local i = state.live
  local at, sum = entry(state, i)
  if leaves_more(state, at, sum, units) then
    i = search(state, i + 1, state.entries, leaves_more, units)
    at = entry(state, i)
  end
  return at, i
end

-- set brings the figures up to date with the units that count.
local function set(state, used)
  local rate = state.rate
  state.used = used
  state.free = used < rate.capacity and rate.capacity - used or 0
end

local function reset(state)
  return state.used > 0 and clock.ceil_ms(state.last + state.rate.period * 1000 - state.now) or 0
end

-- restart gives a state a log of one entry, of now; of none for 0 units.
local function restart(state, units)
  local now = state.now
  state.text, state.offset, state.skip, state.stored = struct.pack('>I5I7I5', 0, now, units), 0, 0, false
  state.entries, state.base, state.first, state.last, state.sum = units > 0 and 1 or 0, 0, now, now, units
  state.live, state.added, state.kept = 1, nil, nil
  set(state, units)
end

-- read opens the log of a state, of so many bytes, that begins with this base and entry. Returns false if it is none.
local function read(state, size, cost, base, first, first_sum)
  local entries = (size - BASE) / ENTRY
  if entries % 1 ~= 0 then return false end
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

-- log_of returns the live entries up to one, and one more, as a log.
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

-- refund takes back the newest units first.
local function refund(state, units)
  local left = state.used - units
  if left > 0 then
    local at, i = leaving(state, units)
    local _, base = entry(state, state.live - 1)
    state.last, state.sum = at, (base + left) % SUMS
    state.kept = log_of(state, i - 1, struct.pack('>I7I5', at, state.sum))
  end
  set(state, left > 0 and left or 0)
end

local function wait(state, cost)
  return clock.ceil_ms(leaving(state, state.rate.capacity - cost) + state.rate.period * 1000 - state.now)
end

-- expiry returns when the last entry has left the window, ms since the epoch.
local function expiry(state)
  return clock.ceil_ms(state.last + state.rate.period * 1000)
end

-- goes_on tells whether an entry is simply added to the log: while at most half of its entries have left the window.
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

-- begin opens the log that begins behind byte `offset` of the value of a key; text is the first that has been read of it.
-- What does not hold one log is another's: several rates', or no limiter's.
local function begin(key, limit, at, cost, text, offset, another)
  if #text < #PREFIX + SHORTEST then return another(key, limit, at, cost) end
  local prefix, base, first, first_sum = struct.unpack('>c12I5I7I5', text)
  if prefix ~= PREFIX or base >= SUMS then return another(key, limit, at, cost) end
  local state, size = states.new(at, limit.rate), #text
  if size == CHUNK then
    size = redis.call('STRLEN', key) - offset
  end
  state.key, state.text, state.offset, state.skip = key, text, offset, offset + #PREFIX
  state.stored = offset == 0 and size >= CHUNK -- a shorter one is rewritten: APPEND keeps twice the memory
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
-- sliding_window: n per sliding window, estimated from buckets=k counters a window (default 1). The buckets begin at
-- whole multiples of their width w = period/k since the epoch. What counts are the bucket of now, the k-1 before it, and
-- of the one before those the part that the window still covers; with k = 1 this is the two-counter estimate. Under
-- steady traffic the error shrinks with k, and memory grows with it: k+1 small numbers. The worst case does not shrink: n
-- units at the end of a bucket, and as many as fit at the end of the k-th after it, are almost 2n within one period.
--
-- State: "sliding_window:<w in ms>:<number of the newest bucket>:<its count>,<the one before>,...". The key expires
-- when the last count has left the window. Time in whole milliseconds.
--
-- A new n counts at once. Counters of another width (another period or k) count from where their bucket begins. If the
-- state was written in the future (the clock was set back), what it adds up to leaves room for just this call.
--
-- A state's counts go by their distance from the bucket of now: counts[0] is its own, counts[k] the oldest that counts.

local PREFIX = 'sliding_window:'
local MOST_BUCKETS = 1000
local STATE = '^(%d+):(%d+):(%d[%d,]*)$'

-- set finds out how many units fit. sum: of the counts that count whole.
local function set(state)
  local rate, counts, sum = state.rate, state.counts, 0
  local last, width = rate.buckets, rate.width
  for i = 0, last - 1 do
    sum = sum + counts[i]
  end
  state.sum = sum
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

-- place puts the counts of a text into the buckets that they belong to now. Returns false if it is none.
local function place(state, value, from, now, cost)
  local rate, counts = state.rate, state.counts
  local width, bucket, list = string.match(value, STATE, from)
  width, bucket = numbers.digits(width or ''), numbers.digits(bucket or '')
  if not width or width == 0 or not bucket then return false end
  local ahead = bucket * width > now
  local sum = 0
  for digits in string.gmatch(list, '%d+') do
    local count = numbers.digits(digits)
    if not count then return false end
    local at = state.current - (width == rate.width and bucket or math.floor(bucket * width / rate.width))
    if at <= rate.buckets and not ahead then
      counts[at] = counts[at] + count
    end
    sum = sum + count
    bucket = bucket - 1
  end
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
  if to >= from and not place(state, value, from, now, cost) then return false end
  set(state)
  return true
end

local function charge(state, units)
  state.counts[0] = state.counts[0] + units
  state.sum, state.free = state.sum + units, state.free - units
end

-- refund takes back from the newest counters first.
local function refund(state, units)
  local counts = state.counts
  for i = 0, state.rate.buckets do
    local back = math.min(units, counts[i])
    counts[i] = counts[i] - back
    units = units - back
  end
  set(state)
end

-- wait follows the estimate from bucket to bucket, as the oldest that counts in part leaves and the next one takes its
-- place.
local function wait(state, cost)
  local rate, counts = state.rate, state.counts
  local width, last = rate.width, rate.buckets
  local room = rate.capacity - cost - state.sum
  local shift, oldest = 0, counts[last]
  while room < 0 do
    shift = shift + 1
    oldest = counts[last - shift]
    room = room + oldest
  end
  return shift * width + math.ceil((oldest - room) * width / oldest) - state.into
end

-- save writes the counts, without the empty ones at the end.
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
  local sum = 0
  for digits in string.gmatch(counts or '', '%d+') do
    sum = sum + digits
  end
  return sum
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
-- token_bucket: n tokens are added at each whole period since the first take, up to the capacity b (default n). Once
-- full, the bucket is as new: the next take starts the periods.
--
-- State: "token_bucket:<tokens>:<us>", the tokens left, and when they were last added to. The key expires when full.
--
-- n, b and the period of a changed limit count from the last addition on; tokens above a lowered b are lost. With the
-- clock set back, what tokens are left are there; a bucket without any that would wait for longer than one full refill
-- leaves room for just this call.

-- refill_us returns the us that adding this many tokens takes.
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

-- reset also notes when the bucket is full, in us.
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
-- ratelimit_acquire: takes one of n leases, or prolongs the one that this id already holds (a retry takes no second one).
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
-- ratelimit_block: denies the keys for a time, whatever their limits. What was taken from them stays taken underneath
-- and goes on to refill. A second block replaces the first, unless EXTEND is given and the first ends later.
--   KEYS   one or more
--   ARGV   ms [EXTEND]
--   Output how many keys are blocked now: all of them
--   Errors BADARGS BADKEYS BADSTATE (a request's or a usage key, or one that no limiter wrote: then none is blocked)

local OPTIONS = { EXTEND = true, extend = true }

-- block denies a key until a time, ms since the epoch.
local function block(key, holding, ends)
  states.forget(key)
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
-- ratelimit_info: what is deployed here.
--   KEYS none, ARGV none or a limit
--   Output { "version", text, "contract", integer, "build_id", text, "policies", { name, ... },
--            "shadow_denied", { name, count, ... } }; with a limit also
--            "limit", { for each key: { 1 of a shadow policy, else 0; of each rate: n, period in ms, capacity }, ... },
--            "algorithms", { the name of the algorithm for each key, ... }
--   Errors BADARGS BADKEYS BADLIMIT NOPOLICY

-- readings returns what is read in a limit, and the names of its algorithms, both key by key.
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
-- ratelimit_peek: returns what ratelimit_take would, and writes nothing. For FCALL_RO too, on replicas as well.
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
    return reply or err
  end,
}
end

--@ src/verbs/refund.lua
do
-- ratelimit_refund: gives cost back, never beyond full and never more than a key holds: to all keys or, if one of them
-- is blocked, to none (allowed = 0).
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
    if not reply then return err end
    decisions.write(keys, request)
    return reply
  end,
}
end

--@ src/verbs/release.lua
do
-- ratelimit_release: gives a lease back. It can neither free another's lease nor free twice.
--   KEYS   one
--   ARGV   concurrency n lease=<period> or @policy, lease id (1 to 256 bytes)
--   Output 1, or 0 if this id holds no lease (any more)
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
-- ratelimit_renew: prolongs a lease that is held. One that has lapsed stays lost: allowed = 0, retry_after_ms = -1.
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
-- ratelimit_reset: forgets the keys: what was taken, blocks, leases, request and usage keys.
--   KEYS   one or more
--   ARGV   none
--   Output how many of the keys held something
--   Errors BADARGS BADKEYS BADSTATE (a key that no limiter wrote: then none is deleted)

clock.register{
  function_name = 'ratelimit_reset',
  description = 'Forgets the keys; returns how many held something.',
  flags = { 'allow-oom' },
  callback = function(keys, args)
    local list, err = holdings.all('reset', keys, args, 0)
    if not list then return err end
    local changed = 0
    for _, key in ipairs(keys) do
      states.forget(key)
      changed = changed + redis.call('DEL', key)
    end
    return changed
  end,
}
end

--@ src/verbs/take.lua
do
-- ratelimit_take: decides, and consumes if every limit allows.
--   KEYS   one for each limit, then one for ONCE and one for TRACK, in the order in which these are written
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
    if limit and not limit.policy and #keys == 1 then -- the common calls go without a request
      local cost = 1
      if #args > 1 then
        cost = #args == 3 and args[2] == 'COST' and numbers.whole(args[3])
      end
      local reply = cost and decide_one(keys[1], limit, cost)
      if reply then return reply end
    end
    local request, err = requests.read(keys, args, OPTIONS)
    return request and take(keys, request) or err
  end,
}
end

--@ src/verbs/unblock.lua
do
-- ratelimit_unblock: lifts the blocks of the keys; what was taken from them before is there again.
--   KEYS   one or more
--   ARGV   none
--   Output how many of the keys were blocked
--   Errors BADARGS BADKEYS BADSTATE (a key that no limiter wrote: then none is changed)

-- unblock lifts the block of a key: what is below it stays, with its expiry. Nothing can be stored that expires in this
-- very millisecond: Valkey drops it at once.
local function unblock(key, holding)
  states.forget(key)
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
-- ratelimit_usage: what TRACK has counted under a usage key.
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
