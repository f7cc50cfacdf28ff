-- This file stores the states of a limit as texts in the key's value: "<algorithm>:<text>" for one
-- rate, and "<algorithm>::<length>:<text><length>:<text>..." for several. A call needs one read,
-- one TIME and one SET, however many rates there are.
--
-- Rates are identified by position: the first rate of a changed limit reads the state of the
-- previous first one. The text of a full rate is ''. The algorithm provides
--   prefix                        "<algorithm>:"
--   read(state, text, now, cost)  fills in the state from a text, as of now (us). An impossible state leaves room for
--                                 this cost. Returns true, or false and optionally an error if the text is not the
--                                 algorithm's
--   save(state)                   returns the text of a state that a charge or a refund has changed, and when the rate
--                                 is full (ms since the epoch)
--   convert(value, expiry)        optional: returns the text or texts for a value that the algorithm wrote in another
--                                 form and that expires at expiry (ms)

local HEAD, LAST = 512, '511' -- bytes: most values are shorter

-- next_text returns the text at byte `at` of the texts of several rates, and the position after it.
-- After the last text it returns ''. It returns nil if the texts are broken.
local function next_text(texts, at)
  if at > #texts then return '', at end
  local _, last, digits = string.find(texts, '^(%d+):', at)
  local length = numbers.parse_digits(digits)
  if not length or last + length > #texts then return nil end
  return string.sub(texts, last + 1, last + length), last + length + 1
end

-- read_texts fills in the states of all rates of a limit. The texts begin at byte `from` of a value,
-- which may be too long to be copied. It returns the error, or nil.
local function read_texts(key, limit, at, cost, value, from)
  local now, read, is_list = clock.us(), limit.algorithm.read, string.byte(value, from) == 58 -- ':'
  local following = is_list and from + 1 or #value + 1
  for i = 1, limit.size do
    local text, readable, err
    if is_list or i > 1 then
      text, following = next_text(value, following)
    else
      text = string.sub(value, from)
    end
    if text then
      readable, err = read(states.new(at + i - 1, limit.rates[i]), text, now, cost)
    end
    if not readable then return err or states.unreadable(key) end
  end
  return nil
end

local function load_empty(limit, at)
  return read_texts(nil, limit, at, 1, '', 1)
end

-- load_value loads a value that begins with the prefix. The prefix alone is not a state.
local function load_value(key, limit, at, cost, value)
  local from = #limit.algorithm.prefix + 1
  if #value < from then return states.unreadable(key) end
  return read_texts(key, limit, at, cost, value, from)
end

local function load(key, limit, at, cost)
  local value = redis.pcall('GETRANGE', key, '0', LAST)
  if value == '' then return load_empty(limit, at) end
  local prefix = limit.algorithm.prefix
  if type(value) ~= 'string' or string.sub(value, 1, #prefix) ~= prefix then
    return states.load_other(key, limit, at, cost)
  elseif #value == HEAD then
    local err = states.too_much('bytes', redis.call('STRLEN', key))
    if err then return err end
    value = redis.call('GET', key)
  end
  return load_value(key, limit, at, cost, value)
end

-- load_found loads the limit's own state under a block that has ended, or in another form.
local function load_found(key, limit, at, cost, found)
  local convert, prefix = limit.algorithm.convert, limit.algorithm.prefix
  local err = states.too_much('bytes', redis.call('STRLEN', key))
  if err then return err end
  local value = redis.call('GETRANGE', key, found.from, '-1')
  if string.sub(value, 1, #prefix) == prefix or not convert then
    return load_value(key, limit, at, cost, value)
  end
  local expiry = found.from > 0 and found.expiry or redis.call('PEXPIRETIME', key)
  return read_texts(key, limit, at, cost, convert(value, expiry), 1)
end

-- save_all returns the value that stores the states of a limit, and when it expires (ms since the epoch).
-- If all rates are full, it returns '' and 0.
local function save_all(limit, at)
  local save, list, parts, expiry = limit.algorithm.save, states.list, { limit.algorithm.prefix, limit.rate and '' or ':' }, 0
  for i = at, at + limit.size - 1 do
    local state, text, full = list[i], ''
    if state.reset > 0 then
      text, full = save(state)
      if full > expiry then expiry = full end
    end
    parts[#parts + 1] = limit.rate and '' or string.format('%d:', #text)
    parts[#parts + 1] = text
  end
  return expiry > 0 and table.concat(parts) or '', expiry
end

local function write(key, limit, at)
  local value, expiry = save_all(limit, at)
  if expiry == 0 then return redis.call('DEL', key) end
  states.put(key, value, expiry)
end

packed.form = { load = load, load_empty = load_empty, load_found = load_found, write = write, save = save_all }

-- first returns the first and last byte of the first rate's text in a key's value. The prefix
-- begins at byte `from`.
function packed.first(key, from, prefix)
  from = from + #prefix
  local digits = string.match(redis.call('GETRANGE', key, from, from + 20), '^:(%d+):')
  if digits then
    from = from + #digits + 2
    return from, from + (numbers.parse_digits(digits) or 0) - 1
  end
  return from, -1
end

-- first_text returns the first rate's text.
function packed.first_text(key, from, prefix)
  return redis.call('GETRANGE', key, packed.first(key, from, prefix))
end
