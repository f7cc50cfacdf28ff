-- leaky_bucket: a queue that drains at n/period and holds at most b (default n). A call that finds
-- room is admitted. Its retry_after_ms says how long to wait before it proceeds, so that admitted
-- calls are evenly spaced. The state and arithmetic are those of gcra: TAT is when the last
-- admitted call has left the queue. A call waits until the calls before it have left the queue.
-- This wait is the debt before the call is charged.

local gcra = algorithms.gcra

local function charge(state, units)
  state.delay = gcra.reset(state)
  gcra.charge(state, units)
end

algorithms.leaky_bucket = {
  name = 'leaky_bucket',
  prefix = gcra.prefix,
  options = gcra.options,
  complete = gcra.complete,
  stored_as = gcra,
  delays = true,
  charge = charge, refund = gcra.refund, spend = gcra.charge, spare = gcra.spare, reset = gcra.reset, wait = gcra.wait,
  read = gcra.read, save = gcra.save, convert = gcra.convert,
}
