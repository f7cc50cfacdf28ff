// Package outgoing keeps calls to other services within a limit. It has code shared by packages
// httpcall and grpccall.
package outgoing

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ratelimit-functions/ratelimit/client"
	"github.com/ratelimit-functions/ratelimit/client/internal/adapter"
)

// Calls limits calls to other services. C is the type of a call, such as *http.Request. Make a
// Calls with [New], and set the other fields before its first use.
type Calls[C any] struct {
	adapter.Requests[C]
	OnError     func(C, error) // called if a key could not be blocked
	waitFor     func(context.Context, client.Request) error
	wait, block time.Duration
}

// New returns a Calls with the default longest wait and longest block. empty is the text of the
// error for an empty key.
func New[C any](limiter client.Limiter, name string, limit client.Limit, empty string) Calls[C] {
	return Calls[C]{
		Requests: adapter.Requests[C]{Limiter: limiter, Name: name, Limit: limit, Empty: errors.New(empty)},
		wait:     time.Minute,
		block:    10 * time.Minute,
	}
}

// Given is Requests.Given, and makes c ready to wait.
func (c *Calls[C]) Given() (err error) {
	if err = c.Requests.Given(); err == nil {
		c.waitFor, err = client.WaitFunc(c.Limiter)
	}
	return err
}

// LongestWait sets the longest time that a call waits for its turn.
func (c *Calls[C]) LongestWait(d time.Duration) error {
	if d < 0 {
		return fmt.Errorf("WithLongestWait(%v); give 0 to refuse at once, or more", d)
	}
	c.wait = d
	return nil
}

// LongestBlock sets the longest time for which a reply can block a key.
func (c *Calls[C]) LongestBlock(d time.Duration) error {
	if d < 0 {
		return fmt.Errorf("WithLongestBlock(%v); give 0 to block nothing, or more", d)
	}
	c.block = d
	return nil
}

// Until returns the time until which a call that begins now may wait.
func (c *Calls[C]) Until() time.Time { return time.Now().Add(c.wait) }

// Wait waits until the limiter allows req. If req has no keys, the call is not limited.
func (c *Calls[C]) Wait(ctx context.Context, req client.Request, until time.Time) error {
	if len(req.Keys) == 0 {
		return nil
	}
	req.WaitUntil = until
	return c.waitFor(ctx, req)
}

// Block blocks the keys of req for d or c.block, whichever is shorter.
func (c *Calls[C]) Block(ctx context.Context, call C, req client.Request, d time.Duration) {
	if len(req.Keys) == 0 {
		return
	}
	if err := adapter.Block(ctx, c.Limiter, min(d, c.block), req.Keys); err != nil {
		c.OnError(call, err)
	}
}
