package grpclimit

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/ratelimit-functions/ratelimit/client"
)

// LimitedError is the error of a call that was not made, since it is over the limit and its turn would come too late, or
// never. As a status of gRPC it is RESOURCE_EXHAUSTED with a RetryInfo.
type LimitedError struct {
	Key        string        // what is over its limit, without a prefix of the client
	RetryAfter time.Duration // after which it can be made, as far as is known; client.Never: its cost is above what the limit holds
	Err        error         // context.DeadlineExceeded if the context's deadline came before, why no server decided, or nil
}

func (e *LimitedError) Error() string {
	text := fmt.Sprintf("ratelimit: grpclimit: %q is at its limit; try again in %v", e.Key, e.RetryAfter)
	if e.RetryAfter == client.Never {
		text = fmt.Sprintf("ratelimit: grpclimit: the call asks for more of %q than its limit ever allows", e.Key)
	}
	if e.Err != nil {
		text += fmt.Sprintf(" (%v)", e.Err)
	}
	return text
}

// Unwrap returns Err.
func (e *LimitedError) Unwrap() error { return e.Err }

// GRPCStatus is what package status reads.
func (e *LimitedError) GRPCStatus() *status.Status {
	if e.RetryAfter == client.Never {
		return status.New(codes.ResourceExhausted, e.Error())
	}
	return retryStatus(codes.ResourceExhausted, e.Error(), e.RetryAfter)
}

// undecided is the error of a call that was not made, since there was no decision.
type undecided struct{ error }

func (e undecided) Unwrap() error { return e.error }

// GRPCStatus is what package status reads.
func (e undecided) GRPCStatus() *status.Status { return status.New(codes.Unavailable, e.Error()) }

// admit returns nil once a call may be made; it waits until then.
func (c *Client) admit(ctx context.Context, method string, ask client.Request) error {
	if len(ask.Keys) == 0 {
		return nil
	}
	until := time.Now().Add(c.wait)
	for {
		result, err := c.limiter.Take(ctx, ask)
		if err != nil {
			if ctx.Err() != nil {
				return status.FromContextError(ctx.Err()).Err()
			}
			return undecided{err}
		}
		if result.Allowed && result.RetryAfter == 0 {
			return nil
		}
		if err = c.rest(ctx, ask, result, until); err == nil && result.Allowed {
			return nil // leaky_bucket: its place in the queue has come
		}
		if err != nil {
			if result.Allowed {
				c.giveBack(ctx, method, ask)
			}
			return err
		}
	}
}

// rest waits for as long as a result says, or returns at once if that is too long.
func (c *Client) rest(ctx context.Context, ask client.Request, result client.Result, until time.Time) error {
	at := time.Now().Add(result.RetryAfter)
	deadline, bound := ctx.Deadline()
	late := bound && !at.Before(deadline)
	if result.RetryAfter == client.Never || at.After(until) || late {
		e := &LimitedError{Key: ask.Keys[max(result.Index, 1)-1], RetryAfter: result.RetryAfter, Err: result.Err}
		if late && e.Err == nil && result.RetryAfter != client.Never {
			e.Err = context.DeadlineExceeded
		}
		return e
	}
	timer := time.NewTimer(result.RetryAfter)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return status.FromContextError(ctx.Err()).Err()
	case <-timer.C:
		return nil
	}
}

// giveBack refunds what was taken for a call that is not made.
func (c *Client) giveBack(ctx context.Context, method string, ask client.Request) {
	back := client.Request{Keys: ask.Keys, Limits: ask.Limits, Costs: ask.Costs}
	if _, err := c.limiter.Refund(context.WithoutCancel(ctx), back); err != nil {
		c.onError(ctx, method, err)
	}
}
