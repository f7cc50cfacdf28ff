package model

import (
	"fmt"
	"math/big"
	"strings"
)

// The algorithms, by the names that a limit gives them.
const (
	GCRA          = "gcra"
	LeakyBucket   = "leaky_bucket"
	TokenBucket   = "token_bucket"
	FixedWindow   = "fixed_window"
	SlidingWindow = "sliding_window"
	SlidingLog    = "sliding_log"
	Concurrency   = "concurrency"
)

// MaxCount is the largest cost, count and burst: 2^53.
const MaxCount = int64(1) << 53

// Bounds of what one call may ask for.
const (
	MostLogged  = int64(100000) // the counts of all its rates of sliding_log
	MostBuckets = int64(5000)   // those of sliding_window
	MostLeases  = int64(5000)   // the count of concurrency
)

// MaxPeriodMS is the longest period, and the longest time to refill: 36500 days.
const MaxPeriodMS = int64(36500) * 86400000

// A Period is K units, written as "10s".
type Period struct {
	K    int64
	Unit string // ms, s, m, h or d
}

var unitMS = map[string]int64{"ms": 1, "s": 1000, "m": 60000, "h": 3600000, "d": 86400000}

// MS is the period in milliseconds.
func (p Period) MS() int64 { return p.K * unitMS[p.Unit] }

func (p Period) String() string {
	if p.K == 1 {
		return p.Unit
	}
	return fmt.Sprintf("%d%s", p.K, p.Unit)
}

// A Rate is one rate of a limit. Options that its algorithm does not have are zero.
type Rate struct {
	N       int64
	Period  Period // of concurrency: the lease
	Burst   int64  // gcra, leaky_bucket, token_bucket; 0: n
	Buckets int64  // sliding_window; 0: 1
	Align   bool   // fixed_window: align=clock
}

func (r Rate) String() string {
	text := fmt.Sprintf("%d/%s", r.N, r.Period)
	if r.Burst > 0 {
		text += fmt.Sprintf(" burst=%d", r.Burst)
	}
	if r.Buckets > 0 {
		text += fmt.Sprintf(" buckets=%d", r.Buckets)
	}
	if r.Align {
		text += " align=clock"
	}
	return text
}

// Capacity is how much can be taken at once.
func (r Rate) Capacity() int64 {
	if r.Burst > 0 {
		return r.Burst
	}
	return r.N
}

func (r Rate) periodUS() int64 { return r.Period.MS() * 1000 }

// interval is the emission interval T = P/n in microseconds.
func (r Rate) interval() *big.Rat { return big.NewRat(r.periodUS(), r.N) }

// EmissionUS is the emission interval P/n in microseconds, rounded down.
func (r Rate) EmissionUS() int64 { return r.periodUS() / r.N }

// RefillMS is the time to refill from empty, capacity/n periods, in milliseconds, rounded up.
func (r Rate) RefillMS() int64 {
	refill := new(big.Int).Mul(big.NewInt(r.Capacity()), big.NewInt(r.Period.MS()))
	refill.Add(refill, big.NewInt(r.N-1))
	refill.Div(refill, big.NewInt(r.N))
	if !refill.IsInt64() {
		return 1 << 62
	}
	return refill.Int64()
}

// rounded is the emission interval in microseconds as the library counts with it, and in how many parts. Where 2bTq, q
// being its denominator, is above 2^53, it is rounded up, past it, to the finest power of two of a part of a microsecond
// for which it is not.
func (r Rate) rounded() (interval *big.Rat, parts *big.Int) {
	exact := r.interval()
	fits := func(parts *big.Int) bool {
		return new(big.Int).Mul(parts, big.NewInt(2*r.Capacity())).Cmp(big.NewInt(MaxCount)) <= 0
	}
	if fits(exact.Num()) {
		return exact, exact.Num()
	}
	split := func(us int64) *big.Int {
		n := floor(new(big.Rat).Mul(exact, big.NewRat(us, 1)))
		return n.Add(n, big.NewInt(1))
	}
	us := int64(1)
	for fits(split(2 * us)) {
		us *= 2
	}
	return new(big.Rat).SetFrac(split(us), big.NewInt(us)), split(us)
}

// TooFine tells whether the library refuses the rate for gcra and leaky_bucket: it would be rounded by more than a ten
// millionth.
func (r Rate) TooFine() bool {
	interval, parts := r.rounded()
	return interval.Cmp(r.interval()) != 0 && parts.Cmp(big.NewInt(10000000)) < 0
}

// A Limit is an algorithm and its rates. All rates are of the one algorithm.
type Limit struct {
	Algorithm string
	Rates     []Rate
}

// String is the limit as a caller writes it.
func (l Limit) String() string {
	if l.Algorithm == Concurrency {
		return fmt.Sprintf("concurrency %d lease=%s", l.Rates[0].N, l.Rates[0].Period)
	}
	rates := make([]string, len(l.Rates))
	for i, r := range l.Rates {
		rates[i] = r.String()
	}
	text := strings.Join(rates, ", ")
	if l.Algorithm == GCRA {
		return text
	}
	return l.Algorithm + " " + text
}

// keptAs is the algorithm as which the limit's state is kept.
func (l Limit) keptAs() string {
	if l.Algorithm == LeakyBucket {
		return GCRA
	}
	return l.Algorithm
}

// WholeMS tells whether the limit is decided in whole milliseconds.
func (l Limit) WholeMS() bool {
	switch l.Algorithm {
	case FixedWindow, SlidingWindow, Concurrency:
		return true
	case GCRA, LeakyBucket:
		return len(l.Rates) == 1 && l.Rates[0].keptInMS()
	}
	return false
}

// keptInMS tells whether gcra keeps the rate's TAT in milliseconds: T is at least one, and 2bTq, q being the denominator
// of T, is not above 2^53.
func (r Rate) keptInMS() bool {
	most := new(big.Int).Mul(big.NewInt(2*r.Capacity()), r.intervalMS().Num())
	return r.Period.MS() >= r.N && most.Cmp(big.NewInt(MaxCount)) <= 0
}

func (r Rate) intervalMS() *big.Rat { return big.NewRat(r.Period.MS(), r.N) }
