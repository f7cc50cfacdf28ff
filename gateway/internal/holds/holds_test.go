package holds

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/ratelimit-functions/ratelimit/client"
	"github.com/ratelimit-functions/ratelimit/embedded"
	"github.com/ratelimit-functions/ratelimit/functions"
)

func TestReserveChargesAtOnceAndCommitCorrects(t *testing.T) {
	b := newTestbed(t)
	id := b.reserve(part("u", "100/h"), 60, time.Minute)
	b.left("u", "100/h", 40) // an ordinary call sees the reservation
	if second := b.reserve(part("u", "100/h"), 60, time.Minute); second != "" {
		t.Errorf("a second reservation is allowed, as %s", second)
	}
	for range 3 { // repeated commits change nothing, whatever they say
		if got := b.commit(id, 25); got != "25 false" {
			t.Errorf("the commit returns %s", got)
		}
		b.left("u", "100/h", 75)
	}
	if got := b.commit(id, 99); got != "25 false" {
		t.Errorf("another commit returns %s", got)
	}
	b.advance(time.Minute)
	b.sweep()
	b.left("u", "100/h", 76) // a minute refills one
	b.wantEvents("committed 1", "denied 1", "repeated 3", "reserved 1")
	b.empty()
}

func TestCommitOfMoreAndOfTheSame(t *testing.T) {
	b := newTestbed(t)
	more, same, none := b.reserve(part("m", "100/h"), 10, time.Minute), b.reserve(part("s", "100/h"), 10, time.Minute), b.reserve(part("n", "100/h"), 10, time.Minute)
	for range 2 {
		b.commit(more, 130) // beyond the limit: debt
		b.commit(same, 10)
		b.commit(none, 0)
	}
	b.left("m", "100/h", 0)
	b.left("s", "100/h", 90)
	b.left("n", "100/h", 100)
	b.advance(18 * time.Minute)
	b.sweep()
	b.left("m", "100/h", 0) // the debt of 30 is just paid off
	b.advance(36 * time.Second)
	b.left("m", "100/h", 1)
}

func TestSweepGivesBackOnce(t *testing.T) {
	b := newTestbed(t)
	other := b.gateway(b.limiter, Redis{b.db})
	id := b.reserve(part("u", "fixed_window 100/d"), 60, time.Minute)
	b.advance(time.Minute - time.Millisecond)
	b.sweep()
	b.left("u", "fixed_window 100/d", 40)
	b.advance(time.Millisecond)
	done := make(chan error)
	go func() { done <- other.Sweep(ctx) }()
	b.sweep()
	require(t, <-done)
	b.sweep()
	b.left("u", "fixed_window 100/d", 100)
	// The commit comes too late: what was used is charged, once.
	for range 3 {
		if got := b.commit(id, 70); got != "70 true" {
			t.Errorf("the commit returns %s", got)
		}
	}
	b.left("u", "fixed_window 100/d", 30)
	b.advance(repeatable + time.Millisecond)
	if got := b.commit(id, 70); got != ErrUnknown.Error() {
		t.Errorf("a commit long after returns %s", got)
	}
	b.empty()
}

// TestClocks checks that a gateway whose clock is wrong ends reservations by the server's clock.
func TestClocks(t *testing.T) {
	b := newTestbed(t)
	for _, wrong := range []time.Duration{-time.Hour, time.Hour} {
		g := b.gateway(b.limiter, Redis{b.db})
		g.Now = func() time.Time { return b.time().Add(wrong) }
		made, err := g.Reserve(ctx, "web", part("u", "fixed_window 100/d"), 60, time.Minute)
		require(t, err)
		b.advance(time.Minute - time.Millisecond)
		require(t, g.Sweep(ctx))
		b.left("u", "fixed_window 100/d", 40)
		b.advance(time.Millisecond)
		require(t, g.Sweep(ctx))
		b.left("u", "fixed_window 100/d", 100)
		if got := b.commit(made.ID, 0); got != "0 true" {
			t.Errorf("%v: %s", wrong, got)
		}
	}
}

