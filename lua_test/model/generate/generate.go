// Package generate generates sequences of calls and clock moves with pgregory.net/rapid. The
// sequences use few keys and limits, and times and costs near the boundaries of these limits, so
// they are likely to find differences between two implementations of the contract. All keys have
// the hash tag {v}, so a sequence can also run on a cluster.
package generate

import (
	"slices"

	"pgregory.net/rapid"

	"github.com/ratelimit-functions/ratelimit/lua_test/model"
)

// StartUS is the start of a sequence in microseconds since the epoch. It is not a whole
// millisecond.
const StartUS = int64(1700000000000123)

// Bounds of the clock in microseconds since the epoch: from 2001 to 2039.
const (
	earliestUS = int64(1000000000000000)
	latestUS   = int64(2200000000000000)
)

// Move is a move of the clock before a call.
type Move struct {
	From Origin
	US   int64 // distance from From, in microseconds
}

// Origin is the time from which a Move is measured.
type Origin int

// Origins of a move.
const (
	Present    Origin = iota // the current time
	AfterRetry               // the current time plus the last retry_after_ms
	AfterReset               // the current time plus the last reset_after_ms
)

// To returns the time to which a move sets the clock, given the last decision's retry_after_ms and
// reset_after_ms.
func (m Move) To(now, retryMS, resetMS int64) int64 {
	to := now + m.US
	switch m.From {
	case AfterRetry:
		to += max(0, retryMS) * 1000
	case AfterReset:
		to += resetMS * 1000
	}
	if to < earliestUS || to > latestUS {
		return now
	}
	return to
}

// Step is a move of the clock, followed by a call.
type Step struct {
	Move     Move
	Database int // 0 or 1, if the server has several databases
	Call     model.Call
}

// Steps generates sequences of about forty steps. It draws the steps in groups, because rapid
// generates short slices.
func Steps() *rapid.Generator[[]Step] {
	return rapid.Custom(func(t *rapid.T) []Step {
		p := pool{
			limits:    rapid.SliceOfN(rapid.Custom(limit), 1, 4).Draw(t, "limits"),
			leases:    rapid.SliceOfN(rapid.Custom(leaseLimit), 1, 3).Draw(t, "leases"),
			overrides: rapid.SliceOfN(rapid.Custom(limit), 1, 2).Draw(t, "overrides"),
			only:      pick(t, "", "", "", "", "leases", "usage"),
		}
		step := rapid.Custom(func(t *rapid.T) Step { return Step{p.move(t), pick(t, 0, 0, 1), p.call(t)} })
		groups := rapid.SliceOfN(rapid.SliceOfN(step, 1, 12), 1, 12)
		return slices.Concat(groups.Draw(t, "steps")...)
	})
}

// pool holds the limits and verbs from which one sequence draws its calls.
type pool struct {
	limits    []model.Policy // for limiter keys
	leases    []model.Policy
	overrides []model.Policy // for limiter keys
	only      string         // a key of verbs: "leases" or "usage" to draw mostly these verbs, "" to draw from all
}

func pick[T any](t *rapid.T, from ...T) T {
	return from[rapid.IntRange(0, len(from)-1).Draw(t, "pick")]
}

func between(t *rapid.T, low, high int64) int64 { return rapid.Int64Range(low, high).Draw(t, "number") }
