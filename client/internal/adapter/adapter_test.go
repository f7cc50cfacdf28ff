package adapter_test

import (
	"context"
	"testing"
	"time"

	"github.com/ratelimit-functions/ratelimit/client"
	"github.com/ratelimit-functions/ratelimit/client/internal/adapter"
	"github.com/ratelimit-functions/ratelimit/client/internal/limitertest"
	"github.com/ratelimit-functions/ratelimit/embedded"
	"github.com/ratelimit-functions/ratelimit/functions"
)

// If two callers block a key at the same time, in either order, the longer block applies.
func TestBlockShortensNothing(t *testing.T) {
	for _, tt := range []struct{ other, own, want time.Duration }{
		{5 * time.Minute, time.Second, 5 * time.Minute},
		{time.Second, 5 * time.Minute, 5 * time.Minute},
		{time.Minute, time.Minute, time.Minute},
		{time.Minute, 0, 0}, // nothing is sent
	} {
		server := embedded.Run(t, embedded.WithLibrary(functions.Source()), embedded.WithTime(time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)))
		other := limitertest.Open(t, server)
		limiter := limitertest.Hooked(t, server, limitertest.Before("ratelimit_block", func(context.Context) { // so that the other block comes after any check that limiter could make first
			limitertest.Check(t, other.Block(t.Context(), client.Block{For: tt.other}, "k"))
		}))
		limitertest.Check(t, adapter.Block(t.Context(), limiter, tt.own, []string{"k"}))
		if got, err := other.Peek(t.Context(), client.For("k", "1/s", 0)); err != nil || got.RetryAfter != tt.want {
			t.Errorf("blocked for %v by another and for %v: %+v, %v; want %v", tt.other, tt.own, got, err, tt.want)
		}
	}
}
