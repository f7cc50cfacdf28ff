-- This file stores the states of a limit as texts in the key's value: "<algorithm>:<text>" for one
-- rate, and "<algorithm>::<length>:<text><length>:<text>..." for several. A call needs one read,
-- one TIME and one SET, however many rates there are.
--
-- Rates are identified by position: the first rate of a changed limit reads the state of the
-- previous first one. The text of a full rate is ''. The algorithm provides
--   prefix                        "<algorithm>:"
--   read(state, text, now, cost)  fills in the state from a text, as of now (us). If the text is impossible (see
--                                 states.needs), the state leaves room for this cost. Returns true, or false and
--                                 optionally an error if the text is not the algorithm's
--   save(state)                   returns the text of a state that a charge or a refund has changed, and when the rate
--                                 is full (ms since the epoch). A long text may be a list of parts, with their size
--   head                          optional: how many bytes `read` needs of a text in a long value. `read` gets only
--                                 these, and the position of the whole text: key, offset and size
--   convert(value, expiry)        optional: returns the text or texts for a value that the algorithm wrote in another
--                                 form and that expires at expiry (ms)

local HEAD, LAST = 512, '511' -- bytes of the first read; most values are shorter
local LONG = 8192 -- bytes; the texts in a longer value are read one by one
local LONGEST_TO_CONVERT = 2048 -- bytes

-- find returns the positions of a text's first and last byte in a key's value, or nil. The length of the
-- text is at position `from` and matches pattern. If value is nil, find reads the key.
local function find(key, value, from, pattern)
  local head = value and string.sub(value, from, from + 20) or redis.call('GETRANGE', key, from - 1, from + 19)
  local digits, after = string.match(head, pattern)
  if not digits then return nil end
  local first = from + after - 1
  return first, first + (numbers.parse_digits(digits) or numbers.MOST) - 1
end

-- read_texts fills in the states of all rates of a limit from their texts, which begin at byte `from`
-- of value. If size is not nil, value is only the beginning of a long state. The key's value then has
-- size bytes, and the state begins after `offset` bytes. read_texts returns the error, or nil.
local function read_texts(key, limit, at, cost, value, from, offset, size)
  local now, algorithm, is_list = clock.us(), limit.algorithm, string.byte(value, from) == 58 -- ':'
  local following, stop = is_list and from + 1 or from, size or #value
  if size then following, value = following + offset, nil end
  for i = 1, limit.size do
    local first, last, readable, err = following, stop, false, nil
    if is_list and following <= stop then first, last = find(key, value, following, '^(%d+):()') end
    if first and last <= stop then
      local state = states.new(at + i - 1, limit.rates[i])
      following = last + 1
      if value then
        readable, err = algorithm.read(state, string.sub(value, first, last), now, cost)
      else
        local text = redis.call('GETRANGE', key, first - 1, math.min(last, first + (algorithm.head or size) - 1) - 1)
        readable, err = algorithm.read(state, text, now, cost, key, first - 1, last - first + 1)
      end
    end
    if not readable then return err or states.unreadable(key) end
  end
  return nil
end

local function load_empty(limit, at) return read_texts(nil, limit, at, 1, '', 1) end

-- load_value loads the state of the limit's algorithm that begins at byte `from` of a key. value is
-- the beginning of the state, or all of it. The prefix alone is not a state.
local function load_value(key, limit, at, cost, value, from)
  local first, size = #limit.algorithm.prefix + 1, nil
  if #value >= HEAD then
    size = redis.call('STRLEN', key)
    local err = states.too_much('bytes', size - from)
    if err then return err end
    if size <= LONG then value, size = redis.call('GETRANGE', key, from, '-1'), nil end
  elseif #value < first then
    return states.unreadable(key)
  end
  return read_texts(key, limit, at, cost, value, first, from, size)
end

local function load(key, limit, at, cost, head)
  local value = head or redis.pcall('GETRANGE', key, '0', LAST)
  if value == '' then return load_empty(limit, at) end
  local prefix = limit.algorithm.prefix
  if type(value) ~= 'string' or string.sub(value, 1, #prefix) ~= prefix then
    return states.load_other(key, limit, at, cost, value)
  end
  return load_value(key, limit, at, cost, value, '0')
end

-- load_found loads a state of the limit's algorithm that load cannot read, because it follows a
-- block or an override in the value, or has to be converted.
local function load_found(key, limit, at, cost, found)
  local convert, prefix = limit.algorithm.convert, limit.algorithm.prefix
  local value = found.value or redis.call('GETRANGE', key, found.from, found.from + LONGEST_TO_CONVERT - 1)
  if string.sub(value, 1, #prefix) == prefix or not convert then
    return load_value(key, limit, at, cost, value, found.from)
  end
  local expiry = found.from > 0 and found.expiry or redis.call('PEXPIRETIME', key)
  return read_texts(key, limit, at, cost, convert(value, expiry), 1)
end

-- save_all returns the value that stores the states of a limit, as a list of parts, and when it
-- expires (ms since the epoch). If all rates are full, it returns an empty value and 0.
local function save_all(limit, at)
  local save, list, parts, expiry = limit.algorithm.save, states.list, { limit.algorithm.prefix, not limit.rate and ':' or nil }, 0
  for i = at, at + limit.size - 1 do
    local state, text, full = list[i], ''
    if state.reset > 0 then
      text, full = save(state)
      if full > expiry then expiry = full end
    end
    local is_list = type(text) == 'table'
    if not limit.rate then parts[#parts + 1] = string.format('%d:', is_list and text.size or #text) end
    if not is_list then
      parts[#parts + 1] = text
    else
      parts.long = parts.long or text.long
      for _, part in ipairs(text) do
        parts[#parts + 1] = part
      end
    end
  end
  if expiry == 0 then return { '' }, 0 end
  return parts, expiry
end

local function write(key, limit, at)
  local parts, expiry = save_all(limit, at)
  if expiry == 0 then return redis.call('DEL', key) end
  states.put_parts(key, parts, expiry)
end

packed.form = { load = load, load_empty = load_empty, load_found = load_found, write = write, save = save_all }

-- first returns the offsets of the first and last byte of the first rate's text in a key's value. If
-- the text extends to the end of the value, the second offset is -1. The prefix begins after `from`
-- bytes.
function packed.first(key, from, prefix)
  from = from + #prefix
  local first, last = find(key, nil, from + 1, '^:(%d+):()')
  return first and first - 1 or from, last and last - 1 or -1
end

-- first_text returns the first rate's text.
function packed.first_text(key, from, prefix)
  return redis.call('GETRANGE', key, packed.first(key, from, prefix))
end
