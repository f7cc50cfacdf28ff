-- The arithmetic of gcra and leaky_bucket. Read src/algorithms/gcra.lua first: it explains TAT, T
-- and b. The debt of a rate is TAT - now: the time until the rate is full again. Debts are counted
-- in ticks. A tick is so small that all debts are whole numbers, so only replies and expiries are
-- rounded. T is rate.interval ticks, b*T is rate.full ticks, and a unit of the clock (1 ms or 1 us)
-- is rate.ticks ticks.
--
-- A take leaves a debt of at most b*T, where b is the burst, and with FORCE at most (2b - 1)T. A larger
-- stored debt comes from a limit with a longer period or a larger burst, or from before the clock was set
-- back. It would lock the key for longer than a full refill. It is therefore replaced by a debt that
-- leaves room for just this call: the key is usable at once at the new rate, but the old burst is not
-- granted again.

-- ceil converts a debt in ticks into a longer unit, which has the given number of ticks, and rounds
-- up.
local function ceil(debt, ticks)
  if ticks == 1 then return debt end
  local over = debt % ticks
  return (over > 0 and debt + ticks - over or debt) / ticks
end
gcra_debt.ceil = ceil

-- set sets the debt of a state. It replaces a debt above (2b - 1)T with one that leaves room for
-- this call, and reports whether it kept the debt.
function gcra_debt.set(state, debt, cost)
  local rate = state.rate
  local interval, full = rate.interval, rate.full
  local keeps = debt + interval <= 2 * full
  if not keeps then debt = interval * states.most_spent(rate.capacity, cost) end
  local room = full - debt
  state.debt = debt
  state.free = room > 0 and (room - room % interval) / interval or 0
  return keeps
end

function gcra_debt.charge(state, units)
  local rate = state.rate
  local debt = state.debt + units * rate.interval
  state.debt, state.free, state.reset = debt, state.free - units, ceil(debt, rate.ticks_per_ms)
end

function gcra_debt.refund(state, units)
  gcra_debt.set(state, math.max(0, state.debt - units * state.rate.interval), 1)
  state.reset = gcra_debt.reset(state)
end

-- spare returns how many units FORCE may charge. The debt stays at or below (2b - 1)T, because set
-- would replace a larger one.
function gcra_debt.spare(state)
  local rate = state.rate
  local interval = rate.interval
  local room = 2 * rate.full - interval - state.debt
  return (room - room % interval) / interval
end

function gcra_debt.reset(state) return ceil(state.debt, state.rate.ticks_per_ms) end

function gcra_debt.wait(state, cost)
  local rate = state.rate
  return ceil(state.debt + cost * rate.interval - rate.full, rate.ticks_per_ms)
end
