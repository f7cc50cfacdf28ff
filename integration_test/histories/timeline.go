package histories

import (
	"slices"
	"sync"
)

// timeline is the clock of the servers. It stands still between moves.
type timeline struct {
	set func(us int64) error // sets the clock of all servers

	// during allows moves while calls run. Otherwise a move waits until no call is in progress,
	// because on Redis 7.0 the time can change within a call.
	during bool
	gate   sync.RWMutex // held for reading by each call
	moving sync.Mutex   // held by each move, and by whoever needs the clock to stand still

	mu      sync.Mutex
	times   []int64 // each time to which the clock was or is being set, in µs
	settled int     // the position of the last time that has been set
	err     error
}

func newTimeline(us int64, during bool, set func(us int64) error) (*timeline, error) {
	return &timeline{set: set, during: during, times: []int64{us}}, set(us)
}

// move moves the clock, unless it has to stand still now. Execute returns the error of a failed
// move.
func (t *timeline) move(us int64) {
	if t.moving.TryLock() {
		defer t.moving.Unlock()
		_ = t.advance(us)
	}
}

// advance is move for a caller that holds t.moving.
func (t *timeline) advance(us int64) error {
	if !t.during {
		t.gate.Lock()
		defer t.gate.Unlock()
	}
	t.mu.Lock()
	next := max(1_000_000_000_000_000, t.times[len(t.times)-1]+us)
	t.times = append(t.times, next)
	t.mu.Unlock()
	err := t.set(next)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.settled++
	if t.err == nil {
		t.err = err
	}
	return t.err
}

// begin returns the position of the clock before which a call that begins now cannot run.
func (t *timeline) begin() int {
	t.gate.RLock()
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.settled
}

// end returns the position of the clock after which a call that has ended cannot have run.
func (t *timeline) end() int {
	defer t.gate.RUnlock()
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.times) - 1
}

// now returns the position of the clock.
func (t *timeline) now() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.settled
}

// from returns all times since a position.
func (t *timeline) from(first int) []int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Clone(t.times[first:])
}

// last returns the position to which the clock was or is being set last.
func (t *timeline) last() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.times) - 1
}
