-- Rate limiting that decides on the server: one atomic decision a call.
--
-- This file opens the library. The build (functions/build.go) joins the sources in this order: src/*.lua by name,
-- src/algorithms/*.lua, src/verbs/*.lua. Each has a scope of its own, but for this file; what a file of src offers to
-- the others it puts into the table of its name: src/40_limits.lua fills `limits`.
--
-- While Redis loads a library nothing but redis.register_function, redis.log and the version constants exists: no
-- string, no math, no redis.call. Top-level code may therefore only build tables and functions.
-- What the functions take and return is written down in functions/CONTRACT.md.

local VERSION = '@VERSION@'
local CONTRACT = 1
local BUILD_ID = '@BUILD_ID@'

-- Time stands still during a call from Redis 7.2 on. Before, two commands of one call can see two milliseconds, so
-- what is read of the clock must not be written back as a difference to "now". Valkey says 7.2.4 here, rightly.
local CLOCK_STANDS = (redis.REDIS_VERSION_NUM or 0) >= 0x00070200

-- name -> algorithm. Filled by src/algorithms/*.lua; each of them describes itself as src/40_limits.lua asks for.
local algorithms = {}
