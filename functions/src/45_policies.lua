-- Policies: names for limits, written into this text by the build (functions/policies.go), so that "@name" reads no key.
--
-- name -> { limit, limit ..., keys = { name of its key, ... }, shadow = true, track = true }
local POLICIES = {--[[@POLICIES@]]}

-- find answers the policy that "@name" asks for, or nil and the error.
function policies.find(text)
  local policy = POLICIES[string.sub(text, 2)]
  if policy then
    return policy
  end
  return nil, errors.new('NOPOLICY', '%s: no such policy in build %s; ratelimit_info lists the policies',
    errors.quote(text), BUILD_ID)
end

-- names answers the names of those policies for which wanted answers true, sorted.
function policies.names(wanted)
  local names = {}
  for name, policy in pairs(POLICIES) do
    if wanted(policy) then
      names[#names + 1] = name
    end
  end
  table.sort(names)
  return names
end

-- Policies that are more than one limit to be used in their place, by "@name": what limits.policy has put together.
local composed = {}

-- limits.policy answers for limits.of: the parsed limit of a policy that is one limit and nothing more. For another,
-- { policy = "@name", limits = parsed limits, keys =, shadow =, track = }, which policies.join puts into a request.
function limits.policy(text)
  if composed[text] then
    return composed[text]
  end
  local policy, err = policies.find(text)
  if not policy then
    return nil, err
  elseif #policy == 1 and not policy.shadow and not policy.track then
    return limits.of(policy[1])
  end
  local whole = { policy = text, limits = {}, keys = policy.keys, shadow = policy.shadow, track = policy.track }
  for i, part in ipairs(policy) do
    whole.limits[i], err = limits.of(part)
    if not whole.limits[i] then
      return nil, err
    end
  end
  composed[text] = whole
  return whole
end

-- lease answers the text of the limit that acquire and its sisters take from a policy, and the policy's name if it is a
-- shadow; or nil and the error.
function policies.lease(text)
  local policy, err = policies.find(text)
  if not policy then
    return nil, err
  elseif #policy > 1 then
    return nil, errors.new('BADLIMIT', '%s: a policy of %.0f limits; a lease takes one', errors.quote(text), #policy)
  end
  return policy[1], policy.shadow and string.sub(text, 2)
end

-- join appends the limits of such a policy to those of a request. list gets, beside the limits: track = true; shadows,
-- position -> the group of limits that one shadow policy decides over (src/62_shadows.lua); composed, for policies.says.
function policies.join(list, whole)
  local group = whole.shadow and { name = string.sub(whole.policy, 2) }
  list.composed = list.composed or {}
  list.composed[#list.composed + 1] = whole
  list.track = list.track or whole.track
  for _, limit in ipairs(whole.limits) do
    list[#list + 1] = limit
    if group then
      list.shadows = list.shadows or {}
      list.shadows[#list] = group
    end
  end
end

-- says names the keys that the policies of a request want, for an error about their number. tracks: whether this verb
-- takes a usage key.
function policies.says(list, tracks)
  local text = ''
  for _, whole in ipairs(list.composed or {}) do
    local wants = whole.keys and table.concat(whole.keys, ', ') or 'a key'
    text = text .. '; ' .. whole.policy .. ' takes ' .. wants .. (tracks and whole.track and ', and a usage key last' or '')
  end
  return text
end
