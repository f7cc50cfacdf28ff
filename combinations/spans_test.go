package combinations

import (
	"slices"
	"time"

	"github.com/ratelimit-functions/ratelimit/client"
	"github.com/ratelimit-functions/ratelimit/lua_test/model"
)

// admitted is a number of units, and the server's time at which a caller was told that they are its.
type admitted struct {
	units int64
	at    time.Time
}

// span identifies units that are admitted under one bound: those of a key under a limit. If a client
// admits them itself, it has a bound of its own.
type span struct {
	key, text string
	local     bool
	client    int // for local
}

// admit notes the units that the callers of a take were told of.
func (s *scenario) admit(st *step, req client.Request, all []outcome) {
	if len(req.Keys) != len(req.Limits) || req.OnceKey != "" || req.Force || st.lends() {
		return
	}
	for _, o := range all {
		if o.err != nil || !o.res.Allowed || o.res.Source == "fallback" {
			continue
		}
		for i, key := range req.Keys {
			units := costOf(req, i)
			if req.UpTo {
				units = o.res.Taken
			}
			at := span{key: key, text: string(req.Limits[i])}
			if o.res.Source == "local" {
				at.local, at.client = true, st.client
			}
			s.admissions[at] = append(s.admissions[at], admitted{units, o.ended.Add(s.ahead)})
		}
	}
}

// most returns how many units of a limit may be admitted within a time. ok is false for limits whose
// bound the harness does not compute.
func most(l model.Limit, within time.Duration, share float64) (units float64, ok bool) {
	if len(l.Rates) > 1 || l.Rates[0].N == 0 || l.Rates[0].Capacity() > 1000000 {
		return 0, false
	}
	r := l.Rates[0]
	n, b, periods := float64(r.N), float64(r.Capacity()), float64(within.Milliseconds()+1)/float64(r.MS())
	whole := float64(int64(periods))
	switch {
	case share > 0:
		return max(1, share*b) + share*n*periods + 1, true
	case l.Algorithm == "gcra" || l.Algorithm == "leaky_bucket":
		return b + n*periods + 1, true
	case l.Algorithm == "token_bucket":
		return b + n*(whole+1), true
	case l.Algorithm == "sliding_log":
		return n * (whole + 1), true
	case l.Algorithm == "sliding_window":
		return 2 * n * (whole + 1), true
	case l.Algorithm == "fixed_window" && len(r.Options) == 0:
		return n * (whole + 2), true
	}
	return 0, false
}

// spans checks that no more units were admitted in any time span than the limit allows. It skips keys
// whose units were changed in another way: a refund, a reset, another limit, and so on.
func (s *scenario) spans() {
	for at, all := range s.admissions {
		p := policyOf(0, at.text)
		if s.mixed[s.plan.Prefix+at.key] && !at.local || p.Name != "" || s.clockBack {
			continue
		}
		share := 0.0
		if at.local {
			share = localShare
		}
		slices.SortFunc(all, func(a, b admitted) int { return a.at.Compare(b.at) })
		for i := range all {
			sum := int64(0)
			for _, later := range all[i:] {
				sum += later.units
				within := later.at.Sub(all[i].at)
				if limit, ok := most(p.Limits[0], within+ttl+slowest, share); ok && float64(sum) > limit {
					s.broke("a span admits what the limit allows", "%+v: %d units in %v, at most %.1f", at, sum, within, limit)
					return
				}
			}
		}
	}
}

// mixes reports whether a call changes units of its keys in a way that the bound of a span does not
// describe.
func (w *world) mixes(c model.Call, x *execution) bool {
	switch c.Verb {
	case model.Take:
		return c.Force || lends(c)
	case model.Peek, model.Usage, model.Block, model.Unblock:
		return false
	}
	return x.reason == ""
}
