package integration_test

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ratelimit-functions/ratelimit/client"
	"github.com/ratelimit-functions/ratelimit/integration_test/backend"
)

// TestDeployAndStatus checks that a deployment reaches every primary, that the library can be read
// back byte for byte, and that a second deployment changes nothing.
func TestDeployAndStatus(t *testing.T) {
	build := newBuild(t)
	eachBackend(t, func(t *testing.T, b *backend.Backend) {
		ctx := testContext(t)
		l := newLoader(t, newClient(t, b))
		before, err := l.Status(ctx, build)
		if err != nil || before.InStep() {
			t.Fatalf("before: %+v, %v", before, err)
		}
		first := deploy(ctx, t, l, build)
		primaries := 1
		if b.Cluster {
			primaries = 3
		}
		if len(first.Nodes) != primaries || first.Changed() != primaries {
			t.Fatalf("first: %+v", first)
		}
		for _, node := range first.Nodes {
			if node.Running.Digest != build.Digest() || node.Running.BuildID != build.ID() {
				t.Errorf("%s runs %+v", node.Addr, node.Running)
			}
		}
		if second := deploy(ctx, t, l, build); second.Changed() != 0 {
			t.Errorf("second: %+v", second)
		}
		after, err := l.Status(ctx, build)
		if err != nil || !after.InStep() {
			t.Errorf("after: %+v, %v", after, err)
		}
	})
}

// TestNeverOverTheLimit stops the clock, and checks that many concurrent callers together get
// exactly the capacity.
func TestNeverOverTheLimit(t *testing.T) {
	for _, limit := range []client.Limit{
		"100/m", "70/s", "token_bucket 100/m", "leaky_bucket 100/m", "fixed_window 100/m", "sliding_window 100/m",
		"sliding_log 100/m", "100/s, 1000/h",
	} {
		t.Run(string(limit), func(t *testing.T) {
			eachBackend(t, func(t *testing.T, b *backend.Backend) {
				ctx := testContext(t)
				loadLibrary(ctx, t, b)
				require(t, b.SetTime(time.Now().UnixMicro()))
				var allowed, capacity atomic.Int64
				var group sync.WaitGroup
				for range 4 {
					c := newLimiter(t, newClient(t, b))
					for range 4 {
						group.Go(func() {
							for range 20 {
								result, err := c.Allow(ctx, "{hot}:key", limit)
								if err != nil {
									t.Error(err)
									return
								}
								capacity.Store(result.Limit)
								if result.Allowed {
									allowed.Add(1)
								}
							}
						})
					}
				}
				group.Wait()
				if allowed.Load() != capacity.Load() {
					t.Errorf("%d let through, want %d", allowed.Load(), capacity.Load())
				}
			}, withClock)
		})
	}
}
