package main

import "fmt"

// A limiter simulates one key on a server with the limit `rate/s burst=burst`. It is a thousand
// times as fast as the reference model of the contract. A test checks that the two make the same
// decisions.
type limiter struct {
	rate, burst int64
	full        int64 // time at which the full burst is available again, in units of 1/rate µs
}

// newLimiter returns a limiter for a rate above 1000 per second. For such a rate, the library
// counts in microseconds.
func newLimiter(rate, burst int64) *limiter {
	if rate <= 1000 {
		panic(fmt.Sprintf("a rate of %d a second: the simulation takes rates above 1000", rate))
	}
	return &limiter{rate: rate, burst: burst}
}

// take takes the units that are available, but at most n, like UPTO. us is the time in µs. It
// returns the number of units taken, or 0 if the call is denied, and the number remaining.
func (l *limiter) take(us, n int64) (taken, remaining int64) {
	const interval = 1_000_000 // refill time of one unit; times are in units of 1/rate µs
	debt := max(0, l.full-us*l.rate)
	left := max(0, l.burst-(debt+interval-1)/interval)
	n = min(n, left)
	if n > 0 {
		l.full = us*l.rate + debt + n*interval
	}
	return n, left - n
}
