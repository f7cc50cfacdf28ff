package client

import (
	"cmp"
	"context"
	"errors"
	"time"
)

// Observer hears of what a Client does, for logs, metrics and traces. [LogTo] makes one for log/slog, package otellimit one
// for OpenTelemetry. Either function may be nil. They are called in the goroutine of the call, which waits for them: they
// return soon, are safe for concurrent use, and do not call the Client.
type Observer struct {
	// Call is called after each call of the Client. ctx is the caller's, and may have ended.
	Call func(ctx context.Context, o Observation)

	// Breaker is called when the circuit breaker of a node changes its state.
	Breaker func(change BreakerChange)
}

// Observation is one call, as it ended. It has no keys, and no limits: each is a label of its own to a system of metrics,
// and often somebody's address or name. The text of Err has keys, so it is for logs alone; for a label use ErrorType.
type Observation struct {
	Operation string        // as [Error].Op: "take" (Allow, AllowN, Take), "peek", "acquire" and the others
	Began     time.Time     // by this process's clock
	Duration  time.Duration // until the call returned, with all that was asked again
	Outcome   Outcome
	Source    Source // who decided; says nothing where Outcome is OutcomeError
	Err       error  // of the call, or why no server decided (Result.Err)
}

// Outcome is how a call ended, as a label.
type Outcome string

const (
	OutcomeAllowed Outcome = "allowed"
	OutcomeDenied  Outcome = "denied"
	OutcomeDone    Outcome = "done"  // a call that is no decision, such as a reset
	OutcomeError   Outcome = "error" // the caller got an error
)

// BreakerChange is a change of the state of the circuit breaker of one node. The states are "closed" (calls are sent),
// "open" (the node is left alone) and "half-open" (one call finds out whether it is back). Closing the Client closes those that are open.
type BreakerChange struct {
	Node     string // its address; empty where the nodes of a cluster are not known yet, FailoverClient for a primary that Sentinels name
	From, To string
}

// WithObserver has o hear of every call, and of every change of a circuit breaker. It may be given several times. A Client
// without one pays nothing for it.
func WithObserver(o Observer) Option {
	return func(c *Client) error {
		if o.Call == nil && o.Breaker == nil {
			return errors.New("the observer has no function; give Call or Breaker, or leave WithObserver out")
		}
		if o.Call != nil {
			c.onCall = append(c.onCall, o.Call)
		}
		if o.Breaker != nil {
			c.onBreaker = append(c.onBreaker, o.Breaker)
		}
		return nil
	}
}

// observe tells of a call that has ended. Callers ask first whether anybody listens, so that who does not pays nothing.
func (c *Client) observe(ctx context.Context, operation string, began time.Time, outcome Outcome, source Source, err error) {
	o := Observation{Operation: operation, Began: began, Duration: time.Since(began), Outcome: outcome, Source: source, Err: err}
	for _, tell := range c.onCall {
		tell(ctx, o)
	}
}

// observeResult is observe for a call that ended in res or err.
func (c *Client) observeResult(ctx context.Context, operation string, began time.Time, res Result, err error) {
	outcome := OutcomeDenied
	switch {
	case err != nil:
		outcome = OutcomeError
	case res.Allowed:
		outcome = OutcomeAllowed
	}
	c.observe(ctx, operation, began, outcome, res.Source, cmp.Or(err, res.Err))
}

// observeDone is observe for a call that is no decision.
func (c *Client) observeDone(ctx context.Context, operation string, began time.Time, err error) {
	outcome := OutcomeDone
	if err != nil {
		outcome = OutcomeError
	}
	c.observe(ctx, operation, began, outcome, SourceServer, err)
}

// errorTypes are words for errors, as labels. The first that fits counts: what the caller did comes before what that led to.
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
	{context.DeadlineExceeded, "timeout"},
	{ErrUnavailable, "unavailable"},
}

// ErrorType is a word for Err, one of about a dozen: "timeout", "unavailable", "not_deployed", "bad_limit", "canceled" and the
// like, named after the Err values of this package; "other" if it is none of them, and empty without an error.
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
