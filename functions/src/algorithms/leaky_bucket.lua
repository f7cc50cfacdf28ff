-- leaky_bucket: a queue that drains at n/period and holds at most b (default n). A call that finds
-- room is admitted. Its retry_after_ms says how long to wait before it proceeds, so that admitted
-- calls are evenly spaced. The state and arithmetic are those of gcra: TAT is when the last
-- admitted call has left the queue. A call waits for those before it, which is the debt before it
-- is charged.

local leaky_bucket = gcra.algorithm('leaky_bucket')
algorithms.leaky_bucket = leaky_bucket

leaky_bucket.owner, leaky_bucket.delays = algorithms.gcra, true

function leaky_bucket.charge(state, units)
  state.delay = gcra.reset(state)
  gcra.charge(state, units)
end
