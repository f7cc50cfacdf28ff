package loader_test

import (
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/ratelimit-functions/ratelimit/loader"
)

// testClock is a clock that a test sets. A sleeper wakes when the test has moved the clock far
// enough.
type testClock struct {
	mu       sync.Mutex
	time     time.Time
	sleepers []sleeper
}

type sleeper struct {
	until time.Time
	woken chan time.Time
}

func newTestClock() *testClock { return &testClock{time: time.UnixMilli(1_700_000_000_000)} }

func (c *testClock) option() option { return withClock(c.now, c.after) }

func withClock(now func() time.Time, after func(time.Duration) <-chan time.Time) option {
	return func(c *loader.Config) { loader.SetClock(c, now, after) }
}

func (c *testClock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.time
}

func (c *testClock) after(d time.Duration) <-chan time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := sleeper{c.time.Add(d), make(chan time.Time, 1)}
	c.sleepers = append(c.sleepers, s)
	return s.woken
}

// move advances the clock and wakes the sleepers that are due.
func (c *testClock) move(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.time = c.time.Add(d)
	c.sleepers = slices.DeleteFunc(c.sleepers, func(s sleeper) bool {
		if s.until.After(c.time) {
			return false
		}
		s.woken <- c.time
		return true
	})
}

// asleep waits until a goroutine sleeps on c, such as a watch that has finished its round.
func (c *testClock) asleep(t *testing.T) {
	t.Helper()
	eventually(t, "the watch sleeps", func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		return len(c.sleepers) > 0
	})
}

// round moves the clock by d and lets a watch do one round.
func (c *testClock) round(t *testing.T, d time.Duration) {
	t.Helper()
	c.asleep(t)
	c.move(d)
	c.asleep(t)
}
