package holds

import (
	"strings"
	"testing"
	"time"

	"github.com/ratelimit-functions/ratelimit/client"
	"github.com/ratelimit-functions/ratelimit/functions"
)

// TestBlockedCharge checks that a late commit and a report say so if a block prevents the charge.
func TestBlockedCharge(t *testing.T) {
	b := newTestbed(t)
	id := b.reserve(part("v", "fixed_window 100/d"), 60, time.Second)
	b.advance(2 * time.Second)
	b.sweep()
	require(t, b.limiter.Block(ctx, client.Block{For: 15 * time.Minute}, "v"))
	if _, err := b.Commit(ctx, "web", id, 10); err == nil || !strings.Contains(err.Error(), `["v"] is blocked for 15m0s, and nothing was charged`) {
		t.Errorf("a late commit: %v", err)
	}
	if err := b.Report(ctx, append(part("v", "fixed_window 100/d"), part("w", "fixed_window 100/d")...), 7, ""); err == nil {
		t.Error("a report of a blocked key has no error")
	}
	b.advance(16 * time.Minute)
	b.left("v", "fixed_window 100/d", 100)
	b.left("w", "fixed_window 100/d", 93)
}

// TestRepeatedLateCommit checks that a late commit is charged once, however long its sweep has to wait.
func TestRepeatedLateCommit(t *testing.T) {
	b := newTestbed(t)
	id := b.reserve(append(part("v", "fixed_window 100/30d"), part("w", "fixed_window 100/30d")...), 60, time.Second)
	require(t, b.limiter.Block(ctx, client.Block{For: 2 * time.Hour}, "w"))
	b.advance(2 * time.Second)
	b.sweep()
	for range 3 {
		_, _ = b.Commit(ctx, "web", id, 10)
		b.left("v", "fixed_window 100/30d", 90)
		b.advance(30 * time.Minute)
	}
}

// TestLongBlock checks that a key gets its units back after a block of several days, and that a commit during the
// block is carried out after it.
func TestLongBlock(t *testing.T) {
	const limit = "fixed_window 100/30d"
	b := newTestbed(t)
	swept := b.reserve(part("v", limit), 60, time.Second)
	committed := b.reserve(part("w", limit), 60, time.Second)
	require(t, b.limiter.Block(ctx, client.Block{For: 5 * 24 * time.Hour}, "v", "w"))
	if made, err := b.Commit(ctx, "web", committed, 10); err != nil || made.Late {
		t.Errorf("%s is committed: %v, %v", committed, made, err)
	}
	for range 6 * 24 {
		b.advance(time.Hour)
		b.sweep()
	}
	b.left("v", limit, 100)
	b.left("w", limit, 90)
	if _, err := b.Commit(ctx, "web", swept, 10); err != ErrUnknown {
		t.Errorf("a commit a day after the end of the block: %v", err)
	}
}

// TestTrackedReservation checks that a policy with track is refused, also if its usage key is given.
func TestTrackedReservation(t *testing.T) {
	build := must[functions.Build](t)(functions.New(functions.WithPolicies(
		functions.Policy{Name: "tracked", Limits: []functions.PolicyLimit{{Limit: "fixed_window 100/d"}}, Track: true},
		functions.Policy{Name: "both", Limits: []functions.PolicyLimit{{Key: "user", Limit: "100/h"}, {Key: "tenant", Limit: "1000/h"}}},
	)))
	b := newTestbed(t)
	must[any](t)(b.server.Do("FUNCTION", "LOAD", "REPLACE", build.Text()))
	for range 2 {
		if made, err := b.Reserve(ctx, "web", []Part{{Keys: []string{"{a}", "{a}usage"}, Limits: []client.Limit{"@tracked"}}}, 60, time.Minute); err == nil {
			t.Errorf("reserved %v", made)
		}
	}
	b.left("{a}", "fixed_window 100/d", 100)
	id := b.reserve([]Part{{Keys: []string{"{a}1", "{a}2"}, Limits: []client.Limit{"@both"}}}, 60, time.Minute)
	b.left("{a}1", "100/h", 40)
	b.commit(id, 1)
	b.left("{a}1", "100/h", 99)
}
