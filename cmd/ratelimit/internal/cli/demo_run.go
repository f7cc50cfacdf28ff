package cli

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/ratelimit-functions/ratelimit/client"
)

// pace is the clock of the demo. It stands still while the program is stopped.
type pace interface {
	now() time.Time
	stood() time.Duration                         // total time that it stood still
	until(ctx context.Context, t time.Time) error // waits; returns an error if ctx ends first
	during(f func())                              // runs f; a stop waits for it
	stopped(f func())                             // runs f while the clock stands still
}

// realPace is safe for concurrent use.
type realPace struct {
	mu  sync.RWMutex
	off time.Duration // total time that the clock stood still
}

func (p *realPace) now() time.Time {
	p.mu.RLock()
	defer p.mu.RUnlock()
	return time.Now().Add(-p.off)
}

func (p *realPace) stood() time.Duration {
	p.mu.RLock()
	defer p.mu.RUnlock()
	return p.off
}

func (p *realPace) during(f func()) {
	p.mu.RLock()
	defer p.mu.RUnlock()
	f()
}

func (p *realPace) stopped(f func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	began := time.Now()
	f()
	p.off += time.Since(began)
}

func (p *realPace) until(ctx context.Context, t time.Time) error {
	for {
		wait := t.Sub(p.now())
		if wait <= 0 {
			return ctx.Err()
		}
		timer := time.NewTimer(wait)
		select {
		case <-timer.C: // loop: the clock may have stood still meanwhile
		case <-ctx.Done():
			timer.Stop()
			return ctx.Err()
		}
	}
}

// tally counts the replies to one caller's requests.
type tally struct {
	allowed, denied [columns]int
	by              []int // denials by the key that denied
	ideal           int
}

func (t *tally) totals() (allowed, denied int) {
	for i := range columns {
		allowed += t.allowed[i]
		denied += t.denied[i]
	}
	return allowed, denied
}

// show is a running demo. Its methods are safe for concurrent use.
type show struct {
	scene  []act
	total  time.Duration
	prefix string
	client *client.Client

	mu      sync.Mutex
	tallies map[*caller]*tally
	failure error
}

func newShow(c *client.Client, prefix string, total time.Duration) *show {
	s := &show{scene: newScene(total), total: total, prefix: prefix, client: c, tallies: map[*caller]*tally{}}
	for _, c := range callersOf(s.scene) {
		s.tallies[c] = &tally{by: make([]int, len(c.keys))}
	}
	return s
}

func (s *show) key(name string) string { return s.prefix + name }

// keys returns all keys that the show uses.
func (s *show) keys() []string {
	seen := map[string]bool{}
	var all []string
	for _, c := range callersOf(s.scene) {
		for _, name := range c.keys {
			if !seen[name] {
				seen[name] = true
				all = append(all, s.key(name))
			}
		}
	}
	return all
}

// play sends every request at its time, at most parallel at once, and calls frame at the end of
// each column. It drops a request that is due after the end because the server is slow.
func (s *show) play(ctx context.Context, p pace, parallel int, timeout time.Duration, frame func() error) error {
	outer := ctx
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var running sync.WaitGroup
	slots := make(chan struct{}, parallel)
	start := p.now()
	step := s.total / columns
	next := step

	// wait waits until the given time, and draws the frames that are due.
	wait := func(at time.Duration) error {
		for ; next <= at; next += step {
			if err := p.until(ctx, start.Add(next)); err != nil {
				return err
			}
			var err error
			if p.during(func() { err = frame() }); err != nil {
				return err
			}
		}
		return p.until(ctx, start.Add(at))
	}
	err := func() error {
		for _, r := range requestsOf(s.scene) {
			slots <- struct{}{} // before the wait: with one slot, a reply comes before the clock moves on
			if err := wait(r.at); err != nil {
				<-slots
				return err
			}
			at := p.now().Sub(start)
			if at > s.total {
				<-slots
				break
			}
			real := at + p.stood()
			running.Go(func() {
				defer func() { <-slots }()
				p.during(func() {
					if err := s.ask(ctx, r.caller, at, real, timeout); err != nil {
						s.fail(err)
						stop()
					}
				})
			})
		}
		// Wait for the last replies before the clock moves on.
		for range parallel {
			slots <- struct{}{}
		}
		return wait(s.total)
	}()
	if err != nil {
		stop()
	}
	running.Wait()
	switch {
	case outer.Err() != nil:
		return fmt.Errorf("interrupted after %s of %s", human(p.now().Sub(start)), human(s.total))
	case s.failure != nil:
		return s.failure
	}
	return err
}

func (s *show) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.failure == nil {
		s.failure = err
	}
}

// column returns the column of a time.
func (s *show) column(at time.Duration) int { return min(int(at*columns/s.total), columns-1) }

// ask sends one request and counts its reply. at is the demo's time and real the server's.
func (s *show) ask(ctx context.Context, c *caller, at, real, timeout time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	req := client.Request{Limits: c.limits}
	for _, name := range c.keys {
		req.Keys = append(req.Keys, s.key(name))
	}
	res, err := s.client.Take(ctx, req)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.tallies[c]
	column := s.column(at)
	if res.Allowed {
		t.allowed[column]++
	} else {
		t.denied[column]++
		t.by[res.Index-1]++
	}
	if idealTake(c.ideal, real) {
		t.ideal++
	}
	return nil
}
