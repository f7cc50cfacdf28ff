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
--   probe, commit, waits, gives_back  the functions that decide on the limit's key, see below
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
--   reset     function(state): returns the time in ms until the rate is full, which an empty rate is after capacity*period/n ms, rounded
--             up to a ms (token_bucket: to a whole period)
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
--   commit    function(key, limit, units, ...): takes units that fit, at least 1, and writes, unless key is false (peek).
--             Exactly so many units fewer must then fit, since the caller computes what remains. It returns the time in ms until the limit is full, the ms that the call has to wait (leaky_bucket), and
--             for several rates the capacity of the binding one. ... are three values, which are those of
--             probe or nil, and then now
--   gives_back  true if commit also takes -units, which gives units back, of a key with some units left and fewer to
--             give back than are taken. Otherwise, a refund loads states
--   waits     function(limit, cost, ...): returns the time in ms until the limit is full, the time until a cost that does
--             not fit does (-1 for never), and for several rates the capacity of the binding one. cost is false if the
--             second is not needed
--   form      for limits of one rate, if src/35_packed.lua does not store their states: a table of the functions
--               load(key, limit, at, cost, head, left)  reads the key into states.list, from position `at` on, one state
--                                             for each rate. An impossible state (see states.needs) leaves room
--                                             for a call of this cost. head and left are nil, or what probe has
--                                             returned: the first 512 bytes of the value for packed.form, or 128
--                                             for states.load_other, and PTTL. Returns the error, or the override (see
--                                             src/72_overrides.lua) that was loaded instead of the limit, or nil
--               load_empty(limit, at)         the same for an empty key
--               load_found(key, limit, at, cost, found)  the same for this algorithm's own state if load cannot tell, or
--                                             if it follows a block or an override in the value. found is the
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
    limit.gives_back = algorithm.gives_back
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
