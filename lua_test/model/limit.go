package model

import (
	"crypto/sha1"
	"encoding/binary"
	"fmt"
	"math/big"
	"slices"
	"strconv"
	"strings"
)

// MaxCount is the largest cost, count and burst, 2^53.
const MaxCount = int64(1) << 53

// MaxPeriodMS is the longest period and the longest time to refill, 36500 days.
const MaxPeriodMS = int64(36500) * 86400000

// Rate is one rate of a limit: n/period [option=value ...].
type Rate struct {
	N       int64
	Period  string   // such as "10s"; for concurrency, the lease time
	Options []string // such as "burst=5"
}

func (r Rate) String() string {
	return strings.Join(append([]string{fmt.Sprintf("%d/%s", r.N, r.Period)}, r.Options...), " ")
}

var unitMS = map[string]int64{
	"ms": 1, "s": 1000, "m": 60000, "h": 3600000, "d": dayMS, "w": 7 * dayMS, "mo": 31 * dayMS, "y": 366 * dayMS,
}

// MS returns the period in milliseconds: 31 days for a month, and 366 days for a year.
func (r Rate) MS() int64 {
	unit := strings.TrimLeft(r.Period, "0123456789")
	k, err := strconv.ParseInt(strings.TrimSuffix(r.Period, unit), 10, 64)
	if err != nil {
		k = 1
	}
	return k * unitMS[unit]
}

// number returns the value of an option, or other if r does not have the option.
func (r Rate) number(option string, other int64) int64 {
	for _, word := range r.Options {
		if name, value, _ := strings.Cut(word, "="); name == option {
			n, _ := strconv.ParseInt(value, 10, 64)
			return n
		}
	}
	return other
}

func (r Rate) has(word string) bool { return slices.Contains(r.Options, word) }

// Capacity returns how many units can be taken at once: the option burst, or n without it. Add an
// algorithm here if its capacity is different.
func (r Rate) Capacity() int64 { return r.number("burst", r.N) }

// Refill returns the time to refill the given units, in ms.
func (r Rate) Refill(units int64) *big.Rat { return times(units, big.NewRat(r.MS(), r.N)) }

// Limit is an algorithm and its rates. All rates use the same algorithm.
type Limit struct {
	Algorithm string
	Rates     []Rate
}

// String returns the limit as a caller writes it.
func (l Limit) String() string {
	if l.algorithm().Leases {
		return fmt.Sprintf("%s %d lease=%s", l.Algorithm, l.Rates[0].N, l.Rates[0].Period)
	}
	rates := make([]string, len(l.Rates))
	for i, r := range l.Rates {
		rates[i] = r.String()
	}
	if l.Algorithm == "gcra" {
		return strings.Join(rates, ", ")
	}
	return l.Algorithm + " " + strings.Join(rates, ", ")
}

// Policy is a named list of limits. Without a name, it is one limit that is written in the call.
type Policy struct {
	Name          string
	Limits        []Limit
	Shadow, Track bool

	Classes  map[string]int64 // the percent of each class; nil if the policy has no classes
	AnyClass bool             // classes: any

	Borrow bool  // whether the two limits are a guarantee and a pool
	Floor  int64 // the percent of the pool that borrowers leave; only with Borrow

	// Canary, if not nil, replaces Limits, Shadow and Floor for Share out of every 1000 keys.
	Canary *Policy
	Share  uint64

	canary bool // whether p is itself a canary of the policy Name
}

// of returns the policy that decides for key: p or its canary.
func (p Policy) of(key string) Policy {
	hash := sha1.Sum([]byte(p.Name + ":" + key))
	if p.Canary == nil || uint64(binary.BigEndian.Uint32(hash[:]))%1000 >= p.Share {
		return p
	}
	canary := p
	canary.Limits, canary.Shadow, canary.Floor = p.Canary.Limits, p.Canary.Shadow, p.Canary.Floor
	canary.Canary, canary.canary = nil, true
	return canary
}

// String returns the policy as a caller writes it.
func (p Policy) String() string {
	if p.Name == "" {
		return p.Limits[0].String()
	}
	return "@" + p.Name
}

// Algorithms maps names to algorithms. The file of each algorithm adds its own entry.
var Algorithms = map[string]*Algorithm{}

