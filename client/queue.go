package client

import (
	"context"
	"errors"
	"math"
	"slices"
	"sync"
	"time"
)

// mostAsking is the maximum number of calls that one queue sends to the server concurrently.
const mostAsking = 16

// queues holds the queues of waiting callers of a Client, by name and by each of their keys. A queue
// exists while a caller is in it.
type queues struct {
	mu     sync.Mutex
	byName map[string]*queue
	byKey  map[string][]*queue
}

func newQueues() *queues { return &queues{byName: map[string]*queue{}, byKey: map[string][]*queue{}} }

// queue holds callers that wait for the same keys and limits, in order of arrival. The first caller
// sends its call to the server. The callers behind it send theirs at the same time only if the last
// reply left enough units for all of them. So no caller is overtaken, the server gets no needless
// calls, and the queue empties as fast as the limit allows.
type queue struct {
	keys    []string // as sent
	waiters []*waiter

	// room is the number of units that the last reply left. If no server decided, it is MaxInt64,
	// so that callers do not wait for the server one after another.
	room int64

	nudged bool  // whether a lease was released or a key changed after the first waiter sent its last call
	most   int64 // the capacity of the limit, according to the last denial, or 0 if unknown
}

type waiter struct {
	queue    *queue
	n        int64     // units that the waiter wants
	deadline time.Time // the waiter is refused if its turn would come later; zero: no deadline
	state    placeState
	until    time.Time     // the waiter sends no call before this time
	wake     chan struct{} // signals that the waiter may send its call, is refused, or must end its pause
}

type placeState int

const (
	inQueue  placeState = iota // waits for its turn to send a call
	asking                     // may send a call
	resting                    // was denied, and waits before its next call
	rejected                   // refused: its turn would come too late or never
)

func (s *queues) join(name string, keys []string, n int64, deadline time.Time) *waiter {
	s.mu.Lock()
	defer s.mu.Unlock()
	q := s.byName[name]
	if q == nil {
		q = &queue{keys: slices.Clone(keys)} // the caller may reuse its own
		s.byName[name] = q
		for _, key := range keys {
			s.byKey[key] = append(s.byKey[key], q)
		}
	}
	w := &waiter{queue: q, n: n, deadline: deadline, wake: make(chan struct{}, 1)}
	w.until = q.rests()
	q.waiters = append(q.waiters, w)
	if !w.refuse() {
		q.advance()
	}
	return w
}

// leave removes w from its queue. room is the number of units left for the callers behind it, or -1
// if unknown.
func (s *queues) leave(name string, w *waiter, room int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	q := w.queue
	i := slices.Index(q.waiters, w)
	q.waiters = slices.Delete(q.waiters, i, i+1)
	if room >= 0 {
		q.room = room
	}
	if len(q.waiters) == 0 {
		delete(s.byName, name)
		for _, key := range q.keys {
			at := s.byKey[key]
			if at = slices.DeleteFunc(at, func(other *queue) bool { return other == q }); len(at) == 0 {
				delete(s.byKey, key)
			} else {
				s.byKey[key] = at
			}
		}
		return
	}
	q.advance()
}

// rest makes w, which was denied, and the waiters behind it pause until the given time. It refuses
// waiters behind w that have an earlier deadline or want more than most units. most is the capacity
// of the limit, or 0 if unknown.
func (s *queues) rest(w *waiter, until time.Time, most int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	q := w.queue
	if q.nudged { // the denial says nothing about what is there now
		until, most = time.Time{}, 0
	}
	w.state, w.until, q.room, q.most = resting, until, 0, most
	for _, behind := range q.waiters[slices.Index(q.waiters, w)+1:] {
		if behind.state == inQueue {
			behind.until = until
			behind.refuse()
		}
	}
	q.advance() // it wakes w if q was nudged after w sent its call
}

// rested ends the pause of w, which then waits for its turn again.
func (s *queues) rested(w *waiter) {
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case <-w.wake: // w was woken just as its timer fired
	default:
	}
	w.state = inQueue
	w.queue.advance()
}

// nudge makes the first waiter in a queue retry its call now, or as soon as the call in progress is
// denied, because a lease was released.
func (s *queues) nudge(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if q := s.byName[name]; q != nil {
		q.nudged = true
		q.advance()
	}
}

// changed makes the first waiter in each queue of these keys retry its call now, because this process
// has changed the keys. What earlier denials said about the limit and the wait is forgotten.
func (s *queues) changed(keys []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, key := range keys {
		for _, q := range s.byKey[key] {
			q.nudged, q.most = true, 0
			for _, w := range q.first() {
				w.until = time.Time{}
			}
			q.advance()
		}
	}
}

// refused reports whether w has been refused. It also returns the minimum time that w would have to
// wait, or Never.
func (s *queues) refused(w *waiter) (bool, time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if w.beyond() {
		return w.state == rejected, Never
	}
	return w.state == rejected, max(time.Until(w.until), 0)
}

// advance wakes the waiters whose turn it is to send a call. It ends the pause of the first waiter if
// the queue was nudged, or if the last reply left enough units.
func (q *queue) advance() {
	units := int64(0)
	for i, w := range q.first() {
		units += w.n
		switch {
		case i > 0 && units > q.room:
			return
		case w.state == resting:
			if i == 0 && (q.nudged || q.room > 0 && units <= q.room && q.room != math.MaxInt64) {
				select {
				case w.wake <- struct{}{}:
				default: // it has been woken, and will retry its call
				}
			}
			return
		case w.state == inQueue:
			w.state, q.nudged = asking, q.nudged && i > 0
			w.wake <- struct{}{}
		}
	}
}

