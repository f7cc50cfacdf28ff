#!lua name=ratelimit
-- Built from functions/src, where the comments are; do not edit: run `make generate`.

--@ src/00_library.lua
local VERSION = '0.1.0'
local CONTRACT = 1
local BUILD_ID = 'b111145f4125'

local CLOCK_STANDS = (redis.REDIS_VERSION_NUM or 0) >= 0x00070200

local algorithms = {}

local function sorted_keys(of)
  local keys = {}
  for key in pairs(of) do
    keys[#keys + 1] = key
  end
  table.sort(keys)
  return keys
end
local errors = {}
local clock = {}
local numbers = {}
local states = {}
local packed = {}
local gcra_debt = {}
local gcra_expiry = {}
local gcra_value = {}
local policies = {}
local calendar = {}
local limits = {}
local never = {}
local requests = {}
local decisions = {}
local one_key = {}
local borrowing = {}
local tracking = {}
local once = {}
local overrides = {}
local leases = {}
local contents = {}

--@ src/10_errors.lua
do
local SHOWN = 60

function errors.quote(value)
  local shown = string.gsub(string.sub(value, 1, SHOWN), '[^\32-\126]', function(c)
    return string.format('\\x%02x', string.byte(c))
  end)
  if #value > SHOWN then return string.format('"%s..." (%d bytes)', shown, #value) end
  return '"' .. shown .. '"'
end

function errors.new(reason, text, ...)
  return redis.error_reply('RATELIMIT ' .. reason .. ' ' .. string.format(text, ...))
end

function errors.unusable(key, what)
  return errors.new('BADSTATE', 'key %s %s; give the limiter a key of its own, or delete this one', errors.quote(key), what)
end

function errors.failed(key, failure, expected)
  if string.sub(failure.err, 1, 9) == 'WRONGTYPE' then return errors.unusable(key, expected) end
  return failure
end
end

--@ src/15_clock.lua
do
function clock.us()
  local now = clock.now
  if not now then
    local time = redis.call('TIME')
    now = time[1] * 1000000 + time[2]
    clock.now = now
  end
  return now
end

function clock.ms()
  local now = clock.us()
  return (now - now % 1000) / 1000
end

function clock.ceil_ms(us)
  local over = us % 1000
  return (over > 0 and us - over + 1000 or us) / 1000
end
end

--@ src/20_numbers.lua
do
local LARGEST = '9007199254740992'

numbers.MOST = 9007199254740992

numbers.WHOLE = 'a whole number from %s to ' .. LARGEST

local small = {}

function numbers.parse(text)
  local n = small[text]
  if n then return n end
  n = string.find(text, '^[1-9]%d*$') and text + 0
  if n and n < numbers.MOST then
    if n < 1000 then small[text] = n end
    return n
  end
  text = string.match(text, '^0*(%d+)$')
  if not text or #text > #LARGEST or #text == #LARGEST and text > LARGEST then return nil end
  return tonumber(text)
end

function numbers.parse_digits(text)
  local n = tonumber(text or '')
  if not n or n < numbers.MOST then return n end
  return numbers.parse(text)
end

function numbers.parse_positive(text)
  local n = numbers.parse(text)
  return n ~= 0 and n or nil
end

function numbers.positive_option(text)
  return numbers.parse_positive(text), string.format(numbers.WHOLE, '1')
end

local last, last_text = 0, '0'

function numbers.argument(n)
  if CLOCK_STANDS then return n end
  if n ~= last then
    last = n
    last_text = string.format('%d', n)
  end
  return last_text
end

local MOST_KNOWN = 5000
local SHORT = 64

function numbers.remembered(read, memory, sized)
  local size, previous = 0, {}
  memory.known = {}
  return function(text)
    local value, err = memory.known[text], nil
    if value then return value end
    value = previous[text]
    if not value then value, err = read(text) end
    if value then
      if size >= MOST_KNOWN then
        previous = memory.known
        memory.known = {}
        size = 0
      end
      local bytes = type(text) == 'string' and #text or 0
      size = size + (sized and value.size or 1) + (bytes - bytes % SHORT) / SHORT
      memory.known[text] = value
    end
    return value, err
  end
end
end

--@ src/30_states.lua
do
local list = {}
states.list = list

local MOST_KEPT, SMALL = 64, 10000
local large = false

function states.new(at, rate)
  local state = list[at]
  if not state then
    state = {}
    list[at] = state
    if at > MOST_KEPT then large = true end
  end
  state.rate, state.ends_in, state.reset, state.delay = rate, 0, false, 0
  return state
end

function states.needs(capacity, cost)
  return states.wanted(capacity, cost, states.kept(capacity, states.floor))
end

function states.wanted(capacity, cost, kept)
  if kept >= capacity then return 1 end
  return (cost > 1 and cost <= capacity - kept and cost or 1) + kept
end

states.floor = 0

function states.kept(capacity, percent)
  local rest = capacity % 100
  return (capacity - rest) / 100 * percent + math.ceil(rest * percent / 100)
end

function states.load_above(percent, key, limit, at, cost, head, left)
  states.floor = percent
  local done, result = pcall(limit.form.load, key, limit, at, cost, head, left)
  states.floor = 0
  if not done then error(result, 0) end
  return result
end

function states.most_spent(state, cost)
  local capacity = state.rate.capacity
  local units = states.needs(capacity, cost)
  if units > 1 then state.room, states.any_room = true, true end
  return capacity - units
end

function states.most_owed(capacity) return math.min(2 * capacity, numbers.MOST) end

local MOST = { bytes = 2500000, buckets = 6000 }
local MOST_OF_SEVERAL = 1250000
local read = {}

function states.begin()
  read.bytes, read.buckets = 0, 0
  if not states.any_room then return end
  states.any_room = false
  for at = 1, #list do
    list[at].room = nil
  end
end

function states.drop()
  for at = large and #list or 0, 1, -1 do
    list[at] = nil
  end
  large = false
end

function states.too_much(what, more, limitless)
  local sum = read[what] + more
  read[what] = sum
  large = large or sum > SMALL
  local most = limitless and sum > more and more > 0 and MOST_OF_SEVERAL or MOST[what]
  if sum <= most then return nil end
  return errors.new('BADKEYS', 'the keys hold more than %d %s, the most that one call reads; name fewer keys', most, what)
end

local HEAD = 128

function states.in_use(key, what)
  return errors.new('BADSTATE', 'key %s holds %s; give each use a key of its own', errors.quote(key), what)
end

function states.unreadable(key)
  return errors.unusable(key, string.format('holds a string of length %d, which no limiter wrote', redis.call('STRLEN', key)))
end

function states.owner(head)
  local name, text = string.match(head, '^([%a_]+):(.*)$')
  local named = algorithms[name]
  if named and named.prefix == name .. ':' then
    return (string.find(text, '^:%d+:') or string.find(text, named.shape)) and named or nil
  end
  for _, algorithm in pairs(algorithms) do
    local holds = algorithm.holds
    if holds and holds(head) then return algorithm end
  end
  return nil
end

local function block(head)
  local ends, expiry, from = string.match(head, '^blocked:(%d+):(%d+):()')
  if not ends then return nil end
  local length, forgotten, after = string.match(head, '^(%d+):(%d+):()', from)
  length, forgotten = (length or 0) + 0, (forgotten or 0) + 0
  if ends + expiry + length + forgotten >= numbers.MOST then return nil end
  return ends + 0, expiry + 0, after or from, length, forgotten
end

function states.with_block(parts, expiry, ends, grown)
  local head = string.format('blocked:%d:%d:', ends, expiry)
  if grown then head = head .. string.format('%d:%d:', grown.length, grown.forgotten) end
  parts[1] = head .. parts[1]
  return math.max(ends, expiry, grown and grown.forgotten or 0)
end

function states.grown(now, ends, length, forgotten)
  return forgotten > now and ends - now <= length and { ends = ends, length = length, forgotten = forgotten } or nil
end

function states.look(key, head, left)
  head = head or redis.pcall('GETRANGE', key, '0', HEAD - 1)
  local found = { use = false, blocked = 0, from = 0, expiry = 0, owner = nil, left = -1 }
  if type(head) == 'table' then
    local set = leases.content(key)
    if not set or set.err or set.held then return nil, errors.failed(key, head, 'is not a string'), set end
    return set
  elseif head == '' then
    found.empty = true
    return found
  end
  local ends, expiry, from, length, forgotten = block(head)
  if ends then found.from, found.expiry, found.ends = from - 1, expiry, ends end
  local state, inner = string.sub(head, found.from + 1), found
  local is_whole = #head < HEAD
  if overrides.begins(state) then
    inner, state, is_whole = overrides.read(key, found.from, is_whole and state)
    if not inner then return nil, states.unreadable(key) end
    found.override = inner
  end
  inner.value = is_whole and state or nil
  local bare = not ends and inner == found
  inner.owner = states.owner(state)
  found.use = bare and string.sub(state, 1, 5) == 'once:' and once.holds(key) and 'the reply to a request (ONCE)'
  if not (inner.owner or found.use or not bare and state == '') then
    return nil, states.unreadable(key)
  end
  found.left = left or redis.call('PTTL', key)
  if found.left < 0 then
    return nil, errors.unusable(key, 'holds a limiter state without an expiry')
  elseif ends then
    local now = math.max(ends, expiry, forgotten) - found.left
    found.blocked, found.left, found.grown = math.max(0, ends - now), expiry - now, states.grown(now, ends, length, forgotten)
    if length > 0 and not found.grown then found.blocked, found.ends = 0, nil end
  end
  return found
end

function states.blocked(key, head, left, limit)
  local ends, expiry, from, length, forgotten = block(head)
  if not ends then return nil end
  local state = string.sub(head, from)
  left = left or redis.call('PTTL', key)
  local now = math.max(ends, expiry, forgotten) - left
  if length > 0 and ends - now > length then
    return nil
  elseif ends > now then
    return (state == '' or states.owner(state)) and ends - now or nil
  elseif forgotten <= now or #head >= HEAD or limit.form ~= gcra_expiry.form then
    return nil
  end
  local free, debt = gcra_expiry.behind(limit, state, expiry - clock.ms())
  return nil, free, debt, forgotten, string.match(head, '^(blocked:%d+:)%d+(:%d+:%d+:)')
end

local function carry_over(key, limit, at, cost, found)
  local left, spent = found.left, found.owner.spent
  local counted, err, kept
  if spent then
    counted, err, kept = spent(key, found.from)
    if err then return err end
  end
  limit.form.load_empty(limit, at)
  for i, rate in ipairs(limit.rates) do
    local state, most = list[at + i - 1], rate.capacity
    if left * rate.count > most * rate.period then most = states.most_spent(state, cost) end
    most = math.min(most, counted or math.ceil(left * rate.count / rate.period), rate.capacity - (kept or 0))
    if most > 0 then (rate.algorithm.spend or rate.algorithm.charge)(state, most) end
    state.ends_in = left
  end
  return nil
end

local function write_grown(key, limit, at)
  local under, grown = limit.under, limit.grown
  local parts, expiry = under.form.save(under, at)
  states.put_parts(key, parts, states.with_block(parts, expiry, grown.ends, grown))
end

local function remembering(under, grown)
  local form = { load = states.load_other, write = write_grown }
  return { algorithm = under.algorithm, size = under.size, capacity = under.capacity, form = form, probe = limits.unprobed, under = under, grown = grown }
end

function states.load_other(key, limit, at, cost, head, left)
  limit = limit.under or limit
  local found, err = states.look(key, head, left)
  if err then
    return err
  elseif found.use then
    return states.in_use(key, found.use)
  end
  local override, inner = overrides.active(found), found.override or found
  local grown = found.blocked == 0 and found.grown and remembering(override or limit, found.grown)
  if override then
    limit = override.limit
    local most = limit.algorithm.most
    err = most and most.field == 'buckets' and states.too_much('buckets', limit.asks)
  end
  local is_own = inner.owner == (limit.algorithm.stored_as or limit.algorithm)
  if found.blocked > 0 then
    for i, rate in ipairs(limit.rates) do
      local state = states.new(at + i - 1, rate)
      state.free, state.ends_in = -1, found.blocked
    end
  elseif not inner.owner or inner.left < 0 or inner.left == 0 and not is_own then
    limit.form.load_empty(limit, at)
  elseif is_own then
    err = err or limit.form.load_found(key, limit, at, cost, inner)
  else
    err = err or carry_over(key, limit, at, cost, inner)
  end
  return err or grown or override
end

function states.put(key, value, expiry)
  redis.call('SET', key, value, 'PXAT', numbers.argument(expiry))
end

local LONG = 2048
local PART = 65536

function states.copy(parts, key, first, last)
  if last - first >= LONG then parts.long = true end
  for at = first, last, PART do
    parts[#parts + 1] = redis.call('GETRANGE', key, at, math.min(at + PART - 1, last))
  end
end

function states.put_parts(key, parts, expiry)
  local is_long = parts.long
  if is_long then redis.call('APPEND', key, '') end
  redis.call('SET', key, is_long and parts[1] or table.concat(parts), 'PXAT', numbers.argument(expiry))
  for i = 2, is_long and #parts or 1 do
    redis.call('APPEND', key, parts[i])
  end
end
end

--@ src/35_packed.lua
do
local HEAD, LAST = 512, '511'
local LONG = 8192
local LONGEST_TO_CONVERT = 2048

local function find(key, value, from, pattern)
  local head = value and string.sub(value, from, from + 20) or redis.call('GETRANGE', key, from - 1, from + 19)
  local digits, after = string.match(head, pattern)
  if not digits then return nil end
  local first = from + after - 1
  return first, first + (numbers.parse_digits(digits) or numbers.MOST) - 1
end

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

local function load_found(key, limit, at, cost, found)
  local convert, prefix = limit.algorithm.convert, limit.algorithm.prefix
  local value = found.value or redis.call('GETRANGE', key, found.from, found.from + LONGEST_TO_CONVERT - 1)
  if string.sub(value, 1, #prefix) == prefix or not convert then
    return load_value(key, limit, at, cost, value, found.from)
  end
  local expiry = found.from > 0 and found.expiry or redis.call('PEXPIRETIME', key)
  return read_texts(key, limit, at, cost, convert(value, expiry), 1)
end

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

function packed.first(key, from, prefix)
  from = from + #prefix
  local first, last = find(key, nil, from + 1, '^:(%d+):()')
  return first and first - 1 or from, last and last - 1 or -1
end

function packed.first_text(key, from, prefix)
  return redis.call('GETRANGE', key, packed.first(key, from, prefix))
end
end

--@ src/36_gcra_debt.lua
do
local function ceil(debt, ticks)
  if ticks == 1 then return debt end
  local over = debt % ticks
  return (over > 0 and debt - over + ticks or debt) / ticks
end
gcra_debt.ceil = ceil

gcra_debt.MARK = '-debt'

function gcra_debt.set(state, debt, cost, forced)
  local rate = state.rate
  local interval, full = rate.interval, rate.full
  local room, keeps = full - debt, true
  if room < 0 then
    keeps = -room <= full - interval * (forced and 1 or states.needs(rate.capacity, cost))
    if not keeps then
      debt = interval * states.most_spent(state, cost)
      room = full - debt
    end
    state.forced = forced
  end
  state.debt = debt
  state.free = room > 0 and (room - room % interval) / interval or 0
  return keeps
end

function gcra_debt.charge(state, units)
  local rate = state.rate
  local debt = state.debt + units * rate.interval
  state.debt, state.free, state.reset = debt, state.free - units, ceil(debt, rate.ticks_per_ms)
  if debt > rate.full then state.forced = true end
end

function gcra_debt.refund(state, units)
  gcra_debt.set(state, math.max(0, state.debt - units * state.rate.interval), 1, state.forced)
  state.reset = gcra_debt.reset(state)
end

function gcra_debt.marked(state) return state.debt > state.rate.full and state.forced end

function gcra_debt.spare(state)
  local rate = state.rate
  local interval = rate.interval
  local room = 2 * rate.full - interval - state.debt
  return (room - room % interval) / interval
end

function gcra_debt.reset(state) return ceil(state.debt, state.rate.ticks_per_ms) end

function gcra_debt.wait(state, cost)
  local rate = state.rate
  return ceil(state.debt - (rate.full - cost * rate.interval), rate.ticks_per_ms)
end
end

--@ src/37_gcra_expiry.lua
do
local ceil = gcra_debt.ceil
local VALUE = 'gcra'

local part_of = numbers.remembered(function(value)
  local digits = value ~= VALUE and string.match(value, '^gcra%-(%d+)$')
  return value == VALUE and 0 or digits and numbers.parse_digits(digits)
end, {})
local text_of = numbers.remembered(function(part)
  return part == 0 and VALUE or string.format('gcra-%d', part)
end, {})

local function unmarked(value) return string.match(value, '^(gcra.*)%-debt$') end

function gcra_expiry.holds(value) return part_of(value) ~= nil or part_of(unmarked(value) or '') ~= nil end

local function debt_in(value, left, ticks)
  local part, debt = type(value) == 'string' and part_of(value), left * ticks
  if not part then return nil end
  return part < ticks and left > 0 and debt - part or debt
end

local function value_of(rate, debt)
  local ms = ceil(debt, rate.ticks)
  return text_of(ms * rate.ticks - debt), ms
end

local function time_left(key, now)
  local expiry = redis.call('PEXPIRETIME', key)
  return expiry < 0 and expiry or expiry > now and expiry - now or 0
end

local function probe(key, limit, _, now)
  local rate, left = limit.rate, now and time_left(key, now) or redis.call('PTTL', key)
  if left == -2 then return rate.capacity, 0 end
  local value, ticks = redis.pcall('GETRANGE', key, '0', '127'), rate.ticks
  local debt = value == VALUE and left * ticks or debt_in(value, left, ticks)
  if left == 0 then value = nil end
  if not debt then return nil, value, left end
  local interval, room = rate.interval, rate.full - debt
  if room < 0 or debt < 0 then return nil end
  return (room - room % interval) / interval, debt, value, left
end

local function commit(key, limit, units, debt, value, left, now)
  local rate = limit.rate
  local ms, text = debt + units * rate.interval, VALUE
  if rate.ticks > 1 then text, ms = value_of(rate, ms) end
  if not key then
    return ms, limit.delays and ceil(debt, rate.ticks) or 0
  elseif CLOCK_STANDS and text == value then
    redis.call('PEXPIRE', key, ms)
  elseif CLOCK_STANDS or not value then
    redis.call('PSETEX', key, numbers.argument(ms), text)
  else
    local expiry = string.format('%d', ms + (now or redis.call('PEXPIRETIME', key) - left))
    if text == value then
      redis.call('PEXPIREAT', key, expiry)
    else
      redis.call('SET', key, text, 'PXAT', expiry)
    end
  end
  return ms, limit.delays and ceil(debt, rate.ticks) or 0
end

local function waits(limit, cost, debt)
  local rate = limit.rate
  local ticks, wait = rate.ticks, 0
  if cost then wait = cost > rate.capacity and -1 or ceil(debt + cost * rate.interval - rate.full, ticks) end
  return ceil(debt, ticks), wait
end

local function fill_in(at, rate, debt, value, cost, now, forced)
  local state = states.new(at, rate)
  if not gcra_debt.set(state, debt, cost, forced) then value = nil end
  state.value, state.now = value, now
end

local function load_empty(limit, at) fill_in(at, limit.rate, 0, nil, 1) end

local function load_found(key, limit, at, cost, found)
  local ticks, value, left = limit.rate.ticks, found.value or redis.call('GETRANGE', key, found.from, found.from + 31), found.left
  local now = found.from == 0 and clock.ms() or nil
  if now then left = time_left(key, now) end
  local debt, forced = debt_in(value, left, ticks), false
  local kept = debt and now and left > 0 and value or nil
  if not debt then
    debt, forced = debt_in(unmarked(value), left, ticks), true
  end
  if not debt then
    debt, forced = gcra_value.left(key, found.from)
    debt = debt * ticks
  end
  fill_in(at, limit.rate, debt, kept, cost, now, forced)
end

local function save(limit, at)
  local state = states.list[at]
  local text, ms = value_of(limit.rate, state.debt)
  if ms == 0 then return { '' }, 0 end
  return { text, gcra_debt.marked(state) and gcra_debt.MARK or nil }, clock.ms() + ms
end

local function write(key, limit, at)
  local state = states.list[at]
  if state.debt == 0 then
    redis.call('DEL', key)
  elseif gcra_debt.marked(state) then
    states.put_parts(key, save(limit, at))
  else
    commit(key, limit, 0, state.debt, state.value, nil, state.now)
  end
end

local form = { load = states.load_other, load_empty = load_empty, load_found = load_found, write = write, save = save }
gcra_expiry.form = form

function gcra_expiry.behind(limit, state, left)
  local rate = limit.rate
  local debt = state == '' and 0 or debt_in(state, left > 0 and left or 0, rate.ticks)
  if not debt or debt > rate.full then return nil end
  local room = rate.full - debt
  return (room - room % rate.interval) / rate.interval, debt
end

function gcra_expiry.commit_behind(key, limit, units, debt, least, before, after)
  local rate = limit.rate
  local state, ms = value_of(rate, debt + units * rate.interval)
  local expiry = clock.ms() + ms
  states.put(key, string.format('%s%d%s%s', before, expiry, after, state), least > expiry and least or expiry)
  return ms, limit.delays and ceil(debt, rate.ticks) or 0
end

function gcra_expiry.complete(limit)
  limit.form, limit.probe, limit.commit, limit.waits, limit.gives_back, limit.delays = form, probe, commit, waits, true, limit.algorithm.delays
end
end

--@ src/38_gcra_value.lua
do
local TIME = '%d%d%d%d%d%d%d%d%d%d%d%d%d%d%d%d'
local TEXT = '^(' .. TIME .. ')(%+?)(%d*)(.*)$'
local MARK = gcra_debt.MARK

gcra_value.SHAPE = '^' .. TIME .. '%+?%d*%-?d?e?b?t?$'

function gcra_value.read(state, text, now, cost)
  local debt, ticks, mark = 0, state.rate.ticks, ''
  if text ~= '' then
    local us, plus, part
    us, plus, part, mark = string.match(text, TEXT)
    if not us or (plus == '') ~= (part == '') or mark ~= '' and mark ~= MARK then return false end
    if us - now >= 0 then debt = (us - now) * ticks + (part ~= '' and math.min(ticks, numbers.parse_digits(part) or ticks) or 0) end
  end
  state.now = now
  gcra_debt.set(state, debt, cost, mark ~= '')
  return true
end

function gcra_value.save(state)
  local ticks = state.rate.ticks
  local part = state.debt % ticks
  local us, mark = state.now + (state.debt - part) / ticks, gcra_debt.marked(state) and MARK or ''
  if part > 0 then return string.format('%d+%d', us, part) .. mark, clock.ceil_ms(us + 1) end
  return string.format('%d', us) .. mark, clock.ceil_ms(us)
end

function gcra_value.convert(value, expiry)
  return string.format('%d', expiry * 1000) .. (string.match(value, '%-debt$') or '')
end

function gcra_value.left(key, from)
  local text = packed.first_text(key, from, 'gcra:')
  local us, plus, _, mark = string.match(text, TEXT)
  if not us then return 0, false end
  return math.max(0, clock.ceil_ms(us + (plus == '' and 0 or 1)) - clock.ms()), mark == MARK
end

local tats_of = {}

local function probe(key, limit, _, _, number)
  local value = redis.pcall('GETRANGE', key, '0', '511')
  local held = value ~= ''
  if held and (type(value) ~= 'string' or not string.find(value, limit.shape)) then return nil, value end
  local now, rates, at, tats = clock.us(), limit.rates, limit.first, tats_of[number or 1]
  if not tats then
    tats = {}
    tats_of[number or 1] = tats
  end
  local least, binding = numbers.MOST, 1
  for i = 1, limit.size do
    local rate, tat = rates[i], now
    if held then
      tat = string.sub(value, at, at + 15) + 0
      at = at + 19 -- 16 digits, then "16:" before the next time
      if tat < now then tat = now end
    end
    tats[i] = tat
    local interval, room = rate.interval, rate.full - tat + now
    if room < 0 then return nil end
    local free = (room - room % interval) / interval
    if free < least then least, binding = free, i end
  end
  return least, tats, binding
end

local function commit(key, limit, units, tats, binding)
  local rates, size, last = limit.rates, limit.size, 0
  for i = 1, size do
    local tat = tats[i] + units * rates[i].interval
    tats[i] = tat
    if tat > last then last = tat end
  end
  if key then states.put(key, string.format(limit.format, unpack(tats, 1, size)), clock.ceil_ms(last)) end
  return clock.ceil_ms(last - clock.us()), 0, rates[binding].capacity
end

local function waits(limit, cost, tats, binding)
  local now, rates, last, wait, first = clock.us(), limit.rates, 0, 0, nil
  for i = 1, limit.size do
    local rate, tat = rates[i], tats[i]
    if tat > last then last = tat end
    local over = cost and tat + cost * rate.interval - now - rate.full or 0
    if over > 0 then
      first = first or i
      if cost > rate.capacity then wait = -1 end
      if wait >= 0 and over > wait then wait = over end
    end
  end
  return clock.ceil_ms(last - now), wait < 0 and -1 or clock.ceil_ms(wait), rates[first or binding].capacity
end

function gcra_value.complete(limit)
  for _, rate in ipairs(limit.rates) do
    if rate.ticks > 1 or limit.algorithm.delays then return nil end
  end
  limit.probe, limit.commit, limit.waits, limit.gives_back = probe, commit, waits, limit.rate ~= nil
  limit.shape, limit.format, limit.first = '^gcra:' .. TIME .. '$', 'gcra:%d', 6
  if not limit.rate then
    limit.shape = '^gcra::' .. string.rep('16:' .. TIME, limit.size) .. '$'
    limit.format, limit.first = 'gcra::' .. string.rep('16:%d', limit.size), 10
  end
end
end

--@ src/40_policies.lua
do
local POLICIES = {}

function policies.find(text)
  local policy = POLICIES[string.sub(text, 2)]
  if policy then return policy end
  return nil, errors.new('NOPOLICY', '%s: no such policy in build %s; ratelimit_info lists the policies',
    errors.quote(text), BUILD_ID)
end

local sorted

function policies.names()
  sorted = sorted or sorted_keys(POLICIES)
  return sorted
end

local share_of = numbers.remembered(function(text) return tonumber(string.sub(redis.sha1hex(text), 1, 8), 16) % 1000 end, {})

function policies.in_canary(canary, name, key)
  return share_of(name .. ':' .. key) < canary.share
end

function policies.side(policy, key)
  local canary = policy.canary
  return canary and policies.in_canary(canary, policy.name, key) and canary or policy
end

function policies.lease(text, key)
  local policy, err = policies.find(text)
  if not policy then
    return nil, err
  elseif #policy > 1 then
    return nil, errors.new('BADLIMIT', '%s: a policy of %d limits; a lease takes one', errors.quote(text), #policy)
  end
  local canary = policy.canary
  if not canary or not policies.in_canary(canary, string.sub(text, 2), key) then return policy end
  canary.classes = policy.classes
  return canary
end

function policies.count(calls, allowed) calls[allowed] = calls[allowed] + 1 end

function policies.calls(side, class)
  if not class or class == 'default' or type(side.classes) ~= 'table' then
    side.calls = side.calls or { [0] = 0, 0 }
    return side.calls
  end
  side.by = side.by or {}
  side.by[class] = side.by[class] or { [0] = 0, 0 }
  return side.by[class]
end

function policies.class(limit, name)
  local classes = limit.classes
  if type(classes) == 'table' then
    if classes[name] then return classes[name] end
    return nil, errors.new('BADARGS', '%s: no such class of @%s; its classes are %s', errors.quote(name), limit.name, table.concat(sorted_keys(classes), ', '))
  elseif classes then
    return 0
  elseif limit.name then
    return nil, errors.new('BADARGS', '%s: @%s has no classes; give it some, or classes: any', errors.quote(name), limit.name)
  end
  return nil, errors.new('BADARGS', '%s: only policies have classes; with a limit, give FLOOR and a percentage', errors.quote(name))
end

local NO_CALLS = { [0] = 0, 0 }

local function total(side)
  local calls = side.calls or NO_CALLS
  local allowed, denied = calls[1], calls[0]
  for _, more in pairs(side.by or {}) do
    allowed, denied = allowed + more[1], denied + more[0]
  end
  return allowed, denied
end

local function of_class(side, class)
  return class == 'default' and side.calls or class ~= 'default' and side.by and side.by[class] or NO_CALLS
end

function policies.counts(names)
  local list, shadows, by_class, borrows = {}, {}, {}, {}
  for i, name in ipairs(names) do
    local policy = POLICIES[name]
    local canary, allowed, denied = policy.canary, total(policy)
    local entry, shadow_denied = { name, allowed, denied }, policy.shadow and denied
    if canary then
      entry[4], entry[5], entry[6] = canary.share, total(canary)
      if canary.shadow then shadow_denied = (shadow_denied or 0) + entry[6] end
    end
    list[i] = entry
    if policy.borrow then
      local borrowed = (policy.calls and policy.calls.borrowed or 0) + (canary and canary.calls and canary.calls.borrowed or 0)
      borrows[#borrows + 1] = { name, allowed + (entry[5] or 0) - borrowed, borrowed, denied + (entry[6] or 0) }
    end
    for _, class in ipairs(type(policy.classes) == 'table' and sorted_keys(policy.classes) or {}) do
      local calls, other = of_class(policy, class), of_class(canary or {}, class)
      by_class[#by_class + 1] = { name, class, calls[1] + other[1], calls[0] + other[0] }
    end
    if shadow_denied then
      shadows[#shadows + 1] = name
      shadows[#shadows + 1] = shadow_denied
    end
  end
  return list, shadows, by_class, borrows
end
end

--@ src/42_calendar.lua
do
local DAY = 86400000
local THURSDAY = 3 -- the epoch's day of the week, in days after Monday
local MOST_ZONE = 18 * 60

local EPOCH = 719468
local JANUARY = 10
local MONTHS = { mo = 1, y = 12 }

calendar.LONGEST = { w = 7 * DAY, mo = 31 * DAY, y = 366 * DAY }

function calendar.zone(text)
  local sign, hours, minutes = string.match(text, '^([+-])(%d%d):([0-5]%d)$')
  local offset = sign and tonumber(hours) * 60 + tonumber(minutes)
  if not offset or offset > MOST_ZONE then
    return nil, 'an offset from -18:00 to +18:00, such as +05:30; a zone with summer time would need a table of its changes on '
      .. 'every server, so write one offset for the whole year'
  end
  return (sign == '-' and -offset or offset) * 60000
end

function calendar.from(text)
  local day = numbers.parse_positive(text)
  return day and day <= 31 and day or nil, 'a day of the month from 1 to 31'
end

function calendar.complete(rate)
  local unit = rate.unit
  if unit and not rate.align then
    return string.format('the period %s ends with the calendar; add align=clock', unit)
  elseif rate.zone and not (rate.align and rate.period % DAY == 0) then
    return 'zone is only for align=clock with a period of whole days, w, mo or y'
  elseif rate.from and unit ~= 'mo' then
    return 'from is only for the period mo'
  elseif unit or rate.zone then
    rate.shift = (rate.zone or 0) + (unit == 'w' and THURSDAY * DAY or 0)
    rate.months = MONTHS[unit]
  end
  return nil
end

local function first_day(month)
  local year = math.floor(month / 12)
  local leap_days = math.floor(year / 4) - math.floor(year / 100) + math.floor(year / 400)
  return 365 * year + leap_days + math.floor((153 * (month % 12) + 2) / 5) - EPOCH
end

function calendar.left(rate, now)
  local here, step, from = now + (rate.shift or 0), rate.months, rate.from or 1
  if not step then return rate.period - here % rate.period end
  local month = math.floor((here / DAY + EPOCH) * 4800 / 146097) - 2
  month = month - (month - JANUARY) % step
  local begins
  repeat
    month = month + step
    begins = math.min(first_day(month) + from, first_day(month + 1)) - 1
  until begins * DAY > here
  return begins * DAY - here
end
end

--@ src/45_limits.lua
do
local UNITS = { ms = 1, s = 1000, m = 60000, h = 3600000, d = 86400000 }
local LONGEST_TEXT = 1024
local MOST_RATES = 16
local LONGEST_PERIOD = 32
local LONGEST = 36500 * UNITS.d

limits.LONGEST = LONGEST

function limits.unprobed() return nil end

local function refuse(text, what, ...)
  return nil, errors.new('BADLIMIT', '%s: %s', errors.quote(text), string.format(what, ...))
end

local function names(of) return next(of) and table.concat(sorted_keys(of), ', ') or 'none' end

local FROM_LARGEST = { 'd', 'h', 'm', 's', 'ms' }

local function in_one_unit(text)
  local ms = 0
  local rest = string.gsub(text, '(%d+)(%a+)', function(k, unit)
    ms = ms + k * (UNITS[unit] or math.huge)
    return ''
  end)
  if rest ~= '' or ms == 0 or ms > LONGEST then return nil end
  for _, unit in ipairs(FROM_LARGEST) do
    if ms % UNITS[unit] == 0 then return string.format('%d%s', ms / UNITS[unit], unit) end
  end
end

function limits.period(text, with_calendar)
  local k, unit = '', text
  if #text <= LONGEST_PERIOD then k, unit = string.match(text, '^(.-)(%a*)$') end
  local longest = calendar.LONGEST[unit]
  if not (UNITS[unit] or longest and with_calendar) then
    local others = with_calendar and ', w, mo, y' or longest and '; only fixed_window with align=clock has w, mo and y' or ''
    return nil, string.format('the unit of the period %s is none of ms, s, m, h, d%s', errors.quote(text), others)
  end
  local factor = k == '' and 1 or numbers.parse_positive(k)
  if longest and factor == 1 then
    return longest, nil, unit
  elseif longest then
    return nil, string.format('the period %s is not one week, month or year; write w, mo or y', errors.quote(text))
  elseif not factor then
    local other = in_one_unit(text)
    if other then return nil, string.format('the period %s has more than one unit; write %s', errors.quote(text), other) end
    return nil, string.format('the period %s does not begin with ' .. numbers.WHOLE, errors.quote(text), '1')
  end
  if factor * UNITS[unit] > LONGEST then
    return nil, string.format('the period %s is longer than 36500d', errors.quote(text))
  end
  return factor * UNITS[unit]
end

local function not_an_option(word, algorithm)
  if algorithm.options[word] then
    return string.format('the option %s has no value; write %s=..., without blanks', errors.quote(word), word)
  elseif string.find(word, '/', 1, true) then
    return string.format('%s is a second rate without a comma before it', errors.quote(word))
  end
  return string.format('%s is not an option of %s (its options: %s)', errors.quote(word), algorithm.name,
    names(algorithm.options))
end

local function exceeds(a, b, c, d)
  local left, right = math.fmod(a, b), math.fmod(c, d)
  local whole, other = (a - left) / b, (c - right) / d
  if whole ~= other then return whole > other end
  return left > 0 and (right == 0 or exceeds(d, right, b, left))
end

local function parse_rate(text, algorithm)
  local head, rest = string.match(text, '^%s*(%S+)(.*)$')
  local count, period = string.match(head or '', '^([^/]*)/(.*)$')
  if algorithms[head] and #rest > 0 then
    return nil, string.format('the algorithm is named again before %s; name it once, in front', errors.quote(rest))
  elseif not count then
    return nil, 'no rate such as 100/m or 5/10s; the keys come first, and a limit with blanks is one argument'
  end
  local rate = { algorithm = algorithm, count = numbers.parse(count) }
  if not rate.count then
    return nil, string.format('the count %s is not ' .. numbers.WHOLE, errors.quote(count), '0')
  end
  local wrong
  rate.period, wrong, rate.unit = limits.period(period, algorithm.complete_rate == calendar.complete)
  if wrong then return nil, wrong end
  for word in string.gmatch(rest, '%S+') do
    local name, value = string.match(word, '^([%a_]+)=(.*)$')
    local read = name and algorithm.options[name]
    if not read then
      return nil, not_an_option(word, algorithm)
    elseif rate[name] ~= nil then
      return nil, string.format('the option %s is given twice', errors.quote(name))
    end
    rate[name], wrong = read(value)
    if rate[name] == nil then
      return nil, string.format('%s=%s is not %s', name, errors.quote(value), wrong)
    end
  end
  if rate.count == 0 then return never.rate(rate, rest) end
  rate.capacity, rate.burst = rate.burst or rate.count, nil
  wrong = algorithm.complete_rate and algorithm.complete_rate(rate)
  if wrong then
    return nil, wrong
  elseif exceeds(rate.capacity, rate.count, LONGEST, rate.period) then
    return nil, 'it takes longer than 36500d to refill; use a smaller burst or a faster rate'
  end
  return rate
end

local function parse_rates(text, algorithm)
  local limit = { algorithm = algorithm, rates = {}, asks = 0, plain = true, probe = limits.unprobed, form = packed.form }
  local most = algorithm.most
  for part in string.gmatch(text .. ',', '([^,]*),') do
    local rate, wrong = parse_rate(part, algorithm)
    if not rate then return nil, wrong end
    limit.rates[#limit.rates + 1] = rate
    limit.capacity = math.min(limit.capacity or rate.capacity, rate.capacity)
    limit.asks = limit.asks + (most and rate[most.field] or 0)
  end
  if #limit.rates > MOST_RATES then
    return nil, string.format('%d rates; a limit has at most %d', #limit.rates, MOST_RATES)
  end
  if most and limit.asks > most.sum then
    return nil, string.format('%d %s; a limit takes at most %d%s', limit.asks, most.what, most.sum, most.advice)
  end
  limit.size = #limit.rates
  if limit.size == 1 then
    limit.rate = limit.rates[1]
    limit.form = algorithm.form or limit.form
    limit.probe, limit.commit, limit.waits = algorithm.probe or limit.probe, algorithm.commit, algorithm.waits
    limit.gives_back = algorithm.gives_back
  end
  local complete = limit.capacity == 0 and never.complete or algorithm.complete
  local wrong = complete and complete(limit)
  if wrong then return nil, wrong end
  return limit
end

function limits.checked(text, read)
  if #text > LONGEST_TEXT then return refuse(text, 'a limit has at most %d bytes', LONGEST_TEXT) end
  local limit, wrong = read(text)
  if type(wrong) == 'string' then return refuse(text, '%s', wrong) end
  return limit, wrong
end

local function parse_limit(text)
  local word, rates = string.match(text, '^%s*([%a_][%w_]*)%s+(.*)$')
  local algorithm = algorithms[word or 'gcra']
  if not algorithm then
    return nil, string.format('unknown algorithm %s; there are %s', errors.quote(word), names(algorithms))
  elseif algorithm.refusal then
    return nil, algorithm.refusal
  end
  return parse_rates(rates or text, algorithm)
end

local function parse_side(name, side, policy)
  local classes = policy.classes
  side.classes = classes
  local calls, floor = policies.calls(side), type(classes) == 'table' and classes.default or nil
  local whole = {
    name = name, limits = {}, calls = calls, keys = policy.keys, shadow = side.shadow, track = policy.track, share = side.share,
    borrow = side.borrow or policy.borrow, size = 0, asks = 0,
  }
  for i, part in ipairs(side) do
    local limit, err = limits.checked(part, parse_limit)
    if err then return nil, err end
    whole.limits[i], whole.size, whole.asks = limit, whole.size + limit.size, whole.asks + limit.asks
    limit.name, limit.side, limit.classes, limit.floor = name, side, classes, floor
    if floor then limit.plain = nil end
  end
  local first = whole.limits[1]
  first.calls, first.span = calls, #side
  if not (side[2] or side.shadow or policy.track or floor and not first.rate) then whole.alone = first end
  return whole
end

local function parse_policy(text)
  local policy, missing = policies.find(text)
  if not policy then return nil, missing end
  local name, canary = string.sub(text, 2), policy.canary
  local whole, err = parse_side(name, policy, policy)
  if whole and canary then whole.canary, err = parse_side(name, canary, policy) end
  if err then return nil, err end
  return not canary and whole.alone or whole
end

local function parse(text) return (string.sub(text, 1, 1) == '@' and parse_policy or parse_limit)(text) end

function limits.read(text) return limits.checked(text, parse) end

limits.of = numbers.remembered(limits.read, limits, true)
end

--@ src/46_never.lua
do
local function nothing() end

local function zero() return 0 end

local algorithm = { charge = nothing, refund = nothing, reset = zero, spare = zero }

local HEAD = '127'

local function read(key) return redis.pcall('GETRANGE', key, '0', HEAD) end

local function may_override(head) return type(head) == 'string' and string.find(head, overrides.PREFIX) end

local form = {
  load = function(key, limit, at, cost, head)
    states.new(at, limit.rate).free = 0
    head = head or read(key)
    local found = may_override(head) and states.look(key, head)
    return found and overrides.active(found) and states.load_other(key, limit, at, cost, head)
  end,
  write = nothing,
}

local function probe(key)
  local head = read(key)
  if may_override(head) then return nil, head end
  return 0
end

local function waits(_, cost) return 0, cost and -1 or 0 end

function never.rate(rate, rest)
  if rate.unit or string.find(rest, '%S') then
    return nil, 'the count 0 never allows; it takes no option, and a period in ms, s, m, h or d'
  end
  rate.algorithm, rate.capacity = algorithm, 0
  return rate
end

function never.complete(limit)
  if limit.size > 1 then return 'the count 0 never allows; it takes no other rate' end
  limit.form, limit.probe, limit.waits = form, probe, waits
  return nil
end
end

--@ src/50_requests.lua
do
local OPTIONS = {
  COST = 'COST', UPTO = 'UPTO', FORCE = 'FORCE', ONCE = 'ONCE', TRACK = 'TRACK', EACH = 'EACH', FLOOR = 'FLOOR', CLASS = 'CLASS',
  BORROW = 'BORROW', PAID = 'PAID', GROW = 'GROW',
  cost = 'COST', upto = 'UPTO', force = 'FORCE', once = 'ONCE', track = 'TRACK', each = 'EACH', floor = 'FLOOR', class = 'CLASS',
  borrow = 'BORROW', paid = 'PAID', grow = 'GROW',
}
local MOST_LIMITS, MOST_RATES_IN_CALL = 50, 250
local LONGEST_KEY, LONGEST_CLASS = 65536, 64
requests.LONGEST_KEY = LONGEST_KEY
local FEW = 3000 -- the lowest bound of an algorithm: if the limits' fields asks add up to at most this, none is exceeded
requests.FEW = FEW

local request
local limits_of_call, costs_of_call = {}, {}

local function join(policy, count)
  local size, group = #policy.limits, nil
  request.composed, request.track = request.composed or {}, request.track or policy.track
  request.composed[#request.composed + 1] = policy
  if policy.shadow then
    group = { denies = false }
    request.groups, request.group_of, request.shadows = request.groups or {}, request.group_of or {}, (request.shadows or 0) + size
    request.groups[#request.groups + 1] = group
  end
  for i, limit in ipairs(policy.limits) do
    request.limits[count + i], request.costs[count + i] = limit, 1
    if group then request.group_of[count + i] = group end
  end
  return count + size
end

local function excess()
  local sums = {}
  for i = 1, request.count do
    local limit = request.limits[i]
    local most = limit.algorithm.most
    if most then
      sums[most] = (sums[most] or 0) + limit.asks
      if sums[most] > most.sum then
        return errors.new('BADARGS', '%d %s; one call takes at most %d%s', sums[most], most.what, most.sum, most.advice)
      end
    end
  end
  return nil
end

local function read_limits(keys, args)
  local known, list, costs = limits.known, request.limits, request.costs
  local at, count, rates, asked, text = 1, 0, 0, 0, args[1]
  while text and not OPTIONS[text] do
    local limit, err = known[text]
    if not limit then limit, err = limits.of(text) end
    if err then return nil, err end
    if limit.calls then
      request.counted = true
      limit = policies.side(limit, keys[count + 1] or '')
    end
    if limit.limits then
      count = join(limit, count)
    else
      count = count + 1
      list[count], costs[count] = limit, 1
    end
    rates, asked, at = rates + limit.size, asked + limit.asks, at + 1
    if count > MOST_LIMITS then
      return nil, errors.new('BADARGS', '%d limits; one call takes at most %d', count, MOST_LIMITS)
    elseif rates > MOST_RATES_IN_CALL then
      return nil, errors.new('BADARGS', '%d rates; one call takes at most %d', rates, MOST_RATES_IN_CALL)
    end
    text = args[at]
  end
  request.count = count
  if count == 0 then
    return nil, errors.new('BADARGS', 'no limit after the keys; give one such as 100/m for each key')
  end
  return at, asked > FEW and excess() or nil
end

local function misnumbered(costs)
  return errors.new('BADARGS', 'the number of costs is %d and the number of limits %d; give one cost for all, or one for each',
    costs, request.count)
end

local function read_costs(args, at)
  local given, costs = 0, request.costs
  while args[at + given] and not OPTIONS[args[at + given]] do
    given = given + 1
  end
  if given > MOST_LIMITS then return nil, misnumbered(given) end
  for i = 1, given do
    local text = args[at + i - 1]
    costs[i] = numbers.parse(text)
    if not costs[i] then
      return nil, errors.new('BADCOST', '%s: a cost is ' .. numbers.WHOLE, errors.quote(text), '0')
    end
  end
  return given
end

local function read_options(keys, args, at, allowed)
  local used = request.count
  while at <= #args do
    local word, err = OPTIONS[args[at]]
    if not word or not allowed[word] then
      return nil, errors.new('BADARGS', '%s: not an option here', errors.quote(args[at]))
    elseif request[word] then
      return nil, errors.new('BADARGS', '%s is given twice', word)
    end
    at = at + 1
    if word == 'COST' then
      request.COST, err = read_costs(args, at)
      if err then return nil, err end
      at = at + request.COST
    elseif word == 'ONCE' or word == 'TRACK' then
      used = used + 1
      request[word] = keys[used] or ''
    elseif word == 'FLOOR' or word == 'CLASS' then
      request[word], err = (word == 'FLOOR' and requests.percent or requests.class)(args[at])
      if err then return nil, err end
      at = at + 1
    elseif word == 'BORROW' then
      request.BORROW = 0
      if args[at] and not OPTIONS[args[at]] then
        request.BORROW, err = requests.percent(args[at], word)
        if err then return nil, err end
        at = at + 1
      end
    elseif word == 'PAID' then
      request.PAID = args[at] == '1' and 1 or args[at] == '2' and 2 or nil
      if not request.PAID then
        return nil, errors.new('BADARGS', '%s: PAID is followed by 1 or 2, the index of the take', errors.quote(args[at] or ''))
      end
      at = at + 1
    else
      request[word] = 1
    end
    if word == 'ONCE' then
      request.ttl = numbers.parse_positive(args[at] or '')
      if not request.ttl or request.ttl > limits.LONGEST then
        return nil, errors.new('BADARGS', '%s: ONCE is followed by the ms for which it holds, a whole number from 1 to %d',
          errors.quote(args[at] or ''), limits.LONGEST)
      end
      at = at + 1
    end
  end
  if request.UPTO and request.FORCE then
    return nil, errors.new('BADARGS', 'UPTO and FORCE are both given; UPTO takes what fits, FORCE also what does not: give one')
  elseif request.FLOOR and request.CLASS then
    return nil, errors.new('BADARGS', 'FLOOR and CLASS are both given; a class stands for a percentage: give one')
  elseif request.FORCE and (request.FLOOR or request.CLASS) then
    return nil, errors.new('BADARGS', '%s and FORCE are both given; FORCE keeps nothing free: give one', request.FLOOR and 'FLOOR' or 'CLASS')
  end
  if request.track and allowed.TRACK and not request.TRACK then
    if request.ONCE then return nil, errors.new('BADARGS', 'ONCE is given for a policy with track; give TRACK, too, so that the order of the keys is clear') end
    used = used + 1
    request.TRACK = keys[used] or ''
  end
  return used
end

function requests.percent(text, word)
  local percent = numbers.parse(text or '')
  if percent and percent <= 100 then return percent end
  return nil, errors.new('BADARGS', '%s: %s is followed by a whole percentage from 0 to 100', errors.quote(text or ''), word or 'FLOOR')
end

function requests.class(text)
  if text and #text > 0 and #text <= LONGEST_CLASS then return text end
  return nil, errors.new('BADARGS', '%s: CLASS is followed by a name of 1 to %d bytes', errors.quote(text or ''), LONGEST_CLASS)
end

local function borrowed(refunds)
  local composed, percent, what = request.composed or {}, request.BORROW, nil
  for _, other in ipairs(composed) do
    if other.borrow then
      what = '@' .. other.name
      percent = other.borrow
    end
  end
  if not percent then
    return request.PAID and errors.new('BADARGS', 'PAID is given without BORROW; it says who paid for a take with BORROW')
  elseif what and (request.BORROW or 0) > 0 then
    return errors.new('BADARGS', '%s and BORROW %d are both given; the policy has its own percentage: leave the number out', what, request.BORROW)
  elseif what and request.count ~= 2 then
    return errors.new('BADARGS', '%s and other limits are given; it has a guarantee and a pool, which decide by themselves', what)
  elseif not what and request.count ~= 2 then
    return errors.new('BADARGS', 'the number of limits is %d; BORROW takes two, a guarantee and a pool', request.count)
  end
  for i = 1, what and 0 or 2 do
    local limit = request.limits[i]
    if limit.name then
      return errors.new('BADARGS', '@%s and BORROW are both given; BORROW takes a guarantee and a pool: two limits, or one policy that has both', limit.name)
    elseif not limit.rate then
      return errors.new('BADARGS', 'limit %d has %d rates; a guarantee and a pool have one each', i, limit.size)
    end
  end
  for _, word in ipairs{ 'UPTO', 'FORCE', 'EACH', 'FLOOR', 'CLASS' } do
    if request[word] then
      return errors.new('BADARGS', '%s and %s are both given; a guarantee and a pool do not take it', word, what or 'BORROW')
    end
  end
  if request.COST and request.COST > 1 then
    return errors.new('BADARGS', 'the number of costs is %d; a guarantee and a pool are charged the same: give one', request.COST)
  elseif refunds and not request.PAID then
    return errors.new('BADARGS', 'PAID is missing; a refund says who paid, with the index of the take')
  end
  request.BORROW = percent
  return nil
end

local function floors()
  local percent, class = request.FLOOR or request.FORCE and 0, request.CLASS
  for i = 1, request.count do
    local limit, err = request.limits[i]
    local own = percent or limit.floor
    if class then
      own, err = policies.class(limit, class)
      if err then return err end
    end
    if own and own > 0 then
      request.floors = request.floors or {}
      request.floors[i] = own
    end
    if limit.calls and (class or percent) then
      request.calls_of = request.calls_of or {}
      request.calls_of[i] = policies.calls(limit.side, class or '')
    end
  end
  return nil
end

function requests.limit_costs(of)
  local group_of, percents, least = of.group_of, of.floors, {}
  for i = 1, of.count do
    local group, most = group_of and group_of[i] or 0, of.limits[i].capacity
    if percents and percents[i] then most = most - states.kept(most, percents[i]) end
    least[group] = math.min(least[group] or of.UPTO, most)
  end
  for i = 1, of.count do
    of.costs[i] = least[group_of and group_of[i] or 0]
  end
end

local function spread()
  local given, costs, upto = request.COST or 1, request.costs, request.UPTO
  if upto and given ~= 1 then
    return errors.new('BADARGS', 'the number of costs is %d; UPTO takes the same from every key: give it one', given)
  elseif given ~= 1 and given ~= request.count then
    return misnumbered(given)
  end
  for i = given + 1, request.count do
    costs[i] = costs[1]
  end
  if upto then
    request.UPTO = costs[1]
    requests.limit_costs(request)
  end
  return nil
end

function requests.too_long(keys)
  for i = 1, #keys do
    if #keys[i] > LONGEST_KEY then
      return errors.new('BADKEYS', '%s: a key has at most %d bytes', errors.quote(keys[i]), LONGEST_KEY)
    end
  end
  return nil
end

function requests.repeated(keys)
  for i = 2, #keys do
    for other = 1, i - 1 do
      if keys[other] == keys[i] then
        return errors.new('BADKEYS', '%s is given twice; name each key once', errors.quote(keys[i]))
      end
    end
  end
  return nil
end

local function misnamed(keys, used, allowed)
  local text = ''
  for _, policy in ipairs(request.composed or {}) do
    local wants = policy.keys and table.concat(policy.keys, ', ') or 'a key'
    text = text .. '; @' .. policy.name .. ' takes ' .. wants .. (allowed.TRACK and policy.track and ', and a usage key last' or '')
  end
  return errors.new('BADKEYS', 'the number of keys is %d and the number of limits %d; give each limit one key, in order%s%s',
    #keys, request.count, used > request.count and ', then one for ONCE and one for TRACK' or '', text)
end

local plain_request = { limits = limits_of_call, costs = costs_of_call }

function requests.plain(keys, args)
  local known, number, asked, counted = limits.known, #keys, 0, nil
  local each = args[number + 1] == 'EACH' and 1 or nil
  if number + (each or 0) ~= #args or number == 0 or number > MOST_LIMITS then return nil end
  for i = 1, number do
    local limit = known[args[i]]
    if not limit or not limit.rate or limit.floor then return nil end
    asked, counted = asked + limit.asks, counted or limit.calls
    limits_of_call[i], costs_of_call[i] = limit, 1
  end
  if asked > FEW or requests.too_long(keys) or requests.repeated(keys) then return nil end
  clock.now = nil
  plain_request.count, plain_request.counted, plain_request.EACH = number, counted, each
  return plain_request
end

function requests.read(keys, args, allowed)
  clock.now = nil
  if #keys == 0 then return nil, errors.new('BADKEYS', 'the number of keys is 0; give each limit one key') end
  request = { limits = limits_of_call, costs = costs_of_call, count = 0 }
  local at, used
  local err = requests.too_long(keys)
  if err then return nil, err end
  at, err = read_limits(keys, args)
  if err then return nil, err end
  used, err = read_options(keys, args, at, allowed)
  err = err or borrowed(allowed.PAID) or allowed.FLOOR and floors() or spread() or #keys ~= used and misnamed(keys, used, allowed) or requests.repeated(keys)
  if err then return nil, err end
  return request
end
end

--@ src/60_decisions.lua
do
local list = states.list

local reply = {}

local ENFORCED = {}

local rooms, first, second, third, kept = {}, {}, {}, {}, {}

local function load(key, request, i, at, cost, head, left)
  local limit, least, percent = request.limits[i], numbers.MOST, request.floors and request.floors[i]
  local override
  if percent then
    override = states.load_above(percent, key, limit, at, cost, head, left)
  else
    override = limit.form.load(key, limit, at, cost, head, left)
  end
  if override then
    if override.err then return nil, override end
    override.calls, override.span = limit.calls, limit.span -- the call still counts for the limit's policy
    request.limits[i], limit = override, override
  end
  for j = at, at + limit.size - 1 do
    local free = list[j].free
    if percent and free > 0 then free = math.max(0, free - states.kept(list[j].rate.capacity, percent)) end
    if free < least then least = free end
  end
  first[i], second[i] = list, at
  return limit, least, override
end

decisions.load = load

local function look(keys, request, verb, now, known, head, left)
  local named, costs, shadows, size, overridden = request.limits, request.costs, request.group_of, 0, false
  local takes, refunds, floors = verb == 'charge', verb == 'refund', request.floors
  ENFORCED.denies = false
  for i = 1, request.count do
    local limit, cost, free, a, b, c = named[i], costs[i], nil, head, left, nil
    local percent, fails = floors and floors[i], known and i == known + 1
    kept[i] = percent and states.kept(limit.capacity, percent) or 0
    if known and i <= known then
      free, a, b, c = rooms[i], first[i], second[i], third[i]
    elseif percent then
      if limit.rate and not fails then
        free, a, b, c = limit.probe(keys[i], limit, states.wanted(limit.capacity, cost, kept[i]), now, i)
        free = free and math.max(0, free - kept[i])
      end
    elseif not fails and (not refunds or limit.gives_back) then
      free, a, b, c = limit.probe(keys[i], limit, cost, now, i)
      if free and not takes and free <= (refunds and 0 or cost) then free, a, b = nil, nil, nil end
    end
    if free then
      first[i], second[i], third[i] = a, b, c
    else
      if size == 0 then states.begin() end
      local override
      limit, free, override = load(keys[i], request, i, size + 1, refunds and 1 or cost, a, b)
      if not limit then return nil, free end
      size, overridden = size + limit.size, overridden or override
    end
    rooms[i] = free
    if free < (takes and cost or 0) then (shadows and shadows[i] or ENFORCED).denies = true end
  end
  if overridden and request.UPTO and not request.looks_again then
    request.looks_again = true
    requests.limit_costs(request)
    return look(keys, request, verb, now)
  end
  return size
end

local function fit(request, group, most)
  local shadows, costs, fits = request.group_of, request.costs, most
  for i = 1, request.count do
    if (shadows and shadows[i] or ENFORCED) == group then fits = math.min(fits, costs[i], math.max(0, rooms[i])) end
  end
  for i = 1, request.count do
    if (shadows and shadows[i] or ENFORCED) == group then costs[i] = math.max(1, fits) end
  end
  group.denies = fits == 0
  return fits
end

local function decide_groups(request, verb)
  local units = request.UPTO
  if units and units > 0 then units = fit(request, ENFORCED, units) end
  ENFORCED.charged = not ENFORCED.denies
  for _, group in ipairs(request.groups or {}) do
    if units and request.UPTO > 0 then fit(request, group, math.max(1, units)) end
    group.charged = not group.denies and (ENFORCED.charged or verb == 'refund')
  end
end

local function force(state, units)
  local algorithm = state.rate.algorithm
  local err = algorithm.charge(state, math.min(units, algorithm.spare(state)))
  state.free, state.ends_in = math.max(0, state.free), 0
  return err
end

local function charge(request, verb)
  local costs, shadows = request.costs, request.group_of
  for i = 1, request.count do
    local units, at = costs[i], second[i]
    if first[i] == list and units > 0 and (shadows and shadows[i] or ENFORCED).charged then
      for j = at, at + request.limits[i].size - 1 do
        local state = list[j]
        local err = (verb == 'force' and force or state.rate.algorithm[verb])(state, units)
        if err then return err end
      end
    end
  end
  return nil
end

local function restore(keys, request)
  local replaced, named, shadows = {}, request.limits, request.group_of
  for i = 1, request.count do
    local at = first[i] == list and not (shadows and shadows[i] or ENFORCED).charged and second[i]
    for j = at or 1, at and at + named[i].size - 1 or 0 do
      if list[j].room then replaced[j] = i end
    end
  end
  states.begin()
  local restored = {}
  for _, i in pairs(replaced) do
    if not restored[i] then states.load_above(request.floors and request.floors[i] or 0, keys[i], named[i], second[i], 1) end
    restored[i] = true
  end
  for j in pairs(replaced) do
    list[j].room, states.any_room = true, true
  end
end

local function sought(capacity, cost, above) return above > 0 and cost > capacity - above and math.huge or cost + above end
decisions.sought = sought

local function wait(state, cost)
  local rate = state.rate
  if cost > rate.capacity then return -1 end
  return state.ends_in > 0 and state.ends_in or rate.algorithm.wait(state, cost)
end

local function longer(a, b) return (a < 0 or b < 0) and -1 or a > b and a or b end

decisions.wait, decisions.longer = wait, longer

local function sum_up(at, size, cost, charged, forced, percent)
  local binding, denies, least, retry, longest = nil, false, numbers.MOST, 0, 0
  for j = at, at + size - 1 do
    local state = list[j]
    local free, reset, ms, above = state.free, state.reset, 0, percent and states.kept(state.rate.capacity, percent) or 0
    if above > 0 and free > 0 then free = math.max(0, free - above) end
    if cost > free and not charged and not (state.room and cost <= state.rate.capacity - above) then
      ms, reset = wait(state, sought(state.rate.capacity, cost, above)), state.ends_in > 0 and state.ends_in
      if not denies then binding, denies, retry = state, true, 0 end
    elseif not denies then
      if free < least or not binding then binding = state end
      if forced and free == 0 then
        ms = wait(state, 1)
      elseif not forced then
        ms = state.delay
      end
    end
    reset = reset or state.rate.algorithm.reset(state)
    if reset > longest then longest = reset end
    if ms ~= 0 then retry = longer(retry, ms) end
    if free < least then least = free > 0 and free or 0 end
  end
  return longest, retry, binding.rate.capacity, least, denies
end

local would_be = {}

local function add(i, retry, left, denies)
  local whole = would_be
  if denies then
    if whole[1] == 1 then whole[1], whole[4], whole[6] = 0, 0, i end
  elseif whole[1] == 0 then
    retry = 0
  elseif left < whole[3] or i == 1 then
    whole[6] = i
  end
  if left < whole[3] then whole[3] = left end
  whole[4] = longer(whole[4], retry)
end

local results = {}
local reply_each = { [7] = results }

local function note(i, allowed, capacity, free, retry, reset, charged)
  local entry = results[i]
  if not entry then
    entry = {}
    results[i] = entry
  end
  entry[1], entry[2], entry[3], entry[4], entry[5], entry[6] = allowed, capacity, free, retry, reset, charged
end

local denials = {}

local function count(request)
  for i = 1, request.count do
    local limit, group = request.limits[i], request.group_of and request.group_of[i]
    local calls, allowed = request.calls_of and request.calls_of[i] or limit.calls, nil
    if calls and ENFORCED.charged then
      allowed = group and group.denies and 0 or 1
    elseif calls and not group then
      for j = i, i + limit.span - 1 do
        if denials[j] then allowed = 0 end
      end
    end
    if allowed then policies.count(calls, allowed) end
  end
end

local decide

local function as_enforced(keys, request)
  local groups, group_of, wants_each = request.groups, request.group_of, request.EACH
  request.groups, request.group_of, request.EACH = nil, nil, nil
  requests.limit_costs(request)
  local whole = decide(keys, request, 'charge', true)
  request.groups, request.group_of, request.EACH = groups, group_of, wants_each
  requests.limit_costs(request)
  return whole
end

function decide(keys, request, verb, peeks, known, head, left)
  local groups, upto, each, counted, number = request.groups, request.UPTO, request.EACH, request.counted, request.count
  local would = groups and upto and as_enforced(keys, request)
  if would and would.err then return would end
  local takes, forced, refunds, now = verb == 'charge', verb == 'force', verb == 'refund', number > 1 and not CLOCK_STANDS and clock.ms() or nil
  local size, err = look(keys, request, verb, now, known, head, left)
  if err then return err end
  ENFORCED.charged = not ENFORCED.denies
  if groups or upto then decide_groups(request, verb) end
  if size > 0 then
    err = charge(request, verb)
    if err then return err end
    if states.any_room then restore(keys, request) end
  end
  local named, costs, shadows, enforced, changes, floors = request.limits, request.costs, request.group_of, true, false, request.floors
  local allowed, binding, capacity, least, longest_wait, longest = 1, 0, 0, numbers.MOST, 0, 0
  if groups then
    enforced = request.shadows < number
    would_be[1], would_be[3], would_be[4] = 1, numbers.MOST, 0
  end
  for i = 1, number do
    local limit, cost, group, free, a = named[i], costs[i], shadows and shadows[i] or ENFORCED, rooms[i], first[i]
    local charged, denies, reset, retry, most = group.charged, false
    if a == list then
      reset, retry, most, free, denies = sum_up(second[i], limit.size, takes and cost or 0, charged, forced, floors and floors[i])
      if charged and cost > 0 then
        if not peeks then limit.form.write(keys[i], limit, second[i]) end
        changes = true
      end
    elseif charged and cost > 0 then
      if not refunds then
        reset, retry, most = limit.commit(not peeks and keys[i], limit, cost, a, second[i], third[i], now)
        free = free - cost
      elseif cost < limit.capacity - free then
        reset = limit.commit(keys[i], limit, -cost, a, second[i], third[i], now)
        free = free + cost
      else
        redis.call('DEL', keys[i])
        free, reset = limit.capacity, 0
      end
      if not takes then retry = 0 end
      changes = true
    else
      denies = takes and not charged and cost > free
      reset, retry, most = limit.waits(limit, denies and sought(limit.capacity, cost, kept[i]), a, second[i], third[i])
    end
    if counted then denials[i] = denies end
    if each then note(i, denies and 0 or upto and cost or 1, most or limit.capacity, free, retry, reset, groups and (charged and cost or 0) or nil) end
    if groups then add(i, retry, free, denies) end
    if group == ENFORCED or not enforced then
      if denies then
        if allowed > 0 then allowed, binding, capacity, longest_wait = 0, i, most or limit.capacity, 0 end
      elseif allowed == 0 then
        retry = 0
      elseif free < least or binding == 0 then
        binding, capacity = i, most or limit.capacity
      end
      if free < least then least = free end
      if retry ~= 0 then longest_wait = longer(longest_wait, retry) end
      if reset > longest then longest = reset end
    end
  end
  if upto and allowed == 1 then allowed = costs[binding] end
  local whole = groups and {} or each and reply_each or reply
  whole[1], whole[2], whole[3], whole[4], whole[5], whole[6] = allowed, capacity, least, longest_wait, longest, binding
  if groups then
    would = would or would_be
    if not enforced then whole[1], whole[4] = upto or 1, 0 end
    whole[7], whole[8], whole[9] = would[1], would[4], would[6]
  end
  if each then results[number + 1] = nil end
  if each and groups then whole[10] = results end
  if counted and not peeks and not refunds then count(request) end
  return whole, changes and not peeks, ENFORCED.charged
end

function decisions.decide(keys, request, verb, peeks, known, head, left)
  local whole, charges, passes = decide(keys, request, verb, peeks, known, head, left)
  states.drop()
  return whole, charges, passes
end

function decisions.plain(keys, request)
  local named, number, now, denies = request.limits, request.count, not CLOCK_STANDS and clock.ms() or nil, false
  for i = 1, number do
    local limit = named[i]
    local free, a, b, c = limit.probe(keys[i], limit, 1, now, i)
    if not free then return (decisions.decide(keys, request, 'charge', false, i - 1, a, b)) end
    rooms[i], first[i], second[i], third[i] = free, a, b, c
    if free < 1 then denies = true end
  end
  local each, least, binding, capacity, longest_wait, longest = request.EACH, numbers.MOST, 0, 0, 0, 0
  for i = 1, number do
    local limit, free = named[i], rooms[i]
    local reset, retry, most
    if denies then
      denials[i] = free < 1
      reset, retry, most = limit.waits(limit, free < 1 and 1, first[i], second[i], third[i])
      if free < 1 and least > 0 then least, binding, capacity = 0, i, most or limit.capacity end
    else
      free = free - 1
      reset, retry, most = limit.commit(keys[i], limit, 1, first[i], second[i], third[i], now)
      if free < least then least, binding, capacity = free, i, most or limit.capacity end
    end
    if each then note(i, rooms[i] < 1 and 0 or 1, most or limit.capacity, free, retry, reset) end
    if retry ~= 0 then longest_wait = longer(longest_wait, retry) end
    if reset > longest then longest = reset end
  end
  ENFORCED.charged = not denies
  if request.counted then count(request) end
  local whole = each and reply_each or reply
  if each then results[number + 1] = nil end
  whole[1], whole[2], whole[3], whole[4], whole[5], whole[6] = denies and 0 or 1, capacity, least, longest_wait, longest, binding
  return whole
end
end

--@ src/61_one_key.lua
do
local sought = decisions.sought
local keys, request = {}, { limits = {}, costs = {}, count = 1 }
local reply = {}

local function answer(calls, allowed, capacity, free, retry, reset)
  if calls then policies.count(calls, allowed > 0 and 1 or 0) end
  local whole = reply
  whole[1], whole[2], whole[3], whole[4], whole[5], whole[6] = allowed, capacity, free, retry, reset, 1
  return whole
end

local function beyond(key, limit, cost, option, percent, calls, free, a, b, c)
  local named, commit, allowed, above, head, left, d = limit, limit.commit, 1, percent and states.kept(limit.capacity, percent) or 0, nil, nil, nil
  if not free then
    head, left = a, b
    if type(head) == 'string' then
      local blocked
      blocked, free, a, b, c, d = states.blocked(key, head, left, limit)
      if blocked then
        local too_much = option ~= 'FORCE' and (option and 1 or cost) > limit.capacity - above
        return answer(calls, 0, limit.rates[1].capacity, 0, too_much and -1 or blocked, blocked)
      elseif not free then
        limit, free, a, b, c, d = overrides.probe(key, head, left)
        above = free and percent and states.kept(limit.capacity, percent) or 0
      end
      commit = gcra_expiry.commit_behind
    end
  end
  if free and above > 0 then free = math.max(0, free - above) end
  if option == 'FORCE' and free and cost >= free then
    free = nil
  elseif option == 'UPTO' and free then
    cost = math.min(cost, math.max(1, free))
    allowed = cost
  end
  if not free then
    keys[1], request.limits[1], request.costs[1], request.counted, request.UPTO, request.looks_again = key, named, cost, calls, nil, nil
    request.floors, request.calls_of = percent and { percent }, calls ~= named.calls and { calls } or nil
    if option == 'UPTO' then
      request.UPTO = cost
      requests.limit_costs(request)
    end
    return (decisions.decide(keys, request, option == 'FORCE' and 'force' or 'charge', false, 0, head, left))
  elseif cost > free or cost == 0 then
    local reset, retry, capacity = limit.waits(limit, cost > free and sought(limit.capacity, cost, above), a, b, c)
    return answer(calls, cost > free and 0 or allowed, capacity or limit.capacity, free, retry, reset)
  end
  local reset, retry, capacity = commit(key, limit, cost, a, b, c, d)
  return answer(calls, allowed, capacity or limit.capacity, free - cost, option == 'FORCE' and 0 or retry, reset)
end

function one_key.above(key, limit, cost, option, percent, calls)
  if not limit.rate then return beyond(key, limit, cost, option, percent, calls) end
  local above = states.kept(limit.capacity, percent)
  local free, a, b, c = limit.probe(key, limit, states.wanted(limit.capacity, cost, above))
  if not free or option or cost == 0 or cost > free - above then
    return beyond(key, limit, cost, option, percent, calls, free, a, b, c)
  end
  local reset, retry, capacity = limit.commit(key, limit, cost, a, b, c)
  return answer(calls, 1, capacity or limit.capacity, free - above - cost, retry, reset)
end

function one_key.decide(key, limit, cost, option)
  local free, a, b, c = limit.probe(key, limit, cost)
  if not free or option or cost == 0 then
    return beyond(key, limit, cost, option, nil, limit.calls, free, a, b, c)
  elseif cost > free then
    local reset, retry, capacity = limit.waits(limit, cost, a, b, c)
    return answer(limit.calls, 0, capacity or limit.capacity, free, retry, reset)
  end
  local reset, retry, capacity = limit.commit(key, limit, cost, a, b, c)
  return answer(limit.calls, 1, capacity or limit.capacity, free - cost, retry, reset)
end
end

--@ src/62_borrowing.lua
do
local list = states.list
local load, wait, longer = decisions.load, decisions.wait, decisions.longer
local floors = {}
local GUARANTEE, POOL = 1, 2

local function position(request, i)
  local first = i == POOL and request.limits[GUARANTEE].size + 1 or 1
  return first, first + request.limits[i].size - 1
end

local function load_pool(keys, request, cost, fits)
  local at, named = position(request, POOL), request.limits[POOL].capacity
  floors[POOL] = not fits and request.BORROW > 0 and request.BORROW or nil
  request.floors = floors
  local limit, err = load(keys[POOL], request, POOL, at, fits and math.min(cost, named) or cost)
  if limit and fits and math.min(cost, limit.capacity) ~= math.min(cost, named) then
    states.begin()
    limit, err = load(keys[POOL], request, POOL, at, math.min(cost, limit.capacity))
  end
  return not limit and err or nil
end

local function load_both(keys, request, cost)
  local limit, free = load(keys[GUARANTEE], request, GUARANTEE, 1, cost)
  if not limit then return free end
  return load_pool(keys, request, cost, free >= cost)
end

local function most_debt(rate)
  if rate.algorithm.spare == gcra_debt.spare then return rate.capacity - 1 end
  return states.most_owed(rate.capacity) - rate.capacity
end

local function left(request)
  local guaranteed, spare, lent = numbers.MOST, numbers.MOST, numbers.MOST
  local first, last = position(request, POOL)
  for j = 1, last do
    local state, rate = list[j], list[j].rate
    if j < first then
      guaranteed = math.min(guaranteed, state.free)
    else
      spare = math.min(spare, rate.algorithm.spare(state))
      lent = math.min(lent, math.max(0, state.free - states.kept(rate.capacity, request.BORROW)))
    end
  end
  return guaranteed, spare, lent
end

local function until_left(request, i, cost, percent)
  local ms = 0
  for j = position(request, i), select(2, position(request, i)) do
    local state = list[j]
    local capacity = state.rate.capacity
    local kept = states.kept(capacity, percent)
    if cost > capacity - kept then
      return -1
    elseif cost + kept > state.free then
      ms = math.max(ms, wait(state, cost + kept))
    end
  end
  return ms
end

local function until_spare(request, cost)
  local ms = 0
  for j = position(request, POOL), select(2, position(request, POOL)) do
    local state = list[j]
    local rate = state.rate
    if cost > rate.capacity + most_debt(rate) then
      return -1
    elseif cost > rate.algorithm.spare(state) then
      ms = math.max(ms, wait(state, cost - most_debt(rate)))
    end
  end
  return ms
end

local function shorter(a, b) return (a < 0 or b >= 0 and b < a) and b or a end

local function block(request)
  local blocked, ms = nil, 0
  for i = GUARANTEE, POOL do
    local state = list[position(request, i)]
    if state.free < 0 then blocked, ms = blocked or i, math.max(ms, state.ends_in) end
  end
  return blocked, ms
end

local function most(request)
  local guaranteed, lent, first, last = numbers.MOST, numbers.MOST, position(request, POOL)
  for j = 1, last do
    local rate = list[j].rate
    local capacity = rate.capacity
    guaranteed = math.min(guaranteed, j < first and capacity or capacity + most_debt(rate))
    if j >= first then lent = math.min(lent, capacity - states.kept(capacity, request.BORROW)) end
  end
  return math.max(guaranteed, lent)
end

local function change(keys, request, from, verb, cost, peeks)
  local delay = 0
  for j = position(request, from), select(2, position(request, POOL)) do
    local state = list[j]
    local err = state.rate.algorithm[verb](state, cost)
    if err then return nil, err end
    if state.free < 0 then state.free = 0 end
    state.ends_in, delay = 0, math.max(delay, state.delay)
  end
  for i = from, peeks and 0 or POOL do
    request.limits[i].form.write(keys[i], request.limits[i], position(request, i))
  end
  return delay
end

local function load_again(keys, request, from)
  if from == GUARANTEE then return end
  states.begin()
  if from > POOL then
    load_both(keys, request, 1)
  else
    load(keys[GUARANTEE], request, GUARANTEE, 1, 1)
  end
end

local function reset_of(request, i, denies)
  local longest = 0
  for j = position(request, i), select(2, position(request, i)) do
    local state = list[j]
    local blocked = (denies or state.free < 0) and state.ends_in > 0
    longest = math.max(longest, blocked and state.ends_in or state.reset or state.rate.algorithm.reset(state))
  end
  return longest
end

local function probed(keys, request, cost, peeks)
  local guarantee, pool = request.limits[GUARANTEE], request.limits[POOL]
  local now, kept = not CLOCK_STANDS and clock.ms() or nil, states.kept(pool.capacity, request.BORROW)
  local free, a, b, c = guarantee.probe(keys[GUARANTEE], guarantee, cost, now, GUARANTEE)
  if not free then return nil end
  local fits = cost <= free
  local room, d, e, f = pool.probe(keys[POOL], pool, fits and cost or states.wanted(pool.capacity, cost, kept), now, POOL)
  if not room or room == 0 and pool.rate.algorithm.spare ~= gcra_debt.spare then return nil end
  if cost > room and fits or cost > room + most_debt(pool.rate) then return nil end
  local own_key, pool_key, index = not peeks and keys[GUARANTEE], not peeks and keys[POOL], fits and GUARANTEE or POOL
  local lent = math.max(0, room - kept)
  local reset, ms, pool_reset, pool_ms
  if fits then
    reset, ms = guarantee.commit(own_key, guarantee, cost, a, b, c, now)
    free = free - cost
  else
    reset, ms = guarantee.waits(guarantee, cost > lent and cost, a, b, c)
  end
  if fits or cost <= lent then
    pool_reset, pool_ms = pool.commit(pool_key, pool, cost, d, e, f, now)
    room, lent, ms = room - cost, math.max(0, lent - cost), math.max(fits and ms or 0, pool_ms)
  else
    pool_reset, pool_ms = pool.waits(pool, decisions.sought(pool.capacity, cost, kept), d, e, f)
    index, ms = 0, shorter(ms, pool_ms)
  end
  local remaining = math.max(math.min(free, room + most_debt(pool.rate)), lent)
  return { index > 0 and 1 or 0, (index == POOL and pool or guarantee).capacity, remaining, ms, math.max(reset, pool_reset), math.max(1, index) }, index > 0
end

local function count(calls, allowed, index)
  if not calls then return end
  policies.count(calls, allowed)
  if allowed == 1 and index == POOL then calls.borrowed = (calls.borrowed or 0) + 1 end
end

local function decide(keys, request, verb, peeks)
  local cost, refunds = request.costs[1], verb == 'refund'
  local calls = not (refunds or peeks) and request.limits[GUARANTEE].calls
  if not refunds and cost > 0 then
    local reply, passes = probed(keys, request, cost, peeks)
    if reply then
      count(calls, reply[1], reply[6])
      return reply, passes, passes
    end
  end
  states.begin()
  local err = load_both(keys, request, refunds and 1 or math.max(1, cost))
  if err then return err end
  local index, ms = block(request)
  local allowed, from, denies_pool, denies_guarantee = 0, POOL + 1, false, false
  local guaranteed, spare, lent
  if not index then guaranteed, spare, lent = left(request) end
  if index then
    if not refunds and cost > most(request) then ms = -1 end
  elseif refunds then
    allowed, index, ms = 1, request.PAID, 0
    if cost > 0 then
      from = index
      states.begin()
      err = load_pool(keys, request, 1, true)
    end
  elseif cost == 0 then
    allowed, index = 1, GUARANTEE
  elseif cost <= guaranteed and cost <= spare then
    allowed, index, from = 1, GUARANTEE, GUARANTEE
  elseif cost <= guaranteed then
    index, ms, denies_pool = POOL, until_spare(request, cost), true
  elseif cost <= lent then
    allowed, index, from = 1, POOL, POOL
  else
    local borrowed = until_left(request, POOL, cost, request.BORROW)
    states.begin()
    err = load_pool(keys, request, cost, true)
    local own = longer(until_left(request, GUARANTEE, cost, 0), until_spare(request, cost))
    index, ms, denies_pool, denies_guarantee = GUARANTEE, shorter(own, borrowed), true, true
  end
  if not err and from <= POOL then
    ms, err = change(keys, request, from, verb, cost, peeks)
  end
  if err then return err end
  load_again(keys, request, from)
  local reset = math.max(reset_of(request, GUARANTEE, denies_guarantee), reset_of(request, POOL, denies_pool))
  local remaining = 0
  if not block(request) then
    guaranteed, spare, lent = left(request)
    remaining = math.max(math.min(guaranteed, spare), lent)
  end
  count(calls, allowed, index)
  return { allowed, request.limits[index].capacity, remaining, ms, reset, index }, from <= POOL, allowed == 1
end

function borrowing.decide(...)
  local reply, charges, passes = decide(...)
  states.drop()
  return reply, charges, passes
end
end

--@ src/65_tracking.lua
do
local parse, argument = numbers.parse, numbers.argument

local NO_RECORD = 'does not hold a usage record'
local MINUTE = 60000
local SERIES = 60
local MOST_FIELDS = 5 + 2 * SERIES
local KEPT = '86460000'
local TOTALS = { first = true, last = true, cost = true, allowed = true, denied = true }

local current, allowed_now, denied_now = 0, '', ''

local now

local values

local function examine(key)
  local left, is_record = redis.call('PTTL', key), false
  if left == -2 then
    values.empty = true
    return nil
  elseif left >= 0 and values[1] and (values[2] or values[4]) and redis.call('HLEN', key) <= MOST_FIELDS then
    local times, outdated = redis.call('HMGET', key, 'first', 'last'), {}
    is_record = times[1] and parse(times[1]) and times[2] and parse(times[2])
    for _, field in ipairs(redis.call('HKEYS', key)) do
      local at = numbers.parse_digits(string.match(field, '^[ad](%d+)$'))
      is_record = is_record and (at or TOTALS[field])
      if at and (at <= current - SERIES or at > current) then outdated[#outdated + 1] = field end
    end
    if outdated[1] then values.outdated = outdated end
  end
  return not is_record and errors.unusable(key, NO_RECORD) or nil
end

local function fetch(key)
  now = clock.ms()
  local minute = (now - now % MINUTE) / MINUTE
  if minute ~= current then
    current, allowed_now, denied_now = minute, string.format('a%d', minute), string.format('d%d', minute)
  end
  values = redis.pcall('HMGET', key, 'cost', 'allowed', allowed_now, 'denied', denied_now)
  if values.err then
    local err = errors.failed(key, values, NO_RECORD)
    values = { false, false, false, false, false, empty = true, replace = true }
    return redis.pcall('GETRANGE', key, '0', '0') ~= '' and err or nil
  end
  for i = 1, 5 do
    local text = values[i]
    if text then
      local number = parse(text)
      if not number then return errors.unusable(key, NO_RECORD) end
      values[i] = number
    end
  end
  return nil
end

function tracking.check(key)
  local err = fetch(key)
  return err or not values.empty and examine(key) or nil
end

function tracking.read(key)
  local err = fetch(key)
  if err or values.empty then return err end
  local is_current = values[1] and (values[2] and values[3] or values[4] and values[5])
  if is_current and redis.call('PTTL', key) >= 0 then return nil end
  return examine(key)
end

local function sum(number, more)
  local result = (number or 0) + more
  return argument(result < numbers.MOST and result or numbers.MOST)
end

function tracking.note(key, allowed, cost)
  local total, in_minute, at = 'allowed', allowed_now, 2
  if not allowed then
    total, in_minute, at, cost = 'denied', denied_now, 4, 0
  end
  local last = argument(now)
  if values.replace then redis.call('DEL', key) end
  redis.call('HSET', key, 'last', last, total, sum(values[at], 1), in_minute, sum(values[at + 1], 1), 'cost', sum(values[1], cost))
  if values.empty then redis.call('HSET', key, 'first', last) end
  if not (values[3] or values[5]) then redis.call('PEXPIRE', key, KEPT) end
  if values.outdated then redis.call('HDEL', key, unpack(values.outdated)) end
end

function tracking.usage(key)
  local held, series = {}, {}
  local flat = redis.pcall('HGETALL', key)
  for i = 1, #flat, 2 do
    held[flat[i]] = parse(flat[i + 1]) or 0
  end
  local newest = math.floor((held.last or 0) / MINUTE)
  for minute = newest - SERIES + 1, newest do
    local name = string.format('%d', minute)
    local allowed, denied = held['a' .. name], held['d' .. name]
    if allowed or denied then series[#series + 1] = { minute * MINUTE, allowed or 0, denied or 0 } end
  end
  return {
    'allowed', held.allowed or 0, 'denied', held.denied or 0, 'cost', held.cost or 0, 'first_ms', held.first or 0,
    'last_ms', held.last or 0, 'interval_ms', MINUTE, 'series', series,
  }
end
end

--@ src/70_once.lua
do
local SIX = '^(%d+),(%d+),(%d+),(-?%d+),(%d+),(%d+)'
local FIVE = '^(%d+),(%d+),(%d+),(-?%d+),(%d+)'
local PLAIN = '^once:(%d+),(%d+),(%d+),(%-?%d+),(%d+),(%d+)$'
local LONGEST = '5119'

local function parse(text, pattern)
  local fields = { string.match(text, pattern) }
  for i = 1, #fields do
    fields[i] = fields[i] == '-1' and -1 or numbers.parse(fields[i])
    if not fields[i] then return nil end
  end
  return fields[1] and fields
end

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

local repeated = {}

local function plain_reply(value)
  local allowed, limit, remaining, retry, reset, index = string.match(value, PLAIN)
  if not allowed or allowed + limit + remaining + reset + index >= numbers.MOST then return nil end
  retry = retry == '0' and 0 or retry == '-1' and -1 or numbers.parse(retry)
  repeated[1], repeated[2], repeated[3], repeated[4], repeated[5], repeated[6] = allowed + 0, limit + 0, remaining + 0, retry, reset + 0, index + 0
  return retry and repeated
end

function once.holds(key) return parse_reply(redis.call('GETRANGE', key, '0', LONGEST)) ~= nil end

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
end

--@ src/72_overrides.lua
do
local PREFIX = 'limit:'
local PART = '^(limit:(%d+):)(%d+)():(%d+):()'
local LAST = 1279
local SHORT = 127
local MOST_RATES = 5

overrides.PREFIX = PREFIX

function overrides.begins(value) return string.sub(value, 1, #PREFIX) == PREFIX end

function overrides.part(override, expiry)
  return string.format('limit:%d:%d:%d:', override.ends, expiry, #override.text) .. override.text
end

local function parse(text)
  if string.sub(text, 1, 1) == '@' then
    return nil, 'an override takes a limit such as 100/m; a policy may change while the override lasts'
  elseif string.match(text, '^%s*([%a_]+)') == 'concurrency' then
    return leases.limit(text)
  end
  local limit, err = limits.of(text)
  if err then
    return nil, err
  elseif limit.capacity == 0 then
    return nil, 'an override does not take the count 0; to deny keys, use ratelimit_block'
  elseif limit.size > MOST_RATES then
    return nil, string.format('%d rates; an override has at most %d', limit.size, MOST_RATES)
  end
  return limit
end

overrides.limit = numbers.remembered(function(text) return limits.checked(text, parse) end, {}, true)

local function save(override, at)
  local parts, expiry = override.limit.form.save(override.limit, at)
  parts[1] = overrides.part(override, expiry) .. parts[1]
  return parts, math.max(override.ends, expiry)
end

local function write(key, override, at) states.put_parts(key, save(override, at)) end

local form = { load = states.load_other, write = write, save = save }

local function part(value)
  local before, ends, expiry, after, length, at = string.match(value, PART)
  if not ends or ends + expiry >= numbers.MOST then return nil end
  local text = string.sub(value, at, at + length - 1)
  local limit = #text == length + 0 and overrides.limit(text)
  if not limit or limit.lease then return nil end
  at = at + length
  return limit, text, ends + 0, expiry + 0, at, before, string.sub(value, after, at - 1)
end

function overrides.read(key, from, value)
  value = value or redis.call('GETRANGE', key, from, from + LAST)
  local limit, text, ends, expiry, at = part(value)
  if not limit then return nil end
  return {
    algorithm = limit.algorithm, size = limit.size, capacity = limit.capacity, form = form, probe = limits.unprobed, limit = limit, text = text, ends = ends,
    from = from + at - 1, expiry = expiry, left = expiry - clock.ms(),
  }, string.sub(value, at), #value <= LAST
end

function overrides.probe(key, value, left)
  local limit, _, ends, expiry, at, before, after = part(value)
  if not limit or #value > SHORT or limit.form ~= gcra_expiry.form then return nil end
  local now = clock.ms()
  if ends <= now or (left or redis.call('PTTL', key)) < 0 then return nil end
  local free, debt = gcra_expiry.behind(limit, string.sub(value, at), expiry - now)
  return limit, free, debt, ends, before, after
end

function overrides.active(found)
  local override = found.override
  return override and override.ends > clock.ms() and override or nil
end
end

--@ src/75_leases.lua
do
local MEMBER, BLOCK, LENGTH, GIVEN = 'lease:', 'blocked', 'length', 'given:'
local OVERRIDE = '^override:(%d+):(%d+):(%d+)$'
local LAST = '(9007199254740992'
local NO_LEASES = 'does not hold leases'
local EARLIEST = 1000000000000
local MOST = 5000
local AT_ONCE = 2000
local MOST_CUT = 1000
local MOST_RECORDED = '-500'
local LONGEST_ID = 256
local WORDS = { FLOOR = 'FLOOR', floor = 'FLOOR', CLASS = 'CLASS', class = 'CLASS' }

local function read_override(member)
  local ends, n, lease = string.match(member, OVERRIDE)
  ends = numbers.parse_digits(ends)
  local limit = ends and leases.limit(string.format('concurrency %s lease=%sms', n, lease))
  return limit and { member = member, ends = ends, limit = limit }
end

function leases.last(key, from, override)
  local last = redis.pcall('ZRANGE', key, from, override and '-2' or '-1', 'WITHSCORES')
  local size = #last
  if last.err then
    return nil, errors.failed(key, last, NO_LEASES)
  elseif size == 0 then
    return 0, nil, override
  end
  local member, lapses, before = last[size - 1], tonumber(last[size]), tonumber(last[2])
  local is_ours = member == BLOCK or string.sub(member, 1, #MEMBER) == MEMBER
  if override and lapses < 0 then
    return 0, nil, override
  elseif not is_ours and lapses == numbers.MOST and not override then
    override = read_override(member)
    if override then return leases.last(key, from == '-1' and '-2' or '-3', override) end
  end
  if not is_ours or lapses < EARLIEST or lapses > numbers.MOST or lapses % 1 ~= 0 or before % 1 ~= 0 then
    return nil, errors.unusable(key, NO_LEASES)
  end
  return lapses, before, override
end

function leases.check(key)
  local first = redis.call('ZRANGE', key, '0', '0')[1]
  local is_ours = first == LENGTH or first == BLOCK or string.find(first, '^lease:') or string.find(first, '^given:') or read_override(first)
  if is_ours and redis.call('PTTL', key) >= 0 then return nil end
  return errors.unusable(key, NO_LEASES)
end

function leases.blocked_until(key) return tonumber(redis.call('ZSCORE', key, BLOCK) or 0) end

function leases.content(key)
  local now = clock.ms()
  local last, _, override = leases.last(key, '-2')
  local err = last and leases.check(key)
  if err or not last then return err end
  local ends = leases.blocked_until(key)
  local held = ends < now or override and override.ends >= now or redis.call('ZCOUNT', key, now, LAST) > 1
  return { leases = true, held = held, blocked = math.max(0, ends - now), override = override, use = false }
end

function leases.put(key, content, blocked, override)
  if not content.leases then redis.call('DEL', key) end
  local _, _, old = leases.last(key, '-1')
  redis.call('ZREM', key, BLOCK, old and old.member or BLOCK)
  if blocked > 0 then redis.call('ZADD', key, blocked, BLOCK) end
  local last = leases.last(key, '-1') or 0
  if override then
    local limit = override.limit
    redis.call('ZADD', key, numbers.MOST, string.format('override:%d:%d:%d', override.ends, limit.capacity, limit.lease))
    last = math.max(last, override.ends)
  end
  redis.call('PEXPIREAT', key, last)
end

local set = {}

local function look(key, from)
  local last, before, override = leases.last(key, from)
  set.now, set.last, set.before, set.override, set.string = clock.ms(), last or 0, before, override, false
  set.blocked, set.lapses, set.same, set.length = 0, 0, false, nil
  if last then return nil end
  local found = states.look(key)
  if not found or found.use or found.left >= 0 or found.grown then return before end
  set.blocked, set.string = found.blocked, true
  return nil
end

local function read(key, limit, id)
  local err, override = look(key, '-1'), set.override
  if err then return nil, err end
  if override and override.ends > set.now then limit = override.limit end
  if set.last == 0 then return limit end
  local scores = redis.call('ZMSCORE', key, MEMBER .. id, BLOCK, LENGTH)
  local length = scores[3]
  set.lapses = tonumber(scores[1] or 0)
  set.blocked = math.max(0, (scores[2] or 0) - set.now)
  if length == limit.length then
    set.same, set.length = true, limit.lease
  elseif length then
    length = -tonumber(length)
    if length < 1 or length > limits.LONGEST or length % 1 ~= 0 then return nil, errors.unusable(key, NO_LEASES) end
    set.length = length
  else
    err = leases.check(key)
    if err then return nil, err end
  end
  if set.blocked % 1 ~= 0 then return nil, errors.unusable(key, NO_LEASES) end
  return limit
end

local function count(key, limit)
  local now, length, overlong = set.now, set.length, 0
  set.live, set.overlong = 0, 0
  if set.last <= now then return 0, 0 end
  local all = redis.call('ZCOUNT', key, string.format('(%d', now), LAST)
  if not length then
    overlong = redis.call('ZCOUNT', key, '-inf', string.format('(-%d', now))
  elseif set.last > now + length then
    overlong = redis.call('ZCOUNT', key, string.format('(%d', now + length), LAST) - (set.blocked > length and 1 or 0)
  end
  set.live, set.overlong = all, overlong
  if set.blocked > 0 then all = all - 1 end
  return all, overlong > 0 and overlong == all and math.min(all, math.max(0, limit.capacity - 1 - set.kept)) or all
end

local function last_lease(key)
  local override = set.override
  local two = redis.call('ZRANGE', key, override and '-3' or '-2', override and '-2' or '-1', 'WITHSCORES')
  return tonumber(two[two[#two - 1] == BLOCK and #two - 2 or #two] or 0)
end

local function add(key, words)
  for from = 1, #words, AT_ONCE do
    redis.call('ZADD', key, unpack(words, from, math.min(from + AT_ONCE - 1, #words)))
  end
end

local function given_of(member) return GIVEN .. string.sub(member, #MEMBER + 1) end

local function record_given(key)
  local words = {}
  redis.call('ZREMRANGEBYSCORE', key, '-inf', set.now)
  local list = redis.call('ZRANGE', key, MOST_RECORDED, set.override and '-2' or '-1', 'WITHSCORES')
  for i = 1, #list, 2 do
    if list[i] ~= BLOCK then
      words[#words + 1] = string.format('-%d', list[i + 1] - set.length)
      words[#words + 1] = given_of(list[i])
    end
  end
  redis.call('ZADD', key, unpack(words))
end

local function cut_each(key)
  local now, members, words = set.now, {}, {}
  local granted = string.format('-%d', now)
  local overlong = redis.call('ZRANGE', key, '-inf', '(' .. granted, 'BYSCORE', 'LIMIT', '0', MOST_CUT, 'WITHSCORES')
  for i = 1, #overlong, 2 do
    members[#members + 1] = MEMBER .. string.sub(overlong[i], #GIVEN + 1)
  end
  for i, lapses in ipairs(redis.call('ZMSCORE', key, unpack(members))) do
    if lapses then
      local length, size = lapses + overlong[2 * i], #words
      words[size + 1], words[size + 2], words[size + 3], words[size + 4] = numbers.argument(now + length), members[i], granted, overlong[2 * i - 1]
    end
  end
  add(key, words)
end

local function drop_each(key)
  local members = redis.call('ZRANGE', key, '0', set.now, 'BYSCORE')
  for i = 1, #members do
    if members[i] ~= BLOCK then members[#members + 1] = given_of(members[i]) end
  end
  for from = 1, #members, AT_ONCE do
    redis.call('ZREM', key, unpack(members, from, math.min(from + AT_ONCE - 1, #members)))
  end
end

local function cut(key)
  if not set.length then return cut_each(key) end
  local words, ms = {}, string.format('%d', set.now + set.length)
  for _, member in ipairs(redis.call('ZRANGE', key, '(' .. ms, LAST, 'BYSCORE')) do
    if member ~= BLOCK then
      words[#words + 1] = ms
      words[#words + 1] = member
    end
  end
  add(key, words)
end

local reply = {}

local function answer(allowed, capacity, remaining, retry, reset, lease)
  reply[1], reply[2], reply[3], reply[4], reply[5], reply[6], reply[7] = allowed, capacity, remaining, retry, reset, 1, lease
  return reply
end

local function extended(key, limit, id)
  local left, length = math.floor(set.lapses - set.now), set.length
  if left <= limit.lease then return limit end
  if not length then
    local given = tonumber(redis.call('ZSCORE', key, GIVEN .. id))
    length = given and set.lapses + given or left
  end
  left = math.min(left, length)
  return left > limit.lease and { capacity = limit.capacity, lease = left, length = string.format('-%d', left) } or limit
end

local function keep(key, limit, id, others)
  local now, lease, member, override = set.now, limit.lease, MEMBER .. id, set.override
  local reset, lapses, stays = lease, numbers.argument(now + lease), set.blocked
  if override and override.ends <= now then
    redis.call('ZREM', key, override.member)
    set.override = nil
  elseif override then
    stays = math.max(stays, override.ends - now)
  end
  if set.overlong > 0 then cut(key) end
  if others > 0 and set.length ~= lease then
    if set.length then record_given(key) end
    drop_each(key)
    redis.call('ZADD', key, lapses, member, -now, GIVEN .. id)
    reset = math.ceil(last_lease(key)) - now
  else
    if set.last == 0 then
      if set.string then redis.call('DEL', key) end
    elseif not set.same then
      redis.call('ZREMRANGEBYSCORE', key, '-inf', now)
    elseif redis.call('ZCARD', key) > set.live + 1 then
      redis.call('ZREMRANGEBYSCORE', key, '0', now)
    end
    if set.same then
      redis.call('ZADD', key, lapses, member)
    else
      redis.call('ZADD', key, lapses, member, limit.length, LENGTH)
    end
  end
  if stays > lease or reset > lease then lapses = numbers.argument(now + math.max(reset, stays)) end
  redis.call('PEXPIREAT', key, lapses)
  return answer(1, limit.capacity, math.max(0, limit.capacity - others - 1 - set.kept), 0, reset, lease)
end

local function grant(key, limit, id, renews, percent)
  local err
  limit, err = read(key, limit, id)
  set.kept = limit and states.kept(limit.capacity, percent)
  if err then
    return err
  elseif set.lapses > set.now then
    return keep(key, extended(key, limit, id), id, count(key, limit) - 1)
  elseif set.blocked > 0 and not renews then
    return answer(0, limit.capacity, 0, set.kept < limit.capacity and set.blocked or -1, set.blocked, 0)
  end
  local all, counted = count(key, limit)
  local free, retry, last = limit.capacity - counted - set.kept, -1, set.last
  if not renews and set.kept < limit.capacity then
    if free > 0 then return keep(key, limit, id, all) end
    local freeing = redis.call('ZRANGE', key, string.format('(%d', set.now), '+inf', 'BYSCORE', 'LIMIT', 0 - free, '1',
      'WITHSCORES')
    retry = math.ceil(freeing[2] - set.now)
  end
  if set.blocked > 0 and last > 0 then last = last_lease(key) end
  return answer(0, limit.capacity, math.max(0, free), retry, math.max(0, last - set.now), 0)
end

local function release(key, _, id)
  local err = look(key, '-2')
  if err or set.last == 0 then return err or 0 end
  local lapses, before, override = tonumber(redis.call('ZSCORE', key, MEMBER .. id) or 0), set.before, set.override
  local stays = override and override.ends > before and override.ends or before
  if lapses <= set.now then
    return 0
  elseif lapses < set.last or stays > set.now then
    redis.call('ZREM', key, MEMBER .. id, GIVEN .. id)
    if lapses >= set.last then redis.call('PEXPIREAT', key, numbers.argument(stays)) end
  else
    err = leases.check(key)
    if err then return err end
    redis.call('DEL', key)
  end
  return 1
end

local function parse(text)
  if string.match(text, '^%s*([%a_]+)') ~= 'concurrency' then
    return nil, 'not a limit for leases; write it as concurrency n lease=30s'
  end
  local n, lease = string.match(text, '^%s*concurrency%s+(%S+)%s+lease=(%S+)%s*$')
  if not n then return nil, 'not of the form concurrency n lease=30s' end
  local limit = { capacity = numbers.parse_positive(n) }
  if not limit.capacity then
    return nil, string.format('the count %s is not ' .. numbers.WHOLE, errors.quote(n), '1')
  elseif limit.capacity > MOST then
    return nil, string.format('%d leases; a limit takes at most %d', limit.capacity, MOST)
  end
  local wrong
  limit.lease, wrong = limits.period(lease)
  if wrong then return nil, wrong end
  limit.length = string.format('-%d', limit.lease) -- the score of the member "length"
  return limit
end

leases.limit = numbers.remembered(function(text) return limits.checked(text, parse) end, {})

algorithms.concurrency = { refusal = 'concurrency is for ratelimit_acquire, ratelimit_renew and ratelimit_release' }

local function floor_of(policy, name, word, text)
  local classes, percent, err = policy and policy.classes
  if not word then
    return type(classes) == 'table' and classes.default or 0
  elseif word == 'FLOOR' then
    percent, err = requests.percent(text)
    return percent, err or ''
  end
  text, err = requests.class(text)
  if err then return nil, err end
  percent, err = policies.class({ classes = classes, name = name }, text)
  return percent, err or text
end

function leases.call(verb, keys, args)
  clock.now = nil
  if #keys ~= 1 then
    return errors.new('BADKEYS', 'the number of keys is %d; %s takes one', #keys, verb)
  end
  local word = verb == 'acquire' and WORDS[args[3]]
  if #args < 2 then
    return errors.new('BADARGS', 'the number of arguments is %d; %s takes a limit and a lease id', #args, verb)
  elseif args[3] and not word then
    return errors.new('BADARGS', '%s: not an option here', errors.quote(args[3]))
  end
  local err = requests.too_long(keys)
  if err then return err end
  local text, policy, limit, name = args[1]
  if string.sub(text, 1, 1) == '@' then
    name = string.sub(text, 2)
    policy, err = policies.lease(text, keys[1])
    if not policy then return err end
    text = policy[1]
  end
  limit, err = leases.limit(text)
  if not limit then return err end
  local id = args[2]
  if #id == 0 or #id > LONGEST_ID then
    return errors.new('BADARGS', 'the lease id %s is not of 1 to %d bytes', errors.quote(id), LONGEST_ID)
  end
  local percent, class = 0, nil
  if verb == 'acquire' then
    if args[5] then return errors.new('BADARGS', '%s: not an option here; acquire takes one FLOOR or CLASS', errors.quote(args[5])) end
    percent, class = floor_of(policy, name, word, args[4])
    if not percent then return class end
  end
  local got = (verb == 'release' and release or grant)(keys[1], limit, id, verb == 'renew', percent)
  if not policy or verb == 'release' or got.err then return got end
  if verb == 'acquire' then policies.count(policies.calls(policy, class), got[1]) end
  if not policy.shadow then return got end
  return { 1, got[2], got[3], 0, got[5], got[6], got[1], got[4], got[6], got[7] }
end
end

--@ src/80_contents.lua
do
local MOST_KEYS = 100

local WANT = {
  block = ', the ms for which they are denied, and EXTEND, GROW max_ms forget_ms, or nothing',
  override = ', a limit, and the ms for which it applies',
}

local function of(key)
  local found, err, set = states.look(key)
  found = found or set
  if found then return found, found.err and found end
  if tracking.check(key) then return nil, err end
  return { blocked = 0, use = 'a usage record' }
end

function contents.of_all(verb, keys, args, want)
  clock.now = nil
  if #keys == 0 then
    return nil, errors.new('BADKEYS', 'the number of keys is 0; name at least one to %s', verb)
  elseif #keys > MOST_KEYS then
    return nil, errors.new('BADKEYS', 'the number of keys is %d; %s takes at most %d', #keys, verb, MOST_KEYS)
  elseif #args ~= want then
    return nil, errors.new('BADARGS', '%s: %s takes the keys%s', errors.quote(args[want + 1] or ''), verb, WANT[verb] or ' only')
  end
  local err = requests.too_long(keys) or requests.repeated(keys)
  if err then return nil, err end
  local list = {}
  for i, key in ipairs(keys) do
    list[i], err = of(key)
    if err then return nil, err end
  end
  return list
end

local function too_large(keys, list, copies)
  states.begin()
  for i, key in ipairs(keys) do
    local content = list[i]
    if not content.leases and (not copies or copies(content)) then
      content.size = redis.call('STRLEN', key)
      local err = states.too_much('bytes', content.size, true)
      if err then return err end
    end
  end
  return nil
end

function contents.duration(text, what, least)
  local ms = numbers.parse(text)
  least = least or 1
  if ms and ms >= least and ms <= limits.LONGEST then return ms end
  return nil, errors.new('BADARGS', '%s: the ms of %s are a whole number from %d to %d', errors.quote(text), what, least, limits.LONGEST)
end

function contents.put(key, content, blocked, override, grown)
  if not blocked then grown = content.grown end
  blocked = blocked or content.ends or content.leases and leases.blocked_until(key) or 0
  local is_set, inner, parts, expiry = content.leases and not grown, content.override or content, { '' }, 0
  if override then is_set = override.limit.lease end
  if is_set then return leases.put(key, content, blocked, override) end
  if not content.leases then
    states.copy(parts, key, inner.from, content.size - 1)
    expiry = inner.from == 0 and parts[2] and redis.call('PEXPIRETIME', key) or inner.expiry
  end
  if override then parts[1], expiry = overrides.part(override, expiry), math.max(override.ends, expiry) end
  if blocked > 0 then expiry = states.with_block(parts, expiry, blocked, grown) end
  if expiry <= clock.ms() then return redis.call('DEL', key) end
  states.put_parts(key, parts, expiry)
end

function contents.change(keys, list, has, set)
  local err, changed = too_large(keys, list, has), 0
  if err then return err end
  for i, key in ipairs(keys) do
    if not has or has(list[i]) then
      set(key, list[i])
      changed = changed + 1
    end
  end
  return changed
end

function contents.remove(verb, keys, args, has, set)
  local list, err = contents.of_all(verb, keys, args, 0)
  return err or contents.change(keys, list, has, set)
end
end

--@ src/algorithms/fixed_window.lua
do
local PREFIX = 'fixed_window:'
local MARKED = '^400(%d+)$'
local FORMAT, ONE = '400%016d', '4000000000000000001'
local SIZE = 19

local small = {}

local function marked_count(value)
  local count = small[value]
  if count then return count end
  local digits = #value == SIZE and string.match(value, MARKED)
  if not digits then return nil end
  count = digits + 0
  if count >= numbers.MOST then
    return numbers.parse(digits)
  elseif count == 0 then
    return nil
  elseif count < 1000 then
    small[value] = count
  end
  return count
end

local function length(rate) return rate.align and calendar.left(rate, clock.ms()) or rate.period end

local function reset(state) return state.count > 0 and state.left or 0 end

local function set(state, count)
  local free = state.rate.capacity - count
  state.count = count
  state.free = free > 0 and free or 0
  state.reset = reset(state)
end

local function charge(state, units) set(state, state.count + units) end

local function refund(state, units) set(state, math.max(0, state.count - units)) end

local function spare(state) return math.max(0, states.most_owed(state.rate.capacity) - state.count) end

local function wait(state) return state.left end

local function parse(text)
  local count, ending = string.match(text, '^(%d+):(%d+)$')
  return numbers.parse_digits(count), numbers.parse_digits(ending)
end

local function read(state, text, now, cost)
  local rate, count, ending = state.rate, 0, 0
  if text ~= '' then
    count, ending = parse(text)
    if not count or not ending then return false end
  end
  state.now = (now - now % 1000) / 1000
  state.left = ending - state.now
  if state.left <= 0 then
    count, state.left = 0, length(rate)
  elseif state.left > rate.period then
    count, state.left = math.min(count, states.most_spent(state, cost)), length(rate)
  end
  set(state, count)
  return true
end

local function save(state)
  local ending = state.now + state.left
  return string.format('%d:%d', state.count, ending), ending
end

local function convert(value, expiry) return string.format('%d:%d', marked_count(value), expiry) end

local function probe(key, limit, _, now)
  local value = redis.pcall('GETRANGE', key, '0', '511')
  if value == '' then return limit.capacity, 0, length(limit.rate) end
  local count = type(value) == 'string' and marked_count(value)
  if not count then return nil, value end
  local left = now and redis.call('PEXPIRETIME', key) - now or redis.call('PTTL', key)
  if left <= 0 or left > limit.rate.period then return nil end
  local free = limit.capacity - count
  return free > 0 and free or 0, count, left
end

local function commit(key, limit, units, count, left, _, now)
  if not key then
    return left, 0
  elseif count > 0 then
    redis.call('INCRBY', key, units == 1 and '1' or numbers.argument(units))
    return left, 0
  end
  local value = units == 1 and ONE or string.format(FORMAT, units)
  if now or limit.rate.align then
    states.put(key, value, clock.ms() + left)
  else
    redis.call('PSETEX', key, numbers.argument(left), value)
  end
  return left, 0
end

local function waits(limit, cost, count, left)
  return count > 0 and left or 0, not cost and 0 or cost > limit.capacity and -1 or left
end

local function write(key, _, at)
  local state = states.list[at]
  if state.count == 0 then return redis.call('DEL', key) end
  states.put(key, string.format(FORMAT, state.count), state.now + state.left)
end

algorithms.fixed_window = {
  name = 'fixed_window',
  prefix = PREFIX,
  shape = '^%d+:%d+$',
  options = {
    align = function(text) return text == 'clock' and text or nil, '"clock"' end,
    zone = calendar.zone,
    from = calendar.from,
  },
  complete_rate = calendar.complete,
  probe = probe, commit = commit, waits = waits, gives_back = true,
  form = {
    load = packed.form.load, load_empty = packed.form.load_empty, load_found = packed.form.load_found, write = write, save = packed.form.save,
  },
  holds = marked_count,
  spent = function(key, from)
    return marked_count(redis.call('GETRANGE', key, from, from + 31)) or parse(packed.first_text(key, from, PREFIX)) or 0
  end,
  charge = charge, refund = refund, spare = spare, reset = reset, wait = wait, read = read, save = save,
  convert = convert,
}
end

--@ src/algorithms/gcra.lua
do
local FINENESS = 1000000000

local function common_divisor(a, b)
  while b > 0 do
    local rest = a % b
    a = b
    b = rest
  end
  return a
end

local function divide(rate, units_per_ms)
  local period, count = rate.period * units_per_ms, rate.count
  local divisor = common_divisor(period, count)
  rate.ticks, rate.interval = count / divisor, period / divisor
  rate.full, rate.ticks_per_ms = rate.interval * rate.capacity, rate.ticks * units_per_ms
  return 2 * rate.full <= numbers.MOST
end

local function round(rate)
  local most = math.floor(numbers.MOST / (2 * rate.capacity))
  local low, low_ticks, below = 0, 1, rate.period * 1000
  local high, high_ticks, above = 1, 0, rate.count
  while low + high <= most do
    local steps = math.floor(below / above)
    low, low_ticks, below = low + steps * high, low_ticks + steps * high_ticks, below - steps * above
    local room = low > 0 and math.floor((most - high) / low) or math.huge
    steps = below > 0 and math.min(room, math.floor(above / below)) or 0
    high, high_ticks, above = high + steps * low, high_ticks + steps * low_ticks, above - steps * below
  end
  rate.ticks, rate.interval = high_ticks, high
  rate.full, rate.ticks_per_ms = high * rate.capacity, high_ticks * 1000
  if high_ticks == 0 or above * FINENESS >= rate.period * 1000 * high_ticks then
    return 'n/period is too fast for this burst to be counted exactly; use a smaller n or burst'
  end
  return nil
end

local function complete(limit)
  local rate = limit.rate
  if rate and rate.period >= rate.count and divide(rate, 1) then
    return gcra_expiry.complete(limit)
  end
  for _, each in ipairs(limit.rates) do
    local wrong = not divide(each, 1000) and round(each) or nil
    if wrong then return wrong end
  end
  return gcra_value.complete(limit)
end

algorithms.gcra = {
  name = 'gcra',
  prefix = 'gcra:',
  shape = gcra_value.SHAPE,
  options = { burst = numbers.positive_option },
  complete = complete,
  holds = gcra_expiry.holds,
  charge = gcra_debt.charge, refund = gcra_debt.refund, spare = gcra_debt.spare,
  reset = gcra_debt.reset, wait = gcra_debt.wait,
  read = gcra_value.read, save = gcra_value.save, convert = gcra_value.convert,
}
end

--@ src/algorithms/leaky_bucket.lua
do
local gcra = algorithms.gcra

local function charge(state, units)
  state.delay = gcra.reset(state)
  gcra.charge(state, units)
end

algorithms.leaky_bucket = {
  name = 'leaky_bucket',
  prefix = gcra.prefix,
  options = gcra.options,
  complete = gcra.complete,
  stored_as = gcra,
  delays = true,
  charge = charge, refund = gcra.refund, spend = gcra.charge, spare = gcra.spare, reset = gcra.reset, wait = gcra.wait,
  read = gcra.read, save = gcra.save, convert = gcra.convert,
}
end

--@ src/algorithms/sliding_log.lua
do
local PREFIX = 'sliding_log:'
local BASE, ENTRY = 5, 12
local SHORTEST = BASE + ENTRY
local CHUNK, LAST = 2048, '2047'
local SUMS = 246952198016 -- below 0x3a00000000, so a log never begins with ':', which marks the texts of several rates
local LONGEST = 100000000

local function entry(state, i)
  if i == 0 then return 0, state.base end
  local at = state.skip + BASE + ENTRY * (i - 1)
  local text, offset = state.text, state.offset
  if at - offset + ENTRY <= #text then return struct.unpack('>I7I5', text, at - offset + 1) end
  return struct.unpack('>I7I5', redis.call('GETRANGE', state.key, at, at + ENTRY - 1))
end

local function search(state, low, high, since, units)
  while low < high do
    local middle = (low + high - (low + high) % 2) / 2
    local at, sum = entry(state, middle)
    if at <= since or (state.sum - sum) % SUMS > units then
      low = middle + 1
    else
      high = middle
    end
  end
  return low
end

local function leaving(state, units)
  local i = state.live
  local at, sum = entry(state, i)
  if (state.sum - sum) % SUMS > units then
    i = search(state, i + 1, state.entries, 0, units)
    at = entry(state, i)
  end
  return at, i
end

local function set(state, used)
  local rate = state.rate
  state.used = used
  state.free = used < rate.capacity and rate.capacity - used or 0
end

local function reset(state)
  return state.used > 0 and clock.ceil_ms(state.last + state.rate.period * 1000 - state.now) or 0
end

local function restart(state, units)
  local now = state.now
  state.text, state.offset, state.skip = struct.pack('>I5I7I5', 0, now, units), 0, 0
  state.entries, state.base, state.last, state.sum = units > 0 and 1 or 0, 0, now, units
  state.live, state.added = 1, nil
  set(state, units)
end

local function check(state, size, cost, base, first, first_sum)
  local entries = (size - BASE) / ENTRY
  if entries % 1 ~= 0 or base >= SUMS then return false end
  local last, sum = first, first_sum
  state.entries, state.base = entries, base
  if entries > 1 then last, sum = entry(state, entries) end
  local units, before = (sum - base) % SUMS, sum
  if first > last or (first_sum - base) % SUMS > units or units > LONGEST then return false end
  state.last, state.sum, state.live, state.added = last, sum, 1, nil
  local now, rate = state.now, state.rate
  local since, capacity = now - rate.period * 1000, rate.capacity
  local used = units
  if first <= since then
    if last <= since then
      state.live = entries + 1
    else
      state.live = search(state, 2, entries, since, SUMS)
      before = select(2, entry(state, state.live - 1))
    end
    used = (sum - before) % SUMS
  end
  if used > units then
    used = 0
  elseif last > now then
    local most = capacity - states.needs(capacity, cost)
    if used > most and leaving(state, most) > now then
      restart(state, states.most_spent(state, cost))
      return true
    end
  end
  set(state, used)
  return true
end

local function charge(state, units)
  local now, entries = state.now, state.entries
  state.before, state.added = entries, ''
  if units > 0 then
    if state.last > now then
      local before = search(state, state.live, entries, now, SUMS) - 1
      local err = state.offset == 0 and states.too_much('bytes', ENTRY * (before - state.live + 1))
      if err then return err end
      state.before = before
    end
    state.last, state.sum = now, (state.sum + units) % SUMS
    state.added = struct.pack('>I7I5', now, state.sum)
  end
  state.used, state.free = state.used + units, state.free - units
  state.reset = reset(state)
  return nil
end

local function refund(state, units)
  local left = state.used - units
  state.before = -1
  if left > 0 then
    local at, i = leaving(state, units)
    local err = state.offset == 0 and states.too_much('bytes', ENTRY * (i - state.live))
    if err then return err end
    local _, base = entry(state, state.live - 1)
    state.last, state.sum, state.before = at, (base + left) % SUMS, i - 1
    state.added = struct.pack('>I7I5', at, state.sum)
  end
  set(state, left > 0 and left or 0)
  state.reset = reset(state)
  return nil
end

local function spare(state) return math.max(0, states.most_owed(state.rate.capacity) - state.used) end

local function wait(state, cost)
  local units = state.rate.capacity - cost
  if state.added then
    local _, sum = entry(state, state.before)
    if (state.sum - sum) % SUMS > units then return reset(state) end
  end
  return clock.ceil_ms(leaving(state, units) + state.rate.period * 1000 - state.now)
end

local function expiry(state) return clock.ceil_ms(state.last + state.rate.period * 1000) end

local function goes_on(state)
  local entries = state.entries
  return state.added == ''
    or entries == state.before and entries > 0 and entries < 2 * state.rate.capacity and state.live - 1 <= entries / 2
end

local function save(state)
  if goes_on(state) then state.live = 1 end
  local _, base = entry(state, state.live - 1)
  local entries, text, offset = state.skip + BASE, state.text, state.offset
  local first, last = entries + ENTRY * (state.live - 1), entries + ENTRY * state.before - 1
  base = struct.pack('>I5', base)
  if last - offset < #text then
    return base .. string.sub(text, first - offset + 1, last - offset + 1) .. state.added, expiry(state)
  end
  local parts = { base, size = BASE + last - first + 1 + #state.added }
  states.copy(parts, state.key, first, last)
  parts[#parts + 1] = state.added
  return parts, expiry(state)
end

local function read(state, text, now, cost, key, offset, size)
  state.now, state.text, state.offset, state.skip, state.key = now, text, offset or 0, offset or 0, key
  if #text >= SHORTEST then return check(state, size or #text, cost, struct.unpack('>I5I7I5', text)) end
  restart(state, 0)
  return text == ''
end

local function load(key, limit, at, cost, head)
  local text = head or redis.pcall('GETRANGE', key, '0', LAST)
  if text == '' then return packed.form.load_empty(limit, at) end
  local prefix, base, first, first_sum
  if type(text) == 'string' and #text >= #PREFIX + SHORTEST then
    prefix, base, first, first_sum = struct.unpack('>c12I5I7I5', text)
  end
  if prefix ~= PREFIX or base >= SUMS then return states.load_other(key, limit, at, cost, text) end
  local state, size = states.new(at, limit.rate), #text
  if size == CHUNK then size = redis.call('STRLEN', key) end
  state.now, state.text, state.offset, state.skip, state.key = clock.us(), text, 0, #PREFIX, key
  return not check(state, size - #PREFIX, cost, base, first, first_sum) and states.unreadable(key) or nil
end

local function write(key, limit, at)
  local state = states.list[at]
  if state.skip ~= #PREFIX or #state.text < CHUNK or not goes_on(state) then
    packed.form.write(key, limit, at)
  else
    redis.call('APPEND', key, state.added)
    redis.call('PEXPIREAT', key, numbers.argument(expiry(state)))
  end
end

local short = { offset = 0, skip = #PREFIX }

local function probe(key, limit)
  local text, capacity = redis.pcall('GETRANGE', key, '0', LAST), limit.capacity
  if text == '' then return capacity, text, 1, 0 end
  local size = #text
  local entries = (size - #PREFIX - BASE) / ENTRY
  if entries < 1 or entries % 1 ~= 0 then return nil, text end
  local prefix, base, first, first_sum = struct.unpack('>c12I5I7I5', text)
  local last, sum = struct.unpack('>I7I5', text, size - ENTRY + 1)
  local now, units, live = clock.us(), (sum - base) % SUMS, 1
  local since, used = now - limit.rate.period * 1000, units
  if prefix ~= PREFIX or base >= SUMS or first > last or last > now or (first_sum - base) % SUMS > units or units > LONGEST then
    return nil, text
  elseif last <= since then
    live, used, last = entries + 1, 0, 0
  elseif first <= since then
    short.text, short.sum = text, sum
    live = search(short, 2, entries, since, SUMS)
    local _, before = entry(short, live - 1)
    used = (sum - before) % SUMS
    if used > units then return nil, text end
  end
  local free = capacity - used
  return free > 0 and free or 0, text, live, last
end

local function commit(key, limit, units, text, live)
  local rate, now, size = limit.rate, clock.us(), #text
  if key and size == 0 then
    states.put(key, struct.pack('>c12I5I7I5', PREFIX, 0, now, units), clock.ceil_ms(now + rate.period * 1000))
  elseif key then
    local sum, entries = struct.unpack('>I5', text, size - BASE + 1), (size - #PREFIX - BASE) / ENTRY
    if live - 1 > entries / 2 then
      text = PREFIX .. string.sub(text, ENTRY * live + 1)
    end
    states.put(key, text .. struct.pack('>I7I5', now, (sum + units) % SUMS), clock.ceil_ms(now + rate.period * 1000))
  end
  return rate.period, 0
end

local function waits(limit, cost, text, live, last)
  local size, capacity, retry, gone = #text, limit.capacity, 0, limit.rate.period * 1000 - clock.us()
  if cost and cost > capacity then
    retry = -1
  elseif cost then
    short.text, short.live, short.entries, short.sum = text, live, (size - #PREFIX - BASE) / ENTRY, struct.unpack('>I5', text, size - BASE + 1)
    retry = clock.ceil_ms(leaving(short, capacity - cost) + gone)
  end
  return last > 0 and clock.ceil_ms(last + gone) or 0, retry
end

local function spent(key, from)
  local first, last = packed.first(key, from, PREFIX)
  local base = redis.call('GETRANGE', key, first, first + BASE - 1)
  local sum = redis.call('GETRANGE', key, last - BASE + 1, last)
  if last >= 0 and last - first < BASE or #base < BASE or #sum < BASE then return 0 end
  return (struct.unpack('>I5', sum) - struct.unpack('>I5', base)) % SUMS
end

algorithms.sliding_log = {
  name = 'sliding_log',
  prefix = PREFIX,
  shape = '^.....[%z\1-\31]',
  options = {},
  most = { field = 'count', sum = 100000, what = 'calls to be kept in logs', advice = '; sliding_window takes more' },
  probe = probe, commit = commit, waits = waits,
  form = { load = load, load_empty = packed.form.load_empty, load_found = packed.form.load_found, write = write, save = packed.form.save },
  spent = spent, head = CHUNK,
  charge = charge, refund = refund, spend = restart, spare = spare, reset = reset, wait = wait, read = read, save = save,
}
end

--@ src/algorithms/sliding_window.lua
do
local PREFIX = 'sliding_window:'
local MOST_BUCKETS = 1000
local STATE = '^(%d+):(%d+):(%d[%d,]*)$'
local TWO_COUNTS = '^sliding_window:(%d+):(%d+):(%d+),?(%d*)$'

local function units_left(state, capacity)
  local rate, counts, sum = state.rate, state.counts, 0
  local last, width = rate.buckets, rate.width
  for i = 0, last - 1 do
    sum = sum + counts[i]
  end
  return math.max(0, capacity - sum - math.ceil(counts[last] * (width - state.into) / width))
end

local function set(state) state.free = units_left(state, state.rate.capacity) end

local function spare(state) return units_left(state, states.most_owed(state.rate.capacity)) end

local function reset(state)
  local counts, last = state.counts, state.rate.buckets
  for i = 0, last do
    if counts[i] > 0 then return (last + 1 - i) * state.rate.width - state.into end
  end
  return 0
end

local function place(state, text, now, cost)
  local rate, counts = state.rate, state.counts
  local width, bucket, list = string.match(text, STATE)
  width, bucket = numbers.parse_digits(width), numbers.parse_digits(bucket)
  if not width or width == 0 or not bucket then return false end
  local err = states.too_much('buckets', 0)
  if err then return false, err end
  local ahead, newest, sum = bucket * width > now, bucket, 0
  for digits in string.gmatch(list, '%d+') do
    local count = numbers.parse_digits(digits)
    if not count then return false end
    local at = state.current - (width == rate.width and bucket or math.floor(bucket * width / rate.width))
    if at <= rate.buckets and not ahead then
      local all = counts[at] + count
      counts[at] = all < numbers.MOST and all or numbers.MOST
    end
    sum = sum + count
    bucket = bucket - 1
  end
  states.too_much('buckets', newest - bucket)
  if ahead then counts[0] = math.min(sum, states.most_spent(state, cost)) end
  return true
end

local function read(state, text, now_us, cost)
  local rate = state.rate
  local now = (now_us - now_us % 1000) / 1000
  state.counts = state.counts or {}
  for i = 0, rate.buckets do
    state.counts[i] = 0
  end
  state.now, state.into = now, now % rate.width
  state.current = (now - state.into) / rate.width
  if text ~= '' then
    local readable, err = place(state, text, now, cost)
    if not readable then return false, err end
  end
  set(state)
  return true
end

local function charge(state, units)
  state.counts[0] = state.counts[0] + units
  state.free = state.free - units
  state.reset = reset(state)
end

local function refund(state, units)
  local counts = state.counts
  for i = 0, state.rate.buckets do
    local back = math.min(units, counts[i])
    counts[i] = counts[i] - back
    units = units - back
  end
  set(state)
  state.reset = reset(state)
end

local function wait(state, cost)
  local rate, counts = state.rate, state.counts
  local width, room, at = rate.width, rate.capacity - cost, 0
  while at < rate.buckets and counts[at] <= room do
    room = room - counts[at]
    at = at + 1
  end
  return (rate.buckets - at) * width + math.ceil((counts[at] - room) * width / counts[at]) - state.into
end

local function save(state)
  local counts, last, list = state.counts, state.rate.buckets, {}
  while counts[last] == 0 and last > 0 do
    last = last - 1
  end
  for i = 0, last do
    list[i + 1] = string.format('%d', counts[i])
  end
  return string.format('%d:%d:', state.rate.width, state.current) .. table.concat(list, ','), state.now + state.reset
end

local function probe(key, limit)
  local rate = limit.rate
  if rate.buckets > 1 then return nil end
  local value, now, width, count, before = redis.pcall('GETRANGE', key, '0', '511'), clock.ms(), rate.width, 0, 0
  local into = now % width
  if value ~= '' then
    local stored, bucket, newest, older = string.match(type(value) == 'string' and value or '', TWO_COUNTS)
    local current = (now - into) / width
    local age = current - (tonumber(bucket) or current + 1)
    newest, older = numbers.parse_digits(newest), older == '' and 0 or numbers.parse_digits(older)
    if tonumber(stored) ~= width or age < 0 or not newest or not older then return nil, value end
    if age == 0 then
      count, before = newest, older
    elseif age == 1 then
      before = newest
    end
  end
  local free = rate.capacity - count - math.ceil(before * (width - into) / width)
  return free > 0 and free or 0, count, before, into
end

local function commit(key, limit, units, count, before, into)
  local width, now = limit.rate.width, clock.ms()
  local full = 2 * width - into
  if key then
    local text = before > 0 and 'sliding_window:%d:%d:%d,%d' or 'sliding_window:%d:%d:%d'
    states.put(key, string.format(text, width, (now - into) / width, count + units, before), now + full)
  end
  return full, 0
end

local denied = { counts = {} }

local function waits(limit, cost, count, before, into)
  local rate, ms = limit.rate, 0
  local full = 2 * rate.width - into
  if cost and cost <= rate.capacity then
    denied.rate, denied.into, denied.counts[0], denied.counts[1] = rate, into, count, before
    ms = wait(denied, cost)
  end
  return count > 0 and full or before > 0 and full - rate.width or 0, cost and cost > rate.capacity and -1 or ms
end

local function spent(key, from)
  local counts = string.match(packed.first_text(key, from, PREFIX), '^%d+:%d+:([%d,]+)$')
  local sum, size = 0, 0
  for digits in string.gmatch(counts or '', '%d+') do
    sum = sum + digits
    size = size + 1
  end
  return sum, states.too_much('buckets', size)
end

local function complete_rate(rate)
  rate.buckets = rate.buckets or 1
  rate.width = rate.period / rate.buckets
  if rate.buckets > MOST_BUCKETS then
    return string.format('buckets=%d is above %d', rate.buckets, MOST_BUCKETS)
  elseif rate.width % 1 ~= 0 then
    return string.format('buckets=%d does not divide the period into whole milliseconds', rate.buckets)
  end
end

algorithms.sliding_window = {
  name = 'sliding_window',
  prefix = PREFIX,
  shape = STATE,
  options = { buckets = numbers.positive_option },
  most = { field = 'buckets', sum = 3000, what = 'buckets', advice = '' },
  complete_rate = complete_rate,
  probe = probe, commit = commit, waits = waits,
  spent = spent,
  charge = charge, refund = refund, spare = spare, reset = reset, wait = wait, read = read, save = save,
}
end

--@ src/algorithms/token_bucket.lua
do
local PREFIX = 'token_bucket:'

local function refill_ms(tokens, rate)
  local over = tokens % rate.count
  return ((tokens - over) / rate.count + (over > 0 and 1 or 0)) * rate.period
end

local function refill(rate, tokens, added, now)
  if added < now then
    local period = rate.period * 1000
    local over = (now - added) % period
    tokens = tokens + (now - added - over) / period * rate.count
    added = now - over
  end
  if tokens >= rate.capacity then return rate.capacity, now end
  return tokens, added
end

local function is_impossible(rate, tokens, ahead, cost)
  local most = rate.capacity
  local units = states.needs(most, cost) - tokens
  if tokens < 0 then
    units, most = most - tokens, states.most_owed(most)
    if -tokens > most - rate.capacity then return true end
  end
  return ahead > 0 and units > 0 and ahead > (refill_ms(most, rate) - refill_ms(units, rate)) * 1000
end

local function read(state, text, now, cost)
  local rate, tokens, added = state.rate, state.rate.capacity, now
  if text ~= '' then
    tokens, added = string.match(text, '^(%-?%d+):(%d+)$')
    tokens, added = numbers.parse_digits(tokens), numbers.parse_digits(added)
    if not tokens or not added then return false end
    tokens, added = refill(rate, tokens, added, now)
    if is_impossible(rate, tokens, added - now, cost) then
      tokens, added = rate.capacity - states.most_spent(state, cost), now
    end
  end
  state.now, state.added, state.tokens, state.free = now, added, tokens, math.max(0, tokens)
  return true
end

local function wait(state, units)
  return clock.ceil_ms(state.added - state.now) + refill_ms(units - state.tokens, state.rate)
end

local function reset(state)
  local capacity = state.rate.capacity
  return state.tokens < capacity and wait(state, capacity) or 0
end

local function charge(state, units)
  local tokens = state.tokens - units
  state.tokens, state.free, state.added = tokens, math.max(0, tokens), math.min(state.added, state.now)
  state.reset = reset(state)
end

local function refund(state, units) charge(state, -math.min(units, state.rate.capacity - state.tokens)) end

local function spare(state)
  local capacity = state.rate.capacity
  return states.most_owed(capacity) - capacity + state.tokens
end

local function save(state)
  local rate, tokens, added = state.rate, state.tokens, state.added
  return string.format('%d:%d', tokens, added), clock.ceil_ms(added) + refill_ms(rate.capacity - tokens, rate)
end

local function spent(key, from)
  local text = packed.first_text(key, from, PREFIX)
  if text == '' then return 0 end
  return nil, nil, numbers.parse_digits(string.match(text, '^(%d+):'))
end

local function probe(key, limit)
  local value, rate = redis.pcall('GETRANGE', key, '0', '511'), limit.rate
  local now = clock.us()
  if value == '' then return rate.capacity, rate.capacity, now end
  local tokens, added = string.match(type(value) == 'string' and value or '', '^token_bucket:0*(%d+):0*(%d+)$')
  if not tokens or tokens + added >= numbers.MOST then return nil, value end
  tokens, added = refill(rate, tokens + 0, added + 0, now)
  if added > now then return nil, value end
  return tokens, tokens, added
end

local function commit(key, limit, units, tokens, added)
  local rate = limit.rate
  tokens = tokens - units
  local refill_time = refill_ms(rate.capacity - tokens, rate)
  if key then states.put(key, string.format('token_bucket:%d:%d', tokens, added), clock.ceil_ms(added) + refill_time) end
  return clock.ceil_ms(added - clock.us()) + refill_time, 0
end

local function waits(limit, cost, tokens, added)
  local rate = limit.rate
  local capacity, gone, retry = rate.capacity, clock.ceil_ms(added - clock.us()), 0
  if cost then retry = cost > capacity and -1 or gone + refill_ms(cost - tokens, rate) end
  return tokens < capacity and gone + refill_ms(capacity - tokens, rate) or 0, retry
end

algorithms.token_bucket = {
  name = 'token_bucket',
  prefix = PREFIX,
  shape = '^%-?%d+:%d+$',
  options = { burst = numbers.positive_option },
  probe = probe, commit = commit, waits = waits, gives_back = true,
  spent = spent,
  charge = charge, refund = refund, spare = spare, reset = reset, wait = wait, read = read, save = save,
}
end

--@ src/verbs/acquire.lua
do
redis.register_function{
  function_name = 'ratelimit_acquire', description = 'Takes a lease, or prolongs the one that this id holds.',
  callback = function(keys, args) return leases.call('acquire', keys, args) end,
}
end

--@ src/verbs/block.lua
do
local OPTIONS = { EXTEND = 'EXTEND', extend = 'EXTEND', GROW = 'GROW', grow = 'GROW' }
local COUNTS = { EXTEND = 2, GROW = 4 }

redis.register_function{
  function_name = 'ratelimit_block', description = 'Denies the keys for some milliseconds, regardless of their limits.',
  flags = { 'allow-oom' }, callback = function(keys, args)
    local option = OPTIONS[args[2]]
    local list, err = contents.of_all('block', keys, args, COUNTS[option] or 1)
    if not list then return err end
    local ms, most, forget
    ms, err = contents.duration(args[1], 'a block')
    if not err and option == 'GROW' then
      most, err = contents.duration(args[3], 'the longest block (max_ms)', ms)
      if not err then forget, err = contents.duration(args[4], 'the memory of a block (forget_ms)') end
    end
    if err then return err end
    for i, key in ipairs(keys) do
      local held = list[i].use or forget and list[i].held and 'leases or an override for them, which take no GROW'
      if held then return states.in_use(key, held) end
    end
    local now, reply = clock.ms(), { 0 }
    local changed = contents.change(keys, list, nil, function(key, content)
      local length, grown = ms, content.grown
      if forget then
        if grown and now - grown.ends < forget then length = math.max(ms, math.min(most, 2 * grown.length)) end
        grown = { ends = now + length, length = length, forgotten = now + length + forget }
      end
      if not option or content.blocked < (forget and 1 or ms) then
        contents.put(key, content, now + length, content.override, forget and grown)
        reply[1], content.blocked = reply[1] + 1, length
      end
      reply[#reply + 1] = content.blocked
    end)
    return forget and type(changed) == 'number' and reply or changed
  end,
}
end

--@ src/verbs/info.lua
do
local function add(reply, prefix, limit)
  local list, names = {}, {}
  for i, part in ipairs(limit.limits or { limit }) do
    local entry = { limit.shadow and 1 or 0 }
    for _, rate in ipairs(part.rates) do
      entry[#entry + 1], entry[#entry + 2], entry[#entry + 3] = rate.count, rate.period, rate.capacity
    end
    list[i], names[i] = entry, part.algorithm.name
  end
  local size = #reply
  reply[size + 1], reply[size + 2], reply[size + 3], reply[size + 4] = prefix .. 'limit', list, prefix .. 'algorithms', names
end

redis.register_function{
  function_name = 'ratelimit_info', description = 'Returns the version, the contract, the build id and the policies of this library.',
  flags = { 'no-writes', 'allow-stale' }, callback = function(keys, args)
    if #keys > 0 then
      return errors.new('BADKEYS', '%s: info takes no key', errors.quote(keys[1]))
    elseif #args > 1 then
      return errors.new('BADARGS', '%s: info takes one limit, or none', errors.quote(args[2]))
    end
    local names = policies.names()
    local reply = { 'version', VERSION, 'contract', CONTRACT, 'build_id', BUILD_ID, 'policies', names }
    if not args[1] then
      local calls, shadows, classes, borrows = policies.counts(names)
      reply[9], reply[10], reply[11], reply[12], reply[13], reply[14] = 'shadow_denied', shadows, 'policy_calls', calls, 'class_calls', classes
      reply[15], reply[16] = 'borrow_calls', borrows
    else
      local limit, err = limits.read(args[1])
      if not limit then return err end
      add(reply, '', limit)
      if limit.canary then add(reply, 'canary_', limit.canary) end
      local classes, list = (limit.limits or { limit })[1].classes, {}
      for _, name in ipairs(type(classes) == 'table' and sorted_keys(classes) or {}) do
        list[#list + 1], list[#list + 2] = name, classes[name]
      end
      if classes then reply[#reply + 1], reply[#reply + 2] = 'classes', list end
      local policy = string.sub(args[1], 1, 1) == '@' and policies.find(args[1]) or {}
      if policy.penalty then reply[#reply + 1], reply[#reply + 2] = 'penalty', policy.penalty end
      if policy.warn then reply[#reply + 1], reply[#reply + 2] = 'warn', policy.warn end
      if policy.borrow then reply[#reply + 1], reply[#reply + 2] = 'borrow', policy.borrow end
    end
    return reply
  end,
}
end

--@ src/verbs/override.lua
do
redis.register_function{
  function_name = 'ratelimit_override', description = 'Puts another limit on the keys for some milliseconds.',
  flags = { 'allow-oom' }, callback = function(keys, args)
    local list, err = contents.of_all('override', keys, args, 2)
    if err then return err end
    local limit, ms
    limit, err = overrides.limit(args[1])
    if err then return err end
    ms, err = contents.duration(args[2], 'an override')
    if err then return err end
    for i, key in ipairs(keys) do
      local content = list[i]
      local held = content.use or content.held and not limit.lease and 'leases or an override for them'
        or limit.lease and not content.leases and (content.left >= 0 and 'the state of a limit or an override for one' or content.grown and 'a block with GROW')
      if held then return states.in_use(key, held) end
    end
    local override = { ends = clock.ms() + ms, limit = limit, text = args[1] }
    return contents.change(keys, list, nil, function(key, content)
      contents.put(key, content, nil, override)
    end)
  end,
}
end

--@ src/verbs/override_end.lua
do
redis.register_function{
  function_name = 'ratelimit_override_end', description = 'Removes the overrides of the keys; returns how many had one.',
  flags = { 'allow-oom' }, callback = function(keys, args) return contents.remove('override_end', keys, args, overrides.active, contents.put) end,
}
end

--@ src/verbs/peek.lua
do
local OPTIONS = { COST = true, UPTO = true, FLOOR = true, CLASS = true, BORROW = true, EACH = true, GROW = true }

redis.register_function{
  function_name = 'ratelimit_peek', description = 'Returns what ratelimit_take would, and changes nothing.',
  flags = { 'no-writes' }, callback = function(keys, args)
    local request, err = requests.plain(keys, args), nil
    if not request then request, err = requests.read(keys, args, OPTIONS) end
    if err then return err end
    local reply, list = (request.BORROW and borrowing or decisions).decide(keys, request, 'charge', true), {}
    if not request.GROW or reply.err then return reply end
    reply = { unpack(reply) }
    for i, key in ipairs(keys) do
      local grown = (states.look(key) or list).grown
      list[i] = { grown and grown.length or 0, grown and grown.forgotten - clock.ms() or 0 }
    end
    reply[#reply + 1], reply[#reply + 2] = 'grow', list
    return reply
  end,
}
end

--@ src/verbs/refund.lua
do
local OPTIONS = { COST = true, BORROW = true, PAID = true, ONCE = true, EACH = true }

redis.register_function{
  function_name = 'ratelimit_refund', description = 'Gives cost back to the keys, never beyond full.',
  callback = function(keys, args)
    local plain = requests.plain(keys, args)
    if plain then return (decisions.decide(keys, plain, 'refund')) end
    local request, err = requests.read(keys, args, OPTIONS)
    if err then return err end
    local request_key = request.ONCE
    local before = request_key and once.read(request_key)
    if before then return before end
    local reply, gives_back = (request.BORROW and borrowing or decisions).decide(keys, request, 'refund')
    if request_key and gives_back then once.keep(request_key, reply, request.ttl) end
    return reply
  end,
}
end

--@ src/verbs/release.lua
do
redis.register_function{
  function_name = 'ratelimit_release', description = 'Gives a lease back: 1, or 0 if this id holds none.',
  flags = { 'allow-oom' }, callback = function(keys, args) return leases.call('release', keys, args) end,
}
end

--@ src/verbs/renew.lua
do
redis.register_function{
  function_name = 'ratelimit_renew', description = 'Prolongs a lease that is held.',
  flags = { 'allow-oom' }, callback = function(keys, args) return leases.call('renew', keys, args) end,
}
end

--@ src/verbs/reset.lua
do
redis.register_function{
  function_name = 'ratelimit_reset', description = 'Forgets the keys; returns how many held something.',
  flags = { 'allow-oom' }, callback = function(keys, args)
    local list, err = contents.of_all('reset', keys, args, 0)
    if not list then return err end
    local changed = 0
    for i, key in ipairs(keys) do
      if not list[i].empty then changed = changed + redis.call('UNLINK', key) end
    end
    return changed
  end,
}
end

--@ src/verbs/take.lua
do
local one, above, LONGEST_KEY = one_key.decide, one_key.above, requests.LONGEST_KEY
local OPTIONS = { COST = true, UPTO = true, FORCE = true, FLOOR = true, CLASS = true, BORROW = true, ONCE = true, TRACK = true, EACH = true }

local function decide_with_options(keys, request)
  local request_key, usage_key, limit, cost = request.ONCE, request.TRACK, request.limits[1], request.costs[1]
  local before = request_key and once.read(request_key)
  if before then return before end
  local err = usage_key and tracking.read(usage_key)
  if err then return err end
  local reply, charged, passes
  if request.BORROW then
    reply, charged, passes = borrowing.decide(keys, request, 'charge')
  elseif request.count == 1 and not (request.UPTO == 0 or request.EACH or request.groups) then
    local option, calls = request.UPTO and 'UPTO' or request.FORCE and 'FORCE', request.calls_of and request.calls_of[1]
    if request.floors or calls then
      reply = above(keys[1], limit, request.UPTO or cost, option, request.floors and request.floors[1] or 0, calls or limit.calls)
    else
      reply = one(keys[1], limit, request.UPTO or cost, option)
    end
    passes = reply[1] and reply[1] > 0
    charged = passes and (request.UPTO or cost) > 0 -- with UPTO, an override may give more than costs, which the limit's capacity bounds
  else
    reply, charged, passes = decisions.decide(keys, request, request.FORCE and 'force' or 'charge')
  end
  if reply.err then return reply end
  if charged and request_key then once.keep(request_key, reply, request.ttl) end
  if usage_key then tracking.note(usage_key, passes, request.UPTO and reply[1] or cost) end
  return reply
end

local single = { limits = {}, costs = {}, count = 1 }

local function floor_of(limit, option, text)
  local floor, classes = nil, limit.classes
  if option == 'FLOOR' then
    floor, text = requests.percent(text), ''
  elseif option == 'CLASS' then
    floor = type(classes) == 'table' and classes[text]
  end
  return floor, limit.calls and floor and policies.calls(limit.side, text)
end

local both = { limits = {}, costs = {} }

local function borrow(keys, args, guarantee)
  local pool, number, cost = limits.known[args[2]], #args, 1
  if number == 6 and args[3] == 'COST' then
    cost = numbers.parse(args[4])
  elseif number ~= 4 then
    return nil
  end
  local percent = requests.percent(args[number])
  if not (pool and cost and percent and guarantee.rate and pool.rate) or guarantee.name or pool.name then return nil end
  if guarantee.asks + pool.asks > requests.FEW then return nil end
  if keys[1] == keys[2] or #keys[2] > LONGEST_KEY then return nil end
  both.limits[1], both.limits[2], both.costs[1], both.BORROW = guarantee, pool, cost, percent
  return (borrowing.decide(keys, both, 'charge'))
end

local function direct(keys, args, limit)
  local number, at, cost = #keys, 2, 1
  if number > 2 or number == 0 or #keys[1] > LONGEST_KEY then return nil end
  if number == 2 and args[#args - 1] == 'BORROW' then return borrow(keys, args, limit) end
  if limit.canary then limit = policies.side(limit, keys[1]).alone or limit end
  if args[2] == 'COST' then cost, at = numbers.parse(args[3] or ''), 4 end
  local option, more = args[at], #args - at
  if not limit.probe or not cost then
    return nil
  elseif number == 1 then
    local floor, calls = limit.floor, limit.calls
    if more == 1 then
      floor, calls = floor_of(limit, option, args[at + 1])
      if not floor then return nil end
      option = nil
    elseif option and (more > 0 or floor and option == 'FORCE' or option ~= 'FORCE' and (option ~= 'UPTO' or cost == 0)) then
      return nil
    end
    if not floor then return one(keys[1], limit, cost, option) end
    return above(keys[1], limit, cost, option, floor, calls)
  elseif limit.floor then
    return nil
  end
  local ttl = more == 1 and option == 'ONCE' and numbers.parse_positive(args[at + 1])
  if not ttl and (more ~= 0 or option ~= 'TRACK') or ttl and ttl > limits.LONGEST or keys[1] == keys[2] or #keys[2] > LONGEST_KEY then return nil end
  single.limits[1], single.costs[1], single.ttl, single.ONCE, single.TRACK = limit, cost, ttl, ttl and keys[2], not ttl and keys[2]
  return decide_with_options(keys, single)
end

redis.register_function{
  function_name = 'ratelimit_take', description = 'Decides whether a call may pass, and charges it if so: all limits or none.',
  callback = function(keys, args)
    clock.now = nil
    local limit = limits.known[args[1]]
    if limit then
      if #args == 1 and #keys == 1 and limit.plain and #keys[1] <= LONGEST_KEY then return one(keys[1], limit, 1) end
      local reply = direct(keys, args, limit)
      if reply then return reply end
    end
    local plain = requests.plain(keys, args)
    if plain then return decisions.plain(keys, plain) end
    local request, err = requests.read(keys, args, OPTIONS)
    return err or decide_with_options(keys, request)
  end,
}
end

--@ src/verbs/unblock.lua
do
local function is_blocked(content) return content.blocked > 0 or content.grown end

local function unblock(key, content) contents.put(key, content, 0, content.override) end

redis.register_function{
  function_name = 'ratelimit_unblock', description = 'Lifts the blocks of the keys; returns how many were blocked.',
  flags = { 'allow-oom' }, callback = function(keys, args) return contents.remove('unblock', keys, args, is_blocked, unblock) end,
}
end

--@ src/verbs/usage.lua
do
redis.register_function{
  function_name = 'ratelimit_usage', description = 'Returns what TRACK has counted under a usage key.',
  flags = { 'no-writes' }, callback = function(keys, args)
    if #keys ~= 1 then
      return errors.new('BADKEYS', 'the number of keys is %d; usage takes one', #keys)
    elseif #args > 0 then
      return errors.new('BADARGS', '%s: usage takes the key only', errors.quote(args[1]))
    end
    return requests.too_long(keys) or tracking.check(keys[1]) or tracking.usage(keys[1])
  end,
}
end
