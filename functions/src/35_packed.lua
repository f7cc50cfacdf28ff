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

-- text answers the state of the rate at a place: all of body, or one part of ":<length>:<state>..."; nil if body is
-- broken.
function packed.text(body, place)
  if string.sub(body, 1, 1) ~= ':' then
    return place == 1 and body or ''
  end
  local at = 2
  while at <= #body do
    local _, last, length = string.find(body, '^(%d+):', at)
    length = length and numbers.whole(length)
    if not length or last + length > #body then
      return nil
    elseif place == 1 then
      return string.sub(body, last + 1, last + length)
    end
    place = place - 1
    at = last + length + 1
  end
  return ''
end

local function now_us()
  local time = redis.call('TIME')
  return tonumber(time[1]) * 1000000 + tonumber(time[2])
end

-- fetch answers what key holds:
--   body             the state, after "<algorithm>:" ('': none)
--   kind, a, b, c    if it is not simply that: see states.view
-- or nil and the error.
local function fetch(key, limit, cost, now)
  local algorithm = limit.algorithm
  local value = redis.pcall('GET', key)
  if not value then
    return ''
  elseif type(value) == 'string' and string.find(value, algorithm.prefix, 1, true) == 1 then
    return string.sub(value, #algorithm.prefix + 1)
  end
  local kind, state, left, owner = states.view(key, value, algorithm, cost)
  if not kind then
    return nil, state
  elseif kind ~= 'own' then
    return '', kind, state, left, owner
  elseif algorithm.plain and string.find(state, algorithm.prefix, 1, true) ~= 1 then
    return algorithm.plain(state, left, now)
  end
  return string.sub(state, #algorithm.prefix + 1)
end

-- rate_text answers the state of one rate, and for how many ms another algorithm's state counts.
local function rate_text(body, place, rate, cost, now, kind, value, left, owner)
  if kind ~= 'other' then
    return packed.text(body, place)
  end
  local units = states.spent_elsewhere(value, left, owner, rate, cost)
  return rate.algorithm.spend(now, rate, units), left
end

local function one(verb, key, limit, cost)
  local now = now_us()
  local body, kind, value, left, owner = fetch(key, limit, cost, now)
  if not body then
    return nil, kind
  elseif kind == 'blocked' then
    return states.refused_by_block(limit, cost, left)
  end
  local text, elsewhere = rate_text(body, 1, limit, cost, now, kind, value, left, owner)
  local allowed, remaining, retry, reset, following, full
  if text then
    allowed, remaining, retry, reset, following, full = limit.algorithm[verb](text, now, limit, cost)
  end
  if allowed == nil then
    return nil, states.unreadable(key, limit.algorithm.prefix .. body)
  elseif not allowed and elsewhere then
    return false, remaining, retry == -1 and -1 or elsewhere, elsewhere
  end
  return allowed, remaining, retry, reset, following, full
end

-- decide, give and write of a limit of one rate.
function packed.decide(key, limit, cost)
  return one('step', key, limit, cost)
end

function packed.give(key, limit, cost)
  return one('give', key, limit, cost)
end

function packed.write(key, limit, _, text, full)
  if text == '' then
    redis.call('DEL', key)
  else
    redis.call('SET', key, limit.algorithm.prefix .. text, 'PXAT', full)
  end
end

-- Several rates: all of them are charged, or none. Where one denies, what the others have to say is asked at no cost.
local function several(verb, key, limit, cost)
  local now = now_us()
  local body, kind, value, left, owner = fetch(key, limit, cost, now)
  if not body then
    return nil, kind
  elseif kind == 'blocked' then
    local allowed, remaining, retry, reset = states.refused_by_block(limit, cost, left)
    return allowed, remaining, retry, reset, nil, nil, limit.rates[1].capacity
  end
  local all = true
  local verdicts, texts = {}, {}
  local last_full = 0
  for i, rate in ipairs(limit.rates) do
    local text, elsewhere = rate_text(body, i, rate, cost, now, kind, value, left, owner)
    local verdict
    if text then
      verdict = { limit.algorithm[verb](text, now, rate, cost) }
      texts[i] = verdict[5]
    end
    if not verdict or verdict[1] == nil then
      return nil, states.unreadable(key, limit.algorithm.prefix .. body)
    end
    if not verdict[1] then
      all = false
      if elsewhere then
        verdict[3], verdict[4] = verdict[3] == -1 and -1 or elsewhere, elsewhere
      end
    end
    verdict.text = text
    verdicts[i] = verdict
    last_full = math.max(last_full, verdict[6] or 0)
  end
  local binding, least, longest_retry, longest_reset = nil, nil, 0, 0
  for i, rate in ipairs(limit.rates) do
    local allowed, remaining, retry, reset = verdicts[i][1], verdicts[i][2], verdicts[i][3], verdicts[i][4]
    if allowed and not all then
      local _
      _, remaining, _, reset = limit.algorithm.step(verdicts[i].text, now, rate, 0)
      retry = 0
    elseif not allowed then
      binding = binding or i
    end
    if not least or remaining < least then
      least = remaining
      binding = all and i or binding
    end
    if longest_retry ~= -1 then
      longest_retry = retry == -1 and -1 or math.max(longest_retry, retry)
    end
    longest_reset = math.max(longest_reset, reset)
  end
  return all, least, longest_retry, longest_reset, texts, last_full, limit.rates[binding].capacity
end

local function write_several(key, limit, _, texts, full)
  local out = { limit.algorithm.prefix .. ':' }
  local any = false
  for i = 1, #limit.rates do
    out[i + 1] = string.format('%.0f:', #texts[i]) .. texts[i]
    any = any or texts[i] ~= ''
  end
  if any then
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
  end
end
