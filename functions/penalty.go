package functions

import (
	"fmt"
	"time"

	"github.com/ratelimit-functions/ratelimit/internal/penalty"
	"github.com/ratelimit-functions/ratelimit/internal/span"
)

// Penalty is a block of a key for First, for twice as long the next time, and for at most Max. It is
// forgotten Forget after the end of a block. All are whole milliseconds, up to 36500 days.
type Penalty struct{ First, Max, Forget time.Duration }

// String returns the penalty as in policies.yaml: "1m..1h, forget 1d".
func (p Penalty) String() string {
	return fmt.Sprintf("%s..%s, forget %s", span.Text(p.First), span.Text(p.Max), span.Text(p.Forget))
}

// penaltyFault returns why the policy cannot have its penalty, or "". A penalty blocks the key, for all of
// its calls. So it must be clear which key is to blame, and no call may be denied for the sake of others.
func (p Policy) penaltyFault() string {
	switch {
	case p.Penalty == nil:
		return ""
	case p.Borrow:
		return "a guarantee and a pool take none, because the pool is not one caller's"
	case len(p.Limits) > 1:
		return fmt.Sprintf("a policy of %d limits takes none, because a block of each key could hit others; give the penalty to a policy of one limit", len(p.Limits))
	case len(p.Classes) > 0:
		return fmt.Sprintf("the %d classes of the policy share its keys, so a denial of one would block the others; leave the classes or the penalty out", len(p.Classes))
	}
	return penalty.Fault(p.Penalty.First, p.Penalty.Max, p.Penalty.Forget)
}
