-- ratelimit_unblock lifts the blocks of the keys, and forgets what GROW remembers of them. Units that were
-- taken before still count.
--   KEYS   one or more
--   ARGV   none
--   Output the number of keys that were blocked or remembered
--   Errors BADARGS BADKEYS BADSTATE (one of the keys was not written by a limiter; no key is then changed)

local function is_blocked(content) return content.blocked > 0 or content.grown end

local function unblock(key, content) contents.put(key, content, 0, content.override) end

redis.register_function{
  function_name = 'ratelimit_unblock', description = 'Lifts the blocks of the keys; returns how many were blocked.',
  flags = { 'allow-oom' }, callback = function(keys, args) return contents.remove('unblock', keys, args, is_blocked, unblock) end,
}
