-- ratelimit_info describes the deployed library.
--   KEYS none, ARGV none or a limit
--   Output { "version", text, "contract", integer, "build_id", text, "policies", { name, ... } }, and more fields.
--            Without a limit:
--              "shadow_denied", { name, count, ... }
--              "policy_calls", { { name, allowed, denied }, ... }; if the policy has a canary, its entry continues with
--              the canary's share in thousandths and the canary's allowed and denied
--              "class_calls", { { name, class, allowed, denied }, ... }
--              "borrow_calls", { { name, guaranteed, borrowed, denied }, ... }
--            With a limit:
--              "limit", { for each key: { 1 if a shadow policy, else 0; for each rate: n, period in ms, capacity }, ... }
--              "algorithms", { the name of the algorithm for each key, ... }
--            With a policy that has a canary also:
--              "canary_limit", "canary_algorithms"
--            With a policy that has classes also:
--              "classes", { name, percentage, ... }; empty under classes: any
--            With a policy that has a penalty also:
--              "penalty", { first block, longest block, memory: in ms }
--            With a policy that warns also:
--              "warn", percentage
--            With a policy of a guarantee and a pool also:
--              "borrow", percentage of the pool that borrowers leave
--   Errors BADARGS BADKEYS BADLIMIT NOPOLICY

-- add adds the fields limit and algorithms to the reply, with prefix in front of their names. Each
-- has one entry for each key.
local function add(reply, prefix, limit)
  local list, names = {}, {}
  for i, part in ipairs(limit.limits or { limit }) do
    local entry = { limit.shadow and 1 or 0 }
    for _, rate in ipairs(part.rates) do
      entry[#entry + 1], entry[#entry + 2], entry[#entry + 3] = rate.count, rate.period, rate.capacity
    end
    list[i], names[i] = entry, part.algorithm.name
  end
  local size = #reply
  reply[size + 1], reply[size + 2], reply[size + 3], reply[size + 4] = prefix .. 'limit', list, prefix .. 'algorithms', names
end

redis.register_function{
  function_name = 'ratelimit_info', description = 'Returns the version, the contract, the build id and the policies of this library.',
  flags = { 'no-writes', 'allow-stale' }, callback = function(keys, args)
    if #keys > 0 then
      return errors.new('BADKEYS', '%s: info takes no key', errors.quote(keys[1]))
    elseif #args > 1 then
      return errors.new('BADARGS', '%s: info takes one limit, or none', errors.quote(args[2]))
    end
    local names = policies.names()
    local reply = { 'version', VERSION, 'contract', CONTRACT, 'build_id', BUILD_ID, 'policies', names }
    if not args[1] then
      local calls, shadows, classes, borrows = policies.counts(names)
      reply[9], reply[10], reply[11], reply[12], reply[13], reply[14] = 'shadow_denied', shadows, 'policy_calls', calls, 'class_calls', classes
      reply[15], reply[16] = 'borrow_calls', borrows
    else
      local limit, err = limits.read(args[1]) -- and not limits.of: info remembers nothing
      if not limit then return err end
      add(reply, '', limit)
      if limit.canary then add(reply, 'canary_', limit.canary) end
      local classes, list = (limit.limits or { limit })[1].classes, {}
      for _, name in ipairs(type(classes) == 'table' and sorted_keys(classes) or {}) do
        list[#list + 1], list[#list + 2] = name, classes[name]
      end
      if classes then reply[#reply + 1], reply[#reply + 2] = 'classes', list end
      local policy = string.sub(args[1], 1, 1) == '@' and policies.find(args[1]) or {}
      if policy.penalty then reply[#reply + 1], reply[#reply + 2] = 'penalty', policy.penalty end
      if policy.warn then reply[#reply + 1], reply[#reply + 2] = 'warn', policy.warn end
      if policy.borrow then reply[#reply + 1], reply[#reply + 2] = 'borrow', policy.borrow end
    end
    return reply
  end,
}
