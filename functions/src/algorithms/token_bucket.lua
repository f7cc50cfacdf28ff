-- token_bucket: n tokens are added at the end of each period, up to the capacity b (default n). The
-- periods begin at the first take. Once the bucket is full, they begin again at the next take.
--
-- State: "token_bucket:<tokens>:<us>", the tokens left and when tokens were last added. The key
-- expires when the bucket is full. FORCE leaves a debt as tokens below 0.
--
-- If the limit changes, its n, b and period apply from the last addition on. Tokens above a lowered
-- b are lost.
--
-- If the clock was set back, the last addition can be later than now. The tokens that are left can still
-- be taken, and a call that takes some makes now the time of the last addition. If a call would have to
-- wait for longer than a full refill, the bucket has just enough tokens for this call. The same applies
-- to a bucket in debt that would be full later than FORCE can leave it.

local PREFIX = 'token_bucket:'

-- refill_ms returns the time, in ms, after which the given number of tokens has been added.
local function refill_ms(tokens, rate)
  local over = tokens % rate.count
  return ((tokens - over) / rate.count + (over > 0 and 1 or 0)) * rate.period
end

-- refill returns the tokens at the time now (us), and the time of the last addition. tokens and
-- added are their stored values.
local function refill(rate, tokens, added, now)
  if added < now then
    local period = rate.period * 1000
    local over = (now - added) % period
    tokens = tokens + (now - added - over) / period * rate.count
    added = now - over
  end
  if tokens >= rate.capacity then return rate.capacity, now end
  return tokens, added
end

-- is_impossible reports whether a state has to be replaced for a call of this cost. ahead is how much
-- later than now the last addition is, in us.
local function is_impossible(rate, tokens, ahead, cost)
  local most = rate.capacity
  local units = states.needs(most, cost) - tokens
  if tokens < 0 then
    units, most = most - tokens, states.most_owed(most)
    if -tokens > most - rate.capacity then return true end -- units can be above 2^53, and rounded
  end
  return ahead > 0 and units > 0 and ahead > (refill_ms(most, rate) - refill_ms(units, rate)) * 1000
end

local function read(state, text, now, cost)
  local rate, tokens, added = state.rate, state.rate.capacity, now
  if text ~= '' then
    tokens, added = string.match(text, '^(%-?%d+):(%d+)$')
    tokens, added = numbers.parse_digits(tokens), numbers.parse_digits(added)
    if not tokens or not added then return false end
    tokens, added = refill(rate, tokens, added, now)
    if is_impossible(rate, tokens, added - now, cost) then
      tokens, added = rate.capacity - states.most_spent(state, cost), now
    end
  end
  state.now, state.added, state.tokens, state.free = now, added, tokens, math.max(0, tokens)
  return true
end

-- wait returns the time in ms until the bucket has `units` tokens.
local function wait(state, units)
  return clock.ceil_ms(state.added - state.now) + refill_ms(units - state.tokens, state.rate)
end

local function reset(state)
  local capacity = state.rate.capacity
  return state.tokens < capacity and wait(state, capacity) or 0
end

local function charge(state, units)
  local tokens = state.tokens - units
  state.tokens, state.free, state.added = tokens, math.max(0, tokens), math.min(state.added, state.now)
  state.reset = reset(state)
end

local function refund(state, units) charge(state, -math.min(units, state.rate.capacity - state.tokens)) end

local function spare(state)
  local capacity = state.rate.capacity
  return states.most_owed(capacity) - capacity + state.tokens
end

local function save(state)
  local rate, tokens, added = state.rate, state.tokens, state.added
  return string.format('%d:%d', tokens, added), clock.ceil_ms(added) + refill_ms(rate.capacity - tokens, rate)
end

-- spent returns 0 if the first rate is full. Otherwise it returns nil, nil, and the number of tokens that
-- the last write left. The number of spent tokens is unknown, because the capacity is not stored.
local function spent(key, from)
  local text = packed.first_text(key, from, PREFIX)
  if text == '' then return 0 end
  return nil, nil, numbers.parse_digits(string.match(text, '^(%d+):'))
end

-- probe, commit and waits decide on a key: see src/45_limits.lua. What probe returns for the other two is the tokens and the time of the last
-- addition. If the key holds debt or the state of another algorithm, or if the clock was set back, its states are
-- loaded.
local function probe(key, limit)
  local value, rate = redis.pcall('GETRANGE', key, '0', '511'), limit.rate
  local now = clock.us()
  if value == '' then return rate.capacity, rate.capacity, now end
  local tokens, added = string.match(type(value) == 'string' and value or '', '^token_bucket:0*(%d+):0*(%d+)$')
  if not tokens or tokens + added >= numbers.MOST then return nil, value end
  tokens, added = refill(rate, tokens + 0, added + 0, now)
  if added > now then return nil, value end
  return tokens, tokens, added
end

local function commit(key, limit, units, tokens, added)
  local rate = limit.rate
  tokens = tokens - units
  local refill_time = refill_ms(rate.capacity - tokens, rate)
  if key then states.put(key, string.format('token_bucket:%d:%d', tokens, added), clock.ceil_ms(added) + refill_time) end
  return clock.ceil_ms(added - clock.us()) + refill_time, 0
end

local function waits(limit, cost, tokens, added)
  local rate = limit.rate
  local capacity, gone, retry = rate.capacity, clock.ceil_ms(added - clock.us()), 0
  if cost then retry = cost > capacity and -1 or gone + refill_ms(cost - tokens, rate) end
  return tokens < capacity and gone + refill_ms(capacity - tokens, rate) or 0, retry
end

algorithms.token_bucket = {
  name = 'token_bucket',
  prefix = PREFIX,
  shape = '^%-?%d+:%d+$',
  options = { burst = numbers.positive_option },
  probe = probe, commit = commit, waits = waits, gives_back = true,
  spent = spent,
  charge = charge, refund = refund, spare = spare, reset = reset, wait = wait, read = read, save = save,
}
