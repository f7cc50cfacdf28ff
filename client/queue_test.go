package client

import (
	"context"
	"math"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// TestWaitingInAQueue checks which waiters may call the server next, in situations that a test with
// a server cannot create.
func TestWaitingInAQueue(t *testing.T) {
	s := newQueues()
	places := map[string]*waiter{}
	join := func(names ...string) {
		for _, name := range names {
			places[name] = s.join("k", []string{"k"}, 1, time.Time{})
		}
	}
	// woken checks which waiters have been woken since the last check.
	woken := func(step string, want ...string) {
		t.Helper()
		var got []string
		for name, w := range places {
			select {
			case <-w.wake:
				got = append(got, name)
			default:
			}
		}
		slices.Sort(got)
		if !slices.Equal(got, want) {
			t.Errorf("%s: %v are woken, want %v", step, got, want)
		}
	}
	leave := func(name string, room int64) {
		s.leave("k", places[name], room)
		delete(places, name)
	}
	join("a", "b", "c", "d", "e")
	woken("who comes first asks alone", "a")
	leave("a", 2)
	woken("as many as were left", "b", "c")
	s.rest(places["b"], time.Now().Add(time.Hour), 9)
	leave("c", 4) // the reply to c leaves 4 units, because other callers gave units back
	woken("who rests is woken, and nobody overtakes it", "b")
	s.nudge("k")
	s.rested(places["b"])
	woken("it is woken once, and those behind have room", "b", "d", "e")

	s.rest(places["b"], time.Now().Add(time.Hour), 9)
	join("f")
	woken("behind who rests")
	s.rested(places["b"])
	woken("after a denial nothing is left for those behind", "b")
	s.nudge("k")
	woken("who asks is not woken")
	s.rest(places["b"], time.Now().Add(time.Hour), 9)
	woken("but when it is denied", "b")
	s.rested(places["b"])
	woken("it asks again", "b")
	s.rest(places["b"], time.Now().Add(time.Hour), 9)
	woken("and then it rests")
	s.nudge("k")
	woken("until it is nudged", "b")
	leave("b", math.MaxInt64)
	s.rest(places["d"], time.Now().Add(time.Hour), 9)
	woken("the nudge was for the next one too, because b sent no call after it", "d", "f")
	s.rested(places["d"])
	woken("which asks", "d")
	s.rest(places["d"], time.Now().Add(time.Hour), 9)
	s.rest(places["e"], time.Now().Add(time.Hour), 9)
	leave("d", math.MaxInt64)
	woken("a reply that tells no number of units wakes nobody who rests")
	s.nudge("another")
	leave("f", 1)
	woken("exactly enough units for who rests", "e")
	leave("e", -1)
	if len(s.byName) != 0 {
		t.Error("the empty queue is left")
	}
}

// The jitter added to a wait grows with the number of denials, is at most a second, and does not
// extend the wait beyond the deadline.
func TestWaitsSpread(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in := func(d time.Duration) time.Time { return time.Now().Add(d) }
		for _, tt := range []struct {
			wait     time.Duration
			denials  int
			deadline time.Time
			most     time.Duration
		}{
			{time.Minute, 0, time.Time{}, time.Minute},
			{100 * time.Millisecond, 1, time.Time{}, 200 * time.Millisecond},
			{100 * time.Millisecond, 4, time.Time{}, 500 * time.Millisecond},
			{100 * time.Millisecond, 1 << 40, time.Time{}, 1100 * time.Millisecond},
			{time.Hour, 3, time.Time{}, time.Hour + time.Second},
			{100 * time.Millisecond, 4, in(150 * time.Millisecond), 125 * time.Millisecond},
			{100 * time.Millisecond, 4, in(100 * time.Millisecond), 100 * time.Millisecond},
			{0, 0, time.Time{}, time.Millisecond}, // the library never replies this, but the client must not retry without a pause
		} {
			longest := time.Duration(0)
			for range 1000 {
				got := spread(tt.wait, tt.denials, tt.deadline)
				if longest = max(longest, got); got < tt.wait || got > tt.most || got == 0 {
					t.Fatalf("%v, %d: %v, want up to %v", tt.wait, tt.denials, got, tt.most)
				}
			}
			if longest < tt.wait+(tt.most-tt.wait)*9/10 {
				t.Errorf("%v, %d: %v at most in 1000 times, want up to %v", tt.wait, tt.denials, longest, tt.most)
			}
		}
	})
}

// If the context is canceled, wait returns the context's error even if the caller is woken at the
// same time. The caller then sends no call to the server, and its error is an ErrLimited, not an
// error from the server.
func TestWokenTooLate(t *testing.T) {
	l := newLifetime()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	wake := make(chan struct{}, 1)
	for range 100 { // because select chooses at random between two ready cases
		select {
		case wake <- struct{}{}:
		default:
		}
		if err := l.wait(ctx, wake, nil); err != context.Canceled {
			t.Fatalf("%v, want that the context has ended", err)
		}
	}
}
