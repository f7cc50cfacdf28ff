-- gcra: see src/36_gcra.lua.

-- algorithm returns a new algorithm that decides as gcra does.
function gcra.algorithm(name)
  return {
    name = name,
    prefix = 'gcra:',
    options = { burst = numbers.positive_option },
    complete_rate = gcra.complete_rate,
    complete = gcra.complete,
    charge = gcra.charge,
    refund = gcra.refund,
    spend = gcra.charge,
    reset = gcra.reset,
    wait = gcra.wait,
    read = gcra_us.read,
    save = gcra_us.save,
    plain = gcra_us.plain,
    in_place = true,
  }
end

algorithms.gcra = gcra.algorithm('gcra')
algorithms.gcra.holds = function(head)
  return gcra_us.holds(head) or gcra_ms.holds(head)
end
