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
