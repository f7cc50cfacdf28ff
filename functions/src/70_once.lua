-- ONCE makes a retry safe: the reply of a call that was charged is kept under the request's key for as long as the
-- caller says, and given again, without a charge, to every call with that key. A call that was denied or cost nothing
-- leaves nothing behind, so its retry is decided anew.
--
-- State: "once:<the six fields>", expiring after the caller's ttl.

-- read answers the reply that is kept under key, nil if there is none; or nil and the error.
function once.read(key)
  local value = redis.pcall('GET', key)
  if not value then
    return nil
  elseif type(value) == 'table' then
    return nil, states.not_a_state(key, value)
  end
  local reply = { string.match(value, '^once:(%d+),(%d+),(%d+),(%d+),(%d+),(%d+)$') }
  if #reply == 0 then
    return nil, states.unreadable(key, value)
  end
  for i = 1, 6 do
    reply[i] = tonumber(reply[i])
  end
  return reply
end

function once.keep(key, reply, ttl)
  redis.call('SET', key, string.format('once:%.0f,%.0f,%.0f,%.0f,%.0f,%.0f', unpack(reply)), 'PX',
    string.format('%.0f', ttl))
end