func TestUnknownForeignAndForgedIDs(t *testing.T) {
	b := newTestbed(t)
	id := b.reserve(part("u", "100/h"), 60, time.Minute)
	last := "A"
	if strings.HasSuffix(id, last) {
		last = "B"
	}
	for _, forged := range []string{"", "a", id + "A", strings.ToLower(id), id[1:], "z" + id[1:], id[:26] + last, id + ":end", "*", "a\x00"} {
		if got := b.commit(forged, 0); got != ErrUnknown.Error() {
			t.Errorf("%q: %s", forged, got)
		}
	}
	if _, err := b.Commit(ctx, "other", id, 0); !errors.Is(err, ErrDomain) {
		t.Errorf("another domain: %v", err)
	}
	b.left("u", "100/h", 40)
	if got := b.commit(id, 60); got != "60 false" {
		t.Errorf("the right one: %s", got)
	}
}

func TestPartsAreAllOrNone(t *testing.T) {
	b := newTestbed(t, embedded.WithClusterRules())
	parts := append(part("a", "100/h"), part("b", "100/h")...) // in different slots
	optional := Part{Keys: []string{"c"}, Limits: []client.Limit{"5/h"}, Optional: true}
	id := b.reserve(append(parts, optional), 60, time.Minute)
	b.left("a", "100/h", 40)
	b.left("c", "5/h", 5)
	b.limiter.AllowN(ctx, "a", "100/h", 30)
	if got := b.reserve(append(part("d", "100/h"), parts...), 20, time.Minute); got != "" {
		t.Errorf("allowed, as %s", got)
	}
	b.sweep() // only after a slow denial
	b.left("d", "100/h", 100)
	b.left("b", "100/h", 40)
	if got := b.commit(id, 3); got != "3 false" {
		t.Error(got)
	}
	b.left("a", "100/h", 67)
	b.left("b", "100/h", 97)
	b.left("c", "5/h", 5) // not corrected, because it was not charged
	b.empty()
}

func TestPolicies(t *testing.T) {
	b := newTestbed(t)
	both := []Part{{Keys: []string{"{a}u", "{a}t"}, Limits: []client.Limit{"@both"}}}
	b.commit(b.reserve(both, 50, time.Minute), 20)
	b.left("{a}u", "100/h", 80)
	b.left("{a}t", "1000/h", 980)
	// A shadow policy that would deny allows the reservation, and charges nothing.
	first, second := b.reserve(part("s", "@trial"), 8, time.Minute), b.reserve(part("s", "@trial"), 8, time.Minute)
	if first == "" || second == "" {
		t.Fatal("the shadow policy denies")
	}
	b.left("s", "10/h", 2)
	b.commit(second, 1)
	b.left("s", "10/h", 2)
	b.commit(first, 1)
	b.left("s", "10/h", 9)
	// Who paid would not be known.
	if _, err := b.Reserve(ctx, "web", []Part{{Keys: []string{"{p}g", "{p}p"}, Limits: []client.Limit{"@shared"}}}, 5, time.Minute); err == nil || !strings.HasPrefix(err.Error(), "a policy with a guarantee and a pool takes no reservation") {
		t.Errorf("a policy with a guarantee: %v", err)
	}
	b.left("{p}p", "1000/h", 1000)
	// The take has a OnceKey, of which the caller knows nothing.
	for _, keys := range [][]string{{"{p}k"}, {"{p}k", "{p}usage"}} {
		if _, err := b.Reserve(ctx, "web", []Part{{Keys: keys, Limits: []client.Limit{"@counted"}}}, 5, time.Minute); err == nil || !strings.HasPrefix(err.Error(), "a policy with track takes no reservation") {
			t.Errorf("a policy with track and the keys %q: %v", keys, err)
		}
	}
	const want = "the number of keys is 1; give each limit one key, in order; @both takes user, tenant"
	if _, err := b.Reserve(ctx, "web", part("k", "@both"), 5, time.Minute); err == nil || err.Error() != want {
		t.Errorf("a key too few: %v", err)
	}
	if _, err := b.Reserve(ctx, "web", part("k", "concurrency 3 lease=1s"), 5, time.Minute); err == nil || !strings.HasPrefix(err.Error(), "a limit with leases (concurrency) takes no reservation") {
		t.Errorf("leases: %v", err)
	}
}

