package client

import (
	"container/list"
	"context"
	"math"
	"sync"
	"time"
)

// together is how many callers of one queue ask the server at the same time, at most.
const together = 16

// queues are the callers of this process that wait, by what they wait for. A queue is there as long as somebody is in it.
type queues struct {
	mu     sync.Mutex
	byName map[string]*queue
}

// queue has callers that wait for the same, in the order in which they came. The first asks the server; those behind it ask
// at the same time only as far as the last reply left enough for all of them. So nobody is overtaken, the server is not
// asked in vain, and the queue does not empty more slowly than the limit allows, as it would with one call at a time.
type queue struct {
	waiters list.List // of *waiter
	room    int64     // the units that the last reply left; no bound where no server decided, so that not each waits for that in turn
	most    int64     // what the limit holds, by the last denial; 0: there was none
}

// waiter is a place in a queue.
type waiter struct {
	queue    *queue
	place    *list.Element
	n        int64     // units
	deadline time.Time // it is refused once its turn is known to come later; zero: it never is
	state    placeState
	until    time.Time     // while it rests
	wake     chan struct{} // it may ask, it is refused, or it need not rest any longer
}

type placeState int

const (
	inQueue placeState = iota // it has not asked yet, or not since it rested
	asking                    // it may ask
	resting                   // it was denied, and waits before it asks again
	inVain                    // it is refused
)

// join returns a place at the end of the queue of that name.
func (s *queues) join(name string, n int64, deadline time.Time) *waiter {
	s.mu.Lock()
	defer s.mu.Unlock()
	q := s.byName[name]
	if q == nil {
		if s.byName == nil {
			s.byName = map[string]*queue{}
		}
		q = &queue{}
		s.byName[name] = q
	}
	w := &waiter{queue: q, n: n, deadline: deadline, wake: make(chan struct{}, 1)}
	w.place = q.waiters.PushBack(w)
	w.until = q.rests()
	if !w.refuse() {
		q.advance()
	}
	return w
}

// leave gives up a place. room is what the reply left, for those behind; -1 where there is none.
func (s *queues) leave(name string, w *waiter, room int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	q := w.queue
	q.waiters.Remove(w.place)
	if room >= 0 {
		q.room = room
	}
	if q.waiters.Len() == 0 {
		delete(s.byName, name)
		return
	}
	q.advance()
}

// rest keeps a waiter that was denied, and those behind it, from asking until a moment. It refuses those who cannot wait
// so long, or want more than the limit holds, which is most.
func (s *queues) rest(w *waiter, until time.Time, most int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	w.state, w.until, w.queue.room, w.queue.most = resting, until, 0, most
	for e := w.place.Next(); e != nil; e = e.Next() {
		behind := e.Value.(*waiter)
		if behind.state != inQueue {
			continue
		}
		behind.until = until
		behind.refuse()
	}
}

// rested lets a waiter that has rested ask again.
func (s *queues) rested(w *waiter) {
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case <-w.wake: // it was woken in the moment in which it woke by itself
	default:
	}
	w.state = inQueue
	w.queue.advance()
}

// nudge ends the rest of who is first in a queue, as something was given back.
func (s *queues) nudge(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	q := s.byName[name]
	if q == nil {
		return
	}
	if first := q.waiters.Front().Value.(*waiter); first.state == resting {
		select {
		case first.wake <- struct{}{}:
		default:
		}
	}
}

// refused tells whether a waiter is, and how long it has to wait at least, or Never.
func (s *queues) refused(w *waiter) (bool, time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if w.beyond() {
		return w.state == inVain, Never
	}
	return w.state == inVain, max(time.Until(w.until), 0)
}

// advance lets ask who may.
func (q *queue) advance() {
	units, n := int64(0), 0
	for e := q.waiters.Front(); e != nil && n < together; e = e.Next() {
		w := e.Value.(*waiter)
		units += w.n
		if n > 0 && units > q.room || w.state == resting {
			return
		}
		if w.state == inQueue {
			w.state = asking
			w.wake <- struct{}{}
		}
		n++
	}
}

