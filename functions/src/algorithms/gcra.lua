-- gcra: continuous refill at n/period, capacity b (default n). This is the virtual scheduling form
-- of the generic cell rate algorithm (ITU-T I.371, ATM Forum TM 4.0). It keeps one theoretical
-- arrival time, TAT, which each unit taken advances by the emission interval T = period/n. A call
-- is allowed if TAT is then at most b*T after now. (golang.org/x/time/rate stores the equivalent
-- number of tokens, b - (TAT - now)/T.) src/36_gcra_debt.lua implements this arithmetic.
--
-- TAT is stored in one of two ways. For each way, one file loads and writes keys:
--   src/37_gcra_expiry.lua   one rate with T of at least 1 ms (and see divide); the clock is in ms. The key's expiry is
--                            TAT, rounded up. The value is "gcra", or "gcra-<k>" if TAT is k ticks
--                            before the expiry. PTTL gives the debt, without TIME.
--   src/38_gcra_value.lua    any other limit; the clock is in us. The value is "gcra:<us>", or
--                            "gcra:<us>+<k>" if TAT is k ticks later (for several rates see
--                            src/35_packed.lua). The expiry is TAT, rounded up.
-- k counts back from the expiry, which is rounded up so that no key expires before TAT, and on from the us, which
-- are rounded down so that a TAT in whole us needs no k.
-- A debt that FORCE has left above b*T ends with "-debt" in both.
--
-- A limit stored in one way reads states stored in the other. If n, period or burst change, TAT stays
-- the same, so units taken under the old limit stay taken. k counts ticks of the limit that wrote it.
-- If k ticks of the current limit add up to 1 ms (or us) or more, TAT is rounded up.

local FINENESS = 1000000000 -- if T is rounded up, the error is below T / FINENESS

-- common_divisor returns the greatest common divisor of two positive whole numbers (Euclid's
-- algorithm).
local function common_divisor(a, b)
  while b > 0 do
    local rest = a % b
    a = b
    b = rest
  end
  return a
end

-- divide sets a rate's ticks for a clock with units_per_ms units in a ms. It reports whether all
-- debts can be counted in ticks, which requires that no debt exceeds 2^53.
local function divide(rate, units_per_ms)
  local period, count = rate.period * units_per_ms, rate.count
  local divisor = common_divisor(period, count)
  rate.ticks, rate.interval = count / divisor, period / divisor
  rate.full, rate.ticks_per_ms = rate.interval * rate.capacity, rate.ticks * units_per_ms
  return 2 * rate.full <= numbers.MOST
end

-- round sets a rounded-up T for a rate that divide cannot handle. The result is interval / ticks in
-- us: the smallest such fraction that is above T and keeps all debts at or below 2^53. round narrows
-- a lower and an upper bound of T by descending the Stern-Brocot tree, many steps at a time, as in
-- Euclid's algorithm. below and above are the distances of the bounds from T, multiplied by count and
-- by the ticks of the bound. above is never 0: the upper bound would then be T itself, whose interval is
-- larger than most, because divide could not handle it.
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

-- complete chooses how the limit's states are stored.
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