// first returns the waiters that may call the server at the same time if enough units are left.
func (q *queue) first() []*waiter { return q.waiters[:min(len(q.waiters), mostAsking)] }

// rests returns the time when all pauses of waiters will have ended, or the zero Time if no waiter
// pauses. New waiters may not send a call before that time. Only the first waiters of a queue can
// pause, because only they have sent a call.
func (q *queue) rests() (until time.Time) {
	for _, w := range q.first() {
		if w.state == resting && w.until.After(until) {
			until = w.until
		}
	}
	return until
}

// refuse refuses w if its turn is known to come too late or never, and reports whether it did.
func (w *waiter) refuse() bool {
	if !w.beyond() && (w.deadline.IsZero() || !w.until.After(w.deadline)) {
		return false
	}
	w.state = rejected
	w.wake <- struct{}{}
	return true
}

// beyond reports whether w requests more units than the capacity of the limit, if that is known.
func (w *waiter) beyond() bool { return w.queue.most > 0 && w.n > w.queue.most }

// longestPause is the longest time after which a denied caller retries: another process may have lifted
// the block or raised the limit.
const longestPause = time.Minute

// queued is a call that waits in a queue.
type queued struct {
	verb     string
	keys     []string // keys as sent
	limits   []Limit
	name     string // name of the queue
	n        int64
	deadline time.Time     // zero: no deadline
	within   time.Duration // how long after its start a call with an unknown outcome may be repeated; 0: never
	try      func(context.Context) (Result, error)
	pause    func(res Result, denials int) time.Duration // returns the wait after a denial; denials is the number of earlier denials
	refuse   func(denied Result, cause error) error      // returns the error for a caller whose wait fails
}

// inTurn waits for the caller's turn in the queue t.name, and then calls t.try until it is allowed
// or the wait fails. A fallback can deny a call whose outcome is unknown. inTurn then repeats the
// call only within t.within, because a repeated call could be charged again.
func (in *waits) inTurn(ctx context.Context, t queued) (Result, error) {
	began, called := time.Now(), false
	report := func(source string, err error) {
		if !called { // otherwise, t.try has reported its calls
			in.observers.report(ctx, t.verb, began, t.limits, &Result{Source: source}, &err)
		}
	}
	if err := in.sendable(ctx, &call{verb: t.verb, keys: t.keys}); err != nil {
		report("", err)
		return Result{}, err
	}
	t.name = in.name + t.name
	w := in.queues.join(t.name, t.keys, t.n, t.deadline)
	room := int64(-1)
	defer func() { in.queues.leave(t.name, w, room) }()
	var doubt error        // why the outcome of an earlier call is unknown; nil if it is known
	var doubtful time.Time // when the first such call began
	for denials := 0; ; {
		if err := in.lifetime.wait(ctx, w.wake, nil); err != nil {
			err = t.ended(in.queues, w, err, doubt)
			report("", err)
			return Result{}, err
		}
		if refused, wait := in.queues.refused(w); refused {
			report(sourceMemory, nil)
			return Result{}, t.refuse(Result{RetryAfter: wait}, both(outlasts(ctx, wait), doubt))
		}
		sent := time.Now()
		res, err := t.try(ctx)
		called = true
		switch {
		case err != nil:
			if ctx.Err() == nil {
				room = math.MaxInt64
			}
			return Result{}, both(err, doubt)
		case res.Allowed:
			room = res.Remaining
			if res.Err != nil {
				room = math.MaxInt64
			}
			return res, nil
		}
		reason := res.Err  // why the wait fails here, if it does
		if reason != nil { // a Fallback has denied, but a server may be back soon
			res.RetryAfter = min(res.RetryAfter, time.Second)
		}
		switch {
		case reason == nil: // a server decided, and a server repeats the reply to an earlier call
			doubt = nil
		case errors.Is(reason, ErrOutcomeUnknown):
			if doubt == nil {
				doubtful = sent
			}
			doubt = reason
		case doubt != nil:
			reason = both(doubt, reason)
		}
		pause, now := t.pause(res, denials), time.Now()
		switch {
		case doubt != nil && now.Add(pause).Sub(doubtful) > t.within:
			room = math.MaxInt64
			return Result{}, t.refuse(res, reason)
		case res.RetryAfter == Never:
			return Result{}, t.refuse(res, reason)
		case !t.deadline.IsZero() && now.Add(res.RetryAfter).After(t.deadline):
			return Result{}, t.refuse(res, both(outlasts(ctx, res.RetryAfter), reason))
		}
		most := res.Limit
		if len(t.keys) > 1 || res.Err != nil { // res.Limit is the limit of only one of several keys, or a LocalFallback's share
			most = 0
		}
		in.queues.rest(w, now.Add(pause), most)
		if err := in.lifetime.wait(ctx, w.wake, time.After(min(pause, longestPause))); err != nil {
			return Result{}, t.ended(in.queues, w, err, doubt)
		}
		in.queues.rested(w)
		if time.Since(now) >= pause { // otherwise it retries early, and a denial is no reason to wait for longer
			denials++
		}
	}
}

// ended returns the error for a caller that leaves a queue because its context is done or the
// client is closed. doubt is why the outcome of an earlier call is unknown, or nil.
func (t queued) ended(queues *queues, w *waiter, err, doubt error) error {
	if err == errClosed {
		return both(afterClose(t.verb, t.keys), doubt)
	}
	_, wait := queues.refused(w)
	return t.refuse(Result{RetryAfter: wait}, both(err, doubt))
}
