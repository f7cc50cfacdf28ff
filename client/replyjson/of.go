package replyjson

import "github.com/ratelimit-functions/ratelimit/client"

// Of returns the JSON of res, the result of req.
func Of(req client.Request, res client.Result) Decision {
	d := Decision{
		Allowed: res.Allowed, Limit: res.Limit, Remaining: res.Remaining, RetryAfterMS: ms(res.RetryAfter),
		ResetAfterMS: ms(res.ResetAfter), Index: res.Index,
	}
	if res.Index > 0 { // 0 without a decision
		d.Key = req.Keys[res.Index-1]
	}
	if s := res.Shadow; s != nil {
		d.Shadow = &Shadow{Allowed: s.Allowed, RetryAfterMS: ms(s.RetryAfter), Index: s.Index}
		if req.UpTo {
			d.Shadow.Taken = &s.Taken
		}
	}
	if req.UpTo {
		d.Taken = &res.Taken
	}
	for i, k := range res.Each {
		d.Each = append(d.Each, Key{
			Key: req.Keys[i], Allowed: k.Allowed, Limit: k.Limit, Remaining: k.Remaining,
			RetryAfterMS: ms(k.RetryAfter), ResetAfterMS: ms(k.ResetAfter),
		})
	}
	return d
}

// OfLease returns the JSON of a decision about a lease of key.
func OfLease(key, id string, res client.Result) Lease {
	return Lease{Decision: Of(client.Request{Keys: []string{key}}, res), LeaseID: id, LeaseMS: res.Lease.Milliseconds()}
}

// OfUsage returns the JSON of u.
func OfUsage(u client.Usage) Usage {
	usage := Usage{Allowed: u.Allowed, Denied: u.Denied, Cost: u.Cost, IntervalMS: u.Interval.Milliseconds(), Series: []Minute{}}
	if !u.First.IsZero() {
		usage.FirstMS, usage.LastMS = u.First.UnixMilli(), u.Last.UnixMilli()
	}
	for _, m := range u.Series {
		usage.Series = append(usage.Series, Minute{StartMS: m.Start.UnixMilli(), Allowed: m.Allowed, Denied: m.Denied})
	}
	return usage
}
