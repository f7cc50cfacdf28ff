-- ONCE makes a retry safe. The reply of a charged call, or of a refund, is stored under the request's
-- key for the time that the caller specifies. Every further call with this key gets the same reply
-- and changes nothing. A call that was denied or cost nothing stores nothing, so its retry is decided
-- again.
--
-- State: "once:<the fields of the reply>" (nine if a shadow policy took part, otherwise six). It
-- expires after the caller's ttl.

local SIX = '^once:(%d+),(%d+),(%d+),(%d+),(%d+),(%d+)'

-- read returns the reply stored under key, or nil if there is none; or nil and the error.
function once.read(key)
  local value = redis.pcall('GETRANGE', key, '0', '255') -- longer than any reply
  if value == '' then
    return nil
  elseif type(value) == 'table' then
    return nil, errors.failed(key, value, 'is not a string')
  end
  local reply = { string.match(value, SIX .. '$') }
  if #reply == 0 then
    reply = { string.match(value, SIX .. ',(%d+),(-?%d+),(%d+)$') }
  end
  local readable = #reply > 0
  for i = 1, #reply do
    reply[i] = reply[i] == '-1' and -1 or numbers.parse(reply[i]) or nil
    readable = readable and reply[i]
  end
  if readable then return reply end
  local owner = states.owner(value)
  if owner then
    return nil, states.in_use(key, 'the state of a limit (' .. owner.name .. ')')
  elseif string.find(value, '^blocked:') then
    return nil, states.in_use(key, 'a block')
  end
  return nil, states.unreadable(key)
end

function once.keep(key, reply, ttl)
  local fields = 'once:%d,%d,%d,%d,%d,%d'
  if #reply > 6 then
    fields = fields .. ',%d,%d,%d'
  end
  redis.call('PSETEX', key, ttl, string.format(fields, unpack(reply)))
end
