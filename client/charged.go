package client

import (
	"errors"
	"strings"
)

// Charged returns how many units a server charged to each key of req. r is the Result of
// [Client.Take] for req, or of a call that does the same, such as AllowN. A refund with these costs
// gives back what the call took, and no more.
//
// The units are 0 for a denied call, for a call that a [Fallback] decided, and for the keys of a
// shadow policy that would have denied the call. With UpTo, a shadow policy may have charged fewer
// units than the other limits. If an OnceKey repeats a reply, the units are those of the first call.
// With Force, the units include those beyond the longest debt.
//
// If a Fallback decided because a reply was lost, a server may have charged the units. The error is
// then r.Err, which matches [ErrOutcomeUnknown]. If req is not valid, the error is
// [ErrMisconfigured].
//
// If several shadow policies of one call would have denied it, the units are exact only if req has
// Each and all policies but one have one key. Otherwise, Charged may also return units for a key of
// a shadow policy that charged none; it is always exact for enforced limits.
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
	if r.Shadow == nil || r.Shadow.Allowed && r.Shadow.Taken == r.Taken {
		return units, nil
	}
	// The enforced limits allowed the call, so each key that denies belongs to a shadow policy. Such
	// a policy charged nothing. With UpTo, the binding policy charged Shadow.Taken units.
	for _, policy := range req.policyKeys() {
		for i := policy.first; i < policy.end; i++ {
			if i == r.Shadow.Index-1 || len(r.Each) == len(units) && !r.Each[i].Allowed {
				for j := policy.first; j < policy.end; j++ {
					units[j] = r.Shadow.Taken
				}
			}
		}
	}
	return units, nil
}

// byFallback reports whether a Fallback decided.
func (r Result) byFallback() bool { return r.Source == SourceLocal || r.Source == SourcePolicy }

// keyRange is a range of keys of a request.
type keyRange struct{ first, end int }

// policyKeys returns the keys of each policy of a valid request. If this is not known, because the
// request has several policies and one of them has several keys, each key from the first to the last
// of the policies is a range of its own.
func (r *Request) policyKeys() (ranges []keyRange) {
	extra := len(r.Keys) - len(r.Limits) // keys of policies beyond their first ones
	n := r.policies()
	at := 0
	for _, limit := range r.Limits {
		size := 1
		if strings.HasPrefix(string(limit), "@") {
			if n--; n == 0 {
				size += extra
			}
			ranges = append(ranges, keyRange{at, at + size})
		}
		at += size
	}
	if extra == 0 || len(ranges) < 2 {
		return ranges
	}
	first, end := ranges[0].first, ranges[len(ranges)-1].end
	ranges = nil
	for i := first; i < end; i++ {
		ranges = append(ranges, keyRange{i, i + 1})
	}
	return ranges
}

// policies returns how many of the limits are policies.
func (r *Request) policies() (n int) {
	for _, limit := range r.Limits {
		if strings.HasPrefix(string(limit), "@") {
			n++
		}
	}
	return n
}
