// Package adapter has code shared by the packages for HTTP, gRPC and OpenTelemetry.
package adapter

import (
	"context"
	"errors"
	"reflect"
	"time"

	"github.com/ratelimit-functions/ratelimit/client"
)

// Given returns nil if the limiter, the name and the limit are given.
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

// Apply applies options to a until one returns an error.
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

// Set stores value in field, unless it is nil: then it returns an error with text.
func Set[V any](field *V, value V, text string) error {
	if v := reflect.ValueOf(value); !v.IsValid() || v.IsNil() {
		return errors.New(text)
	}
	*field = value
	return nil
}

// Block blocks keys for at least d; it does not shorten a longer block from another reply. It does
// not end with ctx, because limiter bounds its calls itself.
func Block(ctx context.Context, limiter *client.Client, d time.Duration, keys []string) error {
	if d <= 0 {
		return nil
	}
	return limiter.BlockAtLeast(context.WithoutCancel(ctx), d, keys...)
}

// Ended reports whether ctx has ended or its deadline has passed. At the deadline, a connection may
// time out before the timer of ctx fires.
func Ended(ctx context.Context) bool {
	deadline, ok := ctx.Deadline()
	return ctx.Err() != nil || ok && !time.Now().Before(deadline)
}

// Sleep waits for d. If ctx ends first, it returns the error of ctx.
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
