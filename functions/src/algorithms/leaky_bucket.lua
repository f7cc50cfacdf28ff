-- leaky_bucket: a queue that drains at n/period and holds at most b (default n). A call that finds
-- room is admitted. Its retry_after_ms says how long to wait before it proceeds, so that admitted
-- calls are evenly spaced. The state and arithmetic are those of gcra: TAT is when the last
-- admitted call has left the queue. A call waits for those before it, which is the debt before it
-- is charged.

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
  holds = function() return false end, -- it writes states of gcra
  open = gcra.open,
  save = gcra.save,
  plain = gcra.plain,
  in_place = gcra.in_place,
}
