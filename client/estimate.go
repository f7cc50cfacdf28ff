package client

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/ratelimit-functions/ratelimit/internal/keytext"
)

// settleWithin is how long Settle repeats a correction whose outcome is unknown, from its first
// attempt.
const settleWithin = 10 * time.Minute

// mostKeyBytes is the length of the longest key that the library accepts.
const mostKeyBytes = 65536

// Estimate is an estimate that was charged for work whose cost is known only afterwards, such as the
// tokens of a language model. [Estimate.Settle] then corrects the charge. If an Estimate is never
// settled, it stays charged. An Estimate is safe for concurrent use.
type Estimate struct {
	// Result is the decision on the estimate. If Allowed is false, Settle does nothing.
	Result Result

	client  *Client
	req     Request
	res     Result  // as Result, with what was charged
	charged []int64 // units that a server charged to each key
	doubt   error   // why it is unknown what a server charged; nil if it is known
	once    string  // prefix of the settlement's OnceKeys

	mu      sync.Mutex
	fixed   bool         // whether Settle can no longer change actual: a correction may have been made, or none was needed
	left    []correction // corrections still to be made
	unknown time.Time    // when left[0] was first sent; zero unless its outcome is unknown
	err     error        // the error that made the outcome of left[0] unknown
	outcome Result
}

// correction is one of the calls that a settlement makes.
type correction struct {
	call func(context.Context, Request) (Result, error)
	req  Request
}

// TakeEstimate takes the costs of req, or none: Result.Allowed reports which. Once the cost is known,
// call [Estimate.Settle]. The errors are the same as those of [Client.Take]. If req has UpTo, Force or
// an OnceKey, the error is [ErrMisconfigured]. If req has several policies, and the library on the
// server is too old for Each, the error is [ErrNotDeployed].
//
// A settlement stores its reply on the server in a separate key, in the hash slot of the first key.
// If the first key contains "}" and has no hash tag, such as "{}x", the client cannot make a key in
// its slot, and the error is ErrMisconfigured. So it is if the first key is almost 64 KiB long.
func (c *Client) TakeEstimate(ctx context.Context, req Request) (*Estimate, error) {
	err := req.check()
	if err == nil && (req.UpTo || req.Force || req.OnceKey != "") {
		err = errors.New("BADARGS an Estimate is taken whole or not at all, and once; leave UpTo, Force and OnceKey out of the request")
	}
	var slot string
	if err == nil {
		slot, err = keytext.SameSlot(c.prefix, req.Keys[0])
	}
	once := slot + ":hold:" + rand.Text()
	if n := len(c.prefix+once+":back") - mostKeyBytes; err == nil && n > 0 {
		err = fmt.Errorf("BADKEYS the first key is too long by %d bytes for the key of its settlement, which contains it; give a shorter one", n)
	}
	if err != nil {
		return nil, c.observers.refuse(ctx, "take", c.keys(req.keys("take")), req.Limits, err)
	}
	take := req
	take.Each = req.Each || req.policies() > 1 // so that Charged is exact
	res, err := c.Take(ctx, take)
	if err != nil {
		return nil, err
	}
	req.Keys, req.Limits, req.Costs = slices.Clone(req.Keys), slices.Clone(req.Limits), slices.Clone(req.Costs) // the caller may reuse its own
	h := &Estimate{client: c, req: req, once: once}
	h.charged, h.doubt = res.Charged(req)
	if !req.Each {
		res.Each = nil
	}
	h.Result, h.res, h.outcome = res, res, res
	return h, nil
}

