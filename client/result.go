package client

import (
	"fmt"
	"time"
)

// Never is the RetryAfter of a call that can never be allowed, because its cost is above the
// capacity of the limit.
const Never time.Duration = -1

// Result is a decision. It is a plain value and safe to share; the zero value is a denial without
// further information.
//
// Example: under "10/m burst=5" the first call for a key returns {Allowed: true, Limit: 5,
// Remaining: 4, RetryAfter: 0, ResetAfter: 6s, Index: 1}. After five such calls at once the sixth
// returns {Allowed: false, Limit: 5, Remaining: 0, RetryAfter: 6s, ResetAfter: 30s, Index: 1}.
type Result struct {
	// Allowed reports whether the call may proceed. If false, nothing was taken from any key.
	Allowed bool

	// Taken is how many units a call with UpTo took from every key: from 1 to
	// the requested number, or 0 if not Allowed. It is 0 for any other call, which takes its whole
	// cost or nothing.
	Taken int64

	// Limit is the largest cost that the binding limit can allow in one call: its burst or, without
	// a burst, its n.
	Limit int64

	// Remaining is how many calls with cost 1 would be allowed now, after this one: the minimum
	// over all limits. It is 4 after the first call under "5/m". The HTTP header for it is
	// RateLimit-Remaining.
	Remaining int64

	// RetryAfter is 0 if Allowed, with two exceptions: for leaky_bucket it is how long to wait
	// before proceeding, and with Force it is the wait until one unit is available. If not Allowed,
	// it is the shortest wait after which the same call can be allowed, or with UpTo a call for one
	// unit. Other calls may take the units first. If several limits deny, it is the longest of their
	// waits. It is in whole milliseconds, rounded up. It is [Never], which is -1, if the call can
	// never be allowed; check for Never before you wait. For the HTTP header Retry-After, round it up
	// to seconds.
	RetryAfter time.Duration

	// ResetAfter is the time until all units of every limit of the call are available again if
	// nothing else is taken. If a block denied the call, it is the time until the block ends. It is
	// in whole milliseconds, rounded up, and 0 if all units are available.
	ResetAfter time.Duration

	// Lease is how long a lease is held after [Lease.Acquire] or [Lease.Renew], counted from some
	// time during that call. It is 0 if the lease is not held, if the library on the server is too
	// old to say, and for all other calls.
	Lease time.Duration

	// Index is the number of the binding key, counted from 1: the first key that denied, or else
	// the one with the least remaining. Request.Keys[Index-1] is that key. It is 1 for a call with
	// one key, and 0 if there is no decision, as in the Result beside an error.
	Index int

	// Source is what decided:
	//   - "server": a server, for this call or, with [WithBatches], for a request shared with other calls
	//   - "batch": this process, from units that a server had charged ([WithBatches])
	//   - "memory": this process, because a server has just denied the key ([WithDenialMemory])
	//   - "local": this process, because no server decided ([LocalFallback])
	//   - "fallback": [FailOpen] or [FailClosed], because no server decided
	//
	// It is "" if the call returned an error.
	Source string

	// Err is the reason why no server decided, an [*Error]. It is nil if a server decided. If it
	// matches [ErrOutcomeUnknown], a server may have charged the call nevertheless: see
	// [Result.Charged].
	Err error

	// Shadow is the decision that the call would have received if its shadow policies were
	// enforced. It has only the fields Allowed, Taken, RetryAfter and Index. It is nil if the call has
	// no shadow policies. The other fields describe the enforced limits. If there are no enforced
	// limits, Allowed is true, RetryAfter is 0, and the other fields describe the keys of the shadow
	// policies. Example: if "@export" is a shadow policy of 10 a day, the Result of the eleventh export
	// is {Allowed: true, ...}, and its Shadow is {Allowed: false, RetryAfter: 2h24m0s, Index: 1}.
	Shadow *Result

	// Each lists the separate result of each key's limit, in the order of the keys, if the request
	// set Each. It is nil if FailOpen or FailClosed decided, or if an OnceKey repeats the reply to
	// a call without Each. An element has only the fields Allowed (whether this limit allows the cost
	// or, with UpTo, one unit), Limit, Remaining, RetryAfter and ResetAfter. They describe the key
	// after the call. A denied call changes nothing.
	//
	// Example: one request takes from a user with "10/s" and a tenant with "1000/m", and the user has
	// no units left. Then Allowed is false, and nothing was taken. The tenant's element is {Allowed:
	// true, Limit: 1000, Remaining: 995, ...}: this limit would have allowed the call.
	Each []Result

	// Grown lists what is remembered of each key's last block with Max ([Block]), in the order of the keys,
	// if the request set Grow: how long the block was, and in how long it is forgotten. Both are 0 for a key
	// without such a block.
	Grown []struct{ Length, Forgotten time.Duration }

	charged []int64 // how many units each key was charged, if the reply says so
}

const (
	sourceServer   = "server"
	sourceBatch    = "batch"
	sourceMemory   = "memory"
	sourceLocal    = "local"
	sourceFallback = "fallback"
)

// AsError returns an error if a call was denied or had no decision, for code that handles only errors:
//
//	if err := client.AsError(limiter.Allow(ctx, "user:42", "100/m")); err != nil {
//
// The error for a denial is an [*Error] with RetryAfter, and errors.Is matches it against
// [ErrLimited]. The error of a call without a decision is returned as it is.
func AsError(res Result, err error) error {
	if err != nil || res.Allowed {
		return err
	}
	text := "over its limit"
	switch {
	case res.RetryAfter == Never:
		text += ", which can never allow as much"
	case res.RetryAfter > 0:
		text += fmt.Sprintf("; try again in %v", res.RetryAfter)
	}
	if res.Err != nil {
		text += fmt.Sprintf(" (%v)", res.Err)
	}
	return &Error{Op: "take", kind: typeLimited, RetryAfter: res.RetryAfter, Err: res.Err, sentence: text}
}
