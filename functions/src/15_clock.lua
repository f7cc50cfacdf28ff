-- The server's time, read once a call: every limit of a call sees the same moment, also on Redis 7.0, where time goes on
-- during one. Every function begins by forgetting it: clock.register sees to that, and ratelimit_take does so itself, to
-- save a call.

-- register registers a function as redis.register_function does.
function clock.register(definition)
  local callback = definition.callback
  definition.callback = function(keys, args)
    clock.now = nil
    return callback(keys, args)
  end
  redis.register_function(definition)
end

-- us returns whole microseconds since the epoch.
function clock.us()
  local now = clock.now
  if not now then
    local time = redis.call('TIME')
    now = time[1] * 1000000 + time[2]
    clock.now = now
  end
  return now
end

-- ms returns whole milliseconds since the epoch, rounded down as Redis rounds when keys expire.
function clock.ms()
  local now = clock.us()
  return (now - now % 1000) / 1000
end

-- ceil_ms rounds microseconds up to milliseconds.
function clock.ceil_ms(us)
  local over = us % 1000
  return (over > 0 and us + 1000 - over or us) / 1000
end
