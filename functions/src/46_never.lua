-- Limits with a count of 0, such as 0/m, never allow a cost above 0. They write no key, and read a
-- key only to see whether it has an override. A block or a state in the key does not matter.

local function nothing() end

local function zero() return 0 end

local algorithm = { charge = nothing, refund = nothing, reset = zero, spare = zero }

local HEAD = '127' -- enough to find an override, which begins at byte 76 at the latest (after a block)

local function read(key) return redis.pcall('GETRANGE', key, '0', HEAD) end

local function may_override(head) return type(head) == 'string' and string.find(head, overrides.PREFIX) end

local form = {
  load = function(key, limit, at, cost, head)
    states.new(at, limit.rate).free = 0
    head = head or read(key)
    local found = may_override(head) and states.look(key, head)
    return found and overrides.active(found) and states.load_other(key, limit, at, cost, head)
  end,
  write = nothing,
}

-- probe and waits decide on a key without an override: see src/45_limits.lua.
local function probe(key)
  local head = read(key)
  if may_override(head) then return nil, head end
  return 0
end

local function waits(_, cost) return 0, cost and -1 or 0 end

-- rate completes a rate with a count of 0. rest is the text after the period. rate returns the rate, or
-- nil and the reason why it is invalid.
function never.rate(rate, rest)
  if rate.unit or string.find(rest, '%S') then
    return nil, 'the count 0 never allows; it takes no option, and a period in ms, s, m, h or d'
  end
  rate.algorithm, rate.capacity = algorithm, 0
  return rate
end

-- complete completes a limit that has a rate with a count of 0, or returns what is wrong with it.
function never.complete(limit)
  if limit.size > 1 then return 'the count 0 never allows; it takes no other rate' end
  limit.form, limit.probe, limit.waits = form, probe, waits
  return nil
end
