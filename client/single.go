package client

import "context"

// single is a call that this process may be able to decide. The call takes units from one key,
// without an OnceKey, a UsageKey, Each, Force or Borrow, and is not part of a TakeAll.
type single struct {
	sharedKey
	limit Limit
	cost  int64
	upTo  bool
}

// single converts req to the type single. It returns false if that is not possible. It also returns
// false if ctx is done or the client is closed, so that the last layer, server, gets the call and
// returns the error.
func (c *common) single(ctx context.Context, req *Request) (single, bool) {
	if len(req.Keys) != 1 || len(req.Limits) != 1 || len(req.Costs) > 1 || req.UpTo && len(req.Costs) == 0 || req.Force || req.Each ||
		req.with != nil || req.Borrow || req.Floor < 0 || req.Floor > 100 || req.Floor > 0 && req.Class != "" ||
		req.OnceKey != "" || req.OnceTTL != 0 || req.UsageKey != "" || req.Keys[0] == "" || req.Limits[0] == "" ||
		c.lifetime.closed.Load() || ended(ctx) != nil {
		return single{}, false
	}
	return single{sharedKey: sharedKey{req.Keys[0], share{req.Class, req.Floor}}, limit: req.Limits[0], cost: req.cost(0), upTo: req.UpTo}, true
}

// least returns the smallest number of units that the call needs to be allowed.
func (a single) least() int64 {
	if a.upTo {
		return min(a.cost, 1)
	}
	return a.cost
}
