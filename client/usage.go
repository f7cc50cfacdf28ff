package client

import (
	"context"
	"time"
)

// Usage is what was counted under a usage key (Request.UsageKey). It is all zero where nothing was, or not for a day.
type Usage struct {
	Allowed int64 // calls
	Denied  int64 // calls
	Cost    int64 // of the allowed calls, for the first limit of each

	First, Last time.Time // the first and the last call, by the server's clock, in UTC; zero if there was none

	Interval time.Duration   // what each element of Series spans: a minute
	Series   []UsageInterval // of the minute of the last call and the 59 before it, those with a call, in order; not shared
}

// UsageInterval counts the calls from Start, a whole minute in UTC, to the next.
type UsageInterval struct {
	Start   time.Time
	Allowed int64
	Denied  int64
}

// Usage returns what was counted under usageKey, and changes nothing. Like [Client.PeekN], it may be read from a
// replica. A key that holds anything else is an error ([ErrBadState]).
func (c *Client) Usage(ctx context.Context, usageKey string) (usage Usage, err error) {
	if c.onCall != nil {
		defer func(began time.Time) { c.observeDone(ctx, "usage", began, err) }(time.Now())
	}
	keys := c.keys([]string{usageKey})
	reply, err := c.ask(ctx, call{verb: "usage", keys: keys, way: readOnly})
	if err != nil {
		return Usage{}, err
	}
	usage, ok := parseUsage(reply)
	if !ok {
		return Usage{}, badReply("usage", keys, "usage in fields and values", reply)
	}
	return usage, nil
}
