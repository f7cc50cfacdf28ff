package client

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// lifetime tracks whether a Client is closed, and counts its goroutines. Usually a Client has none.
//
// Close first stops calls: from then on, only units are given back. When this is done, it ends the
// goroutines.
type lifetime struct {
	closing sync.Once
	closed  atomic.Bool     // whether calls are stopped
	stopped chan struct{}   // closed when calls are stopped
	ctx     context.Context // canceled when the goroutines must end
	end     context.CancelFunc

	mu      sync.Mutex // guards the fields below, and changes of closed
	holding int        // number of calls that may hold units to give back
	settled chan struct{}
	ended   bool // whether goroutines must end
	n       int  // number of goroutines
	idle    chan struct{}
}

func newLifetime() *lifetime {
	l := &lifetime{stopped: make(chan struct{}), settled: make(chan struct{}, 1), idle: make(chan struct{}, 1)}
	l.ctx, l.end = context.WithCancel(context.Background())
	return l
}

// hold makes Close wait, before it gives back units and ends the goroutines, until the returned
// function is called.
func (l *lifetime) hold() (release func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed.Load() {
		return func() {}
	}
	l.holding++
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.holding--; l.holding == 0 && l.closed.Load() {
			l.settled <- struct{}{}
		}
	}
}

// stop prevents new calls, and waits up to d for those that may hold units.
func (l *lifetime) stop(d time.Duration) {
	l.mu.Lock()
	l.closed.Store(true)
	n := l.holding
	l.mu.Unlock()
	close(l.stopped)
	if n == 0 {
		return
	}
	select {
	case <-l.settled:
	case <-time.After(d):
	}
}

// returning is the key of a value in the contexts of calls that give back units or a lease. Such
// calls are sent even if calls are stopped.
type returning struct{}

// toReturn returns a context for a call that gives back units or a lease.
func toReturn(ctx context.Context) context.Context {
	return context.WithValue(ctx, returning{}, true)
}

// run runs f in a goroutine that Close waits for. It returns false if the client is already closed.
func (l *lifetime) run(f func()) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended {
		return false
	}
	l.n++
	go func() {
		defer func() {
			l.mu.Lock()
			defer l.mu.Unlock()
			if l.n--; l.n == 0 && l.ended {
				l.idle <- struct{}{}
			}
		}()
		f()
	}()
	return true
}

// wait waits for wake or timer, and then returns nil. If ctx is done or the client is closed first,
// it returns an error. If both wake and ctx are ready, it returns ctx.Err().
func (l *lifetime) wait(ctx context.Context, wake <-chan struct{}, timer <-chan time.Time) error {
	select {
	case <-wake:
		return ended(ctx)
	case <-timer:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-l.stopped:
		return errClosed
	}
}

// close prevents new goroutines, and waits up to d for the running ones. It returns how many are
// still running.
func (l *lifetime) close(d time.Duration) int {
	l.mu.Lock()
	l.ended = true
	n := l.n
	l.mu.Unlock()
	l.end()
	if n == 0 {
		return 0
	}
	select {
	case <-l.idle:
		return 0
	case <-time.After(d):
		l.mu.Lock()
		defer l.mu.Unlock()
		return l.n
	}
}

// Close ends the Client: later calls fail, and its goroutines end. Calls that wait, such as
// [Client.Wait] and [Lease.Run], end too. Before Close ends the goroutines, it waits up to the
// client's timeout for requests for batches ([WithBatches]) and for calls such as [Client.Wait] that
// may have to give back a turn in the queue of a leaky_bucket. Then it gives back the unspent units
// of batches, within the client's timeout. It closes the connections of a Client made by [Open];
// those of a Client made by [New] belong to the caller. Later calls to Close wait for the first and
// return nil.
func (c *Client) Close() (err error) {
	c.lifetime.closing.Do(func() { err = c.close() })
	return err
}

func (c *Client) close() error {
	c.lifetime.stop(c.timeout)
	c.refundBatches()
	var err error
	if c.opened {
		err = c.server.rdb.Close()
	}
	n := c.lifetime.close(c.timeout)
	c.server.breakers.close()
	if n > 0 {
		return fmt.Errorf("ratelimit: Close: %d goroutines still run; a function given to WithHealer must return when its context ends", n)
	}
	return err
}

var errClosed = errors.New("the client is closed")

func afterClose(op string, keys []string) *Error {
	return &Error{
		Op: op, Keys: slices.Clone(keys), Err: errClosed, kind: typeUnavailable,
		sentence: "not sent, since the client is closed; Close it when nothing asks any more",
	}
}
