-- This file implements the calendar of fixed_window with align=clock: the periods w (weeks from Monday),
-- mo and y, and the options zone and from. Dates are in the proleptic Gregorian calendar.
-- calendar.complete sets two fields of a rate:
--   shift   ms to add to a time to find its window; nil if the rate needs no calendar
--   months  the months in a window; nil for windows of equal length

local DAY = 86400000 -- ms
local THURSDAY = 3 -- the epoch's day of the week, in days after Monday
local MOST_ZONE = 18 * 60 -- minutes

-- Months are counted from March of the year 0, so that a leap day is the last day of a year.
local EPOCH = 719468 -- days from March 1 of the year 0 to January 1, 1970
local JANUARY = 10
local MONTHS = { mo = 1, y = 12 }

-- LONGEST holds the length in ms of the longest window of each unit.
calendar.LONGEST = { w = 7 * DAY, mo = 31 * DAY, y = 366 * DAY }

-- zone parses the value of the option zone. It returns ms, or nil and what was expected.
function calendar.zone(text)
  local sign, hours, minutes = string.match(text, '^([+-])(%d%d):([0-5]%d)$')
  local offset = sign and tonumber(hours) * 60 + tonumber(minutes)
  if not offset or offset > MOST_ZONE then
    return nil, 'an offset from -18:00 to +18:00, such as +05:30; a zone with summer time would need a table of its changes on '
      .. 'every server, so write one offset for the whole year'
  end
  return (sign == '-' and -offset or offset) * 60000
end

-- from parses the value of `from=`. It returns the day of the month, or nil and what was expected.
function calendar.from(text)
  local day = numbers.parse_positive(text)
  return day and day <= 31 and day or nil, 'a day of the month from 1 to 31'
end

-- complete sets rate.shift and rate.months. It returns a message if the options of the rate
-- contradict each other, otherwise nil.
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

-- first_day returns the first day of a month, in days since the epoch.
local function first_day(month)
  local year = math.floor(month / 12)
  local leap_days = math.floor(year / 4) - math.floor(year / 100) + math.floor(year / 400)
  return 365 * year + leap_days + math.floor((153 * (month % 12) + 2) / 5) - EPOCH
end

-- left returns the time in ms until the open window ends, for a rate with align=clock.
function calendar.left(rate, now)
  local here, step, from = now + (rate.shift or 0), rate.months, rate.from or 1
  if not step then return rate.period - here % rate.period end
  -- 400 years have 4800 months and 146097 days, so this estimate of the current month is off by at most
  -- one. Subtracting 2 makes the loop start at a window that has already begun.
  local month = math.floor((here / DAY + EPOCH) * 4800 / 146097) - 2
  month = month - (month - JANUARY) % step
  local begins
  repeat
    month = month + step
    begins = math.min(first_day(month) + from, first_day(month + 1)) - 1
  until begins * DAY > here
  return begins * DAY - here
end
