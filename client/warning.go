package client

import "context"

// leastWarn is the least percentage at which a policy can warn.
const leastWarn = 50

// Warning returns the percentage of the limit that is used, rounded down, if the policy warns from this
// percentage on (`warn: 80` in policies.yaml), and 0 otherwise. req is the Request of a Take, and res its
// Result. Used is what of res.Limit is not in res.Remaining. So of several limits, the binding one counts,
// and what a class must leave to others counts as used. Warning returns 0 for a denied call.
//
// To find out whether the policy warns, Warning asks the server, but not before half of the limit is used, and
// remembers the answer for a minute. If the server does not answer, Warning returns 0.
func (c *Client) Warning(ctx context.Context, req Request, res Result) int {
	if !res.Allowed || res.Limit <= 0 || res.Index < 1 || res.Index > len(req.Keys) || len(req.Limits) == 0 {
		return 0
	}
	used := 100 - percentUp(min(max(res.Remaining, 0), res.Limit), res.Limit)
	if used < leastWarn {
		return 0
	}
	policy := req.Limits[0]
	switch {
	case len(req.Limits) == len(req.Keys):
		policy = req.Limits[res.Index-1]
	case len(req.Limits) > 1: // one of the policies has several keys, and Index does not say which has decided
		return 0
	}
	if !isPolicy(policy) {
		return 0
	}
	keys := c.penalties.parsed.told(ctx, req.Keys[res.Index-1], policy)
	if len(keys) == 0 || keys[0].warn == 0 || used < keys[0].warn {
		return 0
	}
	return used
}

// percentUp returns how many percent n is of of, rounded up. n is at most of.
func percentUp(n, of int64) int {
	whole, rest := n/of*100, n%of // of is at most 2^53, so rest*100 fits
	return int(whole + (rest*100+of-1)/of)
}
