-- One decision over one or several keys: all of them are charged, or none. The reply is
-- { allowed, limit, remaining, retry_after_ms, reset_after_ms, index }.

-- The reply of a call over one key. Redis turns it into integers before the next call begins, so one table serves all
-- calls: a new one each time costs 4 % of a denied call (bench/README.md).
local reply = { 0, 0, 0, 0, 0, 1 }

-- one decides over a single key: the common call, and the one that must cost next to nothing.
function decisions.one(key, limit, cost, consume)
  local allowed, remaining, retry, reset, w1, w2, capacity = limit.decide(key, limit, cost, consume)
  if allowed then
    if consume and cost > 0 then
      limit.write(key, limit, cost, w1, w2)
    end
    reply[1] = 1
  elseif allowed == nil then
    return remaining -- the error
  else
    reply[1] = 0
  end
  reply[2], reply[3], reply[4], reply[5] = capacity or limit.capacity, remaining, retry, reset
  return reply
end

-- refused answers for a call that some limit denies: nothing is taken anywhere, so what the limits that would have
-- allowed it have to say is asked of them again, at no cost. said: the first four answers of each limit and, fifth, the
-- capacity, one after the other.
local function refused(keys, list, said)
  local binding, binding_capacity, least, longest_retry, longest_reset = nil, nil, nil, 0, 0
  for i, limit in ipairs(list) do
    local at = 5 * i
    local allowed, remaining, retry, reset = said[at - 4], said[at - 3], said[at - 2], said[at - 1]
    if allowed then
      local _
      _, remaining, _, reset = limit.decide(keys[i], limit, 0)
      retry = 0
    elseif not binding then
      binding, binding_capacity = i, said[at]
    end
    least = (not least or remaining < least) and remaining or least
    longest_retry = (retry == -1 or longest_retry == -1) and -1 or math.max(longest_retry, retry)
    longest_reset = reset > longest_reset and reset or longest_reset
  end
  return { 0, binding_capacity, least, longest_retry, longest_reset, binding }
end

-- all decides over several keys, or refunds to them. Nothing is written before every key has been read and every limit
-- has allowed. verb is the function of the limit that is asked: 'decide', or 'give' for a refund (src/40_limits.lua).
function decisions.all(verb, keys, list, costs, consume)
  local first, second, said = {}, {}, nil
  local binding, binding_capacity, least, longest_retry, longest_reset = nil, nil, nil, 0, 0
  for i = 1, #list do
    local limit = list[i]
    local allowed, remaining, retry, reset, w1, w2, capacity = limit[verb](keys[i], limit, costs[i], consume)
    capacity = capacity or limit.capacity
    if allowed == nil then
      return remaining
    elseif not allowed and not said then
      said = {}
      for before = 1, i - 1 do
        said[5 * before - 4] = true
      end
    end
    if said then
      local at = 5 * i
      said[at - 4], said[at - 3], said[at - 2], said[at - 1], said[at] = allowed, remaining, retry, reset, capacity
    end
    first[i], second[i] = w1, w2
    if not least or remaining < least then
      binding, binding_capacity, least = i, capacity, remaining
    end
    if retry > longest_retry then
      longest_retry = retry
    end
    if reset > longest_reset then
      longest_reset = reset
    end
  end
  if said then
    return refused(keys, list, said)
  end
  if consume then
    for i = 1, #list do
      local cost = costs[i]
      if cost > 0 then
        list[i].write(keys[i], list[i], verb == 'give' and -cost or cost, first[i], second[i])
      end
    end
  end
  return { 1, binding_capacity, least, longest_retry, longest_reset, binding }
end

-- request decides what the caller asked for (src/50_requests.lua).
function decisions.request(keys, request, consume)
  if #request.limits == 1 then
    return decisions.one(keys[1], request.limits[1], request.COST[1], consume)
  end
  return decisions.all('decide', keys, request.limits, request.COST, consume)
end