// Algorithm describes an algorithm for the model.
type Algorithm struct {
	// Options maps each option to a function that returns settings worth testing with a rate, such
	// as burst=2.
	Options map[string]func(r Rate) []string
	// Leases reports whether the algorithm is for acquire, renew and release. If it is true, only
	// Bound and Most are used.
	Leases bool
	// Open returns the state of r at the given time. previous is the last state that Open, take or
	// refund returned, or nil if the rate is full.
	Open func(r Rate, previous state, at moment) state
	// Keeps is the name of the algorithm whose stored state this algorithm uses, or "" if it has
	// its own.
	Keeps string
	// Delays reports whether an allowed call may have to wait until earlier calls have left the
	// queue.
	Delays bool
	// Refuses reports whether a limit is invalid for a reason specific to the algorithm.
	Refuses func(l Limit) bool
	// Bound returns a quantity of a rate, such as its number of buckets. The sum of these quantities
	// over a limit, and over a call, must be at most Most. Bound is nil if there is no such quantity.
	Bound func(r Rate) int64
	Most  int64
}

// state is the state of one rate at a given time. It is immutable: its methods return new states.
type state interface {
	left() int64          // how many units can be taken
	owes() int64          // how many units FORCE can take, including units that are not left
	take(c int64) state   // c must be at most left() or, with FORCE, owes(); it may be 0
	refund(c int64) state // c may exceed the units spent; the rest is then dropped
}

// counts is a state that counts the units taken.
type counts interface{ counted() int64 }

// moment is the time and the conditions under which a state is read. If a limit was lowered or the
// clock was set back, a stored state may be impossible for a call: the call would have to wait for
// longer than the rate takes to refill.
type moment struct {
	us      int64 // microseconds since the epoch
	several bool  // whether the limit has several rates
	room    int64 // units that the call needs, and that are left in the state that replaces an impossible state
}

func (at moment) ms() int64 { return at.us / 1000 }

// mostOwed returns the maximum number of spent units, including debt, that FORCE can leave.
func mostOwed(capacity int64) int64 { return min(2*capacity, MaxCount) }

func (l Limit) algorithm() *Algorithm { return Algorithms[l.Algorithm] }

// keeper returns the algorithm whose state format the limit uses.
func (l Limit) keeper() *Algorithm {
	if a := l.algorithm(); a.Keeps != "" {
		return Algorithms[a.Keeps]
	}
	return l.algorithm()
}

func (l Limit) asks() (sum int64) {
	for _, r := range l.Rates {
		if bound := l.algorithm().Bound; bound != nil {
			sum += bound(r)
		}
	}
	return sum
}

// never reports whether the limit's count is 0. A limit with a count of 0 denies every call and
// uses no state.
func (l Limit) never() bool { return l.Rates[0].N == 0 }

// Refused reports whether the library rejects the limit.
func (l Limit) Refused() bool {
	for _, r := range l.Rates {
		if r.N == 0 {
			period := strings.TrimLeft(r.Period, "0123456789")
			return l.algorithm().Leases || len(l.Rates) > 1 || len(r.Options) > 0 || slices.Contains([]string{"w", "mo", "y"}, period)
		}
	}
	if slices.ContainsFunc(l.Rates, func(r Rate) bool { return r.Refill(r.Capacity()).Cmp(whole(MaxPeriodMS)) > 0 }) {
		return true
	}
	a := l.algorithm()
	return a.Refuses != nil && a.Refuses(l) || a.Bound != nil && l.asks() > a.Most
}

// numbered returns option=value for each value, such as "burst=2". Values above MaxCount become
// MaxCount.
func numbered(option string, values ...int64) (words []string) {
	for _, value := range values {
		words = append(words, fmt.Sprintf("%s=%d", option, min(value, MaxCount)))
	}
	return words
}

func whole(n int64) *big.Rat             { return big.NewRat(n, 1) }
func plus(a, b *big.Rat) *big.Rat        { return new(big.Rat).Add(a, b) }
func minus(a, b *big.Rat) *big.Rat       { return new(big.Rat).Sub(a, b) }
func times(k int64, r *big.Rat) *big.Rat { return new(big.Rat).Mul(whole(k), r) }
func over(a, b *big.Rat) *big.Rat        { return new(big.Rat).Quo(a, b) }
func quotient(r *big.Rat) *big.Int       { return new(big.Int).Div(r.Num(), r.Denom()) }
func floor(r *big.Rat) int64             { return quotient(r).Int64() }
func ceil(r *big.Rat) int64              { return -floor(new(big.Rat).Neg(r)) }

func larger(a, b *big.Rat) *big.Rat {
	if a.Cmp(b) > 0 {
		return a
	}
	return b
}