// rests is until when nobody new can ask, as one in front rests. Only the first few can rest, as only they have asked.
func (q *queue) rests() (until time.Time) {
	n := 0
	for e := q.waiters.Front(); e != nil && n < together; e = e.Next() {
		if w := e.Value.(*waiter); w.state == resting && w.until.After(until) {
			until = w.until
		}
		n++
	}
	return until
}

// refuse refuses a waiter whose turn comes too late, or never, as far as is known, and tells whether it did.
func (w *waiter) refuse() bool {
	if !w.beyond() && (w.deadline.IsZero() || !w.until.After(w.deadline)) {
		return false
	}
	w.state = inVain
	w.wake <- struct{}{}
	return true
}

// beyond tells whether a waiter wants more than the limit holds.
func (w *waiter) beyond() bool { return w.queue.most > 0 && w.n > w.queue.most }

// turn is what a caller waits for in a queue.
type turn struct {
	verb     string
	keys     []string // as they are sent
	name     string   // of the queue
	n        int64
	deadline time.Time // zero: no wait is too long
	ask      func(context.Context) (Result, error)
	pause    func(res Result, denials int) time.Duration // after a denial; denials is how many came before
	refuse   func(denied Result, cause error) error      // the error of who waits in vain
}

// inTurn asks until it is let through, when it is its turn among all who wait for the same.
func (c *Client) inTurn(ctx context.Context, t turn) (Result, error) {
	if err := c.ready(ctx, call{verb: t.verb, keys: t.keys}); err != nil {
		return Result{}, err
	}
	w := c.queues.join(t.name, t.n, t.deadline)
	room := int64(-1)
	defer func() { c.queues.leave(t.name, w, room) }()
	for denials := 0; ; denials++ {
		if err := c.wait(ctx, w.wake, nil); err != nil {
			return Result{}, t.ended(c, w, err)
		}
		if refused, wait := c.queues.refused(w); refused {
			return Result{}, t.refuse(Result{RetryAfter: wait}, outlasts(ctx, wait))
		}
		res, err := t.ask(ctx)
		switch {
		case err != nil:
			if ctx.Err() == nil {
				room = math.MaxInt64
			}
			return Result{}, err
		case res.Allowed:
			room = res.Remaining
			if res.Err != nil {
				room = math.MaxInt64
			}
			return res, nil
		case res.RetryAfter == Never:
			return Result{}, t.refuse(res, res.Err)
		}
		now := time.Now()
		if !t.deadline.IsZero() && now.Add(res.RetryAfter).After(t.deadline) {
			return Result{}, t.refuse(res, both(outlasts(ctx, res.RetryAfter), res.Err))
		}
		pause := t.pause(res, denials)
		most := res.Limit
		if len(t.keys) > 1 || res.Err != nil { // each may be for another part of what is waited for; a LocalLimiter has a share
			most = 0
		}
		c.queues.rest(w, now.Add(pause), most)
		timer := time.NewTimer(pause)
		err = c.wait(ctx, w.wake, timer.C)
		timer.Stop()
		if err != nil {
			return Result{}, t.ended(c, w, err)
		}
		c.queues.rested(w)
	}
}

// ended is the error of who leaves a queue because its context or the client has ended.
func (t turn) ended(c *Client, w *waiter, err error) error {
	if err == errClosed {
		return afterClose(t.verb, t.keys)
	}
	_, wait := c.queues.refused(w)
	return t.refuse(Result{RetryAfter: wait}, err)
}

// wait returns nil when it is woken or it is time, and an error when ctx or the client has ended; ctx goes before being woken.
func (c *Client) wait(ctx context.Context, wake <-chan struct{}, timer <-chan time.Time) error {
	select {
	case <-wake:
		return ended(ctx)
	case <-timer:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-c.life.ctx.Done():
		return errClosed
	}
}
