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
