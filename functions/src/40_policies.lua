-- Policies: named limits, which the build (functions/policies.go) writes into this text, so that
-- "@name" reads no key.
--
-- name -> { limit, limit ..., keys = { name of its key, ... }, shadow = true, track = true }
local POLICIES = {--[[@POLICIES@]]}

-- find returns the policy for "@name", or nil and the error.
function policies.find(text)
  local policy = POLICIES[string.sub(text, 2)]
  if policy then return policy end
  return nil, errors.new('NOPOLICY', '%s: no such policy in build %s; ratelimit_info lists the policies',
    errors.quote(text), BUILD_ID)
end

-- names returns the sorted names of all policies.
function policies.names()
  return sorted_keys(POLICIES)
end

-- lease returns the text of the limit of a policy for leases and, if the policy is a shadow, the
-- policy's name. If the policy is unknown or has several limits, lease returns nil and the error.
function policies.lease(text)
  local policy, err = policies.find(text)
  if not policy then
    return nil, err
  elseif #policy > 1 then
    return nil, errors.new('BADLIMIT', '%s: a policy of %d limits; a lease takes one', errors.quote(text), #policy)
  end
  return policy[1], policy.shadow and string.sub(text, 2)
end

------------------------------------------------------------------- shadow policies

-- For each shadow policy, the number of allowed calls that it would have denied, since the library
-- was loaded on this node.
local denied = {}

-- note counts a call that a shadow policy would have denied.
function policies.note(name)
  denied[name] = (denied[name] or 0) + 1
end

-- shadow_counts returns { name, count, ... } for every shadow policy.
function policies.shadow_counts()
  local list = {}
  for _, name in ipairs(policies.names()) do
    if POLICIES[name].shadow then
      list[#list + 1] = name
      list[#list + 1] = denied[name] or 0
    end
  end
  return list
end
