#!lua name=ratelimit
-- Built from functions/src; do not edit. `make generate` builds it anew.

--@ src/00_library.lua
-- Rate limiting that decides on the server: one atomic decision a call.
--
-- This file opens the library. The build (functions/build.go) joins the sources in this order: src/*.lua by name,
-- src/algorithms/*.lua, src/verbs/*.lua. The files of the last two folders each get a scope of their own.
--
-- While Redis loads a library nothing but redis.register_function, redis.log and the version constants exists: no
-- string, no math, no redis.call. Top-level code may therefore only build tables and functions.
-- What the functions take and answer is written down in functions/CONTRACT.md.

local VERSION = '0.1.0'
local CONTRACT = 1
local BUILD_ID = 'bc08adc3ebe7'

-- Time stands still during a call from Redis 7.2 on. Before, two commands of one call can see two milliseconds, so
-- what is read of the clock must not be written back as a difference to "now". Valkey says 7.2.4 here, rightly.
local CLOCK_STANDS = (redis.REDIS_VERSION_NUM or 0) >= 0x00070200

-- name -> algorithm. Filled by src/algorithms/*.lua; each of them describes itself as src/40_limits.lua asks for.
local algorithms = {}

--@ src/10_errors.lua
-- Errors are replies `RATELIMIT <REASON> "<value>": what is wrong, and what to do`. They are returned, never raised:
-- a raised error gets a suffix that differs between servers. A call that errs has changed nothing.

local errors = {}

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

-- new builds the reply. reason: BADARGS BADLIMIT BADCOST BADKEYS BADSTATE NOPOLICY. text may be a format.
function errors.new(reason, text, ...)
  return redis.error_reply('RATELIMIT ' .. reason .. ' ' .. string.format(text, ...))
end

--@ src/20_numbers.lua
-- Numbers as callers write them. A Lua number is a double: whole numbers are exact up to 2^53 and not beyond, and
-- tonumber takes "inf", "nan", "0x10" and "1e3" as well, none of which may ever reach a decision.

local numbers = {}

local LARGEST = '9007199254740992' -- 2^53

numbers.WHOLE = 'a whole number from %s to ' .. LARGEST

-- whole reads decimal digits; nil for anything else, and for numbers above 2^53 (2^53 + 1 would round down to it).
function numbers.whole(text)
  if #text >= #LARGEST or not string.find(text, '^%d+$') then
    local digits = string.match(text, '^0*(%d+)$')
    if not digits or #digits > #LARGEST or (#digits == #LARGEST and digits > LARGEST) then
      return nil
    end
    text = digits
  end
  return tonumber(text)
end

-- positive is whole from 1 on.
function numbers.positive(text)
  local n = numbers.whole(text)
  return n ~= 0 and n or nil
end

-- common_divisor of two positive whole numbers (Euclid).
function numbers.common_divisor(a, b)
  while b > 0 do
    a, b = b, a % b
  end
  return a
end

--@ src/30_states.lua
-- What a key may hold. Every state is a string with an expiry, and says by its form which algorithm wrote it, so a
-- key of another kind is refused before anything is written.

local states = {}

local function unusable(key, what)
  return errors.new('BADSTATE', 'key %s %s; give the limiter a key of its own, or delete this one', errors.quote(key), what)
end

-- missing_expiry: the state is ours but somebody took its expiry away (PERSIST, SET without KEEPTTL).
function states.missing_expiry(key)
  return unusable(key, 'holds a limiter state without an expiry')
end

-- owner returns the algorithm that wrote value (what GET answered), or nil and the error to reply.
function states.owner(key, value)
  if type(value) == 'table' then
    if string.sub(value.err, 1, 9) == 'WRONGTYPE' then
      return nil, unusable(key, 'is not a string')
    end
    return nil, value
  end
  for _, algorithm in pairs(algorithms) do
    if algorithm.holds(value) then
      return algorithm
    end
  end
  return nil, states.unreadable(key, value)
end

-- unreadable: the value looks like an algorithm's own, and is not.
function states.unreadable(key, value)
  return unusable(key, 'holds ' .. errors.quote(value) .. ', which no limiter wrote')
end

-- elsewhere carries a key over from another algorithm: a change of algorithm neither hands out a second burst nor
-- locks the key out, and callers with the old and the new limit side by side share one allowance.
-- Answers how many units of limit count as spent, and the ms for which they do: a call that they deny has to wait
-- until the old state has run out. A state that runs for longer than this limit takes to refill leaves room for just
-- this call. Or nil and the error to reply.
function states.elsewhere(key, value, limit, cost)
  local owner, err = states.owner(key, value)
  if not owner then
    return nil, err
  end
  local left = redis.call('PTTL', key)
  if left < 0 then
    return nil, states.missing_expiry(key)
  elseif left == 0 then
    return 0, 0
  end
  local most = limit.capacity
  if left > most / limit.count * limit.period then
    most = most - (cost > 1 and cost <= most and cost or 1)
  end
  local units = owner.spent(value, left, limit)
  return units < most and units or most, left
end

--@ src/40_limits.lua
-- Limit expressions, parsed here and nowhere else:
--
--   [algorithm] n/period [option=value ...]      period = [k]unit, unit = ms s m h d
--   @policy
--
-- An algorithm (src/algorithms/NAME.lua) is a table in `algorithms`:
--   options   option name -> function(text) that answers its value, or nil and what was expected
--   compile   function(limit): completes the limit, or answers what is wrong with it. The limit comes with
--             count (n), period (ms) and the options' values under their names; compile sets
--               capacity   what field 2 of the reply says: the most that can be taken at once
--               decide     function(key, limit, cost): reads the key and answers
--                            allowed, remaining, retry_after, reset_after, w1, w2   (times in ms, rounded up)
--                          remaining and reset_after as they are after the call: after taking cost if it is
--                          allowed. Or nil and the error to reply. Writes nothing.
--               write      function(key, limit, cost, w1, w2): stores what decide has found; only called in the same
--                          call, when every limit of it allows and cost is above 0
--   holds     function(value): whether a string was written by this algorithm
--   spent     function(value, left, limit): the units of another algorithm's limit that the state stands for,
--             left ms before its expiry

local limits = {}

local UNITS = { ms = 1, s = 1000, m = 60000, h = 3600000, d = 86400000 }
local LONGEST_TEXT = 1024 -- bytes
local LONGEST = 36500 * UNITS.d -- ms; in microseconds twice this is still below 2^53

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
local function parse_period(text)
  local k, unit = string.match(text, '^(.-)(%a*)$')
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

-- parse_rate reads `n/period [option=value ...]` into limit; answers what is wrong, or nil.
local function parse_rate(text, limit, algorithm)
  local rate, rest = string.match(text, '^%s*(%S+)(.*)$')
  local count, period = string.match(rate or '', '^([^/]*)/(.*)$')
  if not count then
    return 'no rate such as 100/m or 5/10s'
  end
  limit.count = numbers.positive(count)
  if not limit.count then
    return string.format('the count %s is not ' .. numbers.WHOLE, errors.quote(count), '1')
  end
  local wrong
  limit.period, wrong = parse_period(period)
  if wrong then
    return wrong
  end
  for word in string.gmatch(rest, '%S+') do
    local name, value = string.match(word, '^([%a_]+)=(.*)$')
    local read = name and algorithm.options[name]
    if not read then
      return string.format('%s is not an option of %s (its options: %s)', errors.quote(word), algorithm.name,
        names(algorithm.options))
    end
    if limit[name] ~= nil then
      return string.format('the option %s is given twice', errors.quote(name))
    end
    limit[name], wrong = read(value)
    if limit[name] == nil then
      return string.format('%s=%s is not %s', name, errors.quote(value), wrong)
    end
  end
  wrong = algorithm.compile(limit)
  if wrong then
    return wrong
  end
  if limit.capacity / limit.count * limit.period > LONGEST then
    return 'it takes longer than 36500d to refill; use a smaller burst or a faster rate'
  end
  return nil
end

local function parse(text)
  if #text > LONGEST_TEXT then
    return refuse(text, 'a limit has at most %.0f bytes', LONGEST_TEXT)
  end
  if string.sub(text, 1, 1) == '@' then
    return nil, errors.new('NOPOLICY', '%s: no such policy in build %s; ratelimit_info lists the policies',
      errors.quote(text), BUILD_ID)
  end
  local word, rates = string.match(text, '^%s*([%a_][%w_]*)%s+(.*)$')
  local algorithm = algorithms[word or 'gcra']
  if not algorithm then
    return refuse(text, 'unknown algorithm %s; there are %s', errors.quote(word), names(algorithms))
  end
  rates = rates or text
  if string.find(rates, ',', 1, true) then
    return refuse(text, 'several rates on one key are not in this version; give each rate a key of its own')
  end
  local limit = {}
  local wrong = parse_rate(rates, limit, algorithm)
  if wrong then
    return refuse(text, '%s', wrong)
  end
  return limit
end

-- Parsed limits by their text. Parsing costs more than deciding, and an application has few limits; the bound is for
-- those who put a number of their own into each text.
local MOST_KNOWN = 1000
local known = {}
local known_size = 0

-- of answers the parsed limit, which is shared and must not be changed, or nil and the error to reply.
function limits.of(text)
  local limit = known[text]
  if limit then
    return limit
  end
  local err
  limit, err = parse(text)
  if not limit then
    return nil, err
  end
  if known_size >= MOST_KNOWN then
    known = {}
    known_size = 0
  end
  known[text] = limit
  known_size = known_size + 1
  return limit
end

--@ src/50_requests.lua
-- The arguments of take and peek:  key [key ...] limit [limit ...] [COST c | COST c1 ... cn]

local requests = {}

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
    end
    list[at] = limit
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
    return nil, errors.new('BADARGS', 'COST is followed by %.0f costs and there are %.0f limits; give one cost for all, '
      .. 'or one for each', given, count)
  end
  return costs, at + 1 + given
end

local function check_keys(keys, count)
  if #keys ~= count then
    return errors.new('BADKEYS', 'the number of keys is %.0f and the number of limits %.0f; give each limit one key, '
      .. 'in order', #keys, count)
  elseif count == 1 then
    return nil
  end
  local seen = {}
  for _, key in ipairs(keys) do
    if seen[key] then
      return errors.new('BADKEYS', '%s is given twice; one key takes one limit', errors.quote(key))
    end
    seen[key] = true
  end
  return nil
end

-- read answers the limits and the costs, each in the order of keys; or nil and the error to reply.
function requests.read(keys, args)
  if #keys == 0 then
    return nil, errors.new('BADKEYS', 'the number of keys is 0; give each limit one key')
  end
  local list, at = read_limits(args)
  if not list then
    return nil, at
  end
  if #list == 0 then
    return nil, errors.new('BADARGS', 'no limit after the keys; give one such as 100/m for each key')
  end
  local err = check_keys(keys, #list)
  if err then
    return nil, err
  end
  local costs
  while at <= #args do
    if OPTIONS[args[at]] ~= 'COST' then
      return nil, errors.new('BADARGS', '%s: not in this version', errors.quote(args[at]))
    end
    if costs then
      return nil, errors.new('BADARGS', 'COST is given twice')
    end
    costs, at = read_costs(args, at, #list)
    if not costs then
      return nil, at
    end
  end
  if not costs then
    costs = {}
    for i = 1, #list do
      costs[i] = 1
    end
  end
  return list, costs
end

--@ src/60_decisions.lua
-- One decision over one or several keys: all of them are charged, or none. The reply is
-- { allowed, limit, remaining, retry_after_ms, reset_after_ms, index }.

local decisions = {}

-- The reply of a call over one key. Redis turns it into integers before the next call begins, so one table serves all
-- calls: a new one each time costs 4 % of a decision (bench/README.md).
local reply = { 0, 0, 0, 0, 0, 1 }

-- one decides over a single key: the common call, and the one that must cost next to nothing.
function decisions.one(key, limit, cost, consume)
  local allowed, remaining, retry, reset, w1, w2 = limit.decide(key, limit, cost)
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
  reply[2], reply[3], reply[4], reply[5] = limit.capacity, remaining, retry, reset
  return reply
end

-- refused answers for a call that some limit denies: nothing is taken anywhere, so what the limits that would have
-- allowed it have to say is asked of them again, at no cost.
local function refused(keys, list, costs)
  local binding, least, longest_retry, longest_reset
  for i = 1, #keys do
    local allowed, remaining, retry, reset = list[i].decide(keys[i], list[i], costs[i])
    if allowed then
      local _
      allowed, remaining, _, reset = list[i].decide(keys[i], list[i], 0)
      retry = 0
    else
      binding = binding or i
    end
    if allowed == nil then
      return remaining
    end
    least = (not least or remaining < least) and remaining or least
    longest_reset = (not longest_reset or reset > longest_reset) and reset or longest_reset
    if longest_retry ~= -1 and (not longest_retry or retry > longest_retry or retry == -1) then
      longest_retry = retry
    end
  end
  return { 0, list[binding].capacity, least, longest_retry, longest_reset, binding }
end

-- all decides over several keys. Nothing is written before every key has been read and every limit has allowed.
function decisions.all(keys, list, costs, consume)
  local first, second = {}, {}
  local binding, least, longest_retry, longest_reset
  for i = 1, #keys do
    local allowed, remaining, retry, reset, w1, w2 = list[i].decide(keys[i], list[i], costs[i])
    if allowed == nil then
      return remaining
    elseif not allowed then
      return refused(keys, list, costs)
    end
    first[i], second[i] = w1, w2
    if not least or remaining < least then
      binding, least = i, remaining
    end
    longest_retry = (not longest_retry or retry > longest_retry) and retry or longest_retry
    longest_reset = (not longest_reset or reset > longest_reset) and reset or longest_reset
  end
  if consume then
    for i = 1, #keys do
      if costs[i] > 0 then
        list[i].write(keys[i], list[i], costs[i], first[i], second[i])
      end
    end
  end
  return { 1, list[binding].capacity, least, longest_retry, longest_reset, binding }
end

-- request decides what the caller asked for.
function decisions.request(keys, args, consume)
  local list, costs = requests.read(keys, args)
  if not list then
    return costs -- the error
  end
  if #keys == 1 then
    return decisions.one(keys[1], list[1], costs[1], consume)
  end
  return decisions.all(keys, list, costs, consume)
end

--@ src/algorithms/fixed_window.lua
do
-- fixed_window: n per window. A window opens at the first take, or with align=clock at whole multiples of the period
-- since the epoch (UTC), and ends one period later.
--
-- State: the value is the count, a plain integer; the key expires at the end of the window.
--
-- A new n counts at once against what the open window has counted. A new period or align takes effect when the window
-- ends, but a window that would stay open for longer than the period (the period was lowered, or the clock was set
-- back) is over: the next take opens a new one.

local function holds(value)
  return string.find(value, '^%d+$') ~= nil
end

local function spent(value)
  return numbers.whole(value) or 0
end

-- read answers the count, the ms left of the window (0: none is open), and, if another algorithm left the state, for
-- how many ms that counts; or nil and the error.
local function read(key, limit, cost)
  local value = redis.pcall('GET', key)
  if not value then
    return 0, 0
  end
  local count = type(value) == 'string' and numbers.whole(value)
  if not count then
    local left
    count, left = states.elsewhere(key, value, limit, cost)
    if not count then
      return nil, left
    end
    return count, 0, left
  end
  local left = redis.call('PTTL', key)
  if left < 0 then
    return nil, states.missing_expiry(key)
  elseif left == 0 or left > limit.period then
    return 0, 0
  end
  return count, left
end

-- opening answers the length in ms of a window that opens now.
local function opening(limit)
  if not limit.align then
    return limit.period
  end
  local time = redis.call('TIME')
  local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
  return limit.period - now % limit.period
end

local function decide(key, limit, cost)
  local count, left, elsewhere = read(key, limit, cost)
  if not count then
    return nil, left
  end
  local length = left == 0 and opening(limit) or nil
  left = length or left
  local after = count + cost
  if after > limit.capacity and cost > 0 then
    local until_free = elsewhere or (count > 0 and left or 0)
    return false, math.max(0, limit.capacity - count), cost > limit.capacity and -1 or until_free, until_free
  end
  return true, math.max(0, limit.capacity - after), 0, after > 0 and left or 0, after, length
end

local function write(key, _, cost, count, length)
  if length then
    redis.call('SET', key, string.format('%.0f', count), 'PX', length)
  else
    redis.call('INCRBY', key, string.format('%.0f', cost))
  end
end

local function compile(limit)
  limit.capacity = limit.count
  limit.decide, limit.write = decide, write
end

local function clock(text)
  return text == 'clock' and text or nil, '"clock"'
end

algorithms.fixed_window = {
  name = 'fixed_window',
  options = { align = clock },
  compile = compile,
  holds = holds,
  spent = spent,
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
--   T a whole number of ms:  value "gcra"; the expiry is TAT, exactly, and no clock need be read to decide.
--   any other T:             value "gcra:<TAT in us>", or "gcra:<us>+<part>" with a part of a microsecond left over,
--                           in units of 1/n of it (n and the period reduced). Redis never sees a rounded number.
-- A limit of either kind reads what the other has left; TAT is kept when n, period or burst change, so what was taken
-- under the old limit stays taken.
--
-- A TAT further ahead than any debt of this limit (its period or burst was lowered, or the clock was set back) would
-- lock the key out for longer than one full refill. It counts as a debt that leaves room for just this call: the key
-- is usable at once, at the new rate, and the old burst is not handed out again.

local VALUE = 'gcra'

local function holds(value)
  return value == VALUE or string.sub(value, 1, 5) == 'gcra:'
end

local function spent(_, left, limit)
  return math.ceil(left * limit.count / limit.period)
end

------------------------------------------------------------------- T in whole milliseconds

-- other_debt reads a key that does not hold VALUE. Answers the debt in ms, and, if another algorithm left the state,
-- for how many ms that counts; or nil and the error.
local function other_debt(key, limit, cost)
  local value = redis.pcall('GET', key)
  if type(value) == 'string' and holds(value) then
    local debt = redis.call('PTTL', key)
    if debt < 0 then
      return nil, states.missing_expiry(key)
    end
    return debt
  end
  local units, left = states.elsewhere(key, value, limit, cost)
  if not units then
    return nil, left
  end
  return units * limit.interval, left
end

-- A key that denies is asked again and again, and PTTL alone answers it, once GET has shown that the state is ours.
-- seen keeps the debt at which it did: while time passes and nothing is written a debt only shrinks, so a debt above
-- it says that the key is no longer the one that was seen. This saves a sixth of a denied call (bench/README.md), is
-- forgotten freely, and can only deny.
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

local function decide_ms(key, limit, cost)
  local interval, full = limit.interval, limit.full
  local debt = redis.call('PTTL', key)
  local after = debt + cost * interval
  local kept, elsewhere = true, nil
  if debt <= 0 or after <= full or debt > (seen[key] or 0) or debt + interval > 2 * full then
    if debt == -2 then
      debt = 0
      kept = false
    elseif redis.pcall('GET', key) ~= VALUE then
      debt, elsewhere = other_debt(key, limit, cost)
      kept = false
      if not debt then
        return nil, elsewhere
      end
    elseif debt <= 0 then
      kept = false
      if debt < 0 then
        return nil, states.missing_expiry(key)
      end
    end
    if debt + interval > 2 * full then
      debt = full - interval * (cost > 1 and cost <= limit.capacity and cost or 1)
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
  elseif kept then
    remember(key, debt)
  end
  return false, remaining, cost > limit.capacity and -1 or elsewhere or after - full, elsewhere or debt
end

local function write_ms(key, limit, cost, after, kept)
  if not kept then
    redis.call('SET', key, VALUE, 'PX', after)
  elseif CLOCK_STANDS then
    redis.call('PEXPIRE', key, after)
  else
    redis.call('PEXPIREAT', key, redis.call('PEXPIRETIME', key) + cost * limit.interval)
  end
end

------------------------------------------------------------------- any other T
-- A span is two whole numbers: microseconds, and a part of one in units of 1/limit.parts of a microsecond. All of
-- them stay below 2^53, so nothing is ever rounded but on the way out.

-- times answers n emission intervals as a span.
local function times(n, limit)
  local part = n * limit.interval_part
  local over = part % limit.parts
  return n * limit.interval_us + (part - over) / limit.parts, over
end

local function exceeds(us, part, other_us, other_part)
  return us > other_us or (us == other_us and part > other_part)
end

-- units answers how many whole intervals fit into a span. The quotient of doubles can be one off, the products not.
local function units(us, part, limit)
  if us < 0 or (us == 0 and part <= 0) then
    return 0
  end
  local n = math.floor((us + part / limit.parts) / (limit.interval_us + limit.interval_part / limit.parts)) + 1
  local n_us, n_part = times(n, limit)
  while n > 0 and exceeds(n_us, n_part, us, part) do
    n = n - 1
    n_us, n_part = times(n, limit)
  end
  return n
end

local function whole_ms(us, part)
  return math.ceil((part > 0 and us + 1 or us) / 1000)
end

-- parse_tat reads a value of ours that is not VALUE; nil if it is not one after all. Cut at fixed places rather than
-- matched: 16 digits of microseconds are the years 2001 to 2286.
local function parse_tat(value)
  local us = numbers.whole(string.sub(value, 6, 21))
  if #value == 21 then
    return us, 0
  end
  local part = string.sub(value, 22, 22) == '+' and numbers.whole(string.sub(value, 23))
  if us and part then
    return us, part
  end
end

-- read_debt_span answers the debt as a span, and, if another algorithm left the state, for how many ms that counts;
-- or nil and the error. now in us.
local function read_debt_span(key, limit, cost, now)
  local value = redis.pcall('GET', key)
  if not value then
    return 0, 0
  end
  if type(value) == 'table' or not holds(value) then
    local count, left = states.elsewhere(key, value, limit, cost)
    if not count then
      return nil, left
    end
    local us, part = times(count, limit)
    return us, part, left
  end
  if value == VALUE then
    local left = redis.call('PTTL', key)
    if left < 0 then
      return nil, states.missing_expiry(key)
    end
    return math.max(0, left * 1000 - now % 1000), 0
  end
  local us, part = parse_tat(value)
  if not us then
    return nil, states.unreadable(key, value)
  elseif us < now then
    return 0, 0
  elseif part >= limit.parts then
    return us + 1 - now, 0 -- left by a rate with other parts: rounded up
  end
  return us - now, part
end

local function decide_us(key, limit, cost)
  local time = redis.call('TIME')
  local now = tonumber(time[1]) * 1000000 + tonumber(time[2])
  local us, part, elsewhere = read_debt_span(key, limit, cost, now)
  if not us then
    return nil, part
  end
  local capacity, full_us, full_part = limit.capacity, limit.full_us, limit.full_part
  if exceeds(us, part, limit.far_us, limit.far_part) then
    us, part = times(capacity - (cost > 1 and cost <= capacity and cost or 1), limit)
  end
  if cost > capacity then
    return false, units(full_us - us, full_part - part, limit), -1, elsewhere or whole_ms(us, part)
  end
  local after_us, after_part = times(cost, limit)
  after_us, after_part = after_us + us, after_part + part
  if after_part >= limit.parts then
    after_us, after_part = after_us + 1, after_part - limit.parts
  end
  if cost > 0 and exceeds(after_us, after_part, full_us, full_part) then
    return false, units(full_us - us, full_part - part, limit),
      elsewhere or whole_ms(after_us - full_us, after_part - full_part), elsewhere or whole_ms(us, part)
  end
  return true, units(full_us - after_us, full_part - after_part, limit), 0, whole_ms(after_us, after_part),
    now + after_us, after_part
end

local function write_us(key, _, _, us, part)
  local value
  if part > 0 then
    value = string.format('gcra:%.0f+%.0f', us, part)
  else
    value = string.format('gcra:%.0f', us)
  end
  redis.call('SET', key, value, 'PXAT', whole_ms(us, part))
end

-------------------------------------------------------------------------------------------

local function compile(limit)
  local capacity = limit.burst or limit.count
  limit.capacity = capacity
  if limit.period % limit.count == 0 then
    limit.interval = limit.period / limit.count
    limit.full = limit.interval * capacity
    limit.decide, limit.write = decide_ms, write_ms
    return nil
  end
  local period = limit.period * 1000
  local divisor = numbers.common_divisor(period, limit.count)
  limit.parts = limit.count / divisor
  limit.interval_part = period / divisor % limit.parts
  limit.interval_us = (period / divisor - limit.interval_part) / limit.parts
  if limit.parts * (capacity + 1) > 9007199254740992 then
    return 'the emission interval period/n is too fine a fraction for this burst; round the count or the period'
  end
  limit.full_us, limit.full_part = times(capacity, limit)
  limit.far_us, limit.far_part = times(2 * capacity - 1, limit)
  limit.decide, limit.write = decide_us, write_us
  return nil
end

local function positive(text)
  return numbers.positive(text), string.format(numbers.WHOLE, '1')
end

algorithms.gcra = {
  name = 'gcra',
  options = { burst = positive },
  compile = compile,
  holds = holds,
  spent = spent,
}
end

--@ src/verbs/info.lua
do
-- ratelimit_info: what is deployed here.
--   KEYS, ARGV none
--   Output { "version", text, "contract", integer, "build_id", text, "policies", { name, ... } }
--   Errors BADARGS BADKEYS

redis.register_function{
  function_name = 'ratelimit_info',
  description = 'Answers the version, the contract, the build id and the policies of this library.',
  flags = { 'no-writes', 'allow-stale' },
  callback = function(keys, args)
    if #keys > 0 then
      return errors.new('BADKEYS', '%s: info takes no key', errors.quote(keys[1]))
    elseif #args > 0 then
      return errors.new('BADARGS', '%s: info takes no argument', errors.quote(args[1]))
    end
    return { 'version', VERSION, 'contract', CONTRACT, 'build_id', BUILD_ID, 'policies', {} }
  end,
}
end

--@ src/verbs/peek.lua
do
-- ratelimit_peek: answers what ratelimit_take would, and writes nothing. For FCALL_RO too, on replicas as well.
--   KEYS, ARGV, Output, Errors as ratelimit_take

redis.register_function{
  function_name = 'ratelimit_peek',
  description = 'Answers what ratelimit_take would, and changes nothing.',
  flags = { 'no-writes' },
  callback = function(keys, args)
    return decisions.request(keys, args, false)
  end,
}
end

--@ src/verbs/reset.lua
do
-- ratelimit_reset: forgets what was taken.
--   KEYS   one or more
--   ARGV   none
--   Output how many of the keys held something
--   Errors BADARGS BADKEYS BADSTATE (a key that no limiter wrote: then none is deleted)

redis.register_function{
  function_name = 'ratelimit_reset',
  description = 'Forgets what was taken from the keys; answers how many held something.',
  flags = { 'allow-oom' },
  callback = function(keys, args)
    if #args > 0 then
      return errors.new('BADARGS', '%s: reset takes keys only', errors.quote(args[1]))
    elseif #keys == 0 then
      return errors.new('BADKEYS', 'the number of keys is 0; name at least one to reset')
    end
    for _, key in ipairs(keys) do
      local value = redis.pcall('GET', key)
      local owner, err = true, nil
      if value then
        owner, err = states.owner(key, value)
      end
      if not owner then
        return err
      end
    end
    local changed = 0
    for _, key in ipairs(keys) do
      changed = changed + redis.call('DEL', key)
    end
    return changed
  end,
}
end

--@ src/verbs/take.lua
do
-- ratelimit_take: decides, and consumes if every limit allows.
--   KEYS   one for each limit
--   ARGV   limit [limit ...] [COST c | COST c1 ... cn]
--   Output { allowed, limit, remaining, retry_after_ms, reset_after_ms, index }
--   Errors BADARGS BADLIMIT BADCOST BADKEYS BADSTATE NOPOLICY

local decide_one = decisions.one

redis.register_function{
  function_name = 'ratelimit_take',
  description = 'Decides whether a call may pass, and charges it if so: all limits or none.',
  callback = function(keys, args)
    local limit = known[args[1]]
    if limit and #args == 1 and #keys == 1 then
      return decide_one(keys[1], limit, 1, true)
    end
    return decisions.request(keys, args, true)
  end,
}
end
