// Package outgoing keeps calls to other services within a limit. It has what packages httpcall and
// grpclimit share.
package outgoing

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ratelimit-functions/ratelimit/client"
	"github.com/ratelimit-functions/ratelimit/client/internal/adapter"
)

// Calls limits calls, each of which is described by a C. Make one with [New], and set the other
// fields before its first use.
type Calls[C any] struct {
	Key     func(C) (string, error)
	Change  func(C, *client.Request) error // nil: requests are not changed
	OnError func(C, error)                 // receives errors of blocks

	limiter     *client.Client
	name        string
	limit       client.Limit
	empty       error // for an empty key
	wait, block time.Duration
}

// New returns Calls with the default times. empty is the text of the error for an empty key.
func New[C any](limiter *client.Client, name string, limit client.Limit, empty string) Calls[C] {
	return Calls[C]{limiter: limiter, name: name, limit: limit, empty: errors.New(empty), wait: time.Minute, block: 10 * time.Minute}
}

// Given returns nil if all arguments of New are given.
func (c *Calls[C]) Given() error { return adapter.Given(c.limiter, c.name, c.limit) }

// LongestWait sets how long a call waits for its turn.
func (c *Calls[C]) LongestWait(d time.Duration) error {
	if d < 0 {
		return fmt.Errorf("WithLongestWait(%v); give 0 to refuse at once, or more", d)
	}
	c.wait = d
	return nil
}

// LongestBlock sets how long a reply can block a key at most.
func (c *Calls[C]) LongestBlock(d time.Duration) error {
	if d < 0 {
		return fmt.Errorf("WithLongestBlock(%v); give 0 to block nothing, or more", d)
	}
	c.block = d
	return nil
}

// Request returns the request for the limiter.
func (c *Calls[C]) Request(call C) (client.Request, error) {
	key, err := c.Key(call)
	if err == nil && key == "" {
		err = c.empty
	}
	if err != nil {
		return client.Request{}, err
	}
	req := client.Request{Keys: []string{c.name + "|" + key}, Limits: []client.Limit{c.limit}}
	if c.Change != nil {
		err = c.Change(call, &req)
	}
	return req, err
}

// Until returns until when a call that begins now may wait.
func (c *Calls[C]) Until() time.Time { return time.Now().Add(c.wait) }

// Wait waits until the call of req may be made. Without keys it is not limited.
func (c *Calls[C]) Wait(ctx context.Context, req client.Request, until time.Time) error {
	if len(req.Keys) == 0 {
		return nil
	}
	return c.limiter.WaitRequest(ctx, req, until)
}

// Block blocks the keys of req for d, which a reply asked for.
func (c *Calls[C]) Block(ctx context.Context, call C, req client.Request, d time.Duration) {
	if len(req.Keys) == 0 {
		return
	}
	if err := adapter.Block(ctx, c.limiter, min(d, c.block), req.Keys); err != nil {
		c.OnError(call, err)
	}
}
