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

-- unusable returns the error for a key that holds something other than expected. The parameter what
-- describes the value's type or length, never its bytes.
function errors.unusable(key, what)
  return errors.new('BADSTATE', 'key %s %s; give the limiter a key of its own, or delete this one', errors.quote(key), what)
end

-- failed returns the error for a command that failed on a key. If the key has the wrong type, the
-- error's text contains the parameter expected, such as 'is not a string'.
function errors.failed(key, failure, expected)
  if string.sub(failure.err, 1, 9) == 'WRONGTYPE' then return errors.unusable(key, expected) end
  return failure
end
