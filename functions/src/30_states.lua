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
