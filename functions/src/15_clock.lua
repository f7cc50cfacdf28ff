-- This file reads the server's time once per call, so that all limits of a call use the same time, even
-- on Redis 7.0, where the time advances during a call. Each function that uses the time first sets
-- clock.now to nil: ratelimit_take does so itself, and the others call requests.read, contents.of_all or
-- leases.call.

-- us returns the time in whole microseconds since the epoch.
function clock.us()
  local now = clock.now
  if not now then
    local time = redis.call('TIME')
    now = time[1] * 1000000 + time[2]
    clock.now = now
  end
  return now
end

-- ms returns the time in whole milliseconds since the epoch, rounded down as Redis does when it
-- expires keys.
function clock.ms()
  local now = clock.us()
  return (now - now % 1000) / 1000
end

-- ceil_ms rounds microseconds up to milliseconds.
function clock.ceil_ms(us)
  local over = us % 1000
  return (over > 0 and us - over + 1000 or us) / 1000
end
