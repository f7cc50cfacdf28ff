-- ratelimit_info: what is deployed here.
--   KEYS, ARGV none
--   Output { "version", text, "contract", integer, "build_id", text, "policies", { name, ... },
--            "shadow_denied", { name, count, ... } }
--   Errors BADARGS BADKEYS

clock.register{
  function_name = 'ratelimit_info',
  description = 'Returns the version, the contract, the build id and the policies of this library.',
  flags = { 'no-writes', 'allow-stale' },
  callback = function(keys, args)
    if #keys > 0 then
      return errors.new('BADKEYS', '%s: info takes no key', errors.quote(keys[1]))
    elseif #args > 0 then
      return errors.new('BADARGS', '%s: info takes no argument', errors.quote(args[1]))
    end
    local names = policies.names()
    return {
      'version', VERSION, 'contract', CONTRACT, 'build_id', BUILD_ID, 'policies', names, 'shadow_denied', shadows.counts(),
    }
  end,
}
