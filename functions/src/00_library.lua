-- This library limits rates on the server. Each call makes one atomic decision.
--
-- This file is the first of the library. The build (functions/build.go) joins the sources in this order:
-- src/*.lua by name, src/algorithms/*.lua, src/verbs/*.lua. Each file except this one has its own scope.
-- A file in src exports its functions in a table named after it: src/45_limits.lua fills `limits`.
--
-- While Redis loads a library, only redis.register_function, redis.log and the version constants
-- exist: no string, no math, no redis.call. Top-level code may therefore only build tables and
-- functions. functions/CALLS.md describes the arguments and replies.

local VERSION = '@VERSION@'
local CONTRACT = 1
local BUILD_ID = '@BUILD_ID@'

-- From Redis 7.2 on, the time does not change during a call. In earlier versions, two commands of
-- one call can see different milliseconds, so a duration read with PTTL must not be written back
-- with PEXPIRE. Valkey reports version 7.2.4 and behaves like it.
local CLOCK_STANDS = (redis.REDIS_VERSION_NUM or 0) >= 0x00070200

-- algorithms holds the algorithms by name; src/algorithms/*.lua fill it. src/45_limits.lua
-- documents their fields.
local algorithms = {}

-- sorted_keys returns the keys of a table, sorted.
local function sorted_keys(of)
  local keys = {}
  for key in pairs(of) do
    keys[#keys + 1] = key
  end
  table.sort(keys)
  return keys
end
