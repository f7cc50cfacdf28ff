-- ratelimit_block denies the keys for a time, regardless of their limits. Units that were taken before
-- still count, and continue to refill. A second block replaces the first, unless EXTEND is given and
-- the first ends later. With GROW, a block that is in effect stays. Otherwise, the new block is twice as
-- long as the last block with GROW, if that ended less than forget_ms ago: from ms to max_ms.
--   KEYS   one or more
--   ARGV   ms [EXTEND | GROW max_ms forget_ms]
--   Output the number of keys; all of them are blocked now. With GROW, a list: the number of keys that
--          this call has blocked, then for each key the ms until its block ends
--   Errors BADARGS BADKEYS BADSTATE (a key holds a reply (ONCE) or a usage record, or was not written by a limiter; no key is then blocked)

local OPTIONS = { EXTEND = 'EXTEND', extend = 'EXTEND', GROW = 'GROW', grow = 'GROW' }
local COUNTS = { EXTEND = 2, GROW = 4 } -- arguments

redis.register_function{
  function_name = 'ratelimit_block', description = 'Denies the keys for some milliseconds, regardless of their limits.',
  flags = { 'allow-oom' }, callback = function(keys, args)
    local option = OPTIONS[args[2]]
    local list, err = contents.of_all('block', keys, args, COUNTS[option] or 1)
    if not list then return err end
    local ms, most, forget
    ms, err = contents.duration(args[1], 'a block')
    if not err and option == 'GROW' then
      most, err = contents.duration(args[3], 'the longest block (max_ms)', ms)
      if not err then forget, err = contents.duration(args[4], 'the memory of a block (forget_ms)') end
    end
    if err then return err end
    for i, key in ipairs(keys) do
      local held = list[i].use or forget and list[i].held and 'leases or an override for them, which take no GROW'
      if held then return states.in_use(key, held) end
    end
    local now, reply = clock.ms(), { 0 }
    local changed = contents.change(keys, list, nil, function(key, content)
      local length, grown = ms, content.grown
      if forget then
        if grown and now - grown.ends < forget then length = math.max(ms, math.min(most, 2 * grown.length)) end
        grown = { ends = now + length, length = length, forgotten = now + length + forget }
      end
      if not option or content.blocked < (forget and 1 or ms) then
        contents.put(key, content, now + length, content.override, forget and grown)
        reply[1], content.blocked = reply[1] + 1, length
      end
      reply[#reply + 1] = content.blocked
    end)
    return forget and type(changed) == 'number' and reply or changed
  end,
}
