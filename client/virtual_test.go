package client_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/ratelimit-functions/ratelimit/client"
	"github.com/ratelimit-functions/ratelimit/embedded"
	"github.com/ratelimit-functions/ratelimit/functions"
)

// virtual executes the commands of go-redis clients on a server in this process. The server runs outside the
// synctest bubble, but follows its clock: time passes only while all goroutines of the bubble wait.
type virtual struct {
	run    chan func() // functions to execute outside the bubble
	ran    chan struct{}
	one    sync.Mutex // held while the server executes a call
	server *embedded.Server

	mu    sync.Mutex
	delay time.Duration // how long a reply takes

	// refuse returns errors for the nth call to a function. An error in before prevents the call;
	// an error in after replaces its reply.
	refuse func(function string, n int) (before, after error)

	old func(function string, n int) bool // reports whether the nth reply of a function is that of a library without lease_ms

	calls   map[string]int // number of calls by function name
	flying  int
	inCrowd int // largest number of concurrent calls
}

// inBubble runs f in a synctest bubble with a client for a virtual server. When f returns, the
// client is closed, and the bubble fails if a goroutine is left.
func inBubble(t *testing.T, f func(t *testing.T, v *virtual, c *client.Client), opts ...embedded.Option) {
	t.Helper()
	v := &virtual{
		server: embedded.Run(t, append([]embedded.Option{embedded.WithLibrary(functions.Source())}, opts...)...),
		run:    make(chan func()), ran: make(chan struct{}), calls: map[string]int{},
	}
	var worker sync.WaitGroup
	worker.Go(func() {
		for job := range v.run {
			job()
			v.ran <- struct{}{}
		}
	})
	synctest.Test(t, func(t *testing.T) {
		c := v.client(t, client.WithPrefix("rl:"))
		f(t, v, c)
		check(t, c.Close())
	})
	close(v.run)
	worker.Wait()
}

// client returns a client with the default timeout. The client is closed at the end of the bubble.
func (v *virtual) client(t *testing.T, opts ...client.Option) *client.Client {
	t.Helper()
	c := must[*client.Client](t)(client.New(answers(v.Process).client(), append(opts, client.Alone())...))
	t.Cleanup(func() { check(t, c.Close()) })
	return c
}

func (v *virtual) Process(ctx context.Context, cmd redis.Cmder) error {
	args, now := cmd.Args(), time.Now()
	name := strings.TrimPrefix(args[1].(string), "ratelimit_")
	v.mu.Lock()
	v.calls[name]++
	var before, after error
	if v.refuse != nil {
		before, after = v.refuse(name, v.calls[name])
	}
	delay, old := v.delay, v.old != nil && v.old(name, v.calls[name])
	v.flying++
	v.inCrowd = max(v.inCrowd, v.flying)
	v.mu.Unlock()
	defer func() {
		v.mu.Lock()
		v.flying--
		v.mu.Unlock()
	}()
	if before != nil {
		cmd.SetErr(before)
		return before
	}
	var reply any
	var err error
	v.outside(func() {
		v.server.SetTime(now.Add(26 * 365 * 24 * time.Hour)) // a bubble's clock starts in 2000, and leases are valid only from 2001 on
		reply, err = v.server.Do(args...)
	})
	if delay > 0 {
		select {
		case <-time.After(delay):
		case <-ctx.Done():
			err = ctx.Err()
		}
	}
	if err == nil {
		err = after
	}
	if list, ok := reply.([]any); ok && old {
		reply = list[:6]
	}
	if e, ok := err.(embedded.Error); ok {
		err = answered(e)
	}
	if err != nil {
		cmd.SetErr(err)
		return err
	}
	cmd.(interface{ SetVal(any) }).SetVal(reply)
	return nil
}

// outside calls f outside the bubble. The server may start a goroutine that waits for real time, and a bubble with such a
// goroutine would wait forever.
func (v *virtual) outside(f func()) {
	v.one.Lock()
	defer v.one.Unlock()
	v.run <- f
	<-v.ran
}

// set calls change while it holds the lock of v, because calls may be in progress.
func (v *virtual) set(change func()) {
	v.mu.Lock()
	defer v.mu.Unlock()
	change()
}

// seen returns how often a function has been called.
func (v *virtual) seen(function string) int {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.calls[function]
}

// sent returns how many functions have been called.
func (v *virtual) sent() (n int) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, calls := range v.calls {
		n += calls
	}
	return n
}
