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
