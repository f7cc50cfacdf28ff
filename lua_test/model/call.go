package model

import (
	"slices"
	"strconv"
)

// Verbs of the contract.
const (
	Take        = "take"
	Peek        = "peek"
	Refund      = "refund"
	Reset       = "reset"
	Block       = "block"
	Unblock     = "unblock"
	Override    = "override"
	OverrideEnd = "override_end"
	Acquire     = "acquire"
	Renew       = "renew"
	Release     = "release"
	Usage       = "usage"
)

// Call is one call to the library. Fields that its verb does not use are empty.
type Call struct {
	Verb    string
	Keys    []string // one for each limit; for verbs without limits, all keys
	Limits  []Policy // limits written in the call, and policies
	Costs   []int64  // one cost for all limits, or one for each limit; if empty, every cost is 1
	Upto    bool     // UPTO; requires at most one cost
	Force   bool     // FORCE; not together with Upto
	Each    bool
	Floor   *int64 // FLOOR in percent, or the percent after BORROW; nil if the call has none
	Class   string // CLASS; "" without it
	Borrow  bool   // BORROW, for a guarantee and a pool
	Paid    int64  // PAID, for a refund of a guarantee and a pool: 1 or 2; 0 without it
	OnceMS  int64  // how long ONCE stores the reply, for take and refund; 0 if the call has no ONCE
	OnceKey string
	Usage   string // the usage key; required with Track, or if a policy in a take has track
	Track   bool
	SpanMS  int64 // duration of a block or an override
	Extend  bool  // EXTEND; for a block
	Grow    *Grow // GROW; for a block, not together with Extend. For a peek, it may be empty
	Lease   string
}

// Grow holds the arguments of GROW in a block, in ms.
type Grow struct{ Max, Forget int64 }

// decided returns a copy of the call in which a canary replaces its policy if it applies to the
// policy's first key.
func (c Call) decided() Call {
	c.Limits = slices.Clone(c.Limits)
	first := 0
	for i, p := range c.Limits {
		c.Limits[i] = p.of(c.Keys[first])
		first += len(p.Limits)
	}
	return c
}

// Peeks returns the peek with the arguments of a take.
func (c Call) Peeks() Call {
	return Call{Verb: Peek, Keys: c.Keys, Limits: c.Limits, Costs: c.Costs, Upto: c.Upto, Each: c.Each, Floor: c.Floor, Class: c.Class, Borrow: c.Borrow}
}

// AllKeys returns the call's keys in the order of FCALL. The key of ONCE comes before that of
// TRACK.
func (c Call) AllKeys() []string {
	keys := slices.Clone(c.Keys)
	if c.OnceMS > 0 {
		keys = append(keys, c.OnceKey)
	}
	if c.Usage != "" {
		keys = append(keys, c.Usage)
	}
	return keys
}

// Words returns the call as a command for the server.
func (c Call) Words() []string {
	command := "FCALL"
	if c.Verb == Peek || c.Verb == Usage {
		command = "FCALL_RO"
	}
	keys := c.AllKeys()
	words := append([]string{command, "ratelimit_" + c.Verb, strconv.Itoa(len(keys))}, keys...)
	for _, p := range c.Limits {
		words = append(words, p.String())
	}
	if len(c.Costs) > 0 {
		words = append(words, "COST")
		for _, cost := range c.Costs {
			words = append(words, strconv.FormatInt(cost, 10))
		}
	}
	if c.Upto {
		words = append(words, "UPTO")
	}
	if c.Force {
		words = append(words, "FORCE")
	}
	if c.Each {
		words = append(words, "EACH")
	}
	if c.Class != "" && c.Verb != Acquire {
		words = append(words, "CLASS", c.Class)
	}
	if c.Borrow {
		words = append(words, "BORROW")
	} else if c.Floor != nil && c.Verb != Acquire {
		words = append(words, "FLOOR")
	}
	if c.Floor != nil && c.Verb != Acquire {
		words = append(words, strconv.FormatInt(*c.Floor, 10))
	}
	if c.Paid > 0 {
		words = append(words, "PAID", strconv.FormatInt(c.Paid, 10))
	}
	if c.OnceMS > 0 {
		words = append(words, "ONCE", strconv.FormatInt(c.OnceMS, 10))
	}
	if c.Track {
		words = append(words, "TRACK")
	}
	if c.Verb == Block || c.Verb == Override {
		words = append(words, strconv.FormatInt(c.SpanMS, 10))
	}
	if c.Extend {
		words = append(words, "EXTEND")
	}
	switch {
	case c.Grow == nil:
	case c.Verb == Peek:
		words = append(words, "GROW")
	default:
		words = append(words, "GROW", strconv.FormatInt(c.Grow.Max, 10), strconv.FormatInt(c.Grow.Forget, 10))
	}
	if c.Lease != "" {
		words = append(words, c.Lease)
	}
	if c.Verb == Acquire && c.Class != "" {
		words = append(words, "CLASS", c.Class)
	}
	if c.Verb == Acquire && c.Floor != nil {
		words = append(words, "FLOOR", strconv.FormatInt(*c.Floor, 10))
	}
	return words
}

func (c Call) cost(i int) int64 {
	switch len(c.Costs) {
	case 0:
		return 1
	case 1:
		return c.Costs[0]
	}
	return c.Costs[i]
}

// excess returns the error reason for a call with invalid limits, with limits that together exceed
// a bound, or with a repeated or too long key. If the call is valid, it returns "".
func (c Call) excess() string {
	asked := map[*Algorithm]int64{}
	for _, p := range c.Limits {
		for _, l := range p.Limits {
			onLeases := c.Verb == Acquire || c.Verb == Renew || c.Verb == Release
			if l.Refused() || c.Verb != Override && onLeases != l.algorithm().Leases || onLeases && len(p.Limits) > 1 {
				return "BADLIMIT"
			}
			asked[l.algorithm()] += l.asks()
		}
	}
	for a, sum := range asked {
		if a.Bound != nil && sum > a.Most {
			return "BADARGS"
		}
	}
	if c.misfloored() || c.misborrowed() {
		return "BADARGS"
	}
	if slices.ContainsFunc(c.AllKeys(), func(key string) bool { return len(key) > 65536 }) {
		return "BADKEYS"
	}
	keys := slices.Sorted(slices.Values(c.AllKeys()))
	if len(slices.Compact(keys)) < len(c.AllKeys()) {
		return "BADKEYS"
	}
	return ""
}
