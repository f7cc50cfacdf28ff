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
