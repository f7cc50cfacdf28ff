// Package limits makes limits of package client from numbers. It adds nothing to their text: where the
// numbers are known, write "100/m".
//
// A duration is rounded up to whole milliseconds. The functions do not check their arguments:
// [client.ParseLimit] does, and so does the server.
package limits

import (
	"strconv"
	"time"

	"github.com/ratelimit-functions/ratelimit/client"
)

// PerSecond returns a limit of n per second: PerSecond(10) is "10/s".
func PerSecond(n int64) client.Limit { return Per(n, time.Second) }

// PerMinute returns a limit of n per minute: PerMinute(100) is "100/m".
func PerMinute(n int64) client.Limit { return Per(n, time.Minute) }

// PerHour returns a limit of n per hour: PerHour(1000) is "1000/h".
func PerHour(n int64) client.Limit { return Per(n, time.Hour) }

// PerDay returns a limit of n per 24 hours: PerDay(5000) is "5000/d".
func PerDay(n int64) client.Limit { return Per(n, day) }

// Per returns a limit of n in each period, refilled continuously (GCRA): Per(5, 10*time.Second) is
// "5/10s".
func Per(n int64, period time.Duration) client.Limit {
	return client.Limit(strconv.FormatInt(n, 10) + "/" + text(period, ""))
}

// TokenBucket returns a limit of n in each period, refilled continuously: TokenBucket(10, time.Second)
// is "token_bucket 10/s".
func TokenBucket(n int64, period time.Duration) client.Limit {
	return "token_bucket " + Per(n, period)
}

// LeakyBucket returns a limit under which calls queue for their turns, n in each period:
// LeakyBucket(10, time.Second) is "leaky_bucket 10/s".
func LeakyBucket(n int64, period time.Duration) client.Limit {
	return "leaky_bucket " + Per(n, period)
}

// FixedWindow returns a limit of n in each window: FixedWindow(1000, time.Hour) is
// "fixed_window 1000/h".
func FixedWindow(n int64, window time.Duration) client.Limit {
	return "fixed_window " + Per(n, window)
}

// SlidingWindow returns a limit of n in each window that ends now, counted in buckets:
// SlidingWindow(1000, time.Hour) is "sliding_window 1000/h".
func SlidingWindow(n int64, window time.Duration) client.Limit {
	return "sliding_window " + Per(n, window)
}

// SlidingLog returns a limit of n in each window that ends now, counted exactly:
// SlidingLog(100, time.Hour) is "sliding_log 100/h".
func SlidingLog(n int64, window time.Duration) client.Limit {
	return "sliding_log " + Per(n, window)
}

// Concurrency returns a limit of n leases at a time. Each lease expires after lapse unless it is
// renewed: Concurrency(3, 30*time.Second) is "concurrency 3 lease=30s". It is for
// [client.Client.Lease]; takes, peeks and refunds reject it.
func Concurrency(n int64, lapse time.Duration) client.Limit {
	return client.Limit("concurrency " + strconv.FormatInt(n, 10) + " lease=" + text(lapse, "1"))
}

// WithBurst returns l with a burst of b: the maximum number of units that can be taken at once after
// idle time. The default is the number of units per period. The algorithm of l must support the option
// burst. WithBurst(PerSecond(10), 20) is "10/s burst=20".
func WithBurst(l client.Limit, b int64) client.Limit {
	return l + " burst=" + client.Limit(strconv.FormatInt(b, 10))
}

const day = 24 * time.Hour

// text returns d with the largest unit that divides it. one is the text of the number 1.
func text(d time.Duration, one string) string {
	if rest := d % time.Millisecond; rest > 0 {
		d += time.Millisecond - rest
	}
	for _, unit := range []struct {
		d    time.Duration
		name string
	}{{day, "d"}, {time.Hour, "h"}, {time.Minute, "m"}, {time.Second, "s"}} {
		switch {
		case d <= 0 || d%unit.d != 0:
		case d == unit.d:
			return one + unit.name
		default:
			return strconv.FormatInt(int64(d/unit.d), 10) + unit.name
		}
	}
	return strconv.FormatInt(d.Milliseconds(), 10) + "ms"
}
