-- ratelimit_peek: answers what ratelimit_take would, and writes nothing. For FCALL_RO too, on replicas as well.
--   KEYS, ARGV, Output, Errors as ratelimit_take

redis.register_function{
  function_name = 'ratelimit_peek',
  description = 'Answers what ratelimit_take would, and changes nothing.',
  flags = { 'no-writes' },
  callback = function(keys, args)
    return decisions.request(keys, args, false)
  end,
}
