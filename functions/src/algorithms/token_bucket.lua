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

local function open(state, value, from, to, now, cost)
  local rate, tokens, added = state.rate, state.rate.capacity, now
  if to >= from then
    tokens, added = string.match(value, '^(%d+):(%d+)$', from)
    tokens, added = numbers.digits(tokens or ''), numbers.digits(added or '')
    if not tokens or not added then return false end
    local period, capacity = rate.period * 1000, rate.capacity
    if added < now then
      local periods = (now - added - (now - added) % period) / period
      tokens = tokens + periods * rate.count
      added = added + periods * period
    end
    if tokens >= capacity then
      tokens, added = capacity, now
    elseif tokens == 0 and added + period - now > refill_us(capacity, rate) then
      tokens, added = capacity - states.leaves_room(capacity, cost), now
    end
  end
  state.now, state.added, state.tokens, state.free = now, added, tokens, tokens
  return true
end

local function charge(state, units)
  local tokens = state.tokens - units
  state.tokens, state.free = tokens, tokens
end

local function refund(state, units)
  charge(state, -math.min(units, state.rate.capacity - state.tokens))
end

-- reset also stores in state.full when the bucket is full, in us.
local function reset(state)
  local missing = state.rate.capacity - state.tokens
  state.full = missing > 0 and state.added + refill_us(missing, state.rate) or state.now
  return clock.ceil_ms(state.full - state.now)
end

local function wait(state, cost)
  return clock.ceil_ms(state.added + refill_us(cost - state.tokens, state.rate) - state.now)
end

local function save(state)
  return string.format('%d:%d', state.tokens, state.added), clock.ceil_ms(state.full)
end

local function complete_rate(rate)
  rate.capacity = rate.burst or rate.count
  rate.charge, rate.refund, rate.spend, rate.reset, rate.wait = charge, refund, charge, reset, wait
end

algorithms.token_bucket = {
  name = 'token_bucket',
  prefix = 'token_bucket:',
  options = { burst = numbers.positive_option },
  rate = complete_rate,
  limit = packed.complete,
  holds = packed.prefixed('token_bucket:'),
  open = open,
  save = save,
}
