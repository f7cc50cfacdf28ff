package httpcall

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ratelimit-functions/ratelimit/client"
)

// LimitedError is the error of a request that was not sent, since it is over the limit and its turn would come too late, or
// never.
type LimitedError struct {
	Key        string        // what is over its limit, without a prefix of the client
	RetryAfter time.Duration // after which it can be sent, as far as is known; client.Never: its cost is above what the limit holds
	Err        error         // context.DeadlineExceeded if the context's deadline came before, why no server decided, or nil
}

func (e *LimitedError) Error() string {
	text := fmt.Sprintf("ratelimit: httpcall: %q is at its limit; try again in %v", e.Key, e.RetryAfter)
	if e.RetryAfter == client.Never {
		text = fmt.Sprintf("ratelimit: httpcall: the request asks for more of %q than its limit ever allows", e.Key)
	}
	if e.Err != nil {
		text += fmt.Sprintf(" (%v)", e.Err)
	}
	return text
}

// Unwrap returns Err.
func (e *LimitedError) Unwrap() error { return e.Err }

// admit returns nil once the request may be sent; it waits until then, and not beyond until.
func (t *Transport) admit(r *http.Request, ask client.Request, until time.Time) error {
	ctx := r.Context()
	result, err := t.turn(ctx, ask, until)
	if err != nil || result.RetryAfter == 0 {
		return err
	}
	// leaky_bucket: what is admitted waits for its place in the queue.
	if err = inTime(ctx, ask.Keys[0], result.RetryAfter, until, nil); err == nil {
		err = sleep(ctx, result.RetryAfter)
	}
	if err != nil {
		t.giveBack(r, ask)
	}
	return err
}

// turn takes what is asked, and waits until that is to be had.
func (t *Transport) turn(ctx context.Context, ask client.Request, until time.Time) (client.Result, error) {
	name := strings.Join(ask.Keys, "\x00")
	if !t.lines.waiting(name) { // else nobody is overtaken
		result, err := t.take(ctx, ask, until)
		if err != nil || result.Allowed {
			return result, err
		}
	}
	l, place := t.lines.join(name)
	defer t.lines.leave(name, place)
	if err := l.wait(ctx, place, ask.Keys[0], until); err != nil {
		return client.Result{}, err
	}
	for {
		result, err := t.take(ctx, ask, until)
		if err != nil || result.Allowed {
			return result, err
		}
		l.due.Store(time.Now().Add(result.RetryAfter).UnixNano())
		if err := sleep(ctx, result.RetryAfter); err != nil {
			return result, err
		}
	}
}

// take is one try. A denial is an error where no wait that is left helps.
func (t *Transport) take(ctx context.Context, ask client.Request, until time.Time) (client.Result, error) {
	result, err := t.limiter.Take(ctx, ask)
	if err != nil || result.Allowed {
		return result, err
	}
	return result, inTime(ctx, ask.Keys[result.Index-1], result.RetryAfter, until, result.Err)
}

// giveBack refunds what was taken for a request that is not sent.
func (t *Transport) giveBack(r *http.Request, ask client.Request) {
	back := client.Request{Keys: ask.Keys, Limits: ask.Limits, Costs: ask.Costs}
	if _, err := t.limiter.Refund(context.WithoutCancel(r.Context()), back); err != nil {
		t.onError(r, err)
	}
}

// inTime returns an error if a wait for key goes beyond until; cause is why there is one, if that is not the limit.
func inTime(ctx context.Context, key string, wait time.Duration, until time.Time, cause error) error {
	if wait != client.Never && !time.Now().Add(wait).After(until) {
		return nil
	}
	return late(ctx, key, wait, cause)
}

func late(ctx context.Context, key string, wait time.Duration, cause error) error {
	deadline, ok := ctx.Deadline()
	if cause == nil && wait != client.Never && ok && !time.Now().Add(wait).Before(deadline) {
		cause = context.DeadlineExceeded
	}
	return &LimitedError{Key: key, RetryAfter: wait, Err: cause}
}

// sleep waits for d, or returns the error of ctx, which has ended.
func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}

// lines are the requests of this process that wait, by their keys.
type lines struct {
	mu    sync.Mutex
	byKey map[string]*line
}

// line is of requests that wait for the same keys. Only the first asks the server: else each would, and who asks at the
// right moment would overtake who came before.
type line struct {
	places []chan struct{} // of who is in line; that of the first is closed
	due    atomic.Int64    // when the first asks again: Unix time in ns
}

func (l *lines) waiting(name string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.byKey[name] != nil
}

// join returns a place at the end of a line.
func (l *lines) join(name string) (*line, chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.byKey == nil {
		l.byKey = map[string]*line{}
	}
	if l.byKey[name] == nil {
		l.byKey[name] = &line{}
	}
	to, place := l.byKey[name], make(chan struct{})
	if to.places = append(to.places, place); len(to.places) == 1 {
		close(place)
	}
	return to, place
}

// leave gives up a place, at the front or not.
func (l *lines) leave(name string, place chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	from := l.byKey[name]
	i := slices.Index(from.places, place)
	from.places = slices.Delete(from.places, i, i+1)
	switch {
	case len(from.places) == 0:
		delete(l.byKey, name)
	case i == 0:
		close(from.places[0])
	}
}

// wait waits until place is the first in line. It refuses at once who could not be in time even as the next.
func (l *line) wait(ctx context.Context, place chan struct{}, key string, until time.Time) error {
	left := func() time.Duration { return max(time.Until(time.Unix(0, l.due.Load())), 0) }
	if err := inTime(ctx, key, left(), until, nil); err != nil {
		return err
	}
	timer := time.NewTimer(time.Until(until))
	defer timer.Stop()
	select {
	case <-place:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return late(ctx, key, left(), nil)
	}
}
