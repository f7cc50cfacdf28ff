-- Policies are named limits. The build (functions/baked.go) writes them into this file, so that a
-- call with "@name" need not read them from a Redis key.
--
-- name -> { limit, limit ..., keys = { name of the limit's key, ... }, canary = { limit, limit ..., share = 50, shadow = true },
--           shadow = true, track = true, classes = { name = percent, ... },
--           penalty = { first, longest and forgotten after, in ms }, warn = percent, borrow = percent }
--
-- With borrow, the policy is a guarantee and a pool: see src/62_borrowing.lua.
--
-- The library does nothing with a penalty and warn but tell them: see src/verbs/info.lua.
--
-- A call names one of the classes, which stands for a FLOOR of this percentage. classes is true if the policy takes any
-- class, as 0. A call without CLASS and FLOOR belongs to the class "default".
--
-- A canary has as many limits as its policy. They apply to a share of the keys, in thousandths. Once
-- a policy or a canary is used, it also has
--   calls   { [0] = denied calls, allowed calls }, counted since the library was loaded on this
--           server. For a shadow, they are the calls that it would have denied and allowed
--   by      the calls that named a class, which are not in calls, by the class; '' for those with FLOOR
local POLICIES = {--[[@POLICIES@]]}

-- find returns the policy for "@name", or nil and the error.
function policies.find(text)
  local policy = POLICIES[string.sub(text, 2)]
  if policy then return policy end
  return nil, errors.new('NOPOLICY', '%s: no such policy in build %s; ratelimit_info lists the policies',
    errors.quote(text), BUILD_ID)
end

local sorted -- the sorted names of all policies; nil before the first call of policies.names

-- names returns the sorted names of all policies.
function policies.names()
  sorted = sorted or sorted_keys(POLICIES)
  return sorted
end

-- share_of returns the number, 0 to 999, that decides whether "<policy's name>:<key>" is in the share of a canary. SHA-1 takes as
-- long as two commands, so the numbers of the keys used last are remembered.
local share_of = numbers.remembered(function(text) return tonumber(string.sub(redis.sha1hex(text), 1, 8), 16) % 1000 end, {})

-- in_canary reports whether a key is in the share of a policy's canary. The result depends only on
-- the name of the policy, the key and the share, so it is the same on all servers. A larger share
-- keeps the keys of a smaller one.
function policies.in_canary(canary, name, key)
  return share_of(name .. ':' .. key) < canary.share
end

-- side returns a policy that is a result of parse_side (src/45_limits.lua), or its canary if the key belongs to the canary.
function policies.side(policy, key)
  local canary = policy.canary
  return canary and policies.in_canary(canary, policy.name, key) and canary or policy
end

-- lease returns the policy for "@name", or its canary if the key belongs to the canary. If the
-- policy is unknown or has several limits, lease returns nil and the error.
function policies.lease(text, key)
  local policy, err = policies.find(text)
  if not policy then
    return nil, err
  elseif #policy > 1 then
    return nil, errors.new('BADLIMIT', '%s: a policy of %d limits; a lease takes one', errors.quote(text), #policy)
  end
  local canary = policy.canary
  if not canary or not policies.in_canary(canary, string.sub(text, 2), key) then return policy end
  canary.classes = policy.classes
  return canary
end

-- count adds a call to counts. allowed is 1 or 0.
function policies.count(calls, allowed) calls[allowed] = calls[allowed] + 1 end

-- calls returns the counts of a policy or a canary, for the caller to add to. class is the class that a call names, '' for
-- FLOOR, and nil for neither. Under classes: any, callers choose the names, so they are not counted apart.
function policies.calls(side, class)
  if not class or class == 'default' or type(side.classes) ~= 'table' then
    side.calls = side.calls or { [0] = 0, 0 }
    return side.calls
  end
  side.by = side.by or {}
  side.by[class] = side.by[class] or { [0] = 0, 0 }
  return side.by[class]
end

-- class returns the percentage for which a class stands under a limit of a policy, or nil and the error.
function policies.class(limit, name)
  local classes = limit.classes
  if type(classes) == 'table' then
    if classes[name] then return classes[name] end
    return nil, errors.new('BADARGS', '%s: no such class of @%s; its classes are %s', errors.quote(name), limit.name, table.concat(sorted_keys(classes), ', '))
  elseif classes then
    return 0
  elseif limit.name then
    return nil, errors.new('BADARGS', '%s: @%s has no classes; give it some, or classes: any', errors.quote(name), limit.name)
  end
  return nil, errors.new('BADARGS', '%s: only policies have classes; with a limit, give FLOOR and a percentage', errors.quote(name))
end

local NO_CALLS = { [0] = 0, 0 }

-- total returns the counts of a policy or a canary over all classes.
local function total(side)
  local calls = side.calls or NO_CALLS
  local allowed, denied = calls[1], calls[0]
  for _, more in pairs(side.by or {}) do
    allowed, denied = allowed + more[1], denied + more[0]
  end
  return allowed, denied
end

-- of_class returns the counts of one class.
local function of_class(side, class)
  return class == 'default' and side.calls or class ~= 'default' and side.by and side.by[class] or NO_CALLS
end

-- counts returns three lists for ratelimit_info, in the order of the names. The first has { name,
-- allowed, denied } for each policy, and also share, allowed and denied of the canary if there is
-- one. The second is { name, count, ... } for the policies that are shadows or have a shadow
-- canary. Each count is the number of calls that the shadow policy and the shadow canary would have
-- denied. The third has { name, class, allowed, denied } for each class of each policy, and the fourth { name, guaranteed,
-- borrowed, denied } for each policy of a guarantee and a pool.
function policies.counts(names)
  local list, shadows, by_class, borrows = {}, {}, {}, {}
  for i, name in ipairs(names) do
    local policy = POLICIES[name]
    local canary, allowed, denied = policy.canary, total(policy)
    local entry, shadow_denied = { name, allowed, denied }, policy.shadow and denied
    if canary then
      entry[4], entry[5], entry[6] = canary.share, total(canary)
      if canary.shadow then shadow_denied = (shadow_denied or 0) + entry[6] end
    end
    list[i] = entry
    if policy.borrow then
      local borrowed = (policy.calls and policy.calls.borrowed or 0) + (canary and canary.calls and canary.calls.borrowed or 0)
      borrows[#borrows + 1] = { name, allowed + (entry[5] or 0) - borrowed, borrowed, denied + (entry[6] or 0) }
    end
    for _, class in ipairs(type(policy.classes) == 'table' and sorted_keys(policy.classes) or {}) do
      local calls, other = of_class(policy, class), of_class(canary or {}, class)
      by_class[#by_class + 1] = { name, class, calls[1] + other[1], calls[0] + other[0] }
    end
    if shadow_denied then
      shadows[#shadows + 1] = name
      shadows[#shadows + 1] = shadow_denied
    end
  end
  return list, shadows, by_class, borrows
end
