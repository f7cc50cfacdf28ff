-- ONCE makes a retry safe: the reply of a call that was charged is kept under the request's key for as long as the
-- caller says, and given again, without a charge, to every call with that key. A call that was denied or cost nothing
-- leaves nothing behind, so its retry is decided anew.
--
-- State: "once:<the fields of the reply>" (nine if a shadow policy had a say, else six), expiring after the caller's ttl.

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
    reply = { string.match(value, '^once:(%d+),(%d+),(%d+),(%d+),(%d+),(%d+),([01]),(-?%d+),(%d+)$') }
  end
  if #reply == 0 then
    local owner = states.owner(value)
    local what = owner and 'the state of a limit (' .. owner.name .. ')' or states.blocked(value) and 'a block'
    return nil, what and states.in_use(key, what) or states.unreadable(key, value)
  end
  for i = 1, #reply do
    reply[i] = reply[i] == '-1' and -1 or numbers.whole(reply[i])
    if not reply[i] then
      return nil, states.unreadable(key, value)
    end
  end
  return reply
end

function once.keep(key, reply, ttl)
  local fields = 'once:%.0f,%.0f,%.0f,%.0f,%.0f,%.0f'
  if #reply > 6 then
    fields = fields .. ',%.0f,%.0f,%.0f'
  end
  states.forget(key)
  redis.call('SET', key, string.format(fields, unpack(reply)), 'PX', string.format('%.0f', ttl))
end
