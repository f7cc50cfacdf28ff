package main

import "slices"

// Times are in milliseconds since the start, which is the beginning of a minute.
const (
	second = int64(1000)
	minute = 60 * second
	length = 3 * minute // duration of every pattern
)

// n is the number of calls that each limit allows per minute: 60/m.
const n = 60

// algorithms lists the limits to compare. Ten concurrent leases of ten seconds each also allow 60
// calls a minute.
var algorithms = []string{
	"gcra 60/m",
	"token_bucket 60/m",
	"leaky_bucket 60/m",
	"fixed_window 60/m",
	"sliding_window 60/m",
	"sliding_window 60/m buckets=60",
	"sliding_log 60/m",
	"concurrency 10 lease=1m",
}

const held = 10 * second // how long a call holds its lease

// traffic is a traffic pattern: a series of calls on one key.
type traffic struct {
	name  string
	file  string // the picture; empty if all algorithms would look the same in it
	says  string // title of the picture
	calls []int64
}

// overload is the name of the pattern for which the table shows the longest pause.
const overload = "overload"

var traffics = []traffic{
	{"steady", "", "", evenly(second/2, length, second)},
	{"burst", "algorithms-burst.svg", "90 calls at once, and 45 s later again.", slices.Concat(burst(20*second, 90), burst(65*second, 90))},
	{"edge", "algorithms-edge.svg", "1 call at 0 s, 59 and 60 around 60 s, 60 at 119.9 s.",
		slices.Concat(burst(0, 1), burst(minute-60, 59), burst(minute, 60), burst(2*minute-120, 60))},
	{overload, "algorithms-overload.svg", "Four calls each second.", evenly(0, length, second/4)},
	{"trickle", "algorithms-trickle.svg", "60 calls at once; from 30 s on one each 2 s.", slices.Concat(burst(0, n), evenly(30*second, length, 2*second))},
}

// evenly returns times at intervals of step. The first time is from, and no time is at or after to.
func evenly(from, to, step int64) (calls []int64) {
	for at := from; at < to; at += step {
		calls = append(calls, at)
	}
	return calls
}

// burst returns times that are a millisecond apart. from is the first, and calls is their number.
func burst(from, calls int64) []int64 { return evenly(from, from+calls, 1) }
