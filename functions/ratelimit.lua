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
-- What the functions take and answer is written down in functions/CONTRACT.md.

local VERSION = '0.1.0'
local CONTRACT = 1
local BUILD_ID = '510baacbaec0'

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
  local shown = value
  if #shown > SHOWN then
    shown = string.sub(shown, 1, SHOWN)
  end
  shown = string.gsub(shown, '[^\32-\126]', function(c)
    return string.format('\\x%02x', string.byte(c))
  end)
  if #value > SHOWN then
    return string.format('"%s..." (%.0f bytes)', shown, #value)
  end
  return '"' .. shown .. '"'
end

-- new builds the reply. reason: BADARGS BADLIMIT BADCOST BADKEYS BADSTATE NOPOLICY. text is a format.
function errors.new(reason, text, ...)
  return redis.error_reply('RATELIMIT ' .. reason .. ' ' .. string.format(text, ...))
end

-- unusable is the error for a key that holds something else than it is used for.
function errors.unusable(key, what)
  return errors.new('BADSTATE', 'key %s %s; give the limiter a key of its own, or delete this one', errors.quote(key), what)
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

-- us answers whole microseconds since the epoch.
function clock.us()
  local now = clock.now
  if not now then
    local time = redis.call('TIME')
    now = tonumber(time[1]) * 1000000 + tonumber(time[2])
    clock.now = now
  end
  return now
end

-- ms answers whole milliseconds since the epoch, rounded down as Redis rounds when keys expire.
function clock.ms()
  local now = clock.us()
  return (now - now % 1000) / 1000
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
    if #text > #LARGEST or (#text == #LARGEST and text > LARGEST) then
      return nil
    end
  end
  return tonumber(text)
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

--@ src/25_spans.lua
local spans = {}
do
-- Spans of time kept exactly, for the algorithms with an emission interval T = period/n: whole microseconds, and a
-- part of one in units of 1/limit.parts of a microsecond. All of them are whole numbers below 2^53, so nothing is
-- rounded but on the way out.

local FINENESS = 1000000000

-- prepare completes a limit with its interval, and answers what is wrong with it, or nil.
-- capacity: the most units that are ever multiplied with the interval, twice of it.
--
-- A fraction too fine for such products is rounded up to one that is not, by less than a billionth of the interval:
-- over a million units that is a thousandth of one.
function spans.prepare(limit, capacity)
  local period = limit.period * 1000
  local divisor = numbers.common_divisor(period, limit.count)
  limit.parts = limit.count / divisor
  limit.interval_part = period / divisor % limit.parts
  limit.interval_us = (period / divisor - limit.interval_part) / limit.parts
  local most = math.floor(numbers.MOST / (2 * capacity))
  if limit.parts > most then
    if most * (period / limit.count) < FINENESS then
      return 'n/period is too fast for this burst to be counted exactly; use a smaller n or burst'
    end
    limit.interval_part = math.ceil(limit.interval_part / limit.parts * most)
    limit.parts = most
  end
  limit.interval_about = limit.interval_us + limit.interval_part / limit.parts
  return nil
end

-- times answers n emission intervals.
function spans.times(n, limit)
  if n == 1 then
    return limit.interval_us, limit.interval_part
  end
  local part = n * limit.interval_part
  local over = part % limit.parts
  return n * limit.interval_us + (part - over) / limit.parts, over
end

function spans.exceeds(us, part, other_us, other_part)
  return us > other_us or (us == other_us and part > other_part)
end

-- units answers how many whole intervals fit into a span; 0 if it is negative. (The part of a difference may be.) The
-- quotient of doubles tells, unless it is next to a whole number: then the products, which are exact, do.
function spans.units(us, part, limit)
  if part < 0 then
    us, part = us - 1, part + limit.parts
  end
  if us < 0 or (us == 0 and part <= 0) then
    return 0
  end
  local about = (us + part / limit.parts) / limit.interval_about
  local over = about % 1
  if over > 0.001 and over < 0.999 and about < 1000000000 then
    return about - over
  end
  local n = about - over + 1
  local n_us, n_part = spans.times(n, limit)
  while n > 0 and spans.exceeds(n_us, n_part, us, part) do
    n = n - 1
    n_us, n_part = spans.times(n, limit)
  end
  return n
end

-- whole_ms rounds a span up to milliseconds. part may be that of a difference, negative.
function spans.whole_ms(us, part)
  if part > 0 then
    us = us + 1
  end
  local over = us % 1000
  return (over > 0 and us + 1000 - over or us) / 1000
end

-- text writes a time as "<us>" or "<us>+<part>", after a prefix if one is given.
function spans.text(us, part, prefix)
  if part > 0 then
    return string.format('%s%.0f+%.0f', prefix or '', us, part)
  end
  return string.format('%s%.0f', prefix or '', us)
end

-- TIME is the pattern of such a text, its captures the us and the part ('': none). 16 digits of microseconds are the
-- years 2001 to 2286.
spans.TIME = '(%d%d%d%d%d%d%d%d%d%d%d%d%d%d%d%d)%+?(%d*)$'
end

--@ src/28_lease_sets.lua
local lease_sets = {}
do
-- The leases of a key: a sorted set, member "lease:<id>", score the time in ms since the epoch at which it lapses. A block
-- is the member "blocked", which lapses with the block. The key expires when the last of them lapses.

lease_sets.MEMBER = 'lease:'
lease_sets.BLOCK = 'blocked'

local NO_LEASES = 'does not hold leases'
local EARLIEST = 1000000000000 -- ms since the epoch, 2001: what lapses before is no lease

local function is_ours(member)
  return member == lease_sets.BLOCK or string.sub(member, 1, #lease_sets.MEMBER) == lease_sets.MEMBER
end

-- holds tells whether a key holds such a set; nil if it holds nothing, false and the error if it holds something else.
function lease_sets.holds(key)
  local first = redis.pcall('ZRANGE', key, 0, 0, 'WITHSCORES')
  if first.err then
    return false, string.sub(first.err, 1, 9) == 'WRONGTYPE' and errors.unusable(key, NO_LEASES) or first
  elseif not first[1] then
    return nil
  end
  local last = redis.call('ZRANGE', key, -1, -1, 'WITHSCORES')
  if not is_ours(first[1]) or not is_ours(last[1]) or tonumber(first[2]) < EARLIEST or tonumber(last[2]) > numbers.MOST
    or redis.call('PTTL', key) < 0
  then
    return false, errors.unusable(key, NO_LEASES)
  end
  return true
end

-- settle moves the key's expiry to where its last member lapses.
function lease_sets.settle(key)
  local last = redis.call('ZRANGE', key, -1, -1, 'WITHSCORES')
  if last[2] then
    redis.call('PEXPIREAT', key, string.format('%.0f', tonumber(last[2])))
  end
end

-- blocked_until answers when the block ends, ms since the epoch; 0 without one.
function lease_sets.blocked_until(key)
  return tonumber(redis.call('ZSCORE', key, lease_sets.BLOCK) or 0)
end

-- outlived returns for how many ms more a key is blocked whose leases have all lapsed; nil if there is a lease, or no set.
function lease_sets.outlived(key)
  local now = clock.ms()
  local left = lease_sets.holds(key) and lease_sets.blocked_until(key) - now or -1
  return left >= 0 and redis.call('ZCOUNT', key, string.format('%.0f', now), '+inf') == 1 and left or nil
end

function lease_sets.block(key, untill)
  redis.call('ZADD', key, string.format('%.0f', untill), lease_sets.BLOCK)
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
-- What a key may hold. A state is a string with an expiry (the leases of concurrency: a sorted set), and says by its
-- form who wrote it, so a key of another kind is refused before anything is written.
--
--   gcra, gcra-<k>                      a debt of gcra, kept in the expiry
--   123                                 the count of a fixed_window
--   <algorithm>:<state>                 every other state; of several rates <algorithm>::<length>:<state>...
--   blocked:<until>:<expiry>:<state>    ratelimit_block, over the state that was there, with its expiry (ms; 0: none)
--   once:<reply>                        a request's key (src/70_once.lua)
-- Leases: src/28_lease_sets.lua. Usage records, a hash: src/65_tracking.lua.

-- missing_expiry: the state is ours but somebody took its expiry away (PERSIST, SET without KEEPTTL).
function states.missing_expiry(key)
  return errors.unusable(key, 'holds a limiter state without an expiry')
end

states.REQUEST = 'the reply to a request (ONCE)'

-- in_use: the library wrote this, for something else.
function states.in_use(key, what)
  return errors.new('BADSTATE', 'key %s holds %s; give each use a key of its own', errors.quote(key), what)
end

-- unreadable: no limiter wrote this, although it may look like it.
function states.unreadable(key, value)
  if string.sub(value, 1, 5) == 'once:' then
    return states.in_use(key, states.REQUEST)
  end
  return errors.unusable(key, 'holds ' .. errors.quote(value) .. ', which no limiter wrote')
end

-- not_a_state answers the error for what pcall answered instead of a string.
function states.not_a_state(key, failure)
  if string.sub(failure.err, 1, 9) == 'WRONGTYPE' then
    return errors.unusable(key, 'is not a string')
  end
  return failure
end

-- blocked reads a value that ratelimit_block wrote: until when, the state below it and the expiry of that, in ms since
-- the epoch; nil for any other value.
function states.blocked(value)
  local untill, expiry, state = string.match(value, '^blocked:(%d+):(%d+):(.*)$')
  untill, expiry = numbers.whole(untill or ''), numbers.whole(expiry or '')
  if untill and expiry then
    return untill, state, expiry
  end
  return nil
end

function states.block(untill, state, expiry)
  return string.format('blocked:%.0f:%.0f:', untill, expiry) .. state
end

-- owner answers the algorithm that wrote a string, or nil.
function states.owner(value)
  for _, algorithm in pairs(algorithms) do
    if algorithm.holds(value) then
      return algorithm
    end
  end
  return nil
end

-- forget tells the algorithms that a key is about to hold another state than they may have seen in it.
function states.forget(key)
  for i = 1, #states.forgetful do
    states.forgetful[i](key)
  end
end

states.forgetful = {} -- functions of the key, added by the algorithms that remember something of keys

-- leaves_room answers the most units that may count as spent so that just this call finds room: what a state that
-- cannot hold under this limit is taken for.
function states.leaves_room(capacity, cost)
  return capacity - (cost > 1 and cost <= capacity and cost or 1)
end

-- spent_elsewhere carries a key over from another algorithm: a change of algorithm neither hands out a second burst nor
-- locks the key out, and callers with the old and the new limit side by side share one allowance. Answers how many
-- units of this rate count as spent; a call that they deny has to wait until the old state has run out. A state that
-- runs for longer than this rate takes to refill leaves room for just this call.
function states.spent_elsewhere(value, left, owner, rate, cost)
  local most = rate.capacity
  if left > most / rate.count * rate.period then
    most = states.leaves_room(most, cost)
  end
  local units = owner.spent and owner.spent(value, left) or math.ceil(left * rate.count / rate.period)
  return math.min(most, units)
end

-- refused_by_block is the answer of decide for a key that is blocked for left ms more.
function states.refused_by_block(limit, cost, left)
  return false, 0, cost > limit.capacity and -1 or left, left
end

-- view tells what GET has answered (not nil) is to an algorithm:
--   'own', value, left            its own state, left ms before its expiry
--   'other', value, left, owner   another algorithm's
--   'none'                        nothing that counts any more
--   'blocked', nil, left          the key is blocked for left ms more
-- A block that has run out is looked through. Or nil and the error to reply.
--
-- A state is there to the end of the millisecond in which it expires (left is 0), under a block as without one: a limit
-- that was changed meanwhile may still find units spent. Another algorithm's units have all come back by then.
function states.view(key, value, algorithm)
  if type(value) == 'table' then
    local left = lease_sets.outlived(key)
    if not left then
      return nil, states.not_a_state(key, value)
    end
    return left > 0 and 'blocked' or 'none', nil, left
  end
  local left = redis.call('PTTL', key)
  local untill, state, expiry = states.blocked(value)
  if not untill then
    state = value
  end
  local owner = algorithm.holds(state) and algorithm or states.owner(state)
  if not owner and state ~= '' then
    return nil, states.unreadable(key, value)
  elseif left < 0 then
    return nil, states.missing_expiry(key)
  end
  if untill then
    local now = math.max(untill, expiry) - left
    if now < untill then
      return 'blocked', nil, untill - now
    end
    left = expiry - now
  end
  if not owner or left < 0 or (left == 0 and owner ~= algorithm) then
    return 'none'
  end
  return owner == algorithm and 'own' or 'other', state, left, owner
end
end

--@ src/35_packed.lua
local packed = {}
do
-- Keeps the state of an algorithm in the key's value, whatever the number of rates: one GET, one TIME, one SET.
--
-- The algorithm gives functions of one rate's state, a text ('': none, the rate is full), and of the time in us:
--   step(text, now, rate, cost)    answers allowed, remaining, retry_after, reset_after, next text, and when the rate is
--                                  full again (ms since the epoch). The last two only if allowed and cost is above 0.
--                                  nil if the text is none of its own.
--   give(text, now, rate, cost)    the same for a refund: true, remaining, 0, reset_after, next text, full
--   spend(now, rate, units)        the text of a state in which units are spent now
--   prefix                          what the value begins with, "<algorithm>:"
--   plain(value, left, now)        optional: the text for a value of another form than <algorithm>:<state>
-- Rates are known by their place: the first rate of a changed limit reads what the first one before has left.

-- prefixed answers a function that tells whether a value begins with prefix.
function packed.prefixed(prefix)
  return function(value)
    return string.find(value, prefix, 1, true) == 1
  end
end

-- split answers the states of a body of several rates, ":<length>:<state>...", or the one of a single rate; nil if the
-- body is broken.
local function split(body)
  if string.sub(body, 1, 1) ~= ':' then
    return { body }
  end
  local texts = {}
  local at = 2
  while at <= #body do
    local _, last, digits = string.find(body, '^(%d+):', at)
    local length = digits and numbers.whole(digits)
    if not length or last + length > #body then
      return nil
    end
    texts[#texts + 1] = string.sub(body, last + 1, last + length)
    at = last + length + 1
  end
  return texts
end

-- first answers the state of the first rate, '' if there is none.
function packed.first(value, algorithm)
  local texts = split(string.sub(value, #algorithm.prefix + 1))
  return texts and texts[1] or ''
end

-- fetch reads a key for any number of rates. Answers their states, in order ('' or nothing: none), and, if another
-- algorithm left the state, for how many ms that counts; or false and the ms of a block; or nil and the error.
local function fetch(key, limit, cost, now)
  local algorithm = limit.algorithm
  local value = redis.pcall('GET', key)
  if not value then
    return {}
  end
  local state, kind, left, owner = value, nil, nil, nil
  if type(value) ~= 'string' or string.find(value, algorithm.prefix, 1, true) ~= 1 then
    kind, state, left, owner = states.view(key, value, algorithm)
    if not kind then
      return nil, state
    elseif kind == 'blocked' then
      return false, left
    elseif kind == 'none' then
      return {}
    end
  end
  if kind == 'other' then
    local texts = {}
    for i, rate in ipairs(limit.rates or { limit }) do
      texts[i] = algorithm.spend(now, rate, states.spent_elsewhere(state, left, owner, rate, cost))
    end
    return texts, left
  elseif algorithm.plain and string.find(state, algorithm.prefix, 1, true) ~= 1 then
    return { algorithm.plain(state, left, now) }
  end
  local texts = split(string.sub(state, #algorithm.prefix + 1))
  if not texts then
    return nil, states.unreadable(key, value)
  end
  return texts
end

-- wanted answers for what cost a state that cannot be leaves room: a refund asks for nothing, and finds room for one.
local function wanted(verb, cost)
  return verb == 'give' and 1 or cost
end

------------------------------------------------------------------- one rate

-- unusual decides over whatever a key can hold.
local function unusual(verb, key, limit, cost)
  local now = clock.us()
  local texts, elsewhere = fetch(key, limit, wanted(verb, cost), now)
  if texts == nil then
    return nil, elsewhere
  elseif not texts then
    return states.refused_by_block(limit, wanted(verb, cost), elsewhere)
  end
  local allowed, remaining, retry, reset, following, full = limit.algorithm[verb](texts[1] or '', now, limit, cost)
  if allowed == nil then
    return nil, states.unreadable(key, redis.call('GET', key))
  elseif not allowed and elsewhere then
    return false, remaining, retry == -1 and -1 or elsewhere, elsewhere
  end
  return allowed, remaining, retry, reset, following, full
end

-- decide, give and write of a limit of one rate. decide knows the two usual cases, no key and a state of one rate.
function packed.decide(key, limit, cost)
  local value = redis.pcall('GET', key)
  local text = ''
  if value then
    text = type(value) == 'string' and string.match(value, limit.state)
    if not text then
      return unusual('step', key, limit, cost)
    end
  end
  local allowed, remaining, retry, reset, following, full = limit.algorithm.step(text, clock.us(), limit, cost)
  if allowed == nil then
    return nil, states.unreadable(key, value)
  end
  return allowed, remaining, retry, reset, following, full
end

function packed.give(key, limit, cost)
  return unusual('give', key, limit, cost)
end

function packed.write(key, limit, _, text, full)
  if text == '' then
    redis.call('DEL', key)
  else
    states.forget(key)
    redis.call('SET', key, limit.algorithm.prefix .. text, 'PXAT', full)
  end
end

------------------------------------------------------------------- several rates

-- refused answers for rates of which one denies: nothing is taken from any, so what those that would have allowed the
-- call have to say is asked of them again, at no cost.
local function refused(verb, key, texts, now, limit, cost, elsewhere)
  local step = limit.algorithm[verb]
  local uncharged = elsewhere and fetch(key, limit, 0, now) or texts
  local binding, least, longest_retry, longest_reset = nil, nil, 0, 0
  for i, rate in ipairs(limit.rates) do
    local allowed, remaining, retry, reset = step(texts[i] or '', now, rate, cost)
    if allowed then
      local _
      _, remaining, _, reset = limit.algorithm.step(uncharged[i] or '', now, rate, 0)
      retry = 0
    else
      binding = binding or rate
      if elsewhere then
        retry, reset = retry == -1 and -1 or elsewhere, elsewhere
      end
    end
    least = least and math.min(least, remaining) or remaining
    longest_retry = (retry == -1 or longest_retry == -1) and -1 or math.max(longest_retry, retry)
    longest_reset = math.max(longest_reset, reset)
  end
  return false, least, longest_retry, longest_reset, nil, nil, binding.capacity
end

-- several decides: all rates are charged, or none.
local function several(verb, key, limit, cost)
  local now = clock.us()
  local texts, elsewhere = fetch(key, limit, wanted(verb, cost), now)
  if texts == nil then
    return nil, elsewhere
  elseif not texts then
    local allowed, remaining, retry, reset = states.refused_by_block(limit, wanted(verb, cost), elsewhere)
    return allowed, remaining, retry, reset, nil, nil, limit.rates[1].capacity
  end
  local step = limit.algorithm[verb]
  local following, last_full = {}, 0
  local binding, least, longest_retry, longest_reset = nil, nil, 0, 0
  local all = true
  for i, rate in ipairs(limit.rates) do
    local allowed, remaining, retry, reset, text, full = step(texts[i] or '', now, rate, cost)
    if allowed == nil then
      return nil, states.unreadable(key, redis.call('GET', key))
    end
    all = all and allowed
    if not least or remaining < least then
      binding, least = rate, remaining
    end
    if retry > longest_retry then
      longest_retry = retry
    end
    if reset > longest_reset then
      longest_reset = reset
    end
    if full and full > last_full then
      last_full = full
    end
    following[i] = text
  end
  if not all then
    return refused(verb, key, texts, now, limit, cost, elsewhere)
  end
  return true, least, longest_retry, longest_reset, following, last_full, binding.capacity
end

local function write_several(key, limit, _, texts, full)
  local out = { limit.algorithm.prefix .. ':' }
  local any = false
  for i = 1, #limit.rates do
    out[i + 1] = string.format('%d:', #texts[i]) .. texts[i] -- %s would end at a byte 0
    any = any or texts[i] ~= ''
  end
  if any then
    states.forget(key)
    redis.call('SET', key, table.concat(out), 'PXAT', full)
  else
    redis.call('DEL', key)
  end
end

local function decide_several(key, limit, cost)
  return several('step', key, limit, cost)
end

local function give_several(key, limit, cost)
  return several('give', key, limit, cost)
end

-- complete gives a limit of one rate, or of several, the functions that decide over it and write it.
function packed.complete(limit)
  if limit.rates then
    limit.decide, limit.give, limit.write = decide_several, give_several, write_several
  else
    limit.decide, limit.give, limit.write = packed.decide, packed.give, packed.write
    limit.state = '^' .. limit.algorithm.prefix .. '([^:].*)$'
  end
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
-- An algorithm (src/algorithms/NAME.lua) is a table in `algorithms`:
--   name      as a limit names it
--   options   option name -> function(text) that answers its value, or nil and what was expected
--   rate      function(rate): completes one rate, or answers what is wrong with it. The rate comes with count (n),
--             period (ms), algorithm, and the options' values under their names; rate sets
--               capacity   what field 2 of the reply says: the most that can be taken at once
--   limit     function(limit): completes the limit, which is the rate itself, or has several in `rates`. Sets
--               decide     function(key, limit, cost, consume): reads the key and answers (consume: false for peek)
--                            allowed, remaining, retry_after, reset_after, w1, w2, capacity   (times in ms, rounded up)
--                          remaining and reset_after as they are after the call: after taking cost if it is
--                          allowed. capacity: of the binding rate, nil for limit.capacity. Or nil and the error to
--                          reply. Writes nothing.
--               give       the same for a refund of cost
--               write      function(key, limit, cost, w1, w2): stores what decide or give has found (cost negative for
--                          give); only called in the same call, when every limit of it allows and cost is not 0
--             packed.complete does all of it for an algorithm that keeps its state in the value (src/35_packed.lua).
--   holds     function(value): whether a string was written by this algorithm
--   spent     function(value, left): the units that the state stands for, left ms before its expiry; without it they
--             are taken to be what the other limit refills in that time
--   prefix, step, give, spend, plain: see src/35_packed.lua
-- Or, for leases (concurrency): name, holds, leases, a function that reads the whole text of a limit, and acquire, renew
-- and release, functions(key, limit, lease id) that answer the reply.

local UNITS = { ms = 1, s = 1000, m = 60000, h = 3600000, d = 86400000 }
local LONGEST_TEXT = 1024 -- bytes
local MOST_RATES = 16
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

-- parse_rate reads `n/period [option=value ...]`; answers the rate, or nil and what is wrong with it.
local function parse_rate(text, algorithm)
  local head, rest = string.match(text, '^%s*(%S+)(.*)$')
  local count, period = string.match(head or '', '^([^/]*)/(.*)$')
  if algorithms[head] and #rest > 0 then
    return nil, string.format('the algorithm is named again before %s; name it once, in front', errors.quote(rest))
  elseif not count then
    return nil, 'no rate such as 100/m or 5/10s; the keys come first, and a limit with blanks is one argument'
  end
  local rate = { algorithm = algorithm, count = numbers.positive(count) }
  if not rate.count then
    return nil, string.format('the count %s is not ' .. numbers.WHOLE, errors.quote(count), '1')
  end
  local wrong
  rate.period, wrong = limits.period(period)
  if wrong then
    return nil, wrong
  end
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
  elseif rate.capacity / rate.count * rate.period > LONGEST then
    return nil, 'it takes longer than 36500d to refill; use a smaller burst or a faster rate'
  end
  return rate
end

-- parse_rates reads one rate or several; a single one is the limit itself.
local function parse_rates(text, algorithm)
  local rates = {}
  for part in string.gmatch(text .. ',', '([^,]*),') do
    local rate, wrong = parse_rate(part, algorithm)
    if not rate then
      return nil, wrong
    end
    rates[#rates + 1] = rate
  end
  if #rates > MOST_RATES then
    return nil, string.format('%.0f rates; a limit has at most %.0f', #rates, MOST_RATES)
  end
  local limit = rates[1]
  if #rates > 1 then
    limit = { algorithm = algorithm, rates = rates, capacity = rates[1].capacity }
    for _, rate in ipairs(rates) do
      limit.capacity = math.min(limit.capacity, rate.capacity)
    end
  end
  algorithm.limit(limit)
  return limit
end

local function parse(text)
  if #text > LONGEST_TEXT then
    return refuse(text, 'a limit has at most %.0f bytes', LONGEST_TEXT)
  end
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
  if not limit then
    return refuse(text, '%s', wrong)
  end
  return limit
end

-- leases answers the parsed limit of ratelimit_acquire and its sisters, and its algorithm; or nil and the error.
function limits.leases(text)
  if #text > LONGEST_TEXT then
    return refuse(text, 'a limit has at most %.0f bytes', LONGEST_TEXT)
  end
  local algorithm = algorithms[string.match(text, '^%s*([%a_]+)')]
  if not algorithm or not algorithm.leases then
    return refuse(text, 'not a limit for leases; write it as concurrency n lease=30s')
  end
  local limit, wrong = algorithm.leases(text)
  if not limit then
    return refuse(text, '%s', wrong)
  end
  limit.algorithm = algorithm
  return limit
end

-- Parsed limits by their text. Parsing costs more than deciding, and an application has few limits; the bound is for
-- those who put a number of their own into each text.
local MOST_KNOWN = 1000
limits.known = {}
local known_size = 0

-- of answers the parsed limit, which is shared and must not be changed, or nil and the error to reply. A policy that is
-- more than one limit has `policy` (src/45_policies.lua), and is not kept here, where a limit is found to decide with.
function limits.of(text)
  local limit = limits.known[text]
  if limit then
    return limit
  end
  local err
  limit, err = parse(text)
  if not limit then
    return nil, err
  elseif limit.policy then
    return limit
  end
  if known_size >= MOST_KNOWN then
    limits.known = {}
    known_size = 0
  end
  limits.known[text] = limit
  known_size = known_size + 1
  return limit
end
end

--@ src/45_policies.lua
local policies = {}
do
-- Policies: names for limits, written into this text by the build (functions/policies.go), so that "@name" reads no key.
--
-- name -> { limit, limit ..., keys = { name of its key, ... }, shadow = true, track = true }
local POLICIES = {}

-- find answers the policy that "@name" asks for, or nil and the error.
function policies.find(text)
  local policy = POLICIES[string.sub(text, 2)]
  if policy then
    return policy
  end
  return nil, errors.new('NOPOLICY', '%s: no such policy in build %s; ratelimit_info lists the policies',
    errors.quote(text), BUILD_ID)
end

-- names answers the names of those policies for which wanted answers true, sorted.
function policies.names(wanted)
  local names = {}
  for name, policy in pairs(POLICIES) do
    if wanted(policy) then
      names[#names + 1] = name
    end
  end
  table.sort(names)
  return names
end

-- Policies that are more than one limit to be used in their place, by "@name": what limits.policy has put together.
local composed = {}

-- limits.policy answers for limits.of: the parsed limit of a policy that is one limit and nothing more. For another,
-- { policy = "@name", limits = parsed limits, keys =, shadow =, track = }, which policies.join puts into a request.
function limits.policy(text)
  if composed[text] then
    return composed[text]
  end
  local policy, err = policies.find(text)
  if not policy then
    return nil, err
  elseif #policy == 1 and not policy.shadow and not policy.track then
    return limits.of(policy[1])
  end
  local whole = { policy = text, limits = {}, keys = policy.keys, shadow = policy.shadow, track = policy.track }
  for i, part in ipairs(policy) do
    whole.limits[i], err = limits.of(part)
    if not whole.limits[i] then
      return nil, err
    end
  end
  composed[text] = whole
  return whole
end

-- lease answers the text of the limit that acquire and its sisters take from a policy, and the policy's name if it is a
-- shadow; or nil and the error.
function policies.lease(text)
  local policy, err = policies.find(text)
  if not policy then
    return nil, err
  elseif #policy > 1 then
    return nil, errors.new('BADLIMIT', '%s: a policy of %.0f limits; a lease takes one', errors.quote(text), #policy)
  end
  return policy[1], policy.shadow and string.sub(text, 2)
end

-- join appends the limits of such a policy to those of a request. list gets, beside the limits: track = true; shadows,
-- position -> the group of limits that one shadow policy decides over (src/62_shadows.lua); composed, for policies.says.
function policies.join(list, whole)
  local group = whole.shadow and { name = string.sub(whole.policy, 2) }
  list.composed = list.composed or {}
  list.composed[#list.composed + 1] = whole
  list.track = list.track or whole.track
  for _, limit in ipairs(whole.limits) do
    list[#list + 1] = limit
    if group then
      list.shadows = list.shadows or {}
      list.shadows[#list] = group
    end
  end
end

-- says names the keys that the policies of a request want, for an error about their number. tracks: whether this verb
-- takes a usage key.
function policies.says(list, tracks)
  local text = ''
  for _, whole in ipairs(list.composed or {}) do
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
--   limit [limit ...] [COST c | COST c1 ... cn] [ONCE ttl_ms] [TRACK]
-- over one key for each limit, then one for ONCE and one for TRACK, in the order in which these are written.

local OPTIONS = { COST = 'COST', ONCE = 'ONCE', TRACK = 'TRACK', cost = 'COST', once = 'ONCE', track = 'TRACK' }

-- read_limits answers the limits and the position after them.
local function read_limits(args)
  local list = {}
  local at = 1
  local text = args[1]
  while text and not OPTIONS[text] do
    local limit, err = limits.of(text)
    if not limit then
      return nil, err
    elseif limit.policy then
      policies.join(list, limit)
    else
      list[#list + 1] = limit
    end
    at = at + 1
    text = args[at]
  end
  return list, at
end

-- read_costs reads the numbers after COST, which stands at position at; answers one cost for each limit and the
-- position after them.
local function read_costs(args, at, count)
  local costs = {}
  local given = 0
  local text = args[at + 1]
  while text and not OPTIONS[text] do
    local cost = numbers.whole(text)
    if not cost then
      return nil, errors.new('BADCOST', '%s: a cost is ' .. numbers.WHOLE, errors.quote(text), '0')
    end
    given = given + 1
    costs[given] = cost
    text = args[at + 1 + given]
  end
  if given == 1 then
    for i = 2, count do
      costs[i] = costs[1]
    end
  elseif given ~= count then
    return nil, errors.new('BADARGS', 'the number of costs is %.0f and the number of limits %.0f; give one cost for all, '
      .. 'or one for each', given, count)
  end
  return costs, at + 1 + given
end

-- ONES are the costs of a call without COST. They are shared, and never changed.
local ONES = {}

local function ones(count)
  for i = #ONES + 1, count do
    ONES[i] = 1
  end
  return ONES
end

-- read_options reads what follows the limits into request. allowed: the options that the verb has. Answers the error,
-- or nil.
local function read_options(request, keys, args, at, allowed)
  local count = #request.limits
  local spare = count -- the last key that is given a meaning
  while at <= #args do
    local word = OPTIONS[args[at]]
    if not word or not allowed[word] then
      return errors.new('BADARGS', '%s: not an option here', errors.quote(args[at]))
    elseif request[word] then
      return errors.new('BADARGS', '%s is given twice', word)
    end
    if word == 'COST' then
      local costs, after = read_costs(args, at, count)
      if not costs then
        return after -- the error
      end
      request.COST, at = costs, after
    else
      spare = spare + 1
      request[word] = keys[spare] or ''
      at = at + 1
      if word == 'ONCE' then
        request.ttl = numbers.positive(args[at] or '')
        if not request.ttl or request.ttl > limits.LONGEST then
          return errors.new('BADARGS', '%s: ONCE is followed by the ms for which it holds, a whole number from 1 to %.0f',
            errors.quote(args[at] or ''), limits.LONGEST)
        end
        at = at + 1
      end
    end
  end
  request.COST = request.COST or ones(count)
  if request.limits.track and allowed.TRACK and not request.TRACK then
    spare = spare + 1
    request.TRACK = keys[spare] or ''
  end
  if #keys ~= spare then
    return errors.new('BADKEYS', 'the number of keys is %.0f and the number of limits %.0f; give each limit one key, in '
      .. 'order%s%s', #keys, count, spare > count and ', then one for ONCE and one for TRACK' or '',
      policies.says(request.limits, allowed.TRACK))
  end
  return nil
end

-- repeated answers the error for a key that is given twice, or nil.
function requests.repeated(keys)
  if #keys == 2 and keys[1] ~= keys[2] then
    return nil
  end
  local seen = {}
  for _, key in ipairs(keys) do
    if seen[key] then
      return errors.new('BADKEYS', '%s is given twice; name each key once', errors.quote(key))
    end
    seen[key] = true
  end
  return nil
end

-- read answers the request: limits, COST (one for each limit), ONCE and TRACK (their keys), ttl; or nil and the error.
function requests.read(keys, args, allowed)
  if #keys == 0 then
    return nil, errors.new('BADKEYS', 'the number of keys is 0; give each limit one key')
  end
  local list, at = read_limits(args)
  if not list then
    return nil, at
  elseif #list == 0 then
    return nil, errors.new('BADARGS', 'no limit after the keys; give one such as 100/m for each key')
  end
  local request = { limits = list }
  local err = read_options(request, keys, args, at, allowed) or (#keys > 1 and requests.repeated(keys)) or nil
  if err then
    return nil, err
  end
  return request
end
end

--@ src/60_decisions.lua
local decisions = {}
do
-- One decision over one or several keys: all of them are charged, or none. The reply is
-- { allowed, limit, remaining, retry_after_ms, reset_after_ms, index }.

-- The reply of a call over one key. Redis turns it into integers before the next call begins, so one table serves all
-- calls: a new one each time costs 4 % of a denied call (bench/README.md).
local reply = { 0, 0, 0, 0, 0, 1 }

-- one decides over a single key: the common call, and the one that must cost next to nothing.
function decisions.one(key, limit, cost, consume)
  local allowed, remaining, retry, reset, w1, w2, capacity = limit.decide(key, limit, cost, consume)
  if allowed then
    if consume and cost > 0 then
      limit.write(key, limit, cost, w1, w2)
    end
    reply[1] = 1
  elseif allowed == nil then
    return remaining -- the error
  else
    reply[1] = 0
  end
  reply[2], reply[3], reply[4], reply[5] = capacity or limit.capacity, remaining, retry, reset
  return reply
end

-- refused answers for a call that some limit denies: nothing is taken anywhere, so what the limits that would have
-- allowed it have to say is asked of them again, at no cost. said: the first four answers of each limit and, fifth, the
-- capacity, one after the other.
local function refused(keys, list, said)
  local binding, binding_capacity, least, longest_retry, longest_reset = nil, nil, nil, 0, 0
  for i, limit in ipairs(list) do
    local at = 5 * i
    local allowed, remaining, retry, reset = said[at - 4], said[at - 3], said[at - 2], said[at - 1]
    if allowed then
      local _
      _, remaining, _, reset = limit.decide(keys[i], limit, 0)
      retry = 0
    elseif not binding then
      binding, binding_capacity = i, said[at]
    end
    least = (not least or remaining < least) and remaining or least
    longest_retry = (retry == -1 or longest_retry == -1) and -1 or math.max(longest_retry, retry)
    longest_reset = reset > longest_reset and reset or longest_reset
  end
  return { 0, binding_capacity, least, longest_retry, longest_reset, binding }
end

-- all decides over several keys, or refunds to them. Nothing is written before every key has been read and every limit
-- has allowed. verb is the function of the limit that is asked: 'decide', or 'give' for a refund (src/40_limits.lua).
function decisions.all(verb, keys, list, costs, consume)
  local first, second, said = {}, {}, nil
  local binding, binding_capacity, least, longest_retry, longest_reset = nil, nil, nil, 0, 0
  for i = 1, #list do
    local limit = list[i]
    local allowed, remaining, retry, reset, w1, w2, capacity = limit[verb](keys[i], limit, costs[i], consume)
    capacity = capacity or limit.capacity
    if allowed == nil then
      return remaining
    elseif not allowed and not said then
      said = {}
      for before = 1, i - 1 do
        said[5 * before - 4] = true
      end
    end
    if said then
      local at = 5 * i
      said[at - 4], said[at - 3], said[at - 2], said[at - 1], said[at] = allowed, remaining, retry, reset, capacity
    end
    first[i], second[i] = w1, w2
    if not least or remaining < least then
      binding, binding_capacity, least = i, capacity, remaining
    end
    if retry > longest_retry then
      longest_retry = retry
    end
    if reset > longest_reset then
      longest_reset = reset
    end
  end
  if said then
    return refused(keys, list, said)
  end
  if consume then
    for i = 1, #list do
      local cost = costs[i]
      if cost > 0 then
        list[i].write(keys[i], list[i], verb == 'give' and -cost or cost, first[i], second[i])
      end
    end
  end
  return { 1, binding_capacity, least, longest_retry, longest_reset, binding }
end

-- request decides what the caller asked for (src/50_requests.lua).
function decisions.request(keys, request, consume)
  if #request.limits == 1 then
    return decisions.one(keys[1], request.limits[1], request.COST[1], consume)
  end
  return decisions.all('decide', keys, request.limits, request.COST, consume)
end
end

--@ src/62_shadows.lua
local shadows = {}
do
-- Shadow policies decide and never deny: they are tried on real traffic before they are enforced. In a call, the limits
-- that are enforced make one decision, and each shadow policy makes one of its own: it is charged if it would allow,
-- and the call goes on whatever it says. If the enforced limits deny, nothing is charged anywhere.
--
-- Reply: { allowed, limit, remaining, retry_after_ms, reset_after_ms, index,
--          would_allowed, would_retry_after_ms, would_index }
-- The first six are those of the enforced limits; if there are none, what the shadow policies say, but for allowed = 1
-- and retry_after_ms = 0. The last three are what the call would have been told if no policy of it were a shadow.

-- How many calls each shadow policy let through that it would have denied: since this library was loaded, on this node.
local denied = {}

local function note(name)
  denied[name] = (denied[name] or 0) + 1
end

-- counts answers { name, count, ... } for every shadow policy.
function shadows.counts()
  local list = {}
  for _, name in ipairs(policies.names(function(policy) return policy.shadow end)) do
    list[#list + 1] = name
    list[#list + 1] = denied[name] or 0
  end
  return list
end

-- divide answers the groups of a call's limits, the enforced ones first, and that group (nil if there is none).
local function divide(keys, request)
  local enforced = {}
  local groups = {}
  for i, limit in ipairs(request.limits) do
    local group = request.limits.shadows[i] or enforced
    if not group.at then
      group.at, group.keys, group.limits, group.costs = {}, {}, {}, {}
      table.insert(groups, group == enforced and 1 or #groups + 1, group)
    end
    local n = #group.at + 1
    group.at[n], group.keys[n], group.limits[n], group.costs[n] = i, keys[i], limit, request.COST[i]
  end
  return groups, enforced.at and enforced
end

local function ask(verb, group, consume)
  local reply = decisions.all(verb, group.keys, group.limits, group.costs, consume)
  if not reply.err then
    group.reply = { reply[1], reply[2], reply[3], reply[4], reply[5], group.at[reply[6]] }
  end
  return reply.err and reply
end

-- combine answers the six fields for several groups as for one call: the first that denies is binding, else the one
-- with least remaining, the first of equals.
local function combine(groups)
  local sum
  for _, group in ipairs(groups) do
    local reply = group.reply
    if not sum then
      sum = { unpack(reply) }
    else
      local binds = reply[6] < sum[6]
      if reply[1] == sum[1] then
        if reply[1] == 1 then
          binds = reply[3] < sum[3] or (reply[3] == sum[3] and binds)
        end
        if sum[4] ~= -1 then
          sum[4] = (reply[4] == -1 or reply[4] > sum[4]) and reply[4] or sum[4]
        end
      else
        binds = reply[1] == 0
        sum[4] = binds and reply[4] or sum[4]
      end
      if binds then
        sum[1], sum[2], sum[6] = reply[1], reply[2], reply[6]
      end
      sum[3] = math.min(sum[3], reply[3])
      sum[5] = math.max(sum[5], reply[5])
    end
  end
  return sum
end

-- charge takes from every group that allows, and tells in request.charged whether anything was taken.
local function charge(verb, groups, request)
  for _, group in ipairs(groups) do
    local err = group.reply[1] == 1 and #groups > 1 and ask(verb, group, true)
    if err then
      return err
    elseif not group.name and group.reply[1] == 0 then
      return nil -- time went on between the two looks at the keys
    end
    for _, cost in ipairs(group.costs) do
      request.charged = request.charged or (group.reply[1] == 1 and cost > 0)
    end
    if verb == 'decide' and group.name and group.reply[1] == 0 then
      note(group.name)
    end
  end
  return nil
end

local function decide(verb, keys, request, consume)
  local groups, enforced = divide(keys, request)
  -- No group may write before every key has been read: a call that errs changes nothing.
  for _, group in ipairs(groups) do
    local err = ask(verb, group, consume and #groups == 1)
    if err then
      return err
    end
  end
  if consume and (not enforced or enforced.reply[1] == 1) then
    local err = charge(verb, groups, request)
    if err then
      return err
    end
  end
  local reply, would = combine(enforced and { enforced } or groups), combine(groups)
  if not enforced then
    reply[1], reply[4] = 1, 0
  end
  reply[7], reply[8], reply[9] = would[1], would[4], would[6]
  return reply
end

-- request is decisions.request for calls that may name shadow policies.
function shadows.request(keys, request, consume)
  if request.limits.shadows then
    return decide('decide', keys, request, consume)
  end
  return decisions.request(keys, request, consume)
end

-- refund gives back, to each group apart: a blocked key under a shadow policy does not keep the others from it.
function shadows.refund(keys, request)
  if request.limits.shadows then
    return decide('give', keys, request, true)
  end
  return decisions.all('give', keys, request.limits, request.COST, true)
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

--@ src/65_tracking.lua
local tracking = {}
do
-- TRACK keeps in a key of its own how much a caller asks for: totals, first and last use, and a count a minute for the
-- last hour. It counts denied calls too, so it is apart from the limiter, which a denied call does not change.
--
-- State: a hash. allowed, denied, cost (of allowed calls), first, last (ms since the epoch), and a<minute>, d<minute>:
-- calls allowed and denied in that minute (minutes since the epoch). The key expires a day after the last use.

local MINUTE = 60000
local SERIES = 60 -- minutes
local KEPT = 86400000 -- ms
local NO_RECORD = 'does not hold a usage record'

-- open reads a record, before a decision is made, so that nothing is left to go wrong after it; or nil and the error for
-- a key that holds anything else.
function tracking.open(key)
  local now = clock.ms()
  local minute = string.format('%.0f', math.floor(now / MINUTE))
  local names = { 'allowed', 'denied', 'cost', 'first', 'last', 'a' .. minute, 'd' .. minute }
  local values = redis.pcall('HMGET', key, unpack(names))
  if values.err then
    return nil, string.sub(values.err, 1, 9) == 'WRONGTYPE' and errors.unusable(key, NO_RECORD) or values
  end
  local record = { key = key, now = now, minute = minute }
  for i, name in ipairs(names) do
    record[name] = values[i] and numbers.whole(values[i]) or nil
    if values[i] and not record[name] then
      return nil, errors.unusable(key, NO_RECORD)
    end
  end
  local whole = record.first and record.last and record.cost and (record.allowed or record.denied)
  local left = redis.call('PTTL', key)
  if left == -1 or (left >= 0 and not whole) then
    return nil, errors.unusable(key, NO_RECORD)
  end
  return record
end

-- check answers the error for a key that holds anything but a record, or nil.
function tracking.check(key)
  local _, err = tracking.open(key)
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

-- note counts a decision in the record that open has read. A total stops at 2^53.
function tracking.note(record, allowed, cost)
  local total = allowed and 'allowed' or 'denied'
  local field = (allowed and 'a' or 'd') .. record.minute
  local function sum(name, more)
    return string.format('%.0f', math.min(numbers.MOST, (record[name] or 0) + more))
  end
  local now = string.format('%.0f', record.now)
  redis.call('HSET', record.key, 'first', record.first and sum('first', 0) or now, 'last', now, total, sum(total, 1),
    'cost', sum('cost', allowed and cost or 0), field, sum(field, 1))
  redis.call('PEXPIREAT', record.key, string.format('%.0f', record.now + KEPT))
  if not record[field] then
    states.forget(record.key)
    forget_old(record.key, math.floor(record.now / MINUTE))
  end
end

-- read answers what ratelimit_usage replies.
function tracking.read(key)
  local fields, minutes = {}, {}
  local flat = redis.call('HGETALL', key)
  for i = 1, #flat, 2 do
    local minute = string.match(flat[i], '^[ad](%d+)$')
    fields[flat[i]] = numbers.whole(flat[i + 1]) or 0
    if minute and numbers.whole(minute) and not fields[minute] then
      fields[minute] = true
      minutes[#minutes + 1] = tonumber(minute)
    end
  end
  table.sort(minutes)
  local series = {}
  local newest = math.floor((fields.last or 0) / MINUTE)
  for _, minute in ipairs(minutes) do
    if minute <= newest and minute > newest - SERIES then
      local name = string.format('%.0f', minute)
      series[#series + 1] = { minute * MINUTE, fields['a' .. name] or 0, fields['d' .. name] or 0 }
    end
  end
  return {
    'allowed', fields.allowed or 0, 'denied', fields.denied or 0, 'cost', fields.cost or 0, 'first_ms', fields.first or 0,
    'last_ms', fields.last or 0, 'interval_ms', MINUTE, 'series', series,
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

-- read answers the reply that is kept under key, nil if there is none; or nil and the error.
function once.read(key)
  local value = redis.pcall('GET', key)
  if not value then
    return nil
  elseif type(value) == 'table' then
    return nil, states.not_a_state(key, value)
  end
  local reply = { string.match(value, '^once:(%d+),(%d+),(%d+),(%d+),(%d+),(%d+)$') }
  if #reply == 0 then
    reply = { string.match(value, '^once:(%d+),(%d+),(%d+),(%d+),(%d+),(%d+),([01]),(-?%d+),(%d+)$') }
  end
  if #reply == 0 then
    local owner = states.owner(value)
    local what = owner and 'the state of a limit (' .. owner.name .. ')' or states.blocked(value) and 'a block'
    return nil, what and states.in_use(key, what) or states.unreadable(key, value)
  end
  for i = 1, #reply do
    reply[i] = reply[i] == '-1' and -1 or numbers.whole(reply[i])
    if not reply[i] then
      return nil, states.unreadable(key, value)
    end
  end
  return reply
end

function once.keep(key, reply, ttl)
  local fields = 'once:%.0f,%.0f,%.0f,%.0f,%.0f,%.0f'
  if #reply > 6 then
    fields = fields .. ',%.0f,%.0f,%.0f'
  end
  states.forget(key)
  redis.call('SET', key, string.format(fields, unpack(reply)), 'PX', string.format('%.0f', ttl))
end
end

--@ src/75_leases.lua
local leases = {}
do
-- The arguments of acquire, renew and release: one key, a limit for leases, and the lease's id.

local LONGEST_ID = 256 -- bytes

-- call answers what the algorithm's function of that name does.
function leases.call(verb, keys, args)
  if #keys ~= 1 then
    return errors.new('BADKEYS', 'the number of keys is %.0f; %s takes one', #keys, verb)
  elseif #args ~= 2 then
    return errors.new('BADARGS', 'the number of arguments is %.0f; %s takes a limit and a lease id', #args, verb)
  end
  local text, shadow = args[1], nil
  if string.sub(text, 1, 1) == '@' then
    text, shadow = policies.lease(text)
    if not text then
      return shadow -- the error
    end
  end
  local limit, err = limits.leases(text)
  if not limit then
    return err
  end
  local id = args[2]
  if #id == 0 or #id > LONGEST_ID then
    return errors.new('BADARGS', 'the lease id %s is not of 1 to %.0f bytes', errors.quote(id), LONGEST_ID)
  end
  local reply = limit.algorithm[verb](keys[1], limit, id)
  if shadow and verb ~= 'release' then
    return shadows.lease(shadow, reply)
  end
  return reply
end
end

--@ src/80_holdings.lua
local holdings = {}
do
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
end

--@ src/algorithms/concurrency.lua
do
-- concurrency n lease=30s: at most n leases at a time. A lease has an id of the caller's choice, is held until it is
-- released, and lapses by the server's clock if it is not renewed in time: a caller that died keeps nobody out.
--
-- State: a sorted set, see src/28_lease_sets.lua.
--
-- A new n counts at once: leases beyond a lowered n are not taken away. A new lease time holds from the next acquire
-- or renew on; a lease that would last for longer than it (the clock was set back, the time was lowered) lapses then.

local MEMBER, BLOCK = lease_sets.MEMBER, lease_sets.BLOCK

local function digits(number)
  return string.format('%.0f', number)
end

-- score answers when a member lapses, or nil.
local function score(key, member)
  local text = redis.call('ZSCORE', key, member)
  return text and tonumber(text) or nil
end

-- blocked_for answers the ms for which the key is blocked, 0 if it is not, and whether it holds a set of leases; or nil
-- and the error for a key that holds anything else, but for a block over a state that has run out.
local function blocked_for(key, now)
  local ours, err = lease_sets.holds(key)
  if ours then
    return math.max(0, lease_sets.blocked_until(key) - now), true
  elseif ours == nil then
    return 0, false
  end
  local value = redis.pcall('GET', key)
  local untill, _, expiry = states.blocked(type(value) == 'string' and value or '')
  if untill and expiry < now then
    return math.max(0, untill - now), false
  end
  return nil, err
end

-- held answers how many leases are held at now. If all of them would last for longer than a lease does (the clock was set
-- back), they leave room for one.
local function held(key, limit, now)
  local from = '(' .. digits(now)
  local count = redis.call('ZCOUNT', key, from, '+inf')
  local far = redis.call('ZCOUNT', key, '(' .. digits(now + limit.lease), '+inf')
  local block = lease_sets.blocked_until(key)
  if block > now then
    count = count - 1
    far = block > now + limit.lease and far - 1 or far
  end
  return far > 0 and far == count and math.min(count, limit.capacity - 1) or count
end

local function answer(key, limit, now, allowed, count, retry)
  local last = redis.pcall('ZRANGE', key, -2, -1, 'WITHSCORES')
  local reset = 0
  for i = 1, last.err and 0 or #last, 2 do
    if last[i] ~= BLOCK then
      reset = math.max(reset, tonumber(last[i + 1]) - now)
    end
  end
  return { allowed, limit.capacity, math.max(0, limit.capacity - count), retry, reset, 1 }
end

-- keep stores a lease. What has lapsed goes, and what would last for longer than a lease does is cut to that.
local function keep(key, limit, member, now, is_set)
  local lapses = digits(now + limit.lease)
  if is_set then
    redis.call('ZREMRANGEBYSCORE', key, '-inf', digits(now))
    for _, far in ipairs(redis.call('ZRANGE', key, '(' .. lapses, '+inf', 'BYSCORE')) do
      if far ~= BLOCK then
        redis.call('ZADD', key, lapses, far)
      end
    end
  else
    states.forget(key)
    redis.call('DEL', key) -- a block that has run out
  end
  redis.call('ZADD', key, lapses, member)
  lease_sets.settle(key)
end

-- acquire takes a lease, or prolongs the one that this id holds: a retry does not take a second one.
local function acquire(key, limit, id)
  local now = clock.ms()
  local blocked, is_set = blocked_for(key, now)
  if not blocked then
    return is_set -- the error
  elseif blocked > 0 then
    return { 0, limit.capacity, 0, blocked, blocked, 1 }
  end
  local member = MEMBER .. id
  local lapses = is_set and score(key, member) or now
  local count = is_set and held(key, limit, now) or 0
  if lapses <= now then
    if count >= limit.capacity then
      local freeing = redis.call('ZRANGE', key, '(' .. digits(now), '+inf', 'BYSCORE', 'LIMIT',
        digits(count - limit.capacity), '1', 'WITHSCORES')
      return answer(key, limit, now, 0, count, tonumber(freeing[2]) - now)
    end
  end
  keep(key, limit, member, now, is_set)
  return answer(key, limit, now, 1, held(key, limit, now), 0)
end

-- renew prolongs a lease that is held, also while the key is blocked; a lease that has lapsed stays lost, and its
-- retry_after is -1.
local function renew(key, limit, id)
  local now = clock.ms()
  local blocked, is_set = blocked_for(key, now)
  if not blocked then
    return is_set -- the error
  end
  local member = MEMBER .. id
  local lapses = is_set and score(key, member) or now
  if lapses <= now then
    return answer(key, limit, now, 0, is_set and held(key, limit, now) or 0, -1)
  end
  keep(key, limit, member, now, true)
  return answer(key, limit, now, 1, held(key, limit, now), 0)
end

-- release gives a lease back: 1, or 0 if this id holds none any more.
local function release(key, _, id)
  local now = clock.ms()
  local blocked, is_set = blocked_for(key, now)
  if not blocked then
    return is_set -- the error
  end
  local member = MEMBER .. id
  local lapses = is_set and score(key, member) or now
  if lapses <= now then
    return 0
  end
  redis.call('ZREM', key, member)
  lease_sets.settle(key)
  return 1
end

-- parse reads "concurrency n lease=30s"; answers the limit, or nil and what is wrong.
local function parse(text)
  local count, lease = string.match(text, '^%s*concurrency%s+(%S+)%s+lease=(%S+)%s*$')
  if not count then
    return nil, 'not of the form concurrency n lease=30s'
  end
  local limit = { capacity = numbers.positive(count) }
  if not limit.capacity then
    return nil, string.format('the count %s is not ' .. numbers.WHOLE, errors.quote(count), '1')
  end
  local wrong
  limit.lease, wrong = limits.period(lease)
  return limit.lease and limit, wrong
end

algorithms.concurrency = {
  name = 'concurrency',
  leases = parse,
  holds = function()
    return false
  end,
  acquire = acquire,
  renew = renew,
  release = release,
}
end

--@ src/algorithms/fixed_window.lua
do
-- fixed_window: n per window. A window opens at the first take, or with align=clock at whole multiples of the period
-- since the epoch (UTC), and ends one period later. Time in whole milliseconds.
--
-- State. The key expires at the end of the window.
--   one rate:        the count, a plain integer; the window's end is the expiry
--   several rates:   each "<count>:<end of the window, ms since the epoch>"
--
-- A new n counts at once against what the open window has counted. A new period or align takes effect when the window
-- ends, but a window that would stay open for longer than the period (the period was lowered, or the clock was set
-- back) gives way to a new one, in which what was counted leaves room for just this call.

local COUNT = '^[1-9]%d*$'

local prefixed = packed.prefixed('fixed_window:')

local function holds(value)
  return (string.find(value, COUNT) ~= nil and numbers.whole(value) ~= nil) or prefixed(value)
end

-- parse reads "<count>:<end>"; nil if it is not that.
local function parse(text)
  local count, ending = string.match(text, '^(%d+):(%d+)$')
  count, ending = numbers.whole(count or ''), numbers.whole(ending or '')
  if count and ending then
    return count, ending
  end
  return nil
end

local function spent(value)
  return numbers.whole(value) or parse(packed.first(value, algorithms.fixed_window)) or 0
end

-- length answers the ms of a window that opens at now (ms).
local function length(rate, now)
  return rate.align and rate.period - now % rate.period or rate.period
end

-- weigh decides over a window: its count and the ms left of it.
local function weigh(count, left, capacity, cost)
  if cost > 0 and cost > capacity - count then
    local until_free = count > 0 and left or 0
    return false, math.max(0, capacity - count), cost > capacity and -1 or until_free, until_free
  end
  local after = count + cost
  return true, math.max(0, capacity - after), 0, after > 0 and left or 0
end

------------------------------------------------------------------- one rate

-- unusual reads a key that does not hold a count. Answers the count, the ms left of the window (0: none is open), and,
-- if another algorithm left the state, for how many ms that counts; or false and the ms of a block; or nil and the
-- error.
local function unusual(key, value, limit, cost)
  local kind, state, left, owner = states.view(key, value, algorithms.fixed_window)
  if not kind then
    return nil, state
  elseif kind == 'blocked' then
    return false, left
  elseif kind == 'none' then
    return 0, 0
  elseif kind == 'own' and not prefixed(state) then
    return numbers.whole(state), left
  elseif kind == 'own' then
    local count, ending = parse(packed.first(state, algorithms.fixed_window))
    left = count and ending - clock.ms() or 0
    return left > 0 and count or 0, math.max(0, left)
  end
  return states.spent_elsewhere(state, left, owner, limit, cost), 0, left
end

-- opening answers the ms of a window that opens in this call.
local function opening(limit)
  if not limit.align then
    return limit.period
  end
  return length(limit, clock.ms())
end

-- read answers the count, the ms left of the window (0: none is open), for how many ms another algorithm's state
-- counts, and whether the key holds the count as write left it; or false and the ms of a block; or nil and the error.
local function read(key, limit, cost)
  local value = redis.pcall('GET', key)
  if not value then
    return 0, 0
  elseif type(value) ~= 'string' or #value > 15 or not string.find(value, COUNT) then
    return unusual(key, value, limit, cost)
  end
  local left = redis.call('PTTL', key)
  if left < 0 then
    return nil, states.missing_expiry(key)
  end
  return tonumber(value), left, nil, true
end

-- renewed answers the count and the ms of a window that opens in this call: what another algorithm's state stands for, or
-- what a window has counted that is open for too long.
local function renewed(count, left, elsewhere, limit, cost)
  if left > limit.period then
    count = math.min(count, states.leaves_room(limit.capacity, cost))
  elseif not elsewhere then
    count = 0
  end
  return count, opening(limit)
end

local function decide(key, limit, cost)
  local count, left, elsewhere, kept = read(key, limit, cost)
  if not count then
    if count == nil then
      return nil, left
    end
    return states.refused_by_block(limit, cost, left)
  end
  local opens = nil
  if left == 0 or left > limit.period then
    count, left = renewed(count, left, elsewhere, limit, cost)
    opens = left
  elseif not kept then
    opens = left
  end
  local capacity = limit.capacity
  if cost <= capacity - count then
    local after = count + cost
    return true, capacity - after, 0, after > 0 and left or 0, after, opens
  end
  local allowed, remaining, retry, reset = weigh(count, left, capacity, cost)
  if not allowed and elsewhere then
    return false, remaining, retry == -1 and -1 or elsewhere, elsewhere
  end
  return allowed, remaining, retry, reset
end

local function give(key, limit, cost)
  local count, left, elsewhere, kept = read(key, limit, 1)
  if not count then
    if count == nil then
      return nil, left
    end
    return states.refused_by_block(limit, 1, left)
  end
  if left == 0 or left > limit.period then
    count, left = renewed(count, left, elsewhere, limit, 1)
    kept = false
  end
  local after = math.max(0, count - cost)
  return true, math.max(0, limit.capacity - after), 0, after > 0 and left or 0, after, not kept and left
end

-- write stores the count; opens: the ms of the window if the key must be written anew.
local function write(key, _, cost, count, opens)
  if count == 0 then
    redis.call('DEL', key)
  elseif opens then
    states.forget(key)
    redis.call('SET', key, count, 'PX', opens)
  else
    redis.call('INCRBY', key, cost)
  end
end

------------------------------------------------------------------- several rates

local function window(text, now, rate, cost)
  if text == '' then
    return 0, length(rate, now)
  end
  local count, ending = parse(text)
  if not count then
    return nil
  elseif ending <= now then
    return 0, length(rate, now)
  elseif ending - now > rate.period then
    return math.min(count, states.leaves_room(rate.capacity, cost)), length(rate, now)
  end
  return count, ending - now
end

local function step(text, now_us, rate, cost)
  local now = math.floor(now_us / 1000)
  local count, left = window(text, now, rate, cost)
  if not count then
    return nil
  end
  local allowed, remaining, retry, reset = weigh(count, left, rate.capacity, cost)
  return allowed, remaining, retry, reset, string.format('%.0f:%.0f', count + cost, now + left), now + left
end

local function give_step(text, now_us, rate, cost)
  local now = math.floor(now_us / 1000)
  local count, left = window(text, now, rate, 1)
  if not count then
    return nil
  elseif cost >= count then
    return true, rate.capacity, 0, 0, '', 0
  end
  return true, math.max(0, rate.capacity - count + cost), 0, left, string.format('%.0f:%.0f', count - cost, now + left),
    now + left
end

local function spend(now_us, rate, units)
  local now = math.floor(now_us / 1000)
  return string.format('%.0f:%.0f', units, now + length(rate, now))
end

local function plain_text(value, left, now_us)
  return string.format('%.0f:%.0f', numbers.whole(value), math.floor(now_us / 1000) + left)
end

-------------------------------------------------------------------------------------------

local function complete_rate(rate)
  rate.capacity = rate.count
end

local function complete(limit)
  if limit.rates then
    return packed.complete(limit)
  end
  limit.decide, limit.give, limit.write = decide, give, write
end

local function clock_option(text)
  return text == 'clock' and text or nil, '"clock"'
end

algorithms.fixed_window = {
  name = 'fixed_window',
  prefix = 'fixed_window:',
  options = { align = clock_option },
  rate = complete_rate,
  limit = complete,
  holds = holds,
  spent = spent,
  step = step,
  give = give_step,
  spend = spend,
  plain = plain_text,
}
end

--@ src/algorithms/gcra.lua
do
-- gcra: continuous refill at n/period, capacity b (default n). The virtual scheduling form of the generic cell rate
-- algorithm (ITU-T I.371, ATM Forum TM 4.0): one theoretical arrival time, TAT, moves on by the emission interval
-- T = period/n for each unit taken, and a call is allowed while TAT stays within b*T of now. Here debt = TAT - now:
-- how long until full again.
--
-- State. The key expires at TAT, rounded up to a whole millisecond.
--   one rate, T of 1 ms or more: "gcra", or "gcra-<k>": TAT is k/q ms before the expiry, q being the denominator of T in
--                                ms, reduced. So the expiry is the state, and no clock need be read to decide.
--   otherwise:                   "gcra:<TAT in us>", or "gcra:<us>+<part>" with a part of a microsecond left over
-- A limit of either kind reads what the other has left; TAT is kept when n, period or burst change, so what was taken
-- under the old limit stays taken.
--
-- A TAT further ahead than any debt of this limit (its period or burst was lowered, or the clock was set back) would
-- lock the key out for longer than one full refill. It counts as a debt that leaves room for just this call: the key
-- is usable at once, at the new rate, and the old burst is not handed out again.

local VALUE = 'gcra'
local TEXT = '^' .. spans.TIME
local STATE = '^gcra:' .. spans.TIME

local PART = '^gcra%-(%d+)$'

local prefixed = packed.prefixed('gcra:')

local function holds(value)
  return value == VALUE or prefixed(value) or string.find(value, PART) ~= nil
end

------------------------------------------------------------------- one rate, T in whole milliseconds
-- Debts are in ticks of 1/limit.ticks ms, which is 1 here.

-- unusual_debt reads a key that holds no usual state. Answers the debt in ticks, and, if another algorithm left the state,
-- for how many ms that counts; or false and the ms of a block; or nil and the error.
local function unusual_debt(key, limit, cost)
  local kind, value, left, owner = states.view(key, redis.pcall('GET', key), algorithms.gcra)
  if not kind then
    return nil, value
  elseif kind == 'blocked' then
    return false, left
  elseif kind == 'none' then
    return 0
  elseif kind == 'own' and string.sub(value, 1, 6) == 'gcra::' then
    local digits, more_digits = string.match(packed.first(value, algorithms.gcra), TEXT)
    local part = (more_digits or '') ~= '' and 1 or 0
    return digits and math.max(0, spans.whole_ms(tonumber(digits), part) - clock.ms()) * limit.ticks or 0
  elseif kind == 'own' then
    local part = tonumber(string.match(value, PART) or '0') -- there under a block that has run out
    return math.max(0, left * limit.ticks - (part < limit.ticks and part or 0))
  end
  return states.spent_elsewhere(value, left, owner, limit, cost) * limit.interval, left
end

-- A key that denies is asked again and again, and PTTL alone answers it, once GET has shown that the state is ours.
-- seen keeps the debt at which it did: while time passes and nothing is written a debt shrinks, so a debt that has not
-- says that the key may no longer be the one that was seen. This saves a seventh of a denied call (bench/README.md), is
-- forgotten freely, and can only deny. peek does not use it: a replica does not see what is written to the key.
local MOST_SEEN = 10000 -- keys
local LONGEST_SEEN = 200 -- bytes of a key
local seen = {}
local seen_size = 0

local function remember(key, debt)
  if not seen[key] then
    if #key > LONGEST_SEEN then
      return
    elseif seen_size >= MOST_SEEN then
      seen = {}
      seen_size = 0
    end
    seen_size = seen_size + 1
  end
  seen[key] = debt
end

states.forgetful[#states.forgetful + 1] = function(key)
  if seen[key] then
    seen[key] = -1
  end
end

local function decide_ms(key, limit, cost, consume)
  local interval, full = limit.interval, limit.full
  local debt = redis.call('PTTL', key)
  local after = debt + cost * interval
  local kept, read, elsewhere = true, false, nil
  if debt <= 0 or after <= full or not consume or debt >= (seen[key] or -1) or debt + interval > 2 * full then
    read = true
    if debt == -2 then
      debt = 0
      kept = false
    elseif redis.pcall('GET', key) ~= VALUE then
      debt, elsewhere = unusual_debt(key, limit, cost)
      kept = false
      if debt == nil then
        return nil, elsewhere
      elseif not debt then
        return states.refused_by_block(limit, cost, elsewhere)
      end
    elseif debt <= 0 then
      kept = false
      if debt < 0 then
        return nil, states.missing_expiry(key)
      end
    end
    if debt + interval > 2 * full then
      debt = interval * states.leaves_room(limit.capacity, cost)
      kept = false
    end
    after = debt + cost * interval
  end
  if after <= full then
    local room = full - after
    return true, (room - room % interval) / interval, 0, after, after, kept
  end
  local room = full - debt
  local remaining = room >= interval and (room - room % interval) / interval or 0
  if cost == 0 then
    return true, remaining, 0, debt
  elseif read and kept then
    remember(key, debt)
  end
  return false, remaining, cost > limit.capacity and -1 or elsewhere or after - full, elsewhere or debt
end

local function give_ms(key, limit, cost)
  local allowed, remaining, retry, debt, _, kept = decide_ms(key, limit, 0)
  if not allowed then
    return allowed, remaining, retry, debt
  end
  local after = math.max(0, debt - cost * limit.interval)
  return true, math.max(0, math.floor((limit.full - after) / limit.interval)), 0, after, after, kept
end

local function write_ms(key, limit, cost, after, kept)
  if after == 0 then
    redis.call('DEL', key)
  elseif not kept then
    redis.call('PSETEX', key, after, VALUE) -- SET would keep the value in the memory of an earlier, longer argument
  elseif CLOCK_STANDS then
    redis.call('PEXPIRE', key, after)
  else
    redis.call('PEXPIREAT', key, redis.call('PEXPIRETIME', key) + cost * limit.interval)
  end
end

------------------------------------------------------------------- one rate, T of 1 ms or more
-- The same with a part of a millisecond, in the value. Time is still in whole ms: it admits at most one unit later.

local function ceil_ms(ticks, limit)
  local over = ticks % limit.ticks
  return (over > 0 and ticks + limit.ticks - over or ticks) / limit.ticks
end

-- usual_debt answers the debt in ticks and the ms left of the key, or nil if it holds no usual state.
local function usual_debt(key, value, limit)
  local part = value == VALUE and '0' or type(value) == 'string' and string.match(value, PART)
  local left = part and redis.call('PTTL', key) or -1
  if left < 0 then
    return nil
  end
  part = tonumber(part)
  return math.max(0, left * limit.ticks - (part < limit.ticks and part or 0)), left
end

local function decide_part(key, limit, cost)
  local interval, full = limit.interval, limit.full
  local value = redis.pcall('GET', key)
  local debt, left, elsewhere = 0, 0, nil
  if value then
    debt, left = usual_debt(key, value, limit)
    if not debt then
      debt, elsewhere = unusual_debt(key, limit, cost)
      left = 0
      if debt == nil then
        return nil, elsewhere
      elseif not debt then
        return states.refused_by_block(limit, cost, elsewhere)
      end
    end
    if debt + interval > 2 * full then
      debt, left = interval * states.leaves_room(limit.capacity, cost), 0
    end
  end
  local after = debt + cost * interval
  if after <= full then
    local room = full - after
    return true, (room - room % interval) / interval, 0, ceil_ms(after, limit), after, left
  end
  local room = full - debt
  local remaining = room >= interval and (room - room % interval) / interval or 0
  if cost == 0 then
    return true, remaining, 0, ceil_ms(debt, limit), debt, left
  end
  return false, remaining, cost > limit.capacity and -1 or elsewhere or ceil_ms(after - full, limit),
    elsewhere or ceil_ms(debt, limit)
end

local function give_part(key, limit, cost)
  local allowed, remaining, retry, reset, debt, left = decide_part(key, limit, 0)
  if not allowed then
    return allowed, remaining, retry, reset
  end
  local after = math.max(0, debt - cost * limit.interval)
  local room = math.max(0, limit.full - after)
  return true, (room - room % limit.interval) / limit.interval, 0, ceil_ms(after, limit), after, left
end

-- write_part stores the debt. left: the ms left of a key that goes on, 0 if it is new.
local function write_part(key, limit, _, after, left)
  if after == 0 then
    return redis.call('DEL', key)
  end
  states.forget(key)
  local ms = ceil_ms(after, limit)
  local part = ms * limit.ticks - after
  local value = part == 0 and VALUE or string.format('gcra-%.0f', part)
  if CLOCK_STANDS or left == 0 then
    return redis.call('PSETEX', key, ms, value)
  end
  return redis.call('SET', key, value, 'PXAT', redis.call('PEXPIRETIME', key) + ms - left)
end

------------------------------------------------------------------- any T, any number of rates

-- debt_at answers the debt that a TAT stands for as a span, from what the pattern of one has matched. cost is what the
-- call wants.
local function debt_at(digits, more_digits, now, rate, cost)
  local us, part = tonumber(digits), 0
  if us < now then
    return 0, 0
  end
  us = us - now
  if more_digits ~= '' then
    part = tonumber(more_digits)
    if part >= rate.parts then
      us, part = us + 1, 0 -- left by a rate with other parts: rounded up
    end
  end
  if spans.exceeds(us, part, rate.far_us, rate.far_part) then
    return spans.times(states.leaves_room(rate.capacity, cost), rate)
  end
  return us, part
end

-- debt_of does so for a text, and answers nil if that is none.
local function debt_of(text, now, rate, cost)
  if text == '' then
    return 0, 0
  end
  local digits, more_digits = string.match(text, TEXT)
  if digits then
    return debt_at(digits, more_digits, now, rate, cost)
  end
  return nil
end

-- weigh decides over a debt. Answers allowed, remaining, retry_after, reset_after, and the debt after the call.
local function weigh(us, part, rate, cost)
  local full_us, full_part, capacity = rate.full_us, rate.full_part, rate.capacity
  if cost <= capacity then
    local after_us, after_part = spans.times(cost, rate)
    after_us, after_part = after_us + us, after_part + part
    if after_part >= rate.parts then
      after_us, after_part = after_us + 1, after_part - rate.parts
    end
    if cost == 0 or after_us < full_us or (after_us == full_us and after_part <= full_part) then
      return true, spans.units(full_us - after_us, full_part - after_part, rate), 0, spans.whole_ms(after_us, after_part),
        after_us, after_part
    end
    return false, spans.units(full_us - us, full_part - part, rate),
      spans.whole_ms(after_us - full_us, after_part - full_part), spans.whole_ms(us, part)
  end
  return false, spans.units(full_us - us, full_part - part, rate), -1, spans.whole_ms(us, part)
end

local function step(text, now, rate, cost)
  local us, part = debt_of(text, now, rate, cost)
  if not us then
    return nil
  end
  local allowed, remaining, retry, reset
  allowed, remaining, retry, reset, us, part = weigh(us, part, rate, cost)
  if not allowed then
    return false, remaining, retry, reset
  end
  return true, remaining, 0, reset, spans.text(now + us, part), spans.whole_ms(now + us, part)
end

local function give(text, now, rate, cost)
  local us, part = debt_of(text, now, rate, 1)
  if not us then
    return nil
  end
  local less_us, less_part = spans.times(math.min(cost, 2 * rate.capacity), rate)
  us, part = us - less_us, part - less_part
  if part < 0 then
    us, part = us - 1, part + rate.parts
  end
  if us < 0 or (us == 0 and part == 0) then
    return true, rate.capacity, 0, 0, '', 0
  end
  return true, spans.units(rate.full_us - us, rate.full_part - part, rate), 0, spans.whole_ms(us, part),
    spans.text(now + us, part), spans.whole_ms(now + us, part)
end

local function spend(now, rate, units)
  local us, part = spans.times(units, rate)
  return spans.text(now + us, part)
end

local function plain(_, left, now)
  return spans.text(now - now % 1000 + left * 1000, 0)
end

------------------------------------------------------------------- one rate, T below 1 ms
-- What packed.lua would do with step, without the strings between: a third of the time (bench/README.md).

local function decide_us(key, limit, cost)
  local value = redis.pcall('GET', key)
  local now = clock.us()
  local us, part = 0, 0
  if value then
    local digits, more_digits
    if type(value) == 'string' then
      digits, more_digits = string.match(value, STATE)
    end
    if not digits then
      return packed.decide(key, limit, cost)
    end
    us, part = debt_at(digits, more_digits, now, limit, cost)
  end
  local allowed, remaining, retry, reset
  allowed, remaining, retry, reset, us, part = weigh(us, part, limit, cost)
  return allowed, remaining, retry, reset, allowed and now + us, part
end

-- write_us stores TAT. What packed.lua has decided, a refund among it, is a text and an expiry instead.
local function write_us(key, limit, cost, us, part)
  if type(us) == 'string' then
    return packed.write(key, limit, cost, us, part)
  end
  redis.call('SET', key, spans.text(us, part, 'gcra:'), 'PXAT', spans.whole_ms(us, part))
end

-------------------------------------------------------------------------------------------

-- complete_rate works for leaky_bucket too, which keeps the same state.
local function complete_rate(rate)
  rate.capacity = rate.burst or rate.count
  local wrong = spans.prepare(rate, rate.capacity)
  if wrong then
    return wrong
  end
  rate.full_us, rate.full_part = spans.times(rate.capacity, rate)
  rate.far_us, rate.far_part = spans.times(2 * rate.capacity - 1, rate)
  return nil
end

local function complete(limit)
  local divisor = limit.rates and 1 or numbers.common_divisor(limit.period, limit.count)
  local interval = not limit.rates and limit.period / divisor
  if limit.rates or limit.period < limit.count or 2 * interval * limit.capacity > numbers.MOST then
    packed.complete(limit)
    if not limit.rates then
      limit.decide, limit.write = decide_us, write_us
    end
    return
  end
  limit.interval, limit.ticks = interval, limit.count / divisor
  limit.full = interval * limit.capacity
  if limit.ticks == 1 then
    limit.decide, limit.give, limit.write = decide_ms, give_ms, write_ms
  else
    limit.decide, limit.give, limit.write = decide_part, give_part, write_part
  end
end

algorithms.gcra = {
  name = 'gcra',
  prefix = 'gcra:',
  options = { burst = numbers.positive_option },
  rate = complete_rate,
  limit = complete,
  holds = holds,
  step = step,
  give = give,
  spend = spend,
  plain = plain,
  debt_of = debt_of,
}
end

--@ src/algorithms/leaky_bucket.lua
do
-- leaky_bucket: a queue that is left at n/period and holds at most b (default n). A call that finds room is admitted
-- and told in retry_after_ms how long to wait before it proceeds, so that what is admitted comes out evenly spaced.
-- The same arithmetic and the same state as gcra: TAT is when the last one admitted has left; a call waits for those
-- before it, which is its debt before it is charged.
--
-- State: "leaky_bucket:<TAT>", see gcra.

local gcra = algorithms.gcra

local function step(text, now, rate, cost)
  local allowed, remaining, retry, reset, following, full = gcra.step(text, now, rate, cost)
  if allowed and cost > 0 then
    retry = spans.whole_ms(gcra.debt_of(text, now, rate, cost))
  end
  return allowed, remaining, retry, reset, following, full
end

algorithms.leaky_bucket = {
  name = 'leaky_bucket',
  prefix = 'leaky_bucket:',
  options = { burst = numbers.positive_option },
  rate = gcra.rate,
  limit = packed.complete,
  holds = packed.prefixed('leaky_bucket:'),
  step = step,
  give = gcra.give,
  spend = gcra.spend,
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
-- The key expires when the last entry has left the window.
--
-- A new n or period counts at once against the log. A log with n units in the future (the clock was set back) leaves
-- room for just this call. Another algorithm's state counts as one entry of now.

local PREFIX = 'sliding_log:'
local STATE = '^sliding_log:[^:]'
local BASE, ENTRY = 5, 12
local CHUNK = 2048 -- bytes that the first read brings; a log that ends within is rewritten, a longer one appended to
local MOST = 10000000 -- the largest n: the sums stay in 5 bytes between two rewrites
local REBASE = 200000000000 -- sums start from 0 again; below 0x3a00000000, so that a text never begins with ':'

-- open answers a log, or nil: text holds it from byte `skip` + 1 on, or its beginning, if it is `size` bytes long in all
-- and text is what is at hand of the value of key. The first and the last entry decide most calls.
local function open(text, skip, size, key)
  local count = (size - BASE) / ENTRY
  if count < 1 or count % 1 ~= 0 then
    return nil
  end
  local whole = #text == skip + size
  local base, first, first_sum = struct.unpack('>I5I7I5', text, skip + 1)
  local last, sum = first, first_sum
  if count > 1 and whole then
    last, sum = struct.unpack('>I7I5', text, #text - ENTRY + 1)
  elseif count > 1 then
    last, sum = struct.unpack('>I7I5', redis.call('GETRANGE', key, -ENTRY, -1))
  end
  if base > first_sum or first_sum > sum or first > last then
    return nil
  end
  return {
    text = text, skip = skip, key = key, whole = whole, count = count, base = base, first = first, first_sum = first_sum,
    last = last, sum = sum,
  }
end

-- entry answers the time and the sum of entry i; entry 0 is the base.
local function entry(log, i)
  if i == 0 then
    return 0, log.base
  end
  local at = log.skip + BASE + ENTRY * (i - 1)
  if at + ENTRY <= #log.text then
    return struct.unpack('>I7I5', log.text, at + 1)
  end
  return struct.unpack('>I7I5', redis.call('GETRANGE', log.key, at, at + ENTRY - 1))
end

-- first_live answers the first entry younger than one period, count + 1 if there is none, and the sum before it.
local function first_live(log, since)
  if log.first > since then
    return 1, log.base
  elseif log.last <= since then
    return log.count + 1, log.sum
  end
  local low, high, before = 2, log.count, log.first_sum
  while low < high do
    local middle = (low + high - (low + high) % 2) / 2
    local at, sum = entry(log, middle)
    if at > since then
      high = middle
    else
      low, before = middle + 1, sum
    end
  end
  return low, before
end

-- leaving answers the time of the first entry from `live` on after which at most `units` of the sum are left, and its
-- number.
local function leaving(log, live, units)
  local low, high = live, log.count
  if live == 1 and log.sum - log.first_sum <= units then
    return log.first, 1
  end
  while low < high do
    local middle = (low + high - (low + high) % 2) / 2
    local _, upto = entry(log, middle)
    if log.sum - upto <= units then
      high = middle
    else
      low = middle + 1
    end
  end
  return entry(log, low), low
end

local function fresh(now, units)
  return open(struct.pack('>I5I7I5', 0, now, units), 0, BASE + ENTRY)
end

-- in_use answers how many units of a log count, the first live entry and the log itself: another one, of now, in the
-- place of one that would deny every call for longer than a period.
local function in_use(log, now, rate, cost)
  if not log then
    return 0, 1, nil
  end
  local capacity = rate.capacity
  local live, before = first_live(log, now - rate.period * 1000)
  local used = log.sum > before and log.sum - before or 0
  if used >= capacity and log.last > now and leaving(log, live, capacity - 1) > now then
    used = states.leaves_room(capacity, cost)
    return used, 1, used > 0 and fresh(now, used) or nil
  end
  return used, live, log
end

-- weigh decides. Answers what decide does, and the log, the first live entry, the time and the sum of the entry to write.
local function weigh(log, now, rate, cost)
  local period, capacity = rate.period * 1000, rate.capacity
  local used, live
  used, live, log = in_use(log, now, rate, cost)
  local last = log and log.last or now
  local remaining = used < capacity and capacity - used or 0
  local reset = used > 0 and spans.whole_ms(last + period - now, 0) or 0
  if cost == 0 then
    return true, remaining, 0, reset
  elseif cost > capacity then
    return false, remaining, -1, reset
  elseif cost > remaining then
    local free = leaving(log, live, capacity - cost)
    return false, remaining, spans.whole_ms(free + period - now, 0), reset
  end
  local at = last > now and last or now
  return true, remaining - cost, 0, spans.whole_ms(at + period - now, 0), log, live, at, (log and log.sum or 0) + cost
end

-- rebased answers entries with the sums counted from base.
local function rebased(entries, base)
  local out = {}
  for at = 1, #entries, ENTRY do
    local when, sum = struct.unpack('>I7I5', entries, at)
    out[#out + 1] = struct.pack('>I7I5', when, sum - base)
  end
  return table.concat(out)
end

-- live_part answers the entries from `live` on, and the sum before them.
local function live_part(log, live)
  if live > log.count then
    return '', log.sum
  end
  local _, base = entry(log, live - 1)
  local from = log.skip + BASE + ENTRY * (live - 1)
  if log.whole then
    return string.sub(log.text, from + 1), base
  end
  return redis.call('GETRANGE', log.key, from, -1), base
end

-- rewritten answers the text without the dead entries and with one more.
local function rewritten(log, live, at, sum)
  if not log then
    return struct.pack('>I5I7I5', 0, at, sum)
  end
  local entries, base = live_part(log, live)
  if base > REBASE then
    entries, sum, base = rebased(entries, base), sum - base, 0
  end
  return struct.pack('>I5', base) .. entries .. struct.pack('>I7I5', at, sum)
end

-- goes_on tells whether an entry is simply added to the log: while at most half of its entries have left the window.
local function goes_on(log, kept, live, sum)
  return log and kept == log and live - 1 <= log.count / 2 and sum < REBASE
end

-- expiry answers when the entry of a time has left the window, ms since the epoch.
local function expiry(at, rate)
  return spans.whole_ms(at + rate.period * 1000, 0)
end

------------------------------------------------------------------- a log at hand: one of several rates, or a refund

local function step(text, now, rate, cost)
  local log = nil
  if text ~= '' then
    log = open(text, 0, #text)
    if not log then
      return nil
    end
  end
  local allowed, remaining, retry, reset, kept, live, at, sum = weigh(log, now, rate, cost)
  if not allowed or cost == 0 then
    return allowed, remaining, retry, reset
  elseif goes_on(log, kept, live, sum) then
    return true, remaining, 0, reset, text .. struct.pack('>I7I5', at, sum), expiry(at, rate)
  end
  return true, remaining, 0, reset, rewritten(kept, live, at, sum), expiry(at, rate)
end

-- give takes back the newest units first.
local function give(text, now, rate, cost)
  local log = nil
  if text ~= '' then
    log = open(text, 0, #text)
    if not log then
      return nil
    end
  end
  local used, live
  used, live, log = in_use(log, now, rate, 1)
  local left = used - cost
  if left <= 0 then
    return true, rate.capacity, 0, 0, '', 0
  end
  local at, last = leaving(log, live, cost)
  local entries, base = live_part(log, live)
  entries = string.sub(entries, 1, ENTRY * (last - live)) .. struct.pack('>I7I5', at, base + left)
  if base > REBASE then
    entries, base = rebased(entries, base), 0
  end
  return true, math.max(0, rate.capacity - left), 0, spans.whole_ms(at + rate.period * 1000 - now, 0),
    struct.pack('>I5', base) .. entries, expiry(at, rate)
end

local function spend(now, _, units)
  return struct.pack('>I5I7I5', 0, now, units)
end

local function spent(value)
  local body = packed.first(value, algorithms.sliding_log)
  local log = open(body, 0, #body)
  if not log then
    return 0
  end
  return log.sum - log.base
end

------------------------------------------------------------------- a log in a key of its own

-- as_value turns the text that packed.lua answers with into the whole value, as write_log wants it.
local function as_value(allowed, remaining, retry, reset, text, full)
  return allowed, remaining, retry, reset, text and text ~= '' and PREFIX .. text or text, full
end

local function decide_log(key, limit, cost)
  local head = redis.pcall('GETRANGE', key, 0, CHUNK - 1)
  local log = nil
  if head ~= '' then
    if type(head) ~= 'string' or not string.find(head, STATE) then
      return as_value(packed.decide(key, limit, cost))
    end
    local size = #head < CHUNK and #head or redis.call('STRLEN', key)
    log = open(head, #PREFIX, size - #PREFIX, key)
    if not log then
      return nil, states.unreadable(key, head)
    end
  end
  local allowed, remaining, retry, reset, kept, live, at, sum = weigh(log, clock.us(), limit, cost)
  if not allowed or cost == 0 then
    return allowed, remaining, retry, reset
  elseif not kept then
    return true, remaining, 0, reset, struct.pack('>c12I5I7I5', PREFIX, 0, at, sum), expiry(at, limit)
  elseif goes_on(log, kept, live, sum) then
    local added = struct.pack('>I7I5', at, sum)
    if log.whole then
      return true, remaining, 0, reset, head .. added, expiry(at, limit)
    end
    return true, remaining, 0, reset, added, -expiry(at, limit)
  end
  return true, remaining, 0, reset, PREFIX .. rewritten(kept, live, at, sum), expiry(at, limit)
end

local function give_log(key, limit, cost)
  return as_value(packed.give(key, limit, cost))
end

-- write_log appends to a long log, which decide says by a negative expiry, and rewrites any other.
local function write_log(key, _, _, text, full)
  if full < 0 then
    redis.call('APPEND', key, text)
    redis.call('PEXPIREAT', key, -full)
  elseif text == '' then
    redis.call('DEL', key)
  else
    states.forget(key)
    redis.call('SET', key, text, 'PXAT', full)
  end
end

local function complete_rate(rate)
  rate.capacity = rate.count
  if rate.count > MOST then
    return string.format('a sliding_log keeps each call, and so takes a count of at most %.0f', MOST)
  end
end

local function complete(limit)
  packed.complete(limit)
  if not limit.rates then
    limit.decide, limit.give, limit.write = decide_log, give_log, write_log
  end
end

algorithms.sliding_log = {
  name = 'sliding_log',
  prefix = 'sliding_log:',
  options = {},
  rate = complete_rate,
  limit = complete,
  holds = packed.prefixed('sliding_log:'),
  step = step,
  give = give,
  spent = spent,
  spend = spend,
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

local MOST_BUCKETS = 1000

-- parse answers width, newest and the counts, counts[0] the newest; or nil.
local function parse(text)
  local width, newest, first, second, list = string.match(text, '^(%d+):(%d+):(%d+),?(%d*)([%d,]*)$')
  width, newest = numbers.whole(width or ''), numbers.whole(newest or '')
  if not width or width == 0 or not newest then
    return nil
  end
  local counts, at = { [0] = numbers.whole(first) }, 1
  if second ~= '' then
    counts[1], at = numbers.whole(second), 2
  end
  for digits in string.gmatch(list, '%d+') do
    counts[at] = numbers.whole(digits)
    if not counts[at] then
      return nil
    end
    at = at + 1
  end
  if not counts[0] or (at > 1 and not counts[1]) then
    return nil
  end
  return width, newest, counts, at
end

-- read answers the counts by their distance from the bucket of now: counts[0] now's, up to counts[k]; or nil.
local function read(text, now, rate, cost)
  local counts = {}
  for i = 0, rate.buckets do
    counts[i] = 0
  end
  if text == '' then
    return counts
  end
  local width, newest, found, many = parse(text)
  if not width then
    return nil
  end
  local current = math.floor(now / rate.width)
  if newest * width > now then
    local sum = 0
    for i = 0, many - 1 do
      sum = sum + found[i]
    end
    counts[0] = math.min(sum, states.leaves_room(rate.capacity, cost))
    return counts
  end
  for i = 0, many - 1 do
    local at = current - (width == rate.width and newest - i or math.floor((newest - i) * width / rate.width))
    if at <= rate.buckets then
      counts[at] = counts[at] + found[i]
    end
  end
  return counts
end

-- text_of writes the counts, without the empty ones at the end.
local function text_of(counts, current, rate)
  local last = rate.buckets
  while counts[last] == 0 and last > 0 do
    last = last - 1
  end
  if last < 2 then
    return string.format(last == 0 and '%.0f:%.0f:%.0f' or '%.0f:%.0f:%.0f,%.0f', rate.width, current, counts[0], counts[1])
  end
  local list = {}
  for i = 0, last do
    list[i + 1] = string.format('%.0f', counts[i])
  end
  return string.format('%.0f:%.0f:', rate.width, current) .. table.concat(list, ',')
end

-- full_buckets adds up the counters that count whole.
local function full_buckets(counts, rate)
  local sum = 0
  for i = 0, rate.buckets - 1 do
    sum = sum + counts[i]
  end
  return sum
end

-- remaining and reset of the counts, `into` ms into the bucket of now.
local function standing(counts, into, rate)
  local oldest = counts[rate.buckets]
  local estimate = full_buckets(counts, rate) + math.ceil(oldest * (rate.width - into) / rate.width)
  local reset = 0
  for i = 0, rate.buckets do
    if counts[i] > 0 then
      reset = (rate.buckets + 1 - i) * rate.width - into
      break
    end
  end
  return math.max(0, rate.capacity - estimate), reset
end

-- wait answers the ms until the estimate leaves room for cost, if nothing else is taken.
local function wait(counts, into, rate, cost)
  local width = rate.width
  local room = rate.capacity - cost - full_buckets(counts, rate)
  for shift = 0, rate.buckets do
    local oldest = counts[rate.buckets - shift]
    if room >= 0 then
      local needed = oldest > room and math.ceil((oldest - room) * width / oldest) or 0
      if needed < width then
        return shift * width + needed - into
      end
    end
    room = room + (counts[rate.buckets - 1 - shift] or 0)
  end
  return (rate.buckets + 1) * width - into
end

local function fits(counts, into, rate, cost)
  local room = rate.capacity - cost - full_buckets(counts, rate)
  return room >= 0 and counts[rate.buckets] * (rate.width - into) <= room * rate.width
end

local function step(text, now_us, rate, cost)
  local now = math.floor(now_us / 1000)
  local counts = read(text, now, rate, cost)
  if not counts then
    return nil
  end
  local current = math.floor(now / rate.width)
  local into = now - current * rate.width
  if cost == 0 then
    local remaining, reset = standing(counts, into, rate)
    return true, remaining, 0, reset
  elseif not fits(counts, into, rate, cost) then
    local remaining, reset = standing(counts, into, rate)
    return false, remaining, cost > rate.capacity and -1 or wait(counts, into, rate, cost), reset
  end
  counts[0] = counts[0] + cost
  local remaining, reset = standing(counts, into, rate)
  return true, remaining, 0, reset, text_of(counts, current, rate), now + reset
end

-- give takes back from the newest counters first.
local function give(text, now_us, rate, cost)
  local now = math.floor(now_us / 1000)
  local counts = read(text, now, rate, 1)
  if not counts then
    return nil
  end
  for i = 0, rate.buckets do
    local back = math.min(cost, counts[i])
    counts[i], cost = counts[i] - back, cost - back
  end
  local current = math.floor(now / rate.width)
  local remaining, reset = standing(counts, now - current * rate.width, rate)
  return true, remaining, 0, reset, reset > 0 and text_of(counts, current, rate) or '', now + reset
end

local function spend(now_us, rate, units)
  return string.format('%.0f:%.0f:%.0f', rate.width, math.floor(now_us / 1000 / rate.width), units)
end

local function spent(value)
  local width, _, counts, many = parse(packed.first(value, algorithms.sliding_window))
  local sum = 0
  for i = 0, width and many - 1 or -1 do
    sum = sum + counts[i]
  end
  return sum
end

local function complete_rate(rate)
  rate.capacity = rate.count
  rate.buckets = rate.buckets or 1
  rate.width = rate.period / rate.buckets
  if rate.buckets > MOST_BUCKETS then
    return string.format('buckets=%.0f is above %.0f', rate.buckets, MOST_BUCKETS)
  elseif rate.width % 1 ~= 0 then
    return string.format('buckets=%.0f does not divide the period into whole milliseconds', rate.buckets)
  end
end

algorithms.sliding_window = {
  name = 'sliding_window',
  prefix = 'sliding_window:',
  options = { buckets = numbers.positive_option },
  rate = complete_rate,
  limit = packed.complete,
  holds = packed.prefixed('sliding_window:'),
  step = step,
  give = give,
  spent = spent,
  spend = spend,
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

local LONGEST = 33 -- bytes of a state: two numbers up to 2^53

-- refill_us answers the us that adding this many tokens takes.
local function refill_us(tokens, rate)
  local over = tokens % rate.count
  return ((tokens - over) / rate.count + (over > 0 and 1 or 0)) * rate.period * 1000
end

-- level answers the tokens and the time of the last addition; or nil. cost is what the call wants.
local function level(text, now, rate, cost)
  local capacity = rate.capacity
  if text == '' then
    return capacity, now
  end
  local tokens, added = string.match(text, '^(%d+):(%d+)$')
  if not tokens or #text > LONGEST then
    return nil
  end
  tokens, added = tonumber(tokens), tonumber(added)
  if tokens > numbers.MOST or added > numbers.MOST then
    return nil
  end
  if added < now then
    local period = rate.period * 1000
    local periods = (now - added - (now - added) % period) / period
    tokens = tokens + periods * rate.count
    added = added + periods * period
  end
  if tokens >= capacity then
    return capacity, now
  elseif tokens == 0 and added + rate.period * 1000 - now > refill_us(capacity, rate) then
    return capacity - states.leaves_room(capacity, cost), now
  end
  return tokens, added
end

local function answer(allowed, tokens, added, now, rate, retry)
  local full = tokens < rate.capacity and added + refill_us(rate.capacity - tokens, rate) or now
  if not allowed then
    return false, tokens, retry, spans.whole_ms(full - now, 0)
  end
  return true, tokens, 0, spans.whole_ms(full - now, 0), string.format('%.0f:%.0f', tokens, added), spans.whole_ms(full, 0)
end

local function step(text, now, rate, cost)
  local tokens, added = level(text, now, rate, cost)
  if not tokens then
    return nil
  elseif cost <= tokens then
    return answer(true, tokens - cost, added, now, rate)
  elseif cost > rate.capacity then
    return answer(false, tokens, added, now, rate, -1)
  end
  return answer(false, tokens, added, now, rate, spans.whole_ms(added + refill_us(cost - tokens, rate) - now, 0))
end

local function give(text, now, rate, cost)
  local tokens, added = level(text, now, rate, 1)
  if not tokens then
    return nil
  elseif tokens + cost >= rate.capacity then
    return true, rate.capacity, 0, 0, '', 0
  end
  return answer(true, tokens + cost, added, now, rate)
end

local function spend(now, rate, units)
  return string.format('%.0f:%.0f', rate.capacity - units, now)
end

local function complete_rate(rate)
  rate.capacity = rate.burst or rate.count
end

algorithms.token_bucket = {
  name = 'token_bucket',
  prefix = 'token_bucket:',
  options = { burst = numbers.positive_option },
  rate = complete_rate,
  limit = packed.complete,
  holds = packed.prefixed('token_bucket:'),
  step = step,
  give = give,
  spend = spend,
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
-- and goes on to refill. A second block replaces the first.
--   KEYS   one or more
--   ARGV   ms
--   Output how many keys are blocked now: all of them
--   Errors BADARGS BADKEYS BADSTATE (a request's or a usage key, or one that no limiter wrote: then none is blocked)

local function block(key, holding, untill)
  states.forget(key)
  if holding.kind == 'leases' then
    return lease_sets.block(key, untill)
  end
  redis.call('SET', key, states.block(untill, holding.value, holding.expiry), 'PXAT',
    string.format('%.0f', math.max(untill, holding.expiry)))
end

clock.register{
  function_name = 'ratelimit_block',
  description = 'Denies the keys for some milliseconds, whatever their limits.',
  callback = function(keys, args)
    local list, err = holdings.all('block', keys, args, 1)
    if not list then
      return err
    end
    local ms = numbers.positive(args[1])
    if not ms or ms > limits.LONGEST then
      return errors.new('BADARGS', '%s: the ms of a block are a whole number from 1 to %.0f', errors.quote(args[1]),
        limits.LONGEST)
    end
    for i, key in ipairs(keys) do
      if list[i].in_use then
        return states.in_use(key, list[i].in_use)
      end
    end
    for i, key in ipairs(keys) do
      block(key, list[i], clock.ms() + ms)
    end
    return #keys
  end,
}
end

--@ src/verbs/info.lua
do
-- ratelimit_info: what is deployed here.
--   KEYS, ARGV none
--   Output { "version", text, "contract", integer, "build_id", text, "policies", { name, ... },
--            "shadow_denied", { name, count, ... } }
--   Errors BADARGS BADKEYS

clock.register{
  function_name = 'ratelimit_info',
  description = 'Answers the version, the contract, the build id and the policies of this library.',
  flags = { 'no-writes', 'allow-stale' },
  callback = function(keys, args)
    if #keys > 0 then
      return errors.new('BADKEYS', '%s: info takes no key', errors.quote(keys[1]))
    elseif #args > 0 then
      return errors.new('BADARGS', '%s: info takes no argument', errors.quote(args[1]))
    end
    local names = policies.names(function() return true end)
    return {
      'version', VERSION, 'contract', CONTRACT, 'build_id', BUILD_ID, 'policies', names, 'shadow_denied', shadows.counts(),
    }
  end,
}
end

--@ src/verbs/peek.lua
do
-- ratelimit_peek: answers what ratelimit_take would, and writes nothing. For FCALL_RO too, on replicas as well.
--   KEYS   one for each limit
--   ARGV   limit [limit ...] [COST c | COST c1 ... cn]
--   Output { allowed, limit, remaining, retry_after_ms, reset_after_ms, index }, and three more with a shadow policy
--   Errors BADARGS BADLIMIT BADCOST BADKEYS BADSTATE NOPOLICY

local OPTIONS = { COST = true }

clock.register{
  function_name = 'ratelimit_peek',
  description = 'Answers what ratelimit_take would, and changes nothing.',
  flags = { 'no-writes' },
  callback = function(keys, args)
    local request, err = requests.read(keys, args, OPTIONS)
    return request and shadows.request(keys, request, false) or err
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
    return request and shadows.refund(keys, request) or err
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
  description = 'Forgets the keys; answers how many held something.',
  flags = { 'allow-oom' },
  callback = function(keys, args)
    local list, err = holdings.all('reset', keys, args, 0)
    if not list then
      return err
    end
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
--   ARGV   limit [limit ...] [COST c | COST c1 ... cn] [ONCE ttl_ms] [TRACK]
--   Output { allowed, limit, remaining, retry_after_ms, reset_after_ms, index }, and three more with a shadow policy
--   Errors BADARGS BADLIMIT BADCOST BADKEYS BADSTATE NOPOLICY

local OPTIONS = { COST = true, ONCE = true, TRACK = true }

local decide_one = decisions.one

-- charged tells whether a reply is that of a call that took something.
local function charged(reply, request)
  if reply[1] ~= 1 then
    return false
  elseif request.limits.shadows then
    return request.charged
  end
  for _, cost in ipairs(request.COST) do
    if cost > 0 then
      return true
    end
  end
  return false
end

local function take(keys, request)
  local record, err
  if request.TRACK then
    record, err = tracking.open(request.TRACK)
    if not record then
      return err
    end
  end
  if request.ONCE then
    local before
    before, err = once.read(request.ONCE)
    if before or err then
      return before or err
    end
  end
  local reply = shadows.request(keys, request, true)
  if reply.err then
    return reply
  end
  if request.ONCE and charged(reply, request) then
    once.keep(request.ONCE, reply, request.ttl)
  end
  if record then
    tracking.note(record, reply[1] == 1, request.COST[1])
  end
  return reply
end

redis.register_function{
  function_name = 'ratelimit_take',
  description = 'Decides whether a call may pass, and charges it if so: all limits or none.',
  callback = function(keys, args)
    clock.now = nil
    local limit = limits.known[args[1]]
    if limit and #keys == 1 then -- the common calls go without tables of their own
      local cost = 1
      if #args > 1 then
        cost = #args == 3 and args[2] == 'COST' and numbers.whole(args[3])
      end
      if cost then
        return decide_one(keys[1], limit, cost, true)
      end
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

-- Nothing can be stored that expires in this very millisecond: Valkey drops it at once.
local function unblock(key, holding, now)
  states.forget(key)
  if holding.kind == 'leases' then
    lease_sets.unblock(key)
  elseif holding.value == '' or holding.expiry <= now then
    redis.call('DEL', key)
  else
    redis.call('SET', key, holding.value, 'PXAT', string.format('%.0f', holding.expiry))
  end
end

clock.register{
  function_name = 'ratelimit_unblock',
  description = 'Lifts the blocks of the keys; answers how many were blocked.',
  flags = { 'allow-oom' },
  callback = function(keys, args)
    local list, err = holdings.all('unblock', keys, args, 0)
    if not list then
      return err
    end
    local now, changed = clock.ms(), 0
    for i, key in ipairs(keys) do
      if list[i].blocked > now then
        unblock(key, list[i], now)
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
  description = 'Answers what TRACK has counted under a usage key.',
  flags = { 'no-writes' },
  callback = function(keys, args)
    if #keys ~= 1 then
      return errors.new('BADKEYS', 'the number of keys is %.0f; usage takes one', #keys)
    elseif #args > 0 then
      return errors.new('BADARGS', '%s: usage takes the key only', errors.quote(args[1]))
    end
    return tracking.check(keys[1]) or tracking.read(keys[1])
  end,
}
end
