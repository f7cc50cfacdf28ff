package client

import (
	"context"
	"time"
)

// Usage holds the counts of a usage key (Request.UsageKey). If nothing was counted in the last day,
// all fields except Interval are zero.
type Usage struct {
	Allowed int64 // number of allowed calls
	Denied  int64 // number of denied calls
	Cost    int64 // total cost of the allowed calls; if a call has several costs, the first counts

	First, Last time.Time // times of the first and last call, by the server's clock, in UTC; zero if there was none

	Interval time.Duration // length of each element of Series: one minute

	// Series has an element for each minute with calls, oldest first: the counts from Start, a whole
	// minute in UTC, to the next minute. It covers the minute of Last and the 59 minutes before it.
	Series []struct {
		Start           time.Time
		Allowed, Denied int64
	}
}

// Usage returns the counts of usageKey, and changes nothing. If usageKey holds anything but counts, the error is [ErrMisconfigured].
func (c *Client) Usage(ctx context.Context, usageKey string) (usage Usage, err error) {
	defer c.observers.report(ctx, "usage", time.Now(), nil, nil, &err)
	usageCall := &call{verb: "usage", keys: c.keys([]string{usageKey}), mode: readOnly}
	return ask(ctx, c.server, usageCall, "usage in fields and values", parseUsage)
}
