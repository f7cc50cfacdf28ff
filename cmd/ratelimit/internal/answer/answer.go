// Package answer turns what package client returns into the JSON of internal/reply, for --json and for
// the dashboard. The gateway, which is a module of its own, does the same.
package answer

import (
	"github.com/ratelimit-functions/ratelimit/client"
	"github.com/ratelimit-functions/ratelimit/internal/reply"
)

// Decision returns the JSON of res, the result of req.
func Decision(req client.Request, res client.Result) reply.Decision {
	d := reply.Decision{
		Allowed: res.Allowed, Limit: res.Limit, Remaining: res.Remaining, RetryAfterMS: reply.MS(res.RetryAfter),
		ResetAfterMS: reply.MS(res.ResetAfter), Index: res.Index, Key: req.Keys[res.Index-1],
	}
	if s := res.Shadow; s != nil {
		d.Shadow = &reply.Shadow{Allowed: s.Allowed, RetryAfterMS: reply.MS(s.RetryAfter), Index: s.Index}
		if req.UpTo {
			d.Shadow.Taken = &s.Taken
		}
	}
	if req.UpTo {
		d.Taken = &res.Taken
	}
	for i, k := range res.Each {
		d.Each = append(d.Each, reply.Key{
			Key: req.Keys[i], Allowed: k.Allowed, Limit: k.Limit, Remaining: k.Remaining,
			RetryAfterMS: reply.MS(k.RetryAfter), ResetAfterMS: reply.MS(k.ResetAfter),
		})
	}
	return d
}

// Remembered is a decision that also says what is remembered of each key's last block that grows. The
// gateway has no such call.
type Remembered struct {
	reply.Decision
	Grown []Grown `json:"grown,omitempty"`
}

// Grown is what is remembered of a key; 0 and 0 if nothing is.
type Grown struct {
	Key              string `json:"key"`
	LengthMS         int64  `json:"length_ms"`
	ForgottenAfterMS int64  `json:"forgotten_after_ms"`
}

// Take returns the JSON of res, the result of a take or a peek.
func Take(req client.Request, res client.Result) Remembered {
	r := Remembered{Decision: Decision(req, res)}
	for i, grown := range res.Grown {
		r.Grown = append(r.Grown, Grown{Key: req.Keys[i], LengthMS: grown.Length.Milliseconds(), ForgottenAfterMS: grown.Forgotten.Milliseconds()})
	}
	return r
}

// Lease returns the JSON of a decision about a lease of key.
func Lease(key, id string, res client.Result) reply.Lease {
	return reply.Lease{Decision: Decision(client.Request{Keys: []string{key}}, res), LeaseID: id, LeaseMS: res.Lease.Milliseconds()}
}

// Usage returns the JSON of u.
func Usage(u client.Usage) reply.Usage {
	usage := reply.Usage{Allowed: u.Allowed, Denied: u.Denied, Cost: u.Cost, IntervalMS: u.Interval.Milliseconds(), Series: []reply.Minute{}}
	if !u.First.IsZero() {
		usage.FirstMS, usage.LastMS = u.First.UnixMilli(), u.Last.UnixMilli()
	}
	for _, m := range u.Series {
		usage.Series = append(usage.Series, reply.Minute{StartMS: m.Start.UnixMilli(), Allowed: m.Allowed, Denied: m.Denied})
	}
	return usage
}