func TestWrongPartsChangeNothing(t *testing.T) {
	b := newTestbed(t)
	for _, tt := range []struct {
		parts []Part
		want  string
	}{
		{part("u", "100/q"), "BADLIMIT"},
		{part("u", "@none"), "none"},
		{part("u", "concurrency 3 lease=1s"), "concurrency"},
		{part("{}u", "100/h"), "because of its braces"},
		{part("", "100/h"), "key"},
		{[]Part{{Limits: []client.Limit{"100/h"}}}, "the number of keys is 0"},
		{[]Part{{Keys: []string{"u", "u"}, Limits: []client.Limit{"100/h", "100/h"}}}, `"u" is given twice`},
	} {
		made, err := b.Reserve(ctx, "web", tt.parts, 5, time.Minute)
		if err == nil || !strings.Contains(err.Error(), tt.want) || made.ID != "" {
			t.Errorf("%v: %v %v, want %s", tt.parts, made, err, tt.want)
		}
	}
	if keys := must[[]string](t)(b.db.Keys(ctx, "*").Result()); len(keys) > 0 {
		t.Errorf("the server has %q", keys)
	}
}

func TestBlockedKeys(t *testing.T) {
	b := newTestbed(t)
	id := b.reserve(part("u", "100/h"), 60, time.Minute)
	b.reserve(part("v", "fixed_window 100/d"), 60, time.Minute)
	require(t, b.limiter.Block(ctx, client.Block{For: time.Hour}, "u", "v"))
	if got := b.commit(id, 10); got != "10 false" {
		t.Errorf("%s", got)
	}
	b.advance(time.Minute)
	b.sweep()
	b.advance(time.Hour)
	b.left("v", "fixed_window 100/d", 40)
	b.sweep() // the blocks have ended
	b.left("v", "fixed_window 100/d", 100)
	b.left("u", "100/h", 100)
	b.wantEvents("committed 1", "given_back 1", "reserved 2")
	b.empty()
}

// TestRemovedPolicy checks that a reservation that cannot be given back does not hold up others, and is
// given back once it can be.
func TestRemovedPolicy(t *testing.T) {
	b := newTestbed(t)
	for range 5 { // in several shards
		b.reserve(part("u", "@whole"), 10, time.Minute)
		b.reserve(part("v", "fixed_window 100/d"), 10, 2*time.Minute)
	}
	require(t, b.db.FunctionLoadReplace(ctx, must[functions.Build](t)(functions.New()).Text()).Err())
	b.advance(2 * time.Minute)
	if err := b.Sweep(ctx); err == nil || !strings.Contains(err.Error(), "NOPOLICY") {
		t.Errorf("the sweep returns %v", err)
	}
	b.left("v", "fixed_window 100/d", 100)
	b.sweep() // tries nothing yet
	require(t, b.db.FunctionLoadReplace(ctx, b.library).Err())
	b.advance(corrected)
	b.sweep()
	b.left("u", "@whole", 100)
	b.empty()
}

// TestStoredCommit checks that a commit is carried out at once by the next sweep, not only at the end of
// the reservation, if its own gateway dies.
func TestStoredCommit(t *testing.T) {
	b := newTestbed(t)
	id := b.reserve(part("u", "fixed_window 100/d"), 60, LongestTTL)
	h, _ := b.dying(1, true) // after it has stored the decision
	if _, err := h.Commit(ctx, "web", id, 10); !errors.Is(err, client.ErrOutcomeUnknown) {
		t.Errorf("%v", err)
	}
	b.left("u", "fixed_window 100/d", 40)
	b.sweep()
	b.left("u", "fixed_window 100/d", 90)
}
