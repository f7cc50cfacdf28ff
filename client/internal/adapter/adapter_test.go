package adapter_test

import (
	"context"
	"errors"
	"testing"

	"github.com/ratelimit-functions/ratelimit/client/internal/adapter"
)

// A wait that is over at the moment when the context ends has ended with the context.
func TestSleepInAnEndedContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for range 1000 { // a select takes either case if both are ready
		if err := adapter.Sleep(ctx, 0); !errors.Is(err, context.Canceled) {
			t.Fatalf("Sleep returned %v, want %v", err, context.Canceled)
		}
	}
}
