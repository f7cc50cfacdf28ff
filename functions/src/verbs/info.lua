-- ratelimit_info describes the deployed library.
--   KEYS none, ARGV none or a limit
--   Output { "version", text, "contract", integer, "build_id", text, "policies", { name, ... } }; without a limit also
--            "shadow_denied", { name, count, ... }, "policy_calls", { { name, allowed, denied }, ... }, where the entry of
--            a policy with a canary also has the canary's share in thousandths, allowed and denied; with a limit also
--            "limit", { for each key: { 1 if a shadow policy, else 0; for each rate: n, period in ms, capacity }, ... },
--            "algorithms", { the name of the algorithm for each key, ... }; with a policy that has a canary also
--            "canary_limit", "canary_algorithms"
--   Errors BADARGS BADKEYS BADLIMIT NOPOLICY

-- readings returns two lists with one entry for each key: the numbers read from the limit, and the
-- name of its algorithm.
local function readings(limit)
  local list, names = {}, {}
  for i, part in ipairs(limit.limits or { limit }) do
    list[i], names[i] = { limit.shadow and 1 or 0 }, part.algorithm.name
    for _, rate in ipairs(part.rates) do
      for _, number in ipairs{ rate.count, rate.period, rate.capacity } do
        list[i][#list[i] + 1] = number
      end
    end
  end
  return list, names
end

clock.register{
  function_name = 'ratelimit_info',
  description = 'Returns the version, the contract, the build id and the policies of this library.',
  flags = { 'no-writes', 'allow-stale' },
  callback = function(keys, args)
    if #keys > 0 then
      return errors.new('BADKEYS', '%s: info takes no key', errors.quote(keys[1]))
    elseif #args > 1 then
      return errors.new('BADARGS', '%s: info takes one limit, or none', errors.quote(args[2]))
    end
    local names = policies.names()
    local reply = { 'version', VERSION, 'contract', CONTRACT, 'build_id', BUILD_ID, 'policies', names }
    if not args[1] then
      local calls, shadows = policies.counts(names)
      reply[9], reply[10], reply[11], reply[12] = 'shadow_denied', shadows, 'policy_calls', calls
    else
      local limit, err = limits.of(args[1])
      if not limit then return err end
      local list, kinds = readings(limit)
      local fields = { 'limit', list, 'algorithms', kinds }
      if limit.canary then
        list, kinds = readings(limit.canary)
        fields[5], fields[6], fields[7], fields[8] = 'canary_limit', list, 'canary_algorithms', kinds
      end
      for _, field in ipairs(fields) do
        reply[#reply + 1] = field
      end
    end
    return reply
  end,
}
