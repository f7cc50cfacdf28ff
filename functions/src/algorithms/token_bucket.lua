-- token_bucket: n tokens are added at the end of each period, up to the capacity b (default n). The
-- periods begin at the first take. Once the bucket is full, they begin again at the next take.
--
-- State: "token_bucket:<tokens>:<us>", the tokens left and when tokens were last added. The key
-- expires when the bucket is full. FORCE leaves a debt as tokens below 0.
--
-- If the limit changes, its n, b and period apply from the last addition on. Tokens above a lowered
-- b are lost. If the clock was set back, the remaining tokens can still be taken.
--
-- A stored state is invalid under this limit if the bucket is empty and its next tokens are due later
-- than one full refill from now, or if its debt is larger than FORCE can leave. The bucket then has
-- just enough tokens for this call.

local PREFIX = 'token_bucket:'

-- refill_us returns the time, in microseconds, after which the given number of tokens has been added.
local function refill_us(tokens, rate)
  local over = tokens % rate.count
  return ((tokens - over) / rate.count + (over > 0 and 1 or 0)) * rate.period * 1000
end

-- refill returns the tokens at the time now (us), and the time of the last addition. tokens and
-- added are their stored values.
local function refill(rate, tokens, added, now, cost)
  local period, capacity = rate.period * 1000, rate.capacity
  if added < now then
    local over = (now - added) % period
    tokens = tokens + (now - added - over) / period * rate.count
    added = now - over
  end
  if tokens >= capacity then
    return capacity, now
  elseif tokens <= 0 and (added + period - now > refill_us(capacity, rate) or capacity - tokens > states.most_owed(capacity)) then
    return capacity - states.most_spent(capacity, cost), now
  end
  return tokens, added
end

-- full_at returns when the bucket is full, in us.
local function full_at(rate, tokens, added) return added + refill_us(rate.capacity - tokens, rate) end

local function read(state, text, now, cost)
  local rate, tokens, added = state.rate, state.rate.capacity, now
  if text ~= '' then
    tokens, added = string.match(text, '^(%-?%d+):(%d+)$')
    tokens, added = numbers.parse_digits(tokens), numbers.parse_digits(added)
    if not tokens or not added then return false end
    tokens, added = refill(rate, tokens, added, now, cost)
  end
  state.now, state.added, state.tokens, state.free = now, added, tokens, math.max(0, tokens)
  return true
end

local function reset(state)
  if state.tokens == state.rate.capacity then return 0 end
  return clock.ceil_ms(full_at(state.rate, state.tokens, state.added) - state.now)
end

local function charge(state, units)
  local tokens = state.tokens - units
  state.tokens, state.free = tokens, math.max(0, tokens)
  state.reset = reset(state)
end

local function refund(state, units) charge(state, -math.min(units, state.rate.capacity - state.tokens)) end

local function spare(state)
  local capacity = state.rate.capacity
  return states.most_owed(capacity) - capacity + state.tokens
end

local function wait(state, cost)
  return clock.ceil_ms(state.added + refill_us(cost - state.tokens, state.rate) - state.now)
end

local function save(state)
  return string.format('%d:%d', state.tokens, state.added), clock.ceil_ms(full_at(state.rate, state.tokens, state.added))
end

-- spent returns 0 if the first rate is full. Otherwise it returns nil, nil, and the number of tokens that
-- the last write left. The number of spent tokens is unknown, because the capacity is not stored.
local function spent(key, from)
  local text = packed.first_text(key, from, PREFIX)
  if text == '' then return 0 end
  return nil, nil, numbers.parse_digits(string.match(text, '^(%d+):'))
end

-- decide implements limit.decide (see src/45_limits.lua). If the key holds debt or the state of
-- another algorithm, it calls decisions.one_key.
local function decide(key, limit, cost)
  local value, rate = redis.pcall('GETRANGE', key, '0', '511'), limit.rate
  local now, capacity = clock.us(), rate.capacity
  local tokens, added = capacity, now
  if value ~= '' then
    tokens, added = string.match(type(value) == 'string' and value or '', '^token_bucket:0*(%d+):0*(%d+)$')
    if not tokens or tokens + added >= numbers.MOST then return decisions.one_key(key, limit, cost, value) end
    tokens, added = refill(rate, tokens + 0, added + 0, now, cost)
  end
  local denies, retry = cost > tokens, 0
  if denies then
    retry = cost > capacity and -1 or clock.ceil_ms(added + refill_us(cost - tokens, rate) - now)
  else
    tokens = tokens - cost
  end
  local full = tokens < capacity and full_at(rate, tokens, added) or now
  if not denies and cost > 0 then
    states.put(key, string.format('token_bucket:%d:%d', tokens, added), clock.ceil_ms(full))
  end
  return decisions.answer(denies and 0 or 1, capacity, tokens, retry, clock.ceil_ms(full - now))
end

algorithms.token_bucket = {
  name = 'token_bucket',
  prefix = PREFIX,
  shape = '^%-?%d+:%d+$',
  options = { burst = numbers.positive_option },
  decide = decide,
  spent = spent,
  charge = charge, refund = refund, spare = spare, reset = reset, wait = wait, read = read, save = save,
}
