package client_test

import (
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/ratelimit-functions/ratelimit/client"
)

// A frequently used key needs fewer and fewer requests, because the batches grow to the maximum
// size. A rarely used key takes one unit at a time. In between, the size of a batch is the number
// of units spent within ttl.
func TestBatchGrowsWithTheRate(t *testing.T) {
	for _, tt := range []struct {
		name  string
		calls int
		apart time.Duration
		want  string
	}{
		{"often", 47, 0, "=1 2 4 8 16 16"},
		{"once in a while", 4, 3 * ttl, "=1 =1 =1 =1"},
		{"slowly", 4, ttl * 3 / 5, "=1 =1 =1 =1"},
		{"eight in the time of a batch", 31, ttl / 8, "=1 2 4 8 8 8"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := newTestbed(t)
			s.calls(t, s.client(t, client.WithBatches(16, ttl)), tt.calls, tt.apart)
			s.wantSent(t, tt.want)
		})
	}
	s := newTestbed(t)
	c := s.warm(t)
	s.pass(3 * ttl)
	s.calls(t, c, 1, 0)
	s.wantSent(t, "=1")
	s.calls(t, c, 2+4+8+2, 0) // uses 2 of the 16 units in the last batch
	s.pass(ttl + time.Millisecond)
	s.calls(t, c, 1, 0)
	s.wantSent(t, "2 4 8 16 2")
}

// If fewer units remain, the client takes fewer in advance.
func TestBatchShrinksWithWhatRemains(t *testing.T) {
	s := newTestbed(t)
	c := s.client(t, client.WithBatches(64, ttl))
	for range 40 {
		allow(t, c, "40/d", 1)
	}
	if got, want := s.sizes(), "=1 2 4 4 3 3 2 2 2"; !strings.HasPrefix(got, want) {
		t.Errorf("asked for %s, want at first %s", got, want)
	}
	if res := allow(t, c, "40/d", 1); res.Allowed || res.RetryAfter == 0 {
		t.Errorf("the 41st of 40 got %+v", res)
	}
}

// If the server grants fewer units than requested, the client spends only the granted units.
func TestBatchOfLessThanAskedFor(t *testing.T) {
	s := newTestbed(t)
	c := s.warm(t)
	s.calls(t, c, 15, 0)
	allow(t, s.client(t), wide, 100000-31-3)
	for i := range 5 {
		if res := allow(t, c, wide, 1); res.Allowed != (i < 3) {
			t.Errorf("%d: %+v", i, res)
		}
	}

	// The last reply reported no remaining units, so the next request is for one unit, although
	// units have refilled since. The size then doubles again.
	s = newTestbed(t)
	c = s.warm(t)
	s.calls(t, c, 15, 0)
	allow(t, s.client(t), wide, 100000-31-3)
	s.calls(t, c, 3, 0)
	s.sent()
	s.pass(ttl / 2)
	s.calls(t, c, 1+2+4, 0)
	s.wantSent(t, "=1 2 4")
}

// TestBatchSizeAtTheEdges checks the batch size at the boundaries of its rules, and after a request
// that returned no units.
func TestBatchSizeAtTheEdges(t *testing.T) {
	s := newTestbed(t)
	for _, tt := range []struct {
		name  string
		spent int // how many of the remaining 15 units are spent
		lose  bool
		after time.Duration
		want  string
	}{
		{"just as the batch ends", 0, false, ttl, "16"},
		{"after that", 0, false, ttl + 1, "=1"},
		{"half a batch was spent then", 7, false, ttl + 1, "8"},
		{"all of it, twice the time ago", 15, false, 2 * ttl, "16"},
		{"longer ago", 15, false, 2*ttl + 1, "=1"},
		{"after a lost reply", 15, true, ttl + 1, "=1"},
	} {
		s.clear(t)
		c := s.warm(t)
		s.calls(t, c, tt.spent, 0)
		if tt.lose {
			s.lose = func(redis.Cmder) bool { return true }
			if _, err := c.Allow(t.Context(), "k", wide); err == nil {
				t.Errorf("%s: no error", tt.name)
			}
			s.lose = nil
		}
		s.sent()
		s.pass(tt.after)
		s.calls(t, c, 1, 0)
		s.wantSent(t, tt.want)
	}
}
