-- Spans of time kept exactly, for the algorithms with an emission interval T = period/n: whole microseconds, and a
-- part of one in units of 1/limit.parts of a microsecond. All of them are whole numbers below 2^53, so nothing is
-- rounded but on the way out.

local FINENESS = 1000000000

-- prepare completes a limit with its interval, and answers what is wrong with it, or nil.
-- capacity: the most units that are ever multiplied with the interval, twice of it.
--
-- A fraction too fine for such products is rounded up to one that is not, by less than a billionth of the interval:
-- over a million units that is a thousandth of one.
function spans.prepare(limit, capacity)
  local period = limit.period * 1000
  local divisor = numbers.common_divisor(period, limit.count)
  limit.parts = limit.count / divisor
  limit.interval_part = period / divisor % limit.parts
  limit.interval_us = (period / divisor - limit.interval_part) / limit.parts
  local most = math.floor(numbers.MOST / (2 * capacity))
  if limit.parts > most then
    if most * (period / limit.count) < FINENESS then
      return 'n/period is too fast for this burst to be counted exactly; use a smaller n or burst'
    end
    limit.interval_part = math.ceil(limit.interval_part / limit.parts * most)
    limit.parts = most
  end
  limit.interval_about = limit.interval_us + limit.interval_part / limit.parts
  return nil
end

-- times answers n emission intervals.
function spans.times(n, limit)
  if n == 1 then
    return limit.interval_us, limit.interval_part
  end
  local part = n * limit.interval_part
  local over = part % limit.parts
  return n * limit.interval_us + (part - over) / limit.parts, over
end

function spans.exceeds(us, part, other_us, other_part)
  return us > other_us or (us == other_us and part > other_part)
end

-- units answers how many whole intervals fit into a span; 0 if it is negative. (The part of a difference may be.) The
-- quotient of doubles tells, unless it is next to a whole number: then the products, which are exact, do.
function spans.units(us, part, limit)
  if part < 0 then
    us, part = us - 1, part + limit.parts
  end
  if us < 0 or (us == 0 and part <= 0) then
    return 0
  end
  local about = (us + part / limit.parts) / limit.interval_about
  local over = about % 1
  if over > 0.001 and over < 0.999 and about < 1000000000 then
    return about - over
  end
  local n = about - over + 1
  local n_us, n_part = spans.times(n, limit)
  while n > 0 and spans.exceeds(n_us, n_part, us, part) do
    n = n - 1
    n_us, n_part = spans.times(n, limit)
  end
  return n
end

-- whole_ms rounds a span up to milliseconds. part may be that of a difference, negative.
function spans.whole_ms(us, part)
  if part > 0 then
    us = us + 1
  end
  local over = us % 1000
  return (over > 0 and us + 1000 - over or us) / 1000
end

-- text writes a time as "<us>" or "<us>+<part>", after a prefix if one is given.
function spans.text(us, part, prefix)
  if part > 0 then
    return string.format('%s%.0f+%.0f', prefix or '', us, part)
  end
  return string.format('%s%.0f', prefix or '', us)
end

-- TIME is the pattern of such a text, its captures the us and the part ('': none). 16 digits of microseconds are the
-- years 2001 to 2286.
spans.TIME = '(%d%d%d%d%d%d%d%d%d%d%d%d%d%d%d%d)%+?(%d*)$'
