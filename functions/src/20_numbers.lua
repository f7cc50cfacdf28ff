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
