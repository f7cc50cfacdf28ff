-- token_bucket: n tokens are added at each whole period since the first take, up to the capacity b (default n). Once
-- full, the bucket is as new: the next take starts the periods.
--
-- State: "token_bucket:<tokens>:<us>", the tokens left, and when they were last added to. The key expires when full.
--
-- n, b and the period of a changed limit count from the last addition on; tokens above a lowered b are lost. With the
-- clock set back, what tokens are left are there; a bucket without any that would wait for longer than one full refill
-- leaves room for just this call.

local LONGEST = 33 -- bytes of a state: two numbers up to 2^53

-- refill_us answers the us that adding this many tokens takes.
local function refill_us(tokens, rate)
  local over = tokens % rate.count
  return ((tokens - over) / rate.count + (over > 0 and 1 or 0)) * rate.period * 1000
end

-- level answers the tokens and the time of the last addition; or nil. cost is what the call wants.
local function level(text, now, rate, cost)
  local capacity = rate.capacity
  if text == '' then
    return capacity, now
  end
  local tokens, added = string.match(text, '^(%d+):(%d+)$')
  if not tokens or #text > LONGEST then
    return nil
  end
  tokens, added = tonumber(tokens), tonumber(added)
  if tokens > numbers.MOST or added > numbers.MOST then
    return nil
  end
  if added < now then
    local period = rate.period * 1000
    local periods = (now - added - (now - added) % period) / period
    tokens = tokens + periods * rate.count
    added = added + periods * period
  end
  if tokens >= capacity then
    return capacity, now
  elseif tokens == 0 and added + rate.period * 1000 - now > refill_us(capacity, rate) then
    return capacity - states.leaves_room(capacity, cost), now
  end
  return tokens, added
end

local function answer(allowed, tokens, added, now, rate, retry)
  local full = tokens < rate.capacity and added + refill_us(rate.capacity - tokens, rate) or now
  if not allowed then
    return false, tokens, retry, spans.whole_ms(full - now, 0)
  end
  return true, tokens, 0, spans.whole_ms(full - now, 0), string.format('%.0f:%.0f', tokens, added), spans.whole_ms(full, 0)
end

local function step(text, now, rate, cost)
  local tokens, added = level(text, now, rate, cost)
  if not tokens then
    return nil
  elseif cost <= tokens then
    return answer(true, tokens - cost, added, now, rate)
  elseif cost > rate.capacity then
    return answer(false, tokens, added, now, rate, -1)
  end
  return answer(false, tokens, added, now, rate, spans.whole_ms(added + refill_us(cost - tokens, rate) - now, 0))
end

local function give(text, now, rate, cost)
  local tokens, added = level(text, now, rate, 1)
  if not tokens then
    return nil
  elseif tokens + cost >= rate.capacity then
    return true, rate.capacity, 0, 0, '', 0
  end
  return answer(true, tokens + cost, added, now, rate)
end

local function spend(now, rate, units)
  return string.format('%.0f:%.0f', rate.capacity - units, now)
end

local function complete_rate(rate)
  rate.capacity = rate.burst or rate.count
end

algorithms.token_bucket = {
  name = 'token_bucket',
  prefix = 'token_bucket:',
  options = { burst = numbers.positive_option },
  rate = complete_rate,
  limit = packed.complete,
  holds = packed.prefixed('token_bucket:'),
  step = step,
  give = give,
  spend = spend,
}
