-- leaky_bucket: a queue that is left at n/period and holds at most b (default n). A call that finds room is admitted
-- and told in retry_after_ms how long to wait before it proceeds, so that what is admitted comes out evenly spaced.
-- The same arithmetic and the same state as gcra: TAT is when the last one admitted has left; a call waits for those
-- before it, which is its debt before it is charged.
--
-- State: "leaky_bucket:<TAT>", see gcra.

local gcra = algorithms.gcra

local function step(text, now, rate, cost)
  local allowed, remaining, retry, reset, following, full = gcra.step(text, now, rate, cost)
  if allowed and cost > 0 then
    retry = spans.whole_ms(gcra.debt_of(text, now, rate, cost))
  end
  return allowed, remaining, retry, reset, following, full
end

algorithms.leaky_bucket = {
  name = 'leaky_bucket',
  prefix = 'leaky_bucket:',
  options = { burst = numbers.positive_option },
  rate = gcra.rate,
  limit = packed.complete,
  holds = packed.prefixed('leaky_bucket:'),
  step = step,
  give = gcra.give,
  spend = gcra.spend,
}
