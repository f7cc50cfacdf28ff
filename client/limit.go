package client

import (
	"strconv"
	"time"
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
// limit is invalid or empty, the server rejects the call, and the error is [ErrBadLimit].
type Limit string

// PerSecond returns a limit of n per second: PerSecond(10) is "10/s".
func PerSecond(n int64) Limit { return per(n, "s") }

// PerMinute returns a limit of n per minute: PerMinute(100) is "100/m".
func PerMinute(n int64) Limit { return per(n, "m") }

// PerHour returns a limit of n per hour: PerHour(1000) is "1000/h".
func PerHour(n int64) Limit { return per(n, "h") }

// PerDay returns a limit of n per 24 hours: PerDay(5000) is "5000/d".
func PerDay(n int64) Limit { return per(n, "d") }

// Concurrency returns a limit of n leases at a time. Each lease expires after lapse unless it is
// renewed. lapse is rounded up to whole milliseconds. Concurrency(3, 30*time.Second) is
// "concurrency 3 lease=30s". It is for [Client.Lease]; takes, peeks and refunds reject it.
func Concurrency(n int64, lapse time.Duration) Limit {
	period := wholeMilliseconds(lapse) + "ms"
	if lapse > 0 && lapse%time.Second == 0 {
		period = strconv.FormatInt(int64(lapse/time.Second), 10) + "s"
	}
	return Limit("concurrency " + strconv.FormatInt(n, 10) + " lease=" + period)
}

// WithBurst returns l with a burst of b: the maximum number of units that can be taken at once
// after idle time. The default is the number of units per period. The algorithm of l must support
// the option burst. PerSecond(10).WithBurst(20) is "10/s burst=20".
func (l Limit) WithBurst(b int64) Limit {
	return l + " burst=" + Limit(strconv.FormatInt(b, 10))
}

func per(n int64, unit string) Limit {
	return Limit(strconv.FormatInt(n, 10) + "/" + unit)
}
