package client

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// lifetime tracks whether a Client is closed, and counts its goroutines. Usually a Client has none.
type lifetime struct {
	closing sync.Once
	closed  atomic.Bool
	ctx     context.Context // canceled when the client is closed
	end     context.CancelFunc

	mu   sync.Mutex // guards n and changes of closed
	n    int        // number of goroutines
	idle chan struct{}
}

func newLifetime() *lifetime {
	l := &lifetime{idle: make(chan struct{}, 1)}
	l.ctx, l.end = context.WithCancel(context.Background())
	return l
}

// run runs f in a goroutine that Close waits for. It returns false if the client is already closed.
func (l *lifetime) run(f func()) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed.Load() {
		return false
	}
	l.n++
	go func() {
		defer func() {
			l.mu.Lock()
			defer l.mu.Unlock()
			if l.n--; l.n == 0 && l.closed.Load() {
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
	case <-l.ctx.Done():
		return errClosed
	}
}

// close prevents new goroutines, and waits up to d for the running ones. It returns how many are
// still running.
func (l *lifetime) close(d time.Duration) int {
	l.mu.Lock()
	l.closed.Store(true)
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

// Close ends the Client: later calls fail, and its goroutines end. It first gives back the unspent
// units of batches ([WithBatches]), within the client's timeout. It closes the connections of a
// Client made by [Open]; those of a Client made by [New] belong to the caller. Later calls to Close
// wait for the first and return nil.
//
// If the Redis client does not honor deadlines (see [New]), calls may still wait for a server that
// hangs. Close then waits for up to the client's timeout, and returns an error that says so.
// Closing the Redis client ends those calls.
func (c *Client) Close() (err error) {
	c.server.lifetime.closing.Do(func() { err = c.close() })
	return err
}

func (c *Client) close() error {
	c.refundBatches()
	s := c.server
	var err error
	if s.opened {
		err = s.rdb.Close()
	}
	n := s.lifetime.close(s.timeout)
	s.breakers.close()
	if n > 0 {
		return fmt.Errorf("ratelimit: Close: %d calls still wait for a server, as the Redis client does not honour deadlines; close that too", n)
	}
	return err
}

var errClosed = errors.New("the client is closed")

func afterClose(op string, keys []string) *Error {
	return &Error{
		Op: op, Keys: keys, Err: errClosed, class: ErrUnavailable,
		sentence: "not sent, since the client is closed; Close it when nothing asks any more",
	}
}
