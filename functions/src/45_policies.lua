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

-- names returns the sorted names of all policies, or only of the shadow policies.
function policies.names(shadows_only)
  local names = {}
  for name, policy in pairs(POLICIES) do
    if policy.shadow or not shadows_only then
      names[#names + 1] = name
    end
  end
  table.sort(names)
  return names
end

-- limits.policy returns the parsed limit of a policy that is one limit and nothing more. For any
-- other policy it returns { policy = "@name", limits = parsed limits, keys =, shadow =, track = },
-- which policies.join adds to a request.
function limits.policy(text)
  local policy, err = policies.find(text)
  if not policy then
    return nil, err
  elseif #policy == 1 and not policy.shadow and not policy.track then
    return limits.of(policy[1])
  end
  local whole = { policy = text, limits = {}, keys = policy.keys, shadow = policy.shadow, track = policy.track }
  for i, part in ipairs(policy) do
    whole.limits[i], err = limits.of(part)
    if not whole.limits[i] then return nil, err end
  end
  return whole
end

-- lease returns the text of the limit in a policy for leases and, if the policy is a shadow, the
-- policy's name. If there is no such limit, it returns nil and the error.
function policies.lease(text)
  local policy, err = policies.find(text)
  if not policy then
    return nil, err
  elseif #policy > 1 then
    return nil, errors.new('BADLIMIT', '%s: a policy of %d limits; a lease takes one', errors.quote(text), #policy)
  end
  return policy[1], policy.shadow and string.sub(text, 2)
end

-- join adds the limits of a policy to a request after its first `count`. It sets these fields of
-- the request: composed, the policies in it; tracks, if one of them has track; groups, its shadow
-- policies; group_of, from a limit's position to its shadow policy. It returns the new number of
-- limits.
function policies.join(request, whole, count)
  request.composed = request.composed or {}
  request.composed[#request.composed + 1] = whole
  request.tracks = request.tracks or whole.track
  local group = nil
  if whole.shadow then
    group = { name = string.sub(whole.policy, 2), denies = false }
    request.groups, request.group_of = request.groups or {}, request.group_of or {}
    request.groups[#request.groups + 1] = group
  else
    request.enforced = true
  end
  for i, limit in ipairs(whole.limits) do
    request.limits[count + i] = limit
    if group then
      request.group_of[count + i] = group
    end
  end
  return count + #whole.limits
end

-- wanted_keys lists the keys that a request's policies take, for an error about the number of keys.
-- tracks reports whether this verb takes a usage key.
function policies.wanted_keys(request, tracks)
  local text = ''
  for _, whole in ipairs(request.composed or {}) do
    local wants = whole.keys and table.concat(whole.keys, ', ') or 'a key'
    text = text .. '; ' .. whole.policy .. ' takes ' .. wants .. (tracks and whole.track and ', and a usage key last' or '')
  end
  return text
end
