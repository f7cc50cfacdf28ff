-- The arithmetic of gcra and leaky_bucket. Read src/algorithms/gcra.lua first: it explains TAT, T
-- and b. The debt of a rate is TAT - now: the time until the rate is full again. Debts are counted
-- in ticks. A tick is so small that all debts are whole numbers, so only replies and expiries are
-- rounded, and T itself for limits whose ticks would be too small (the function round in gcra.lua). T is
-- rate.interval ticks, b*T is rate.full ticks, and a unit of the clock (1 ms or 1 us) is rate.ticks ticks. For example, T of 7000/h is 514 2/7 ms: a tick is 1/7 ms, T is 3600 ticks, and
-- 1 ms is 7 ticks. T of 6000/h is 600 ms: a tick is 1 ms.
--
-- A take leaves a debt of at most b*T, where b is the burst. A larger stored debt comes from a limit with a
-- longer period or a larger burst, or from before the clock was set back. If it would deny this call for
-- longer than a full refill, it is replaced by a debt that leaves room for just this call: the key is
-- usable at once at the new rate, but the old burst is not granted again.
--
-- FORCE leaves a debt of up to (2b - 1)T. A debt above b*T that FORCE has left is stored with a mark,
-- because it must be paid off. It is replaced only if it is larger than FORCE can leave.

-- ceil converts a debt in ticks into a longer unit, which has the given number of ticks, and rounds
-- up.
local function ceil(debt, ticks)
  if ticks == 1 then return debt end
  local over = debt % ticks
  return (over > 0 and debt - over + ticks or debt) / ticks
end
gcra_debt.ceil = ceil

gcra_debt.MARK = '-debt' -- the end of a stored text, if FORCE has left a debt above b*T

-- set sets the debt of a state. forced says whether the stored debt has the mark. The call would have to
-- wait until the debt is paid off down to b*T less the units of the call. A debt for which this takes
-- longer than a full refill, b*T, is impossible: set replaces it with one that leaves room for this
-- call. For a marked debt, 1 unit takes the place of the call's units, because FORCE leaves at most (2b - 1)T.
-- set reports whether it kept the debt.
function gcra_debt.set(state, debt, cost, forced)
  local rate = state.rate
  local interval, full = rate.interval, rate.full
  local room, keeps = full - debt, true
  if room < 0 then
    keeps = -room <= full - interval * (forced and 1 or states.needs(rate.capacity, cost))
    if not keeps then
      debt = interval * states.most_spent(state, cost)
      room = full - debt
    end
    state.forced = forced -- only used while the debt is above b*T
  end
  state.debt = debt
  state.free = room > 0 and (room - room % interval) / interval or 0
  return keeps
end

-- After FORCE, free may be below 0; the caller then sets it to 0.
function gcra_debt.charge(state, units)
  local rate = state.rate
  local debt = state.debt + units * rate.interval
  state.debt, state.free, state.reset = debt, state.free - units, ceil(debt, rate.ticks_per_ms)
  if debt > rate.full then state.forced = true end
end

function gcra_debt.refund(state, units)
  gcra_debt.set(state, math.max(0, state.debt - units * state.rate.interval), 1, state.forced)
  state.reset = gcra_debt.reset(state)
end

-- marked reports whether the debt of a state is stored with the mark.
function gcra_debt.marked(state) return state.debt > state.rate.full and state.forced end

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
  return ceil(state.debt - (rate.full - cost * rate.interval), rate.ticks_per_ms)
end
