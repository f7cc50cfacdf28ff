-- The arguments of acquire, renew and release: one key, a limit for leases, and the lease's id.

local LONGEST_ID = 256 -- bytes

-- call returns the result of the algorithm's function named verb.
function leases.call(verb, keys, args)
  if #keys ~= 1 then
    return errors.new('BADKEYS', 'the number of keys is %d; %s takes one', #keys, verb)
  elseif #args ~= 2 then
    return errors.new('BADARGS', 'the number of arguments is %d; %s takes a limit and a lease id', #args, verb)
  end
  local text, shadow = args[1], nil
  if string.sub(text, 1, 1) == '@' then
    text, shadow = policies.lease(text)
    if not text then
      return shadow -- the error
    end
  end
  local limit, err = limits.leases(text)
  if not limit then return err end
  local id = args[2]
  if #id == 0 or #id > LONGEST_ID then
    return errors.new('BADARGS', 'the lease id %s is not of 1 to %d bytes', errors.quote(id), LONGEST_ID)
  end
  local reply = limit.algorithm[verb](keys[1], limit, id)
  if shadow and verb ~= 'release' then return shadows.lease(shadow, reply) end
  return reply
end
