-- token_bucket: n tokens are added at each whole period since the first take, up to the capacity b
-- (default n). A full bucket starts over: the periods begin at the next take.
--
-- State: "token_bucket:<tokens>:<us>", the tokens left and when tokens were last added. The key
-- expires when the bucket is full.
--
-- If the limit changes, its n, b and period apply from the last addition on. Tokens above a lowered
-- b are lost. If the clock was set back, the remaining tokens can still be taken. An empty bucket
-- that would wait for longer than one full refill leaves room for just this call.

-- refill_us returns how many us it takes to add this many tokens.
local function refill_us(tokens, rate)
  local over = tokens % rate.count
  return ((tokens - over) / rate.count + (over > 0 and 1 or 0)) * rate.period * 1000
end

-- refill returns tokens and the time of the last addition, as of now (us), from those that are
-- stored.
local function refill(rate, tokens, added, now, cost)
  local period, capacity = rate.period * 1000, rate.capacity
  if added < now then
    local over = (now - added) % period
    tokens = tokens + (now - added - over) / period * rate.count
    added = now - over
  end
  if tokens >= capacity then
    return capacity, now
  elseif tokens == 0 and added + period - now > refill_us(capacity, rate) then
    return capacity - states.most_spent(capacity, cost), now
  end
  return tokens, added
end

-- full_at returns when the bucket is full, in us.
local function full_at(rate, tokens, added)
  return added + refill_us(rate.capacity - tokens, rate)
end

-- fill_in sets the fields of a state.
local function fill_in(state, tokens)
  state.tokens, state.free = tokens, tokens
end

local function read(state, value, from, to, now, cost)
  local rate, tokens, added = state.rate, state.rate.capacity, now
  if to >= from then
    tokens, added = string.match(value, '^(%d+):(%d+)$', from)
    tokens, added = numbers.parse_digits(tokens), numbers.parse_digits(added)
    if not tokens or not added then return false end
    tokens, added = refill(rate, tokens, added, now, cost)
  end
  state.now, state.added = now, added
  fill_in(state, tokens)
  return true
end

local function reset(state)
  if state.tokens == state.rate.capacity then return 0 end
  return clock.ceil_ms(full_at(state.rate, state.tokens, state.added) - state.now)
end

local function charge(state, units)
  fill_in(state, state.tokens - units)
  state.reset = reset(state)
end

local function refund(state, units)
  charge(state, -math.min(units, state.rate.capacity - state.tokens))
end

local function wait(state, cost)
  return clock.ceil_ms(state.added + refill_us(cost - state.tokens, state.rate) - state.now)
end

local function save(state)
  return string.format('%d:%d', state.tokens, state.added), clock.ceil_ms(full_at(state.rate, state.tokens, state.added))
end

-- take decides the common call without a state.
local function take(key, limit, cost)
  local value, rate, reply = redis.pcall('GETRANGE', key, '0', '63'), limit.rate, decisions.reply
  local now, capacity = clock.us(), rate.capacity
  local tokens, added = capacity, now
  if value ~= '' then
    tokens, added = string.match(type(value) == 'string' and value or '', '^token_bucket:(%d+):(%d+)$')
    tokens, added = numbers.parse_digits(tokens), numbers.parse_digits(added)
    if not tokens or not added then return decisions.take_one(key, limit, cost) end
    tokens, added = refill(rate, tokens, added, now, cost)
  end
  local left = tokens - cost
  reply[1], reply[2], reply[3], reply[4], reply[6] = 1, capacity, left, 0, 1
  if left < 0 then
    reply[1], reply[3], left = 0, tokens, tokens
    reply[4] = cost > capacity and -1 or clock.ceil_ms(added + refill_us(cost - tokens, rate) - now)
  end
  local full = left < capacity and full_at(rate, left, added) or now
  reply[5] = clock.ceil_ms(full - now)
  if left < tokens then
    states.put(key, string.format('token_bucket:%d:%d', left, added), clock.ceil_ms(full))
  end
  return reply
end

local function complete_rate(rate)
  rate.capacity, rate.burst = rate.burst or rate.count, nil
end

local function complete(limit)
  packed.complete(limit)
  if limit.rate then
    limit.take = take
  end
end

algorithms.token_bucket = {
  name = 'token_bucket',
  prefix = 'token_bucket:',
  options = { burst = numbers.positive_option },
  complete_rate = complete_rate,
  complete = complete,
  holds = packed.prefixed('token_bucket:'),
  charge = charge, refund = refund, spend = charge, reset = reset, wait = wait, read = read, save = save,
}
