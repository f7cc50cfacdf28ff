package grpclimit

import (
	"context"
	"errors"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/ratelimit-functions/ratelimit/client"
)

// notMade is the error of a call that was not made.
type notMade struct {
	error
	status *status.Status
}

func (e notMade) Unwrap() error { return e.error }

// GRPCStatus returns the status that package status uses for the error.
func (e notMade) GRPCStatus() *status.Status { return e.status }

// admit waits until the call may be made, and then returns nil.
func (c *Client) admit(ctx context.Context, ask client.Request) error {
	if len(ask.Keys) == 0 {
		return nil
	}
	err := c.limiter.WaitRequest(ctx, ask, time.Now().Add(c.wait))
	var limited *client.LimitedError
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return notMade{err, status.FromContextError(ctx.Err())}
	case !errors.As(err, &limited):
		return notMade{err, status.New(codes.Unavailable, err.Error())}
	case limited.RetryAfter == client.Never:
		return notMade{err, status.New(codes.ResourceExhausted, err.Error())}
	}
	return notMade{err, retryStatus(codes.ResourceExhausted, err.Error(), limited.RetryAfter)}
}
