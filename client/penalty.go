package client

import (
	"cmp"
	"context"
	"fmt"
	"time"
)

// Penalize blocks the key that has denied req, as [Client.Block] does with b.Max and b.Forget. req is the
// Request of a Take, and res its Result. Penalize returns res, with the wait for the end of the block if
// that is longer. If b is the zero Block, the policy that has denied says how long the block is: Penalize
// asks the server, and remembers the answer for a minute. If the policy has no penalty, it blocks nothing.
//
// Penalize blocks nothing if res is allowed, for example because only a shadow policy has denied, or if
// no server has decided: Result.Source is not "server". It blocks nothing if RetryAfter is Never, because a cost
// above the capacity of the limit is a mistake, and not too many calls, or 0, because req asks for nothing (UpTo with a
// cost of 0). It blocks nothing if a policy of several keys is
// in req, because the key that has denied may be one that others share, such as a pool. It blocks nothing
// for a req with Floor or Borrow, or if the policy keeps something free from the class of req or, without one,
// from the class default: such a req may be denied only for the sake of others. So it blocks nothing if it cannot
// ask for the policy. If a block has denied req,
// that block stays as it is. To find this out, Penalize may make a call; it
// remembers up to 65,536 blocks that it has seen, about 10 MB, so that it rarely does. If another process
// has made the block, and it ends before that call, the key is blocked again, for longer.
//
// If there is an error, the Result is res as it was, and the denial holds. Observers see the call for the
// block as any other.
func (c *Client) Penalize(ctx context.Context, b Block, req Request, res Result) (Result, error) {
	if res.Allowed || res.RetryAfter <= 0 || res.Source != sourceServer || res.Index < 1 || res.Index > len(req.Keys) || req.Floor != 0 || req.Borrow {
		return res, nil
	}
	if len(req.Limits) != len(req.Keys) { // a policy of several keys: others may share the one that has denied
		return res, nil
	}
	key := req.Keys[res.Index-1]
	var policy parsedKey
	if limit := req.Limits[res.Index-1]; isPolicy(limit) {
		keys := c.penalties.parsed.told(ctx, key, limit)
		if len(keys) != 1 || keys[0].rates == nil { // the policy is not known
			return res, nil
		}
		policy = keys[0]
	}
	if b == (Block{}) {
		b = policy.penalty
	}
	if b == (Block{}) || policy.classes[cmp.Or(req.Class, "default")] > 0 || req.Class != "" && policy.rates == nil { // only policies have classes
		return res, nil
	}
	if b.For <= 0 || b.Max == 0 || b.Forget == 0 || b.Extend {
		return res, c.observers.refuse(ctx, "block", c.keys([]string{key}), nil, fmt.Errorf("BADARGS a penalty of %+v; give For, Max and Forget, without Extend", b))
	}
	// A block that denies its only key says the same as RetryAfter and ResetAfter.
	perhapsBlocked := len(req.Keys) > 1 || res.RetryAfter == res.ResetAfter
	p, mine := c.penalties.begin(key, perhapsBlocked, res.RetryAfter)
	switch {
	case p == nil:
		return res, nil
	case mine:
		if err := c.penalize(ctx, b, key, p); err != nil {
			return res, err
		}
	default:
		select {
		case <-p.done:
		case <-ctx.Done():
			return res, nil
		}
	}
	left := p.length
	if !mine {
		left = countedDown(left, c.now().Sub(p.read))
	}
	if left > res.RetryAfter {
		res.Remaining, res.RetryAfter, res.ResetAfter = 0, left, max(left, res.ResetAfter)
	}
	return res, nil
}

// penalize makes the call for a block of key.
func (c *Client) penalize(ctx context.Context, b Block, key string, p *penalized) error {
	defer close(p.done)
	defer c.forgetUnits([]string{key})
	sent := c.now()
	length, err := c.grow(ctx, b, c.keys([]string{key}))
	if err == nil {
		p.length, p.read, p.until = length, c.now(), sent.Add(length)
	}
	return err
}

// penalties remembers which keys are blocked, so that a denial by a block costs no call.
type penalties struct {
	*common
	parsed *parsedLimits
	table[string, *penalized]
}

// penalized is a call that blocks a key.
type penalized struct {
	done   chan struct{} // closed when the call has ended; only then, the other fields may be read
	length time.Duration // how long the key was blocked when the reply was read; 0 if the call failed
	read   time.Time
	until  time.Time // the earliest time at which the block may end
}

// longestReply is how long ago a call may have been denied that is penalized now.
const longestReply = time.Second

// begin returns the call in progress that blocks key, or one that the caller has to make. It returns nil
// if perhapsBlocked, and a block that a call has returned may have denied key for wait. A shorter wait is
// not that of the block, so the block was lifted elsewhere, or the key was denied before it. The block may
// have ended since it denied the key.
func (p *penalties) begin(key string, perhapsBlocked bool, wait time.Duration) (of *penalized, mine bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.now()
	blocked := func(of *penalized) (inProgress, inEffect bool) {
		select {
		case <-of.done:
			return false, now.Before(of.until)
		default:
			return true, false
		}
	}
	if of, ok := p.entries.Get(key); ok {
		switch inProgress, inEffect := blocked(of); {
		case inProgress:
			return of, false
		case !perhapsBlocked || now.Add(wait+time.Millisecond).Before(of.until): // length was rounded up to a millisecond
		case inEffect || now.Add(wait-longestReply).Before(of.until):
			return nil, false
		}
	}
	p.shrink(func(oldest *penalized) bool {
		inProgress, inEffect := blocked(oldest)
		return inProgress || inEffect
	})
	of = &penalized{done: make(chan struct{})}
	p.entries.Add(key, of)
	return of, true
}
