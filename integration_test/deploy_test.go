package integration_test

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ratelimit-functions/ratelimit/client"
	"github.com/ratelimit-functions/ratelimit/functions"
	"github.com/ratelimit-functions/ratelimit/integration_test/backend"
	"github.com/ratelimit-functions/ratelimit/loader"
)

func deploy(t *testing.T, b *backend.Backend) {
	t.Helper()
	build, err := functions.New()
	if err != nil {
		t.Fatal(err)
	}
	l, err := loader.New(newClient(t, b))
	if err != nil {
		t.Fatal(err)
	}
	report, err := l.Deploy(testContext(t), build)
	if err != nil {
		t.Fatal(err)
	}
	if !report.InStep() {
		t.Fatalf("not in step after a deployment: %+v", report)
	}
}

// A deployment reaches every primary, is read back as the same bytes, and changes nothing the
// second time.
func TestDeployAndStatus(t *testing.T) {
	build, err := functions.New()
	if err != nil {
		t.Fatal(err)
	}
	eachBackend(t, func(t *testing.T, b *backend.Backend) {
		ctx := testContext(t)
		l, err := loader.New(newClient(t, b))
		if err != nil {
			t.Fatal(err)
		}
		before, err := l.Status(ctx, build)
		if err != nil || before.InStep() {
			t.Fatalf("before: %+v, %v", before, err)
		}
		first, err := l.Deploy(ctx, build)
		if err != nil {
			t.Fatal(err)
		}
		primaries := 1
		if b.Cluster {
			primaries = 3
		}
		if len(first.Nodes) != primaries || first.Changed() != primaries || !first.InStep() {
			t.Fatalf("first: %+v", first)
		}
		for _, node := range first.Nodes {
			if node.Running.Digest != build.Digest() || node.Running.BuildID != build.ID() {
				t.Errorf("%s runs %+v", node.Addr, node.Running)
			}
		}
		second, err := l.Deploy(ctx, build)
		if err != nil || second.Changed() != 0 || !second.InStep() {
			t.Errorf("second: %+v, %v", second, err)
		}
		after, err := l.Status(ctx, build)
		if err != nil || !after.InStep() {
			t.Errorf("after: %+v, %v", after, err)
		}
	})
}

// However many callers there are, exactly the capacity is allowed while the clock stands still.
func TestNeverOverTheLimit(t *testing.T) {
	for _, limit := range []client.Limit{
		"100/m", "70/s", "token_bucket 100/m", "leaky_bucket 100/m", "fixed_window 100/m", "sliding_window 100/m",
		"sliding_log 100/m", "100/s, 1000/h",
	} {
		t.Run(string(limit), func(t *testing.T) {
			eachBackend(t, func(t *testing.T, b *backend.Backend) {
				deploy(t, b)
				if err := b.SetTime(time.Now().UnixMicro()); err != nil {
					t.Fatal(err)
				}
				ctx := testContext(t)
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
