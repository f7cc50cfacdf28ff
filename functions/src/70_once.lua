-- ONCE makes a retry safe. The reply to a charged call, or to a refund, is stored under the
-- request's key for the time that the caller specifies. Every further call with this key gets the
-- same reply and changes nothing. A call that charged or gave back nothing stores nothing, so its
-- retry gets a new decision.
--
-- State: "once:<the fields of the reply>" (nine if a shadow policy took part, otherwise six), and
-- with EACH ";<fields>" for each limit (six with a shadow policy, otherwise five). It expires after
-- the caller's ttl.

local SIX = '^(%d+),(%d+),(%d+),(-?%d+),(%d+),(%d+)'
local FIVE = '^(%d+),(%d+),(%d+),(-?%d+),(%d+)'
local PLAIN = '^once:(%d+),(%d+),(%d+),(%-?%d+),(%d+),(%d+)$'
local LONGEST = '5119' -- a reply with 50 limits has fewer than 5120 bytes

-- parse returns the numbers that a pattern finds in a text, or nil.
local function parse(text, pattern)
  local fields = { string.match(text, pattern) }
  for i = 1, #fields do
    fields[i] = fields[i] == '-1' and -1 or numbers.parse(fields[i])
    if not fields[i] then return nil end
  end
  return fields[1] and fields
end

-- parse_reply returns the reply stored in a value, or nil if there is none.
local function parse_reply(value)
  local fields, entries = string.match(value, '^once:([^;]*)(.*)$')
  local reply = fields and (parse(fields, SIX .. '$') or parse(fields, SIX .. ',(%d+),(-?%d+),(%d+)$'))
  if not reply or entries == '' then return reply end
  local each = {}
  for limit in string.gmatch(entries, ';([^;]*)') do
    each[#each + 1] = parse(limit, FIVE .. '$') or parse(limit, FIVE .. ',(%d+)$') or ''
    if each[#each] == '' then return nil end
  end
  reply[#reply + 1] = each
  return reply
end

local repeated = {} -- the reply of plain_reply; reused by the next call

-- plain_reply returns a stored reply of six fields, or nil. It is faster than parse_reply.
local function plain_reply(value)
  local allowed, limit, remaining, retry, reset, index = string.match(value, PLAIN)
  if not allowed or allowed + limit + remaining + reset + index >= numbers.MOST then return nil end
  retry = retry == '0' and 0 or retry == '-1' and -1 or numbers.parse(retry)
  repeated[1], repeated[2], repeated[3], repeated[4], repeated[5], repeated[6] = allowed + 0, limit + 0, remaining + 0, retry, reset + 0, index + 0
  return retry and repeated
end

-- holds reports whether a key that holds a string holds a reply.
function once.holds(key) return parse_reply(redis.call('GETRANGE', key, '0', LONGEST)) ~= nil end

-- read returns the reply stored under key, nil if there is none, or the error.
function once.read(key)
  local value = redis.pcall('GETRANGE', key, '0', LONGEST)
  if value == '' then
    return nil
  elseif type(value) == 'table' then
    return errors.failed(key, value, 'is not a string')
  end
  local reply = plain_reply(value) or parse_reply(value)
  if reply then return reply end
  local owner = states.owner(value)
  if owner then
    return states.in_use(key, 'the state of a limit (' .. owner.name .. ')')
  elseif string.find(value, '^blocked:') then
    return states.in_use(key, 'a block')
  elseif overrides.begins(value) then
    return states.in_use(key, 'an override')
  end
  return states.unreadable(key)
end

-- keep stores a reply.
function once.keep(key, reply, ttl)
  local value = string.format('once:%d,%d,%d,%d,%d,%d', unpack(reply, 1, 6))
  if #reply > 8 then value = value .. string.format(',%d,%d,%d', unpack(reply, 7, 9)) end
  local each = reply[#reply]
  if type(each) == 'table' then
    for _, limit in ipairs(each) do
      value = value .. string.format(limit[6] and ';%d,%d,%d,%d,%d,%d' or ';%d,%d,%d,%d,%d', unpack(limit))
    end
  end
  redis.call('PSETEX', key, numbers.argument(ttl), value)
end
