package client

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// life is what ends with a Client: its goroutines, none of which is there in the usual case.
type life struct {
	closed  atomic.Bool
	hangsUp atomic.Bool     // the connections are being closed, or are
	ctx     context.Context // ends with the client
	end     context.CancelFunc

	mu   sync.Mutex // of starting and of closing
	n    int        // goroutines
	idle chan struct{}
}

func newLife() *life {
	l := &life{idle: make(chan struct{}, 1)}
	l.ctx, l.end = context.WithCancel(context.Background())
	return l
}

// run runs f in a goroutine that Close waits for; false if the client is closed already.
func (l *life) run(f func()) bool {
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

// close lets nothing begin any more, and waits for what runs, for d at most. It returns how much still runs then.
func (l *life) close(d time.Duration) int {
	l.mu.Lock()
	first := !l.closed.Swap(true)
	n := l.n
	l.mu.Unlock()
	l.end()
	if !first || n == 0 {
		return 0
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-l.idle:
		return 0
	case <-timer.C:
		l.mu.Lock()
		defer l.mu.Unlock()
		return l.n
	}
}

// Close ends the Client: calls that come later fail, and nothing of it runs any more. It closes the connections of a
// Client that [Open] made; those of one from [New] are the caller's. It may be called again, and then does nothing. What is
// left of batches ([WithBatches]) it gives back before, for as long as one call may take.
//
// An rdb that does not honour deadlines (see [New]) may still wait for a server that hangs: then Close waits as long as a
// call may take, and returns an error that says so. Closing rdb ends it.
func (c *Client) Close() error {
	c.giveBack()
	var err error
	if c.opened && !c.life.hangsUp.Swap(true) {
		err = c.rdb.Close()
	}
	n := c.life.close(c.timeout)
	c.breakers.close()
	if n > 0 {
		return fmt.Errorf("ratelimit: Close: %d calls still wait for a server, as the Redis client does not honour deadlines; close that too", n)
	}
	return err
}

var errClosed = errors.New("the client is closed")

// afterClose is the error of a call on a client that is closed.
func afterClose(op string, keys []string) *Error {
	return &Error{
		Op: op, Keys: keys, Err: errClosed, class: ErrUnavailable,
		sentence: "not sent, since the client is closed; Close it when nothing asks any more",
	}
}
