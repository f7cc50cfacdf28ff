-- Stores the states of a limit as texts in the key's value: "<algorithm>:<text>" for one rate, and
-- "<algorithm>::<length>:<text><length>:<text>..." for several. A call needs one read, one TIME and
-- one SET, however many rates there are.
--
-- Rates are identified by position: the first rate of a changed limit reads the state of the
-- previous first one. The text of a full rate is ''. The algorithm provides
--   prefix                        "<algorithm>:"
--   read(state, value, from, to, now, cost)  fills in the state from the bytes from..to of value, as of now (us). An
--                                 empty text is a full rate. An impossible state leaves room for this cost. Returns
--                                 true, or false and optionally an error if the text is not the algorithm's. The value
--                                 ends at `to`
--   in_place                      optional: true if read accepts a value that continues after `to`, which saves a copy
--   save(state)                   returns the text of a state that a charge or a refund has changed, and when the rate
--                                 is full (ms since the epoch)
--   plain(value, expiry)          optional: returns the text or texts for the algorithm's own value in another form that
--                                 expires at expiry (ms)

local HEAD, LAST = 512, '511' -- bytes: most values are shorter

-- next_text returns the first and last byte of the text at byte `at` in a value of several rates.
-- After the last text it returns an empty range. It returns nil if the value is broken.
local function next_text(value, at)
  if at > #value then return at, at - 1 end
  local _, last, digits = string.find(value, '^(%d+):', at)
  local length = numbers.parse_digits(digits)
  if not length or last + length > #value then return nil end
  return last + 1, last + length
end

-- fill reads the states of all rates of a limit from a value, ignoring its first `skipped` bytes. It
-- returns the error, or nil.
local function fill(key, limit, at, cost, value, skipped)
  local now, read, in_place, from, to = clock.us(), limit.algorithm.read, limit.algorithm.in_place, skipped + 1, #value
  if from > to and skipped > 0 then return states.unreadable(key) end
  if limit.rate then
    local readable, err = read(states.new(at, limit.rate), value, from, to, now, cost)
    if readable or err then return err end
  end
  local several = string.byte(value, from) == 58 -- ':'
  if several then
    to = from
  end
  for i = 1, limit.size do
    local state, readable, err = states.new(at + i - 1, limit.rates[i]), false, nil
    if several or i > 1 then
      from, to = next_text(value, to + 1)
    end
    if from and several and not in_place then
      readable, err = read(state, string.sub(value, from, to), 1, to - from + 1, now, cost)
    elseif from then
      readable, err = read(state, value, from, to, now, cost)
    end
    if not readable then return err or states.unreadable(key) end
  end
  return nil
end

function packed.fresh(limit, at)
  return fill(nil, limit, at, 1, '', 0)
end

function packed.open(key, limit, at, cost)
  local value = redis.pcall('GETRANGE', key, '0', LAST)
  if value == '' then return packed.fresh(limit, at) end
  local prefix = limit.algorithm.prefix
  if type(value) ~= 'string' or string.sub(value, 1, #prefix) ~= prefix then
    return states.open_other(key, limit, at, cost)
  elseif #value == HEAD then
    local err = states.too_long(redis.call('STRLEN', key))
    if err then return err end
    value = redis.call('GET', key)
  end
  return fill(key, limit, at, cost, value, #prefix)
end

-- reopen reads the limit's own state under a block that has ended, or in another form.
function packed.reopen(key, limit, at, cost, found)
  local plain, prefix = limit.algorithm.plain, limit.algorithm.prefix
  local err = states.too_long(redis.call('STRLEN', key))
  if err then return err end
  local value = redis.call('GETRANGE', key, found.from, '-1')
  if string.sub(value, 1, #prefix) == prefix or not plain then
    return fill(key, limit, at, cost, value, #prefix)
  end
  local expiry = found.from > 0 and found.expiry or redis.call('PEXPIRETIME', key)
  return fill(key, limit, at, cost, plain(value, expiry), 0)
end

function packed.write(key, limit, at)
  local save, list, prefix = limit.algorithm.save, states.list, limit.algorithm.prefix
  if limit.rate then
    local state = list[at]
    if state.reset == 0 then return redis.call('DEL', key) end
    local text, full = save(state)
    return states.put(key, prefix .. text, full)
  end
  local parts, expiry = { prefix, ':' }, 0
  for i = at, at + limit.size - 1 do
    local state, text = list[i], ''
    if state.reset > 0 then
      local full
      text, full = save(state)
      if full > expiry then expiry = full end
    end
    parts[#parts + 1] = string.format('%d:', #text)
    parts[#parts + 1] = text
  end
  if expiry == 0 then return redis.call('DEL', key) end
  states.put(key, table.concat(parts), expiry)
end

local form = { open = packed.open, fresh = packed.fresh, reopen = packed.reopen, write = packed.write }

-- complete sets the functions of a limit that read and write its key.
function packed.complete(limit)
  limit.form = form
end

-- prefixed returns a function that reports whether a value begins with prefix.
function packed.prefixed(prefix)
  return function(head)
    return string.sub(head, 1, #prefix) == prefix
  end
end

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
