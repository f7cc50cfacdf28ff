package client

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Observer receives events of a Client, for logs, metrics and traces. [LogTo] makes one for
// log/slog, and package otellimit one for OpenTelemetry. Either function may be nil. The functions
// run in the goroutine of the call, which waits for them. So they must return quickly, be safe for
// concurrent use, and not call the Client.
type Observer struct {
	// Call is called after each call that the Client completes, also if the call is refused before
	// it is sent. ctx is the caller's context, which may already be done. A method that makes several
	// calls, such as Wait after a denial, Lease.Run or Estimate.Settle, is reported once for each of
	// them. A wait that ends before its first call is reported once: as denied, from
	// "memory", if the limit denies a caller ahead of it for too long.
	Call func(ctx context.Context, o Observation)

	// Breaker is called when the circuit breaker of a node changes its state. It can run in the
	// goroutine of any call. Only that call waits for it.
	//
	// node is the address of the node. It is empty while the nodes of a cluster are not known, and
	// "FailoverClient" for a primary found by Sentinels. The states from and to are "closed" (calls
	// are sent), "open" (no calls are sent) and "half-open" (one call probes the node). Closing the
	// Client closes all open breakers. If a node leaves a cluster or a ring, its breaker is closed
	// within about a second.
	Breaker func(node, from, to string)

	log *fallbackLog // used by LogTo
}

// Observation describes a completed call. It has no keys, and no limits except the names of
// policies. Each key or limit would be a separate label value in a metrics system, and keys often
// contain addresses or names of users. The text of Err contains keys, so use it only in logs. For a
// label, use ErrorType.
type Observation struct {
	Op string // the operation as in [Error].Op: "take" (Allow, AllowN, Take), "peek", "acquire" and so on

	// Policy is the name of the policy that the call used, without @. The names of several policies
	// are separated by commas, each name once. Policy is "" if the call makes no decision or uses
	// no policy. It is also "" until a server has decided a call by this Client with the policy, so
	// it never contains an invalid name.
	Policy string

	// Class is the Class of the call under Policy, or "". It, too, is "" until a server has decided such
	// a call by this Client, and a Client reports at most 256 classes: under `classes: any`, callers
	// could otherwise fill a metrics system.
	Class string

	Began    time.Time     // start time by this process's clock
	Duration time.Duration // duration of the call, including retries

	// Outcome is "allowed", "denied", "done" for a call that makes no decision, such as a reset,
	// "misconfigured" for an [ErrMisconfigured], which no retry can fix, or "error" for any other
	// error, for example in an outage.
	Outcome string

	Source string // source of the decision, as in Result.Source; "server" if the call makes no decision, "" after an error
	Err    error  // the error that the call returned, or the reason why no server decided (Result.Err)

	// ErrorType is a short name for Err: "bad_limit", "bad_cost", "bad_keys", "bad_args",
	// "bad_state", "no_policy", "cross_slot", "not_deployed", "no_permission", "bad_reply", "canceled",
	// "unavailable", "outcome_unknown" if the call was sent and its reply lost, even because of a timeout,
	// "timeout" if the call was not sent, "other" if none applies, and "" if Err is nil.
	ErrorType string
}

// WithObserver reports every call, and every change of a circuit breaker, to o. It may be given
// several times. Without an observer, calls have no overhead.
func WithObserver(o Observer) Option {
	return func(c *config) error {
		if o.Call == nil && o.Breaker == nil {
			return errors.New("the observer has no function; give Call or Breaker, or leave WithObserver out")
		}
		if o.Call != nil {
			c.observe.call = append(c.observe.call, o.Call)
		}
		if o.log != nil {
			c.log = o.log
		}
		if o.Breaker != nil {
			c.observe.breaker = append(c.observe.breaker, o.Breaker)
		}
		return nil
	}
}

// observers is the layer that reports each take to the observers when it is decided. It changes no
// decision. For other calls, the Client calls its method report.
type observers struct {
	call    []func(context.Context, Observation)
	breaker []func(node, from, to string)
	next    Limiter

	policies sync.Map     // set of the Observation.Policy values of calls that a server has decided
	classes  sync.Map     // set of the pairs of a policy and a class of such calls
	nClasses atomic.Int64 // size of classes
}

// Take implements [Limiter].
func (o *observers) Take(ctx context.Context, req Request) (res Result, err error) {
	defer o.reportClass(ctx, "take", time.Now(), req.Limits, req.Class, &res, &err)
	return o.next.Take(ctx, req)
}

// report reports a completed call without a class. limits and res are nil for a call that makes no
// decision.
func (o *observers) report(ctx context.Context, operation string, began time.Time, limits []Limit, res *Result, err *error) {
	o.reportClass(ctx, operation, began, limits, "", res, err)
}

// reportClass reports a completed call with its class.
func (o *observers) reportClass(ctx context.Context, operation string, began time.Time, limits []Limit, class string, res *Result, err *error) {
	if o.call == nil {
		return
	}
	seen := Observation{Op: operation, Began: began, Duration: time.Since(began), Outcome: outcomeDenied, Err: *err}
	switch {
	case res != nil:
		seen.Source, seen.Err = res.Source, cmp.Or(*err, res.Err)
		seen.Policy = o.policy(limits, seen.Err == nil)
		seen.Class = o.class(seen.Policy, class, seen.Err == nil)
	case *err == nil:
		seen.Source = sourceServer
	}
	switch {
	case errors.Is(*err, ErrMisconfigured):
		seen.Outcome = outcomeMisconfigured
	case *err != nil:
		seen.Outcome = outcomeError
	case res == nil:
		seen.Outcome = outcomeDone
	case res.Allowed:
		seen.Outcome = outcomeAllowed
	}
	seen.ErrorType = errorType(seen.Err)
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

// mostClasses is the maximum number of classes that a Client reports.
const mostClasses = 256

// class returns Observation.Class. decided is as for policy.
func (o *observers) class(policy, class string, decided bool) string {
	if policy == "" || class == "" {
		return ""
	}
	pair := [2]string{policy, class}
	if _, known := o.classes.Load(pair); known {
		return class
	}
	if !decided || o.nClasses.Load() >= mostClasses {
		return ""
	}
	if _, known := o.classes.LoadOrStore(pair, nil); !known {
		o.nClasses.Add(1)
	}
	return class
}

// errorType returns Observation.ErrorType.
func errorType(err error) string {
	e, ok := errors.AsType[*Error](err)
	switch {
	case err == nil:
		return ""
	case errors.Is(err, context.Canceled):
		return "canceled"
	case ok && e.kind != "" && e.kind != typeUnavailable && e.kind != typeLimited:
		return e.kind
	case errors.Is(err, ErrOutcomeUnknown):
		return "outcome_unknown"
	case errors.Is(err, context.DeadlineExceeded):
		return "timeout"
	case errors.Is(err, ErrUnavailable):
		return typeUnavailable
	}
	return "other"
}

const (
	outcomeAllowed       = "allowed"
	outcomeDenied        = "denied"
	outcomeDone          = "done"
	outcomeError         = "error"
	outcomeMisconfigured = "misconfigured"
)
