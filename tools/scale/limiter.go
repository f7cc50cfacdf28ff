package main

import "fmt"

// A limiter is one key on a server with the limit `rate/s burst=burst`. A test compares it with the
// reference model of the contract, which takes a thousand times as long.
type limiter struct {
	rate, burst int64
	full        int64 // time when all units are back, in units of 1/rate µs
}

// newLimiter returns a limiter for a rate above 1000 per second, which the library counts in
// microseconds.
func newLimiter(rate, burst int64) *limiter {
	if rate <= 1000 {
		panic(fmt.Sprintf("a rate of %d a second: the simulation takes rates above 1000", rate))
	}
	return &limiter{rate: rate, burst: burst}
}

// take takes as many units as are available, from 1 to n (UPTO), at a time in microseconds. It
// returns how many it took, or 0 if it denied, and how many remain.
func (l *limiter) take(us, n int64) (taken, remaining int64) {
	const interval = 1_000_000 // time for one unit to come back, in units of 1/rate µs
	debt := max(0, l.full-us*l.rate)
	left := max(0, l.burst-(debt+interval-1)/interval)
	n = min(n, left)
	if n > 0 {
		l.full = us*l.rate + debt + n*interval
	}
	return n, left - n
}
