-- This code is prepended to the library. It replaces redis, string and struct with tables whose
-- functions count commands, their bytes, and operations on strings.
local commands, bytes, steps = 0, 0, 0
local function real_redis() return redis end -- not cached: redis is a different table while the library loads
local function real_string() return string end
local function real_struct() return struct end

local function size(values)
  local sum = 0
  for i = 1, #values do
    local value = values[i]
    if type(value) == 'string' then
      sum = sum + #value
    elseif type(value) == 'table' then
      sum = sum + size(value)
    end
  end
  return sum
end

local function counting(name)
  return function(...)
    local reply = real_redis()[name](...)
    commands = commands + 1
    bytes = bytes + size{ ... } + size{ reply }
    return reply
  end
end

local redis = {
  call = counting('call'), pcall = counting('pcall'), register_function = redis.register_function,
  error_reply = function(text) return real_redis().error_reply(text) end, REDIS_VERSION_NUM = redis.REDIS_VERSION_NUM,
}

local function stepping(of, name)
  return function(...)
    steps = steps + 1
    return of()[name](...)
  end
end

local string = {
  byte = stepping(real_string, 'byte'), find = stepping(real_string, 'find'), format = stepping(real_string, 'format'),
  gsub = stepping(real_string, 'gsub'), match = stepping(real_string, 'match'), rep = stepping(real_string, 'rep'),
  sub = stepping(real_string, 'sub'), lower = stepping(real_string, 'lower'), upper = stepping(real_string, 'upper'),
  gmatch = function(text, pattern)
    local following = real_string().gmatch(text, pattern)
    return function()
      steps = steps + 1
      return following()
    end
  end,
}
local struct = { pack = stepping(real_struct, 'pack'), unpack = stepping(real_struct, 'unpack') }

redis.register_function{ function_name = 'ratelimit_counted', flags = { 'no-writes' }, callback = function()
  local work = { commands, bytes, steps }
  commands, bytes, steps = 0, 0, 0
  return work
end }
