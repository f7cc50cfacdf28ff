package client

import (
	"strconv"
	"time"
)

// Never as Result.RetryAfter: this call can never be allowed, because its cost is above what the limit holds when full.
const Never time.Duration = -1

// Result is a decision. It is a plain value and safe to share; the zero value is a denial that says nothing else.
//
// Example: under "10/m burst=5" the first call for a key returns {Allowed: true, Limit: 5, Remaining: 4, RetryAfter: 0,
// ResetAfter: 6s, Index: 1}. After five such calls at once the sixth returns {Allowed: false, Limit: 5, Remaining: 0,
// RetryAfter: 6s, ResetAfter: 30s, Index: 1}.
type Result struct {
	// Allowed tells whether the call may go ahead. If false, nothing was taken from any key.
	Allowed bool

	// Taken is how many units were taken from every key by a call with UpTo, such as AllowAtMost: from 1 to the number that
	// was asked for, 0 if not Allowed. It is 0 for any other call, which takes its whole cost or nothing.
	Taken int64

	// Limit is the most that the binding limit lets through at once: its burst, or its n. In units of cost.
	Limit int64

	// Remaining is how many calls of cost 1 would be allowed now, after this one; the least over all limits.
	// It is 4 after the first call under "5/m". For HTTP: RateLimit-Remaining.
	Remaining int64

	// RetryAfter is 0 if Allowed, but for leaky_bucket: there it is how long to wait before going ahead, the turn in the
	// queue. If not Allowed it is the shortest wait after which this same call would be allowed, with UpTo for one unit at
	// least, if nothing else is taken, in whole milliseconds, rounded up, the longest over all limits that deny; or [Never],
	// which is -1 and must be checked for before it is waited for. For HTTP: Retry-After, rounded up to seconds.
	RetryAfter time.Duration

	// ResetAfter is the time until every limit of the call is full again if nothing else is taken, or, for a denial by a
	// block, until that ends; in whole milliseconds, rounded up. It is 0 when all are full.
	ResetAfter time.Duration

	// Index is the number of the binding key, counted from 1 as on the wire: the first that denied, else the one
	// with the least remaining. Request.Keys[Index-1] is that key. It is 1 for a call with one key.
	Index int

	// Source says who decided: a server, unless the client did without one.
	Source Source

	// Err is why no server decided, an [*Error]; nil if one did.
	Err error

	// Shadow is what the call would have been told if no policy of it were a shadow; nil if none is one. The other
	// fields are those of the limits that are enforced. If there are none, Allowed is true and RetryAfter 0, and the rest
	// says how the keys of the shadow policies stand.
	Shadow *Shadow
}

// Shadow is what shadow policies would have said. Example: with "@export" a shadow policy of 10 a day, the eleventh
// export is {Allowed: true, ...} with the Shadow {Allowed: false, RetryAfter: 2h24m0s, Index: 1}.
type Shadow struct {
	Allowed    bool          // as Result.Allowed would have been
	Taken      int64         // as Result.Taken would have been
	RetryAfter time.Duration // as Result.RetryAfter would have been: 0, a wait, or [Never]
	Index      int           // the key that would have been binding, counted from 1
}

// Source is who made a decision.
type Source int

const (
	SourceServer Source = iota // a server, now
	SourceBatch                // this process, with units that a server had counted: [WithBatches]
	SourceMemory               // this process, as a server has just denied it: [WithDenialMemory]
	SourceLocal                // no server could: this process, by [LocalLimiter]
	SourcePolicy               // no server could: the client's [Fallback], FailOpen or FailClosed
)

// String is the source in a word, as for a log: "server", "batch", "memory", "local" or "policy".
func (s Source) String() string {
	switch s {
	case SourceServer:
		return "server"
	case SourceBatch:
		return "batch"
	case SourceMemory:
		return "memory"
	case SourceLocal:
		return "local"
	case SourcePolicy:
		return "policy"
	}
	return "Source(" + strconv.Itoa(int(s)) + ")"
}
