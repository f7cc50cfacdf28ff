-- The number of calls that each shadow policy would have denied but that were allowed, since the
-- library was loaded on this node.
local denied = {}

local function note(name)
  denied[name] = (denied[name] or 0) + 1
end

-- count counts the shadow policies that would have denied a take.
function shadows.count(request)
  for _, group in ipairs(request.passes and request.groups or {}) do
    if group.denies then
      note(group.name)
    end
  end
end

-- counts returns { name, count, ... } for every shadow policy.
function shadows.counts()
  local list = {}
  for _, name in ipairs(policies.names(true)) do
    list[#list + 1] = name
    list[#list + 1] = denied[name] or 0
  end
  return list
end

-- lease rewrites the reply of acquire or renew under a shadow policy. A lease that would have been
-- denied is not held.
function shadows.lease(name, reply)
  if reply.err then
    return reply
  elseif reply[1] == 0 then
    note(name)
  end
  return { 1, reply[2], reply[3], 0, reply[5], reply[6], reply[1], reply[4], reply[6] }
end
