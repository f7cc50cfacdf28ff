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
