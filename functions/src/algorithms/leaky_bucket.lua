-- leaky_bucket: a queue that is left at n/period and holds at most b (default n). A call that finds room is admitted
-- and told in retry_after_ms how long to wait before it proceeds, so that what is admitted comes out evenly spaced.
-- The same arithmetic and the same state as gcra: TAT is when the last one admitted has left; a call waits for those
-- before it, which is its debt before it is charged.

local gcra = algorithms.gcra

local function charge(state, units)
  state.delay = state.rate.reset(state)
  gcra.charge(state, units)
end

local function complete_rate(rate)
  gcra.rate(rate)
  rate.charge, rate.delays = charge, true
end

algorithms.leaky_bucket = {
  name = 'leaky_bucket',
  options = gcra.options,
  rate = complete_rate,
  limit = gcra.limit,
  holds = function() return false end, -- what it writes is gcra's
  open = gcra.open,
  save = gcra.save,
  plain = gcra.plain,
  in_place = gcra.in_place,
}
