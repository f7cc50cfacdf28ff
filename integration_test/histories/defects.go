package histories

import (
	"fmt"
	"strings"
)

// Defect is a change of the library that makes some replies impossible. A run on the changed
// library must find it.
type Defect struct {
	Name     string
	Old, New string // texts of the library
}

// Defects are changes that tests of the checker make.
var Defects = []Defect{
	{"a unit lost", `string.format('token_bucket:%d:%d', tokens, added)`, `string.format('token_bucket:%d:%d', tokens + 1, added)`},
	{"a denial that writes", `    local reset, retry, capacity = limit.waits(limit, cost, a, b, c)
    return answer(limit.calls, 0,`, `    local reset, retry, capacity = limit.waits(limit, cost, a, b, c)
    if free > 0 then limit.commit(key, limit, 1, a, b, c) end
    return answer(limit.calls, 0,`},
	{"a retry counted twice", `if charged and request_key then`, `if charged and request_key and cost ~= 1 then`},
	{"a wait 1 ms early", `-1 or ceil(debt + cost * rate.interval - rate.full, ticks)`, `-1 or ceil(debt + cost * rate.interval - rate.full, ticks) - 1`},
	{"a shadow charged", `group.charged = not group.denies and (ENFORCED.charged or verb == 'refund')`, `group.charged = not group.denies`},
	{"a lease too many", `if free > 0 then return keep(`, `if free >= 0 then return keep(`},
	{"a stale override", `return override and override.ends > clock.ms() and override or nil`, `return override and override.ends > clock.ms() - 500 and override or nil`},
	{"a refund twice", `if request_key and gives_back then`, `if request_key and gives_back and request.count > 1 then`},
	{"a block ignored", `elseif set.blocked > 0 and not renews then`, `elseif set.blocked > 1000 and not renews then`},
	{"a block that EXTEND shortens", `if not option or content.blocked < (forget and 1 or ms) then`, `if true then`},
	{"UPTO one too many", `fits = math.min(fits, costs[i], math.max(0, rooms[i]))`, `fits = math.min(fits, costs[i], math.max(0, rooms[i] + 1))`},
	{"FORCE without debt", `algorithm.charge(state, math.min(units, algorithm.spare(state)))`, `algorithm.charge(state, math.min(units, math.max(0, state.free)))`},
	{"a denial tracked as allowed", `if usage_key then tracking.note(usage_key, passes,`, `if usage_key then tracking.note(usage_key, true,`},
}

// Apply returns the library with the defect.
func (d Defect) Apply(text string) (string, error) {
	if n := strings.Count(text, d.Old); n != 1 {
		return "", fmt.Errorf("the defect %q changes a text that the library has %d times, and not once; change histories.Defects: %s", d.Name, n, d.Old)
	}
	return strings.Replace(text, d.Old, d.New, 1), nil
}
