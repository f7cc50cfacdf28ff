-- One decision over one or several keys: all of them are charged, or none. The reply is
-- { allowed, limit, remaining, retry_after_ms, reset_after_ms, index }.

local decisions = {}

-- The reply of a call over one key. Redis turns it into integers before the next call begins, so one table serves all
-- calls: a new one each time costs 4 % of a decision (bench/README.md).
local reply = { 0, 0, 0, 0, 0, 1 }

-- one decides over a single key: the common call, and the one that must cost next to nothing.
function decisions.one(key, limit, cost, consume)
  local allowed, remaining, retry, reset, w1, w2 = limit.decide(key, limit, cost)
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
  reply[2], reply[3], reply[4], reply[5] = limit.capacity, remaining, retry, reset
  return reply
end

-- refused answers for a call that some limit denies: nothing is taken anywhere, so what the limits that would have
-- allowed it have to say is asked of them again, at no cost.
local function refused(keys, list, costs)
  local binding, least, longest_retry, longest_reset
  for i = 1, #keys do
    local allowed, remaining, retry, reset = list[i].decide(keys[i], list[i], costs[i])
    if allowed then
      local _
      allowed, remaining, _, reset = list[i].decide(keys[i], list[i], 0)
      retry = 0
    else
      binding = binding or i
    end
    if allowed == nil then
      return remaining
    end
    least = (not least or remaining < least) and remaining or least
    longest_reset = (not longest_reset or reset > longest_reset) and reset or longest_reset
    if longest_retry ~= -1 and (not longest_retry or retry > longest_retry or retry == -1) then
      longest_retry = retry
    end
  end
  return { 0, list[binding].capacity, least, longest_retry, longest_reset, binding }
end

-- all decides over several keys. Nothing is written before every key has been read and every limit has allowed.
function decisions.all(keys, list, costs, consume)
  local first, second = {}, {}
  local binding, least, longest_retry, longest_reset
  for i = 1, #keys do
    local allowed, remaining, retry, reset, w1, w2 = list[i].decide(keys[i], list[i], costs[i])
    if allowed == nil then
      return remaining
    elseif not allowed then
      return refused(keys, list, costs)
    end
    first[i], second[i] = w1, w2
    if not least or remaining < least then
      binding, least = i, remaining
    end
    longest_retry = (not longest_retry or retry > longest_retry) and retry or longest_retry
    longest_reset = (not longest_reset or reset > longest_reset) and reset or longest_reset
  end
  if consume then
    for i = 1, #keys do
      if costs[i] > 0 then
        list[i].write(keys[i], list[i], costs[i], first[i], second[i])
      end
    end
  end
  return { 1, list[binding].capacity, least, longest_retry, longest_reset, binding }
end

-- request decides what the caller asked for.
function decisions.request(keys, args, consume)
  local list, costs = requests.read(keys, args)
  if not list then
    return costs -- the error
  end
  if #keys == 1 then
    return decisions.one(keys[1], list[1], costs[1], consume)
  end
  return decisions.all(keys, list, costs, consume)
end
