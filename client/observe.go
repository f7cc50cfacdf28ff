package client

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"
)

// Observer receives events of a Client, for logs, metrics and traces. [LogTo] makes one for
// log/slog, and package otellimit one for OpenTelemetry. Either function may be nil. The functions
// run in the goroutine of the call, which waits for them. So they must return quickly, be safe for
// concurrent use, and not call the Client.
type Observer struct {
	// Call is called after each call that the Client completes, also if the call is refused before
	// it is sent. ctx is the caller's context, which may already be done. A method that makes several
	// calls, such as Wait after a denial, Lease.Hold or Hold.Settle, is reported once for each of
	// them. A wait that ends before its first call is reported once: as denied, from
	// [SourceMemory], if the limit denies a caller ahead of it for too long.
	Call func(ctx context.Context, o Observation)

	// Breaker is called when the circuit breaker of a node changes its state. It can run in the
	// goroutine of any call. Only that call waits for it.
	Breaker func(change BreakerChange)

	fallbacks *fallbackLog // used by LogTo
}

// Observation describes a completed call. It has no keys, and no limits except the names of
// policies. Each key or limit would be a separate label value in a metrics system, and keys often
// contain addresses or names of users. The text of Err contains keys, so use it only in logs. For a
// label, use ErrorType.
type Observation struct {
	Operation string // the operation as in [Error].Op: "take" (Allow, AllowN, Take), "peek", "acquire" and so on

	// Policy is the name of the policy that the call used, without @. The names of several policies
	// are separated by commas, each name once. Policy is "" if the call makes no decision or uses
	// no policy. It is also "" until a server has decided a call by this Client with the policy, so
	// it never contains an invalid name.
	Policy string

	Began    time.Time     // start time by this process's clock
	Duration time.Duration // duration of the call, including retries
	Outcome  Outcome
	Source   Source // source of the decision; SourceServer if the call makes no decision, SourceNone after an error
	Err      error  // the error that the call returned, or the reason why no server decided (Result.Err)
}

// Outcome is the outcome of a call, as a label value.
type Outcome string

const (
	OutcomeAllowed Outcome = "allowed"
	OutcomeDenied  Outcome = "denied"
	OutcomeDone    Outcome = "done"  // a call that makes no decision, such as a reset
	OutcomeError   Outcome = "error" // the call returned an error that a retry may fix, for example in an outage

	// OutcomeMisconfigured means that the call returned [ErrMisconfigured]. Retries do not help.
	OutcomeMisconfigured Outcome = "misconfigured"
)

// BreakerChange describes a state change of the circuit breaker of one node. The states are
// "closed" (calls are sent), "open" (no calls are sent) and "half-open" (one call probes the node).
// Closing the Client closes all open breakers. If a node leaves a cluster or a ring, its breaker is
// closed within about a second.
type BreakerChange struct {
	// Node is the address of the node. It is empty while the nodes of a cluster are not known, and
	// "FailoverClient" for a primary found by Sentinels.
	Node string

	From, To string // "closed", "open" or "half-open"
}

// WithObserver reports every call, and every change of a circuit breaker, to o. It may be given
// several times. Without an observer, calls have no overhead.
func WithObserver(o Observer) Option {
	return func(c *Client) error {
		if o.Call == nil && o.Breaker == nil {
			return errors.New("the observer has no function; give Call or Breaker, or leave WithObserver out")
		}
		if o.Call != nil {
			c.observers.call = append(c.observers.call, o.Call)
		}
		if o.fallbacks != nil {
			c.fallbacks.log = o.fallbacks
		}
		if o.Breaker != nil {
			c.observers.breaker = append(c.observers.breaker, o.Breaker)
		}
		return nil
	}
}

// observers is the decider that calls the functions of each Observer after a take. For other calls,
// the Client calls its method report.
type observers struct {
	call    []func(context.Context, Observation)
	breaker []func(BreakerChange)
	next    decider

	policies sync.Map // set of the Observation.Policy values of calls that a server has decided
}

func (o *observers) decide(ctx context.Context, req *Request) (res Result, err error) {
	defer o.report(ctx, "take", time.Now(), req.Limits, &res, &err)
	return o.next.decide(ctx, req)
}

// report reports a completed call. limits and res are nil for a call that makes no decision.
func (o *observers) report(ctx context.Context, operation string, began time.Time, limits []Limit, res *Result, err *error) {
	if o.call == nil {
		return
	}
	seen := Observation{Operation: operation, Began: began, Duration: time.Since(began), Outcome: OutcomeDenied, Err: *err}
	switch {
	case res != nil:
		seen.Source, seen.Err = res.Source, cmp.Or(*err, res.Err)
		seen.Policy = o.policy(limits, seen.Err == nil)
	case *err == nil:
		seen.Source = SourceServer
	}
	switch {
	case errors.Is(*err, ErrMisconfigured):
		seen.Outcome = OutcomeMisconfigured
	case *err != nil:
		seen.Outcome = OutcomeError
	case res == nil:
		seen.Outcome = OutcomeDone
	case res.Allowed:
		seen.Outcome = OutcomeAllowed
	}
	for _, tell := range o.call {
		tell(ctx, seen)
	}
}

// refuse returns the error for a call that is rejected before sending, and reports the call. err
// starts with the server's error code. limits is nil for a call that makes no decision.
func (o *observers) refuse(ctx context.Context, operation string, keys []string, limits []Limit, err error) error {
	err = refused(operation, keys, err)
	var res *Result
	if limits != nil {
		res = &Result{}
	}
	o.report(ctx, operation, time.Now(), limits, res, &err)
	return err
}

// policy returns Observation.Policy. If decided is true, a server has decided the call, and policy
// remembers the names as valid.
func (o *observers) policy(limits []Limit, decided bool) string {
	var names []string
	for _, limit := range limits {
		if name, ok := strings.CutPrefix(string(limit), "@"); ok && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	if names == nil {
		return ""
	}
	joined := strings.Join(names, ",")
	if _, known := o.policies.Load(joined); !known {
		if !decided {
			return ""
		}
		o.policies.Store(joined, nil)
	}
	return joined
}

// errorTypes maps errors to label values. The first match applies, so specific errors come before
// general ones.
var errorTypes = []struct {
	class error
	word  string
}{
	{context.Canceled, "canceled"},
	{ErrBadLimit, "bad_limit"},
	{ErrBadCost, "bad_cost"},
	{ErrBadKeys, "bad_keys"},
	{ErrBadArgs, "bad_args"},
	{ErrBadState, "bad_state"},
	{ErrNoPolicy, "no_policy"},
	{ErrCrossSlot, "cross_slot"},
	{ErrNotDeployed, "not_deployed"},
	{ErrNoPermission, "no_permission"},
	{ErrBadReply, "bad_reply"},
	{ErrOutcomeUnknown, "outcome_unknown"},
	{context.DeadlineExceeded, "timeout"},
	{ErrUnavailable, "unavailable"},
}

// ErrorType returns a short name for Err, one of about a dozen: "timeout", "unavailable",
// "outcome_unknown", "not_deployed", "bad_limit", "canceled" and the like, named after the Err values
// of this package. It is "outcome_unknown" if the call was sent and its reply lost, even because of a
// timeout, and "timeout" if the call was not sent.
// It returns "other" if none applies, and "" if Err is nil.
func (o Observation) ErrorType() string {
	if o.Err == nil {
		return ""
	}
	for _, t := range errorTypes {
		if errors.Is(o.Err, t.class) {
			return t.word
		}
	}
	return "other"
}
