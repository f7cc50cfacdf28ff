package sleep

import (
	"context"
	"errors"
	"testing"
	"time"
)

// For returns the context's error even if the time has also passed.
func TestForInAnEndedContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for range 1000 { // a select takes either case if both are ready
		for _, d := range []time.Duration{-1, 0, 1, time.Hour} {
			if err := For(ctx, d); !errors.Is(err, context.Canceled) {
				t.Fatalf("For(%v) returned %v, want %v", d, err, context.Canceled)
			}
		}
	}
}
