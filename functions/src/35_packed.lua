-- Keeps the state of an algorithm in the key's value, whatever the number of rates: one GET, one TIME, one SET.
--
-- The algorithm gives functions of one rate's state, a text ('': none, the rate is full), and of the time in us:
--   step(text, now, rate, cost)    answers allowed, remaining, retry_after, reset_after, next text, and when the rate is
--                                  full again (ms since the epoch). The last two only if allowed and cost is above 0.
--                                  nil if the text is none of its own.
--   give(text, now, rate, cost)    the same for a refund: true, remaining, 0, reset_after, next text, full
--   spend(now, rate, units)        the text of a state in which units are spent now
--   prefix                          what the value begins with, "<algorithm>:"
--   plain(value, left, now)        optional: the text for a value of another form than <algorithm>:<state>
-- Rates are known by their place: the first rate of a changed limit reads what the first one before has left.

-- prefixed answers a function that tells whether a value begins with prefix.
function packed.prefixed(prefix)
  return function(value)
    return string.find(value, prefix, 1, true) == 1
  end
end

-- split answers the states of a body of several rates, ":<length>:<state>...", or the one of a single rate; nil if the
-- body is broken.
local function split(body)
  if string.sub(body, 1, 1) ~= ':' then
    return { body }
  end
  local texts = {}
  local at = 2
  while at <= #body do
    local _, last, digits = string.find(body, '^(%d+):', at)
    local length = digits and numbers.whole(digits)
    if not length or last + length > #body then
      return nil
    end
    texts[#texts + 1] = string.sub(body, last + 1, last + length)
    at = last + length + 1
  end
  return texts
end

-- first answers the state of the first rate, '' if there is none.
function packed.first(value, algorithm)
  local texts = split(string.sub(value, #algorithm.prefix + 1))
  return texts and texts[1] or ''
end

-- fetch reads a key for any number of rates. Answers their states, in order ('' or nothing: none), and, if another
-- algorithm left the state, for how many ms that counts; or false and the ms of a block; or nil and the error.
local function fetch(key, limit, cost, now)
  local algorithm = limit.algorithm
  local value = redis.pcall('GET', key)
  if not value then
    return {}
  end
  local state, kind, left, owner = value, nil, nil, nil
  if type(value) ~= 'string' or string.find(value, algorithm.prefix, 1, true) ~= 1 then
    kind, state, left, owner = states.view(key, value, algorithm)
    if not kind then
      return nil, state
    elseif kind == 'blocked' then
      return false, left
    elseif kind == 'none' then
      return {}
    end
  end
  if kind == 'other' then
    local texts = {}
    for i, rate in ipairs(limit.rates or { limit }) do
      texts[i] = algorithm.spend(now, rate, states.spent_elsewhere(state, left, owner, rate, cost))
    end
    return texts, left
  elseif algorithm.plain and string.find(state, algorithm.prefix, 1, true) ~= 1 then
    return { algorithm.plain(state, left, now) }
  end
  local texts = split(string.sub(state, #algorithm.prefix + 1))
  if not texts then
    return nil, states.unreadable(key, value)
  end
  return texts
end

-- wanted answers for what cost a state that cannot be leaves room: a refund asks for nothing, and finds room for one.
local function wanted(verb, cost)
  return verb == 'give' and 1 or cost
end

------------------------------------------------------------------- one rate

-- unusual decides over whatever a key can hold.
local function unusual(verb, key, limit, cost)
  local now = clock.us()
  local texts, elsewhere = fetch(key, limit, wanted(verb, cost), now)
  if texts == nil then
    return nil, elsewhere
  elseif not texts then
    return states.refused_by_block(limit, wanted(verb, cost), elsewhere)
  end
  local allowed, remaining, retry, reset, following, full = limit.algorithm[verb](texts[1] or '', now, limit, cost)
  if allowed == nil then
    return nil, states.unreadable(key, redis.call('GET', key))
  elseif not allowed and elsewhere then
    return false, remaining, retry == -1 and -1 or elsewhere, elsewhere
  end
  return allowed, remaining, retry, reset, following, full
end

-- decide, give and write of a limit of one rate. decide knows the two usual cases, no key and a state of one rate.
function packed.decide(key, limit, cost)
  local value = redis.pcall('GET', key)
  local text = ''
  if value then
    text = type(value) == 'string' and string.match(value, limit.state)
    if not text then
      return unusual('step', key, limit, cost)
    end
  end
  local allowed, remaining, retry, reset, following, full = limit.algorithm.step(text, clock.us(), limit, cost)
  if allowed == nil then
    return nil, states.unreadable(key, value)
  end
  return allowed, remaining, retry, reset, following, full
end

function packed.give(key, limit, cost)
  return unusual('give', key, limit, cost)
end

function packed.write(key, limit, _, text, full)
  if text == '' then
    redis.call('DEL', key)
  else
    states.forget(key)
    redis.call('SET', key, limit.algorithm.prefix .. text, 'PXAT', full)
  end
end

------------------------------------------------------------------- several rates

-- refused answers for rates of which one denies: nothing is taken from any, so what those that would have allowed the
-- call have to say is asked of them again, at no cost.
local function refused(verb, key, texts, now, limit, cost, elsewhere)
  local step = limit.algorithm[verb]
  local uncharged = elsewhere and fetch(key, limit, 0, now) or texts
  local binding, least, longest_retry, longest_reset = nil, nil, 0, 0
  for i, rate in ipairs(limit.rates) do
    local allowed, remaining, retry, reset = step(texts[i] or '', now, rate, cost)
    if allowed then
      local _
      _, remaining, _, reset = limit.algorithm.step(uncharged[i] or '', now, rate, 0)
      retry = 0
    else
      binding = binding or rate
      if elsewhere then
        retry, reset = retry == -1 and -1 or elsewhere, elsewhere
      end
    end
    least = least and math.min(least, remaining) or remaining
    longest_retry = (retry == -1 or longest_retry == -1) and -1 or math.max(longest_retry, retry)
    longest_reset = math.max(longest_reset, reset)
  end
  return false, least, longest_retry, longest_reset, nil, nil, binding.capacity
end

-- several decides: all rates are charged, or none.
local function several(verb, key, limit, cost)
  local now = clock.us()
  local texts, elsewhere = fetch(key, limit, wanted(verb, cost), now)
  if texts == nil then
    return nil, elsewhere
  elseif not texts then
    local allowed, remaining, retry, reset = states.refused_by_block(limit, wanted(verb, cost), elsewhere)
    return allowed, remaining, retry, reset, nil, nil, limit.rates[1].capacity
  end
  local step = limit.algorithm[verb]
  local following, last_full = {}, 0
  local binding, least, longest_retry, longest_reset = nil, nil, 0, 0
  local all = true
  for i, rate in ipairs(limit.rates) do
    local allowed, remaining, retry, reset, text, full = step(texts[i] or '', now, rate, cost)
    if allowed == nil then
      return nil, states.unreadable(key, redis.call('GET', key))
    end
    all = all and allowed
    if not least or remaining < least then
      binding, least = rate, remaining
    end
    if retry > longest_retry then
      longest_retry = retry
    end
    if reset > longest_reset then
      longest_reset = reset
    end
    if full and full > last_full then
      last_full = full
    end
    following[i] = text
  end
  if not all then
    return refused(verb, key, texts, now, limit, cost, elsewhere)
  end
  return true, least, longest_retry, longest_reset, following, last_full, binding.capacity
end

local function write_several(key, limit, _, texts, full)
  local out = { limit.algorithm.prefix .. ':' }
  local any = false
  for i = 1, #limit.rates do
    out[i + 1] = string.format('%d:', #texts[i]) .. texts[i] -- %s would end at a byte 0
    any = any or texts[i] ~= ''
  end
  if any then
    states.forget(key)
    redis.call('SET', key, table.concat(out), 'PXAT', full)
  else
    redis.call('DEL', key)
  end
end

local function decide_several(key, limit, cost)
  return several('step', key, limit, cost)
end

local function give_several(key, limit, cost)
  return several('give', key, limit, cost)
end

-- complete gives a limit of one rate, or of several, the functions that decide over it and write it.
function packed.complete(limit)
  if limit.rates then
    limit.decide, limit.give, limit.write = decide_several, give_several, write_several
  else
    limit.decide, limit.give, limit.write = packed.decide, packed.give, packed.write
    limit.state = '^' .. limit.algorithm.prefix .. '([^:].*)$'
  end
end
