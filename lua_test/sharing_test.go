package lua_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/ratelimit-functions/ratelimit/embedded"
	"github.com/ratelimit-functions/ratelimit/functions"
)

// sharing makes calls at given times.
type sharing struct {
	t      *testing.T
	server *embedded.Server
	began  time.Time
}

func newSharing(t *testing.T) sharing {
	s := sharing{t, start(t), time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)}
	s.server.SetTime(s.began)
	return s
}

// take reports whether a take of one unit is allowed at a time. floor is "" for a call without FLOOR.
func (s sharing) take(limit, floor string, at time.Duration) bool {
	s.t.Helper()
	s.server.SetTime(s.began.Add(at))
	call := []any{"FCALL", "ratelimit_take", "1", "k", limit}
	if floor != "" {
		call = append(call, "FLOOR", floor)
	}
	return must[any](s.t)(s.server.Do(call...)).([]any)[0] == int64(1)
}

// TestBorrowInTwoSlots checks that a server of a cluster refuses a guarantee and a pool in different slots, and
// changes neither.
func TestBorrowInTwoSlots(t *testing.T) {
	server := embedded.Run(t, embedded.WithClusterRules(), embedded.WithLibrary(functions.Source()))
	_, err := server.Do("FCALL", "ratelimit_take", "2", "tenant", "pool", "2/s", "10/s", "BORROW", "80")
	if want := "CROSSSLOT Keys in request don't hash to the same slot"; err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
	for _, key := range []string{"tenant", "pool"} {
		if n := must[any](t)(server.Do("EXISTS", key)); n != int64(0) {
			t.Errorf("key %s exists", key)
		}
	}
}

// TestReserveIsKept checks that calls without a floor, which take no more than the reserve, are denied 0
// times, although ten times as many calls with a floor come before each of them. The reserve is refilled
// at the limit's rate, or with each window. So here calls come in bursts as large as the reserve, for the
// algorithms with a burst, and evenly for the others.
func TestReserveIsKept(t *testing.T) {
	for _, tt := range []struct {
		limit string
		burst int           // calls at once
		every time.Duration // from burst to burst
	}{
		{"gcra 100/s", 50, 500 * time.Millisecond},
		{"leaky_bucket 100/s", 50, 500 * time.Millisecond},
		{"token_bucket 100/s", 50, time.Second},
		{"fixed_window 100/s", 1, 20 * time.Millisecond},
		{"sliding_window 100/s buckets=10", 1, 20 * time.Millisecond},
		{"sliding_log 100/s", 1, 20 * time.Millisecond},
		{"gcra 100/s burst=20, 6000/m", 10, 100 * time.Millisecond},
	} {
		t.Run(tt.limit, func(t *testing.T) {
			s := newSharing(t)
			bulk, critical := 0, 0
			for at := time.Duration(0); at < 4*time.Second; at += tt.every {
				calls := 10 * tt.burst
				for i := range calls { // up to the time of the burst
					if s.take(tt.limit, "50", at+tt.every*time.Duration(i)/time.Duration(calls)) {
						bulk++
					}
				}
				for range tt.burst {
					critical++
					if !s.take(tt.limit, "", at+tt.every-time.Millisecond) {
						t.Fatalf("call %d without a floor is denied after %v, and %d calls with one were allowed", critical, at+tt.every, bulk)
					}
				}
			}
			if bulk == 0 {
				t.Error("no call with a floor was allowed, so nothing competed")
			}
		})
	}
}

// TestLoneBulkGetsTheRate checks that a floor takes nothing from the rate: if nobody else calls, calls
// with a floor get at least 99 % of what gcra refills.
func TestLoneBulkGetsTheRate(t *testing.T) {
	const seconds = 10
	for _, floor := range []string{"20", "50", "90"} {
		s := newSharing(t)
		for s.take("100/s", floor, 0) { // the burst above the floor
		}
		allowed := 0
		for at := time.Millisecond; at <= seconds*time.Second; at += time.Millisecond {
			if s.take("100/s", floor, at) {
				allowed++
			}
		}
		if share := float64(allowed) / (100 * seconds); share < 0.99 || share > 1 {
			t.Errorf("FLOOR %s: %s of the rate", floor, fmt.Sprintf("%.1f %%", 100*share))
		}
	}
}
