-- gcra: continuous refill at n/period, capacity b (default n). This is the virtual scheduling form
-- of the generic cell rate algorithm (ITU-T I.371, ATM Forum TM 4.0). It keeps one theoretical
-- arrival time, TAT, which each unit taken advances by the emission interval T = period/n. A call
-- is allowed while TAT is at most b*T after now. (golang.org/x/time/rate keeps the same as a number
-- of tokens: b - (TAT - now)/T.) The debt is TAT - now: the time until the rate is full again.
--
-- This file has the arithmetic. Debts are counted in ticks. A tick is small enough that all debts
-- are whole numbers, so only replies and expiries are rounded. T is rate.interval ticks, b*T is
-- rate.full ticks, and a unit of the clock (1 ms or 1 us) is rate.ticks ticks. TAT is stored in one
-- of two ways:
--
--   limit                      clock  the key's value                            its expiry
--   one rate, T of 1 ms or more   ms  "gcra", or "gcra-<k>": TAT is k ticks       TAT, rounded up. It is the state: PTTL
--                                     before the expiry                          gives the debt, without TIME
--   any other                     us  "gcra:<us>", or "gcra:<us>+<k>": TAT, and   TAT, rounded up
--                                     k ticks more; for several rates see src/35_packed.lua
--
-- src/37_gcra_ms.lua and src/38_gcra_us.lua read and write them. A limit stored in one way reads
-- states stored in the other. TAT is kept when n, period or burst change: what was taken under the
-- old limit stays taken. k is in ticks of the limit that wrote it. If a unit of the clock has at
-- most k ticks under the current limit, TAT is rounded up to the unit.
--
-- A stored debt above (2b - 1)T is replaced. A call of this limit leaves at most b*T. A limit with
-- twice the burst leaves at most 2b*T, which is (2b - 1)T after one T. A larger debt was stored
-- before the period was lowered or the clock was set back, and would lock the key for longer than a
-- full refill. The debt that replaces it leaves room for just this call: the key is usable at once
-- at the new rate, but does not grant the old burst again.
--
-- leaky_bucket uses the same state and arithmetic.

local FINENESS = 1000000000 -- if T is rounded up, the error is below T / FINENESS

-- ceil converts ticks into a longer unit of that many ticks, rounded up.
local function ceil(debt, ticks)
  if ticks == 1 then return debt end
  local over = debt % ticks
  return (over > 0 and debt + ticks - over or debt) / ticks
end
gcra.ceil = ceil

-- set sets the debt of a state. It replaces a debt above (2b - 1)T with one that leaves room for
-- this call, and reports whether it kept the debt.
function gcra.set(state, debt, cost)
  local rate = state.rate
  local interval, full = rate.interval, rate.full
  local keeps = debt + interval <= 2 * full
  if not keeps then
    debt = interval * states.most_spent(rate.capacity, cost)
  end
  local room = full - debt
  state.debt = debt
  state.free = room > 0 and (room - room % interval) / interval or 0
  return keeps
end

function gcra.charge(state, units)
  local rate = state.rate
  local debt = state.debt + units * rate.interval
  state.debt, state.free, state.reset = debt, state.free - units, ceil(debt, rate.ticks_per_ms)
end

function gcra.refund(state, units)
  gcra.set(state, math.max(0, state.debt - units * state.rate.interval), 1)
  state.reset = gcra.reset(state)
end

function gcra.reset(state)
  return ceil(state.debt, state.rate.ticks_per_ms)
end

function gcra.wait(state, cost)
  local rate = state.rate
  return ceil(state.debt + cost * rate.interval - rate.full, rate.ticks_per_ms)
end

------------------------------------------------------------------- limits

-- divide sets a rate's ticks for a clock with that many units in a ms. It reports whether all debts
-- can be counted in them, which requires that none exceeds 2^53.
local function divide(rate, units_per_ms)
  local period, count = rate.period * units_per_ms, rate.count
  local divisor = numbers.common_divisor(period, count)
  rate.ticks, rate.interval = count / divisor, period / divisor
  rate.full, rate.ticks_per_ms = rate.interval * rate.capacity, rate.ticks * units_per_ms
  return 2 * rate.full <= numbers.MOST
end

-- round sets a rounded-up T for a rate that divide cannot handle: the smallest fraction interval /
-- ticks of a us that is above T and keeps all debts at or below 2^53. It narrows a lower and an
-- upper bound of T down the Stern-Brocot tree, many steps at a time as in Euclid's algorithm. below
-- and above are the distances of the bounds from T, times count and the ticks of the bound.
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

function gcra.complete_rate(rate)
  rate.capacity, rate.burst = rate.burst or rate.count, nil
end

-- complete completes a limit for the clock in ms or in us.
function gcra.complete(limit)
  local rate = limit.rate
  if rate and rate.period >= rate.count and divide(rate, 1) then return gcra_ms.complete(limit) end
  for _, each in ipairs(limit.rates) do
    local wrong = not divide(each, 1000) and round(each) or nil
    if wrong then return wrong end
  end
  return gcra_us.complete(limit)
end
