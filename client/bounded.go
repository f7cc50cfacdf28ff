package client

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// defaultTimeout is the longest that a call takes unless WithTimeout says otherwise.
const defaultTimeout = 500 * time.Millisecond

// WithTimeout sets the longest that a call takes, whatever the server does: 500 ms unless it is given. A context with an
// earlier deadline ends a call earlier. It must be above 0.
func WithTimeout(d time.Duration) Option {
	return func(c *Client) error {
		if d <= 0 {
			return fmt.Errorf("the timeout %v is not above 0; give one such as 500ms", d)
		}
		c.timeout = d
		return nil
	}
}

// bounded is a context with the deadline of a call: the caller's or the client's, whichever is earlier. It is cheaper
// than context.WithDeadline, as it has no timer until somebody waits for its end. go-redis takes the deadline of a
// connection from Deadline, and waits for Done only where it has no connection at hand.
type bounded struct {
	context.Context // the caller's
	began, deadline time.Time
	timeout         time.Duration // the client's, if the deadline is by it; else 0

	first noRetryCmd // the first command of the call
	quiet bool       // a call that shared the round trip has told the breaker how that ended
	ends  *endings

	mu     sync.Mutex
	looks  int             // how often Done may be called before somebody waits
	done   <-chan struct{} // nil: nobody waits
	cancel context.CancelFunc
}

// bounded makes the context of a call that begins now. It must be released.
func (c *Client) bounded(ctx context.Context) *bounded {
	now := time.Now()
	b := &bounded{Context: ctx, began: now, deadline: now.Add(c.timeout), timeout: c.timeout, ends: &c.ends}
	if deadline, ok := ctx.Deadline(); ok && deadline.Before(b.deadline) {
		b.deadline, b.timeout = deadline, 0
	}
	if c.opened {
		// go-redis first looks whether the context has ended, and only then takes a connection from its pool, or waits.
		// The first is not worth a timer. Of a client that others made nobody knows what its hooks and dialers do.
		b.looks = 1
	}
	return b
}

// Deadline returns the call's deadline.
func (b *bounded) Deadline() (time.Time, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.deadline, true
}

// Done is closed when the caller's context ends or the deadline is over. The first b.looks times it is the caller's own.
func (b *bounded) Done() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.timeout == 0 { // the caller's context has the deadline and its timer
		return b.Context.Done()
	}
	if b.looks > 0 {
		b.looks--
		return b.Context.Done()
	}
	switch {
	case b.done != nil:
	case b.Context.Done() == nil && b.ends != nil:
		b.done = b.ends.at(b.deadline, b.timeout)
	default:
		var armed context.Context
		armed, b.cancel = context.WithDeadline(b.Context, b.deadline)
		b.done = armed.Done()
	}
	return b.done
}

// endings are deadlines that calls share, if nothing else ends them: a timer for each call would cost more memory than all
// else that a call needs. Calls whose deadlines lie within a twentieth of their timeout end together, at the last of these.
type endings struct {
	mu   sync.Mutex
	next time.Time
	done <-chan struct{}
}

// at returns a channel that is closed when a deadline is over, at most a twentieth of the timeout later.
func (e *endings) at(deadline time.Time, timeout time.Duration) <-chan struct{} {
	e.mu.Lock()
	defer e.mu.Unlock()
	late := timeout / 20
	if e.done == nil || deadline.After(e.next) || e.next.Sub(deadline) > late {
		done := make(chan struct{})
		e.next, e.done = deadline.Add(late), done
		time.AfterFunc(time.Until(e.next), func() { close(done) })
	}
	return e.done
}

// wait is Done for who waits.
func (b *bounded) wait() <-chan struct{} {
	b.mu.Lock()
	b.looks = 0
	b.mu.Unlock()
	return b.Done()
}

// Err is that of the caller's context, or that the deadline is over.
func (b *bounded) Err() error {
	if err := b.Context.Err(); err != nil {
		return err
	}
	if deadline, _ := b.Deadline(); !time.Now().Before(deadline) {
		return context.DeadlineExceeded
	}
	return nil
}

// shorten brings the deadline forward to d from now, if it is later. Only the goroutine of the call may do so; others may
// still hold b for an earlier attempt.
func (b *bounded) shorten(d time.Duration) {
	deadline := time.Now().Add(d)
	if !deadline.Before(b.deadline) {
		return
	}
	b.release()
	b.mu.Lock()
	defer b.mu.Unlock()
	b.deadline, b.timeout, b.done = deadline, d, nil
}

// release stops the timer, if there is one.
func (b *bounded) release() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.cancel != nil {
		b.cancel()
	}
}

// timedOut is the cause where a call took longer than the client allows it.
type timedOut struct{ timeout time.Duration }

func (t timedOut) Error() string {
	return fmt.Sprintf("no reply within %v", t.timeout)
}

func (timedOut) Is(target error) bool { return target == context.DeadlineExceeded }

// ended is why ctx has ended, or nil; also in the moment when a connection has timed out at the context's deadline and
// the context's own timer has not fired yet.
func ended(ctx context.Context) error {
	if b, ok := ctx.(*bounded); ok {
		if err := ended(b.Context); err != nil {
			return err
		}
		if b.Err() != nil {
			return timedOut{b.timeout}
		}
		return nil
	}
	if deadline, ok := ctx.Deadline(); ok && ctx.Err() == nil && !time.Now().Before(deadline) {
		return context.DeadlineExceeded
	}
	return ctx.Err()
}

// punctual tells whether every call of rdb ends at the deadline of its context.
func punctual(rdb redis.UniversalClient) bool {
	switch rdb := rdb.(type) {
	case *redis.Client:
		o := rdb.Options()
		return o.ContextTimeoutEnabled && o.ReadTimeout >= 0 && o.WriteTimeout >= 0
	case *redis.ClusterClient:
		// To choose a replica it asks for the commands of a server first, for up to 5 s, whatever the context says.
		o := rdb.Options()
		return o.ContextTimeoutEnabled && !o.ReadOnly && setsDeadlines(o.ReadTimeout, o.WriteTimeout)
	case *redis.Ring:
		o := rdb.Options()
		return o.ContextTimeoutEnabled && setsDeadlines(o.ReadTimeout, o.WriteTimeout)
	}
	return false
}

// setsDeadlines tells whether connections with these timeouts, as they were given, ever get a deadline: below -1, which is no
// timeout, go-redis sets none, not the context's either.
func setsDeadlines(read, write time.Duration) bool { return read >= -1 && write >= -1 }

// sendAside is send for a client that does not end at a deadline: in a goroutine, which is left behind if it is late.
// It ends when go-redis gives up, after the timeouts that rdb was made with, or when rdb is closed.
func (c *Client) sendAside(ctx *bounded, call call) (any, bool, error) {
	type outcome struct {
		reply any
		err   error
	}
	cmd := newNoRetryCmd(ctx, call)
	var sent redis.Cmder = cmd
	inner := cmd.Cmd
	if call.way == readOnly {
		inner = fcall(ctx, "fcall_ro", call, nil)
		sent = inner
	}
	done := make(chan outcome, 1)
	if !c.life.run(func() {
		reply, err := process(ctx, c.rdb, sent, inner)
		done <- outcome{reply, err}
	}) {
		return nil, false, errClosed
	}
	select {
	case o := <-done:
		return o.reply, call.way != readOnly && cmd.written(), o.err
	case <-ctx.wait():
	}
	if call.way == readOnly {
		return nil, false, ended(ctx)
	}
	return nil, cmd.abandon(), ended(ctx)
}