// Settle replaces the charged estimate with actual, the number of units that were used. actual is
// one number for all keys, or one number for each key, from 0 to 2^53. Settle gives back unused
// units, and charges missing units even if they do not fit, as Request.Force does. The Result
// describes the keys after the correction.
//
// The estimate is corrected only once, even if Settle is called several times: later calls return
// the first outcome and ignore actual. If a reply is lost, Settle retries as [Client.Take] does
// with an OnceKey. If it then returns [ErrOutcomeUnknown], a later call repeats the same
// correction, which takes effect at most once. After 10 minutes, Settle no longer repeats it, and
// returns the same error.
//
// After any other error, the correction was not made, and Settle can be called again. The same is
// true if Allowed is false because a key is blocked. If some keys get units back and others are
// charged more, Settle makes two calls to the server. If only the second call fails, a later Settle
// makes only the second. No [Fallback] applies. If the library on the server is too old, the error
// is [ErrNotDeployed].
//
// Settle corrects only what a server charged ([Result.Charged]). So it does nothing if the
// estimate was denied, if a Fallback allowed the estimate, and for a shadow policy that would have denied it. If a
// Fallback decided because the reply of the server was lost, nobody knows what was charged: Settle
// corrects nothing, and returns an [ErrOutcomeUnknown]. With Borrow, units are given
// back to who paid, and charged to the same keys; under a policy with a guarantee and a pool, Settle
// can only give back. ctx must not be done: to settle after a caller
// has hung up, pass context.WithoutCancel(ctx). A UsageKey counts an additional charge as one more
// call. Concurrent calls to Settle on one Estimate run one after another.
func (h *Estimate) Settle(ctx context.Context, actual ...int64) (Result, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.fixed {
		if err := h.plan(actual); err != nil {
			return Result{}, h.client.observers.refuse(ctx, "take", h.client.keys(h.req.keys("take")), h.req.Limits, err)
		}
	}
	if h.doubt != nil {
		return Result{}, notGivenBack(ctx, h.client.common, h.client.observers, &h.req, h.doubt)
	}
	for len(h.left) > 0 {
		next, sent := h.left[0], time.Now()
		if !h.unknown.IsZero() && sent.Sub(h.unknown) > settleWithin {
			h.client.observers.report(ctx, "refund", sent, h.req.Limits, &Result{}, &h.err)
			return Result{}, h.err
		}
		res, err := next.call(ctx, next.req)
		switch {
		case errors.Is(err, ErrOutcomeUnknown) && h.unknown.IsZero():
			h.fixed, h.unknown, h.err = true, sent, err
			return Result{}, err
		case err != nil && !h.unknown.IsZero(): // an earlier call may have been executed, regardless of this error
			return Result{}, both(h.err, err)
		case err != nil:
			return Result{}, err
		case !res.Allowed:
			return res, nil
		}
		h.fixed, h.left, h.unknown, h.outcome = true, h.left[1:], time.Time{}, res
	}
	h.fixed = true
	return h.outcome, nil
}

// plan sets h.left to the calls that correct the estimate to actual.
func (h *Estimate) plan(actual []int64) error {
	h.left = nil
	used := h.req
	if used.Costs = actual; len(actual) == 0 {
		return errors.New("BADARGS Settle got no number; give how many units were used")
	}
	if err := used.check(); err != nil {
		return err
	}
	if !h.res.Allowed || h.res.byFallback() {
		return nil
	}
	back, more := make([]int64, len(h.charged)), make([]int64, len(h.charged))
	for i, charged := range h.charged {
		if charged == h.req.cost(i) { // otherwise, the key was not charged
			over := charged - used.cost(i)
			back[i], more[i] = max(over, 0), max(-over, 0)
		}
	}
	refund := Request{Keys: h.req.Keys, Limits: h.req.Limits, Costs: back, OnceKey: h.once + ":back", OnceTTL: 2 * settleWithin}
	force := refund
	force.Costs, force.Force, force.OnceKey = more, true, h.once+":more"
	refund.Borrow = h.req.Borrow && isPolicy(h.req.Limits[0]) // a policy takes units back only from who paid, and two limits take them one by one
	force.UsageKey, force.Fallback = h.req.UsageKey, ReturnError
	if refund.largest() > 0 {
		h.left = append(h.left, correction{h.client.Refund, refund})
	}
	if force.largest() > 0 {
		h.left = append(h.left, correction{h.client.Take, force})
	}
	return nil
}
