package client

import (
	"fmt"

	"github.com/ratelimit-functions/ratelimit/client/internal/limittext"
)

// Limit is a limit in the syntax of the server: [algorithm] n/period [option=value ...], for
// example
//
//	"100/m"                          100 a minute, refilled continuously (GCRA), up to 100 at once
//	"5/10s"                          5 in ten seconds
//	"gcra 10/s burst=20"             10 a second, up to 20 at once
//	"fixed_window 1000/h align=clock" 1000 in each hour of the clock, UTC
//	"fixed_window 9/mo align=clock"  9 in each month of the calendar, UTC; w and y are weeks and years
//	"concurrency 3 lease=30s"        3 at a time; for [Client.Lease]
//	"@login"                         the policy named login, deployed with the library
//
// An untyped constant works: Allow(ctx, key, "100/m"). The client does not check the text. If the
// limit is invalid or empty, the server rejects the call, and the error is [ErrMisconfigured].
// [ParseLimit] and [Client.Check] find that out earlier. Package
// limits makes limits from numbers.
type Limit string

// ParseLimit returns text as a Limit, or an error that says what is wrong with it. It needs no server.
// It accepts every limit of the current library except policies such as "@login", which only a server
// knows: [Client.Check] checks these.
func ParseLimit(text string) (Limit, error) {
	if _, err := limittext.Parse(text); err != nil {
		return "", refused("check", nil, fmt.Errorf("BADLIMIT %q: %w", text, err))
	}
	return Limit(text), nil
}
