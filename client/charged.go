package client

import (
	"errors"
	"slices"
	"strings"
)

// Charged returns how many units a server charged to each key of req. r is the Result of
// [Client.Take] for req, or of a call that does the same, such as AllowN. A refund with these costs
// gives back what the call took, and no more.
//
// The units are 0 for a denied call, for a call that a [Fallback] decided, and for the keys of a
// shadow policy that would have denied the call. With UpTo, a shadow policy may have charged fewer
// units than the other limits. If an OnceKey repeats a reply, the units are those of the first call.
// With Force, the units include those beyond the longest debt. With Borrow, those of the guarantee are
// 0 if the pool alone paid.
//
// If a Fallback decided because a reply was lost, a server may have charged the units. The error is
// then r.Err, which matches [ErrOutcomeUnknown]. If req is not valid, the error is
// [ErrMisconfigured].
//
// If req names several policies and a shadow policy would have denied the call or, with UpTo, have
// charged fewer units, the units are exact only if req has Each. Otherwise, Charged may also return
// units for a key that was charged none or fewer; it is always exact for enforced limits.
func (r Result) Charged(req Request) ([]int64, error) {
	if err := req.check(); err != nil {
		return nil, refused("take", req.Keys, err)
	}
	units := make([]int64, len(req.Keys))
	switch {
	case r.byFallback():
		if errors.Is(r.Err, ErrOutcomeUnknown) {
			return units, r.Err
		}
		return units, nil
	case !r.Allowed:
		return units, nil
	}
	for i := range units {
		units[i] = req.cost(i)
		if req.UpTo {
			units[i] = r.Taken
		}
	}
	if req.Borrow && r.Index == 2 {
		units[0] = 0
	}
	if r.Shadow == nil || r.Shadow.Allowed && r.Shadow.Taken == r.Taken {
		return units, nil
	}
	if len(r.charged) == len(units) {
		copy(units, r.charged)
		return units, nil
	}
	// The enforced limits allowed the call, so Shadow.Index is a key of a shadow policy. If the call names
	// no other policy, all keys of that policy were charged the same number of units.
	first, end := max(r.Shadow.Index-1, 0), min(r.Shadow.Index, len(units)) // a Result of a layer may have no Index
	if req.policies() == 1 {
		first = slices.IndexFunc(req.Limits, isPolicy)
		end = first + 1 + len(req.Keys) - len(req.Limits)
	}
	for i := first; i < end; i++ {
		units[i] = r.Shadow.Taken
	}
	return units, nil
}

// byFallback reports whether a Fallback decided.
func (r Result) byFallback() bool { return r.Source == sourceLocal || r.Source == sourceFallback }

func isPolicy(limit Limit) bool { return strings.HasPrefix(string(limit), "@") }

// policies returns how many of the limits are policies.
func (r *Request) policies() (n int) {
	for _, limit := range r.Limits {
		if isPolicy(limit) {
			n++
		}
	}
	return n
}
