package client

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// defaultTimeout is the timeout of calls if WithTimeout is not given.
const defaultTimeout = 500 * time.Millisecond

// WithTimeout sets the maximum duration of a call, even if the server does not reply. The default
// is 500 ms. A context with an earlier deadline ends a call earlier. Calls that wait for a
// connection or for another call may share a timer, and then end up to d/20 later. d must be above
// 0.
func WithTimeout(d time.Duration) Option {
	return option("WithTimeout", d, func(c *config) error {
		if d <= 0 {
			return fmt.Errorf("the timeout %v is not above 0; give one such as 500ms", d)
		}
		c.timeout = d
		return nil
	})
}

// bounded is a context with the deadline of a call: the caller's or the client's, whichever is
// earlier. It is cheaper than context.WithDeadline, because it starts a timer only if a goroutine
// waits for its end. go-redis sets the deadline of a connection from Deadline, and waits on Done
// only if it has no free connection.
type bounded struct {
	context.Context // the caller's context
	began, deadline time.Time
	timeout         time.Duration // the client's timeout, if that sets the deadline; otherwise 0

	first  command // the first command of the call
	sent   sent    // the outcome of the last attempt
	quiet  bool    // another call in the same round trip has already reported the failure to the breaker
	timers *sharedTimers

	mu      sync.Mutex
	stopped bool            // see stop
	look    bool            // the next call to Done needs no timer
	done    <-chan struct{} // nil until Done needs a timer
	cancel  context.CancelFunc
}

// bounded returns the context of a call that begins now. The caller must release it.
func (c *common) bounded(ctx context.Context) *bounded {
	now := time.Now()
	b := &bounded{Context: ctx, began: now, deadline: now.Add(c.timeout), timeout: c.timeout, timers: &c.timers}
	if deadline, ok := ctx.Deadline(); ok && deadline.Before(b.deadline) {
		b.deadline, b.timeout = deadline, 0
	}
	// With Open, the first call to Done comes from go-redis, which only checks whether the context has
	// ended, so it needs no timer. With New, hooks or a dialer of the application may call Done first
	// and wait on the channel.
	b.look = c.opened
	return b
}

// Deadline returns the call's deadline.
func (b *bounded) Deadline() (time.Time, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.deadline, true
}

// Done returns a channel that is closed when the caller's context ends or the deadline passes. While
// b.look is set, it returns the channel of the caller's context, which is not closed at the deadline.
func (b *bounded) Done() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.stopped {
		return closedChannel
	}
	if b.timeout == 0 { // the caller's context has the deadline and its timer
		return b.Context.Done()
	}
	if b.look {
		b.look = false
		return b.Context.Done()
	}
	switch {
	case b.done != nil:
	case b.Context.Done() == nil && b.timers != nil:
		b.done = b.timers.at(b.deadline, b.timeout)
	default:
		var armed context.Context
		armed, b.cancel = context.WithDeadline(b.Context, b.deadline)
		b.done = armed.Done()
	}
	return b.done
}

var closedChannel = func() <-chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}()

// sharedTimers shares timers among calls whose contexts have a nil Done channel, because a timer
// for each call would use more memory than the rest of the call. A timer fires a twentieth of the
// timeout after its first deadline, and ends all calls whose deadlines lie in between.
type sharedTimers struct {
	mu   sync.Mutex
	next time.Time
	done <-chan struct{}
}

// at returns a channel that is closed after the deadline, at most a twentieth of the timeout later.
func (t *sharedTimers) at(deadline time.Time, timeout time.Duration) <-chan struct{} {
	t.mu.Lock()
	defer t.mu.Unlock()
	late := timeout / 20
	if t.done == nil || deadline.After(t.next) || t.next.Sub(deadline) > late {
		done := make(chan struct{})
		t.next, t.done = deadline.Add(late), done
		time.AfterFunc(time.Until(t.next), func() { close(done) })
	}
	return t.done
}

// wait is like Done, but the returned channel is always closed at the deadline.
func (b *bounded) wait() <-chan struct{} {
	b.mu.Lock()
	b.look = false
	b.mu.Unlock()
	return b.Done()
}

// Err returns the error of the caller's context, or DeadlineExceeded if the deadline has passed.
func (b *bounded) Err() error {
	if err := b.Context.Err(); err != nil {
		return err
	}
	b.mu.Lock()
	deadline, stopped := b.deadline, b.stopped
	b.mu.Unlock()
	if stopped {
		return context.Canceled
	}
	if !time.Now().Before(deadline) {
		return context.DeadlineExceeded
	}
	return nil
}

// shorten moves the deadline to d from now, if that is earlier. Only the goroutine of the call may
// call it; other goroutines may still use b for an earlier attempt.
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

// timedOut is the cause of an error if a call exceeded the client's timeout.
type timedOut struct{ timeout time.Duration }

func (t timedOut) Error() string {
	return fmt.Sprintf("no reply within %v", t.timeout)
}

func (timedOut) Is(target error) bool { return target == context.DeadlineExceeded }

// ended returns the reason why ctx is done, or nil if it is not done. It also returns an error if
// the deadline has passed but the context's own timer has not fired yet. This happens when a
// connection times out at the deadline.
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
