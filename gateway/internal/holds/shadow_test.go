package holds

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/ratelimit-functions/ratelimit/client"
)

// TestBlockedShadow checks that the key of a shadow policy gets its units back after a block, alone and beside
// other limits, whichever key is blocked. A shadow policy never denies, so the server allows a call on a
// blocked key and changes nothing.
func TestBlockedShadow(t *testing.T) {
	const limit = "fixed_window 100/30d"
	alone := part("{a}s", "@hidden")
	beside := []Part{{Keys: []string{"{a}u", "{a}s", "{a}v"}, Limits: []client.Limit{limit, "@hidden", limit}}}
	several := []Part{{Keys: []string{"{a}u", "{a}s", "{a}p", "{a}v"}, Limits: []client.Limit{limit, "@pair", limit}}}
	for name, tt := range map[string]struct {
		parts   []Part
		blocked string
	}{
		"alone":                        {alone, "{a}s"},
		"beside other limits":          {beside, "{a}s"},
		"beside a blocked key":         {beside, "{a}v"},
		"a policy of several keys":     {several, "{a}p"},
		"beside several, blocked last": {several, "{a}v"},
	} {
		for _, actual := range []int64{1, 9, -1} { // less, more, and no commit
			t.Run(fmt.Sprint(name, " ", actual), func(t *testing.T) {
				b := newTestbed(t)
				id := b.reserve(tt.parts, 6, time.Second)
				require(t, b.limiter.Block(ctx, client.Block{For: time.Minute}, tt.blocked))
				if actual >= 0 {
					if got, want := b.commit(id, actual), fmt.Sprint(actual, " false"); got != want {
						t.Errorf("the commit returns %s, want %s", got, want)
					}
				}
				for range 3 { // at the end, during the block, and after it
					b.advance(25 * time.Second)
					b.sweep()
				}
				for _, key := range tt.parts[0].Keys {
					b.left(key, limit, 100-max(actual, 0))
				}
				if ids := must[[]string](t)(b.db.ZRange(ctx, endsKey(id[:1]), 0, -1).Result()); len(ids) > 0 {
					t.Errorf("after the block, %q are still to be settled", ids)
				}
				b.empty()
			})
		}
	}
}

// TestBlockedShadowCharge checks that a late commit and a report say so if a block prevents the charge of a key
// of a shadow policy, and that a repeated late commit charges each key once.
func TestBlockedShadowCharge(t *testing.T) {
	const limit = "fixed_window 100/30d"
	b := newTestbed(t)
	id := b.reserve([]Part{{Keys: []string{"{a}u", "{a}s"}, Limits: []client.Limit{limit, "@hidden"}}}, 6, time.Second)
	b.advance(2 * time.Second)
	b.sweep()
	require(t, b.limiter.Block(ctx, client.Block{For: time.Minute}, "{a}s"))
	for range 2 {
		if _, err := b.Commit(ctx, "web", id, 10); err == nil || !strings.Contains(err.Error(), `["{a}s"] is blocked for 1m0s, and nothing was charged`) {
			t.Errorf("a late commit: %v", err)
		}
	}
	if err := b.Report(ctx, part("{a}s", "@hidden"), 7, ""); err == nil {
		t.Error("a report of a blocked key has no error")
	}
	b.advance(2 * time.Minute)
	for range 2 {
		if got := b.commit(id, 10); got != "10 true" {
			t.Errorf("a late commit after the block: %s", got)
		}
	}
	b.left("{a}u", limit, 90)
	b.left("{a}s", limit, 90)
}

// TestSplit checks which keys belong to which limit.
func TestSplit(t *testing.T) {
	for _, tt := range []struct{ keys, limits, want string }{
		{"a", "@p", "a: @p"},
		{"a b", "@p", "a b: @p"},
		{"a b", "1/s 2/s", "a b: 1/s 2/s"},
		{"a b", "1/s @p", "a: 1/s; b: @p"},
		{"a b c", "@p @q 1/s", "a: @p; b: @q; c: 1/s"},
		{"a b c d", "1/s @p 2/s", "a: 1/s; b c: @p; d: 2/s"},
		{"a b c", "@p @q", "a b c: @p @q"}, // which policy has two keys is not known
		{"a", "@p 1/s", "a: @p 1/s"},       // a key is missing
	} {
		p := Part{Keys: strings.Fields(tt.keys)}
		for _, limit := range strings.Fields(tt.limits) {
			p.Limits = append(p.Limits, client.Limit(limit))
		}
		var got []string
		for _, piece := range p.split() {
			got = append(got, strings.Join(piece.Keys, " ")+": "+strings.Trim(fmt.Sprint(piece.Limits), "[]"))
		}
		if got := strings.Join(got, "; "); got != tt.want {
			t.Errorf("%s, want %s", got, tt.want)
		}
	}
}
