// Package adapter is what the packages for HTTP, gRPC and OpenTelemetry do alike.
package adapter

import (
	"context"
	"errors"
	"time"

	"github.com/ratelimit-functions/ratelimit/client"
)

// Given is the error of a limiter, name or limit that is missing, or nil.
func Given(limiter *client.Client, name string, limit client.Limit) error {
	switch {
	case limiter == nil:
		return errors.New("the client is nil; make one with client.New or client.Open")
	case name == "":
		return errors.New("the name is empty; give what is limited or called, such as api or partner")
	case limit == "":
		return errors.New("the limit is empty; give one such as 100/m")
	}
	return nil
}

// Apply applies options to a, up to the first that cannot be met.
func Apply[A any, O ~func(*A) error](a *A, opts []O) error {
	for _, opt := range opts {
		if opt == nil {
			return errors.New("an option is nil; leave it out")
		}
		if err := opt(a); err != nil {
			return err
		}
	}
	return nil
}

// Block blocks keys for at least d: another reply of the other side may say more. It does not end with ctx; limiter bounds its
// calls itself.
func Block(ctx context.Context, limiter *client.Client, d time.Duration, keys []string) error {
	if d <= 0 {
		return nil
	}
	return limiter.BlockAtLeast(context.WithoutCancel(ctx), d, keys...)
}

// Ended reports whether ctx has ended. Its deadline counts even if its timer has not fired yet: a connection that has the same
// deadline may time out first.
func Ended(ctx context.Context) bool {
	deadline, ok := ctx.Deadline()
	return ctx.Err() != nil || ok && !time.Now().Before(deadline)
}

// Sleep waits for d, or returns the error of ctx if that has ended.
func Sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return ctx.Err()
	}
}
