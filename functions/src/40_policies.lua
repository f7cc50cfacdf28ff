-- Policies are named limits. The build (functions/policies.go) writes them into this file, so that a
-- call with "@name" need not read them from a Redis key.
--
-- name -> { limit, limit ..., keys = { name of the limit's key, ... }, canary = { limit, limit ..., share = 50, shadow = true },
--           shadow = true, track = true }
--
-- A canary has as many limits as its policy. They apply to a share of the keys, in thousandths. Once
-- a policy or a canary is used, it also has
--   calls   { [0] = denied calls, allowed calls }, counted since the library was loaded on this
--           server. For a shadow, they are the calls that it would have denied and allowed
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
  return canary and policies.in_canary(canary, string.sub(text, 2), key) and canary or policy
end

-- count adds a call to the counts of a policy or a canary. allowed is 1 or 0.
function policies.count(calls, allowed) calls[allowed] = calls[allowed] + 1 end

-- calls returns the counts of a policy or a canary.
function policies.calls(policy)
  policy.calls = policy.calls or { [0] = 0, 0 }
  return policy.calls
end

local NO_CALLS = { [0] = 0, 0 }

-- counts returns two lists for ratelimit_info, in the order of the names. The first has { name,
-- allowed, denied } for each policy, and also share, allowed and denied of the canary if there is
-- one. The second is { name, count, ... } for the policies that are shadows or have a shadow
-- canary. Each count is the number of calls that the shadow policy and the shadow canary would have
-- denied.
function policies.counts(names)
  local list, shadows = {}, {}
  for i, name in ipairs(names) do
    local policy = POLICIES[name]
    local calls, canary = policy.calls or NO_CALLS, policy.canary
    local entry, shadow_denied = { name, calls[1], calls[0] }, policy.shadow and calls[0]
    if canary then
      calls = canary.calls or NO_CALLS
      entry[4], entry[5], entry[6] = canary.share, calls[1], calls[0]
      if canary.shadow then shadow_denied = (shadow_denied or 0) + calls[0] end
    end
    list[i] = entry
    if shadow_denied then
      shadows[#shadows + 1] = name
      shadows[#shadows + 1] = shadow_denied
    end
  end
  return list, shadows
end
