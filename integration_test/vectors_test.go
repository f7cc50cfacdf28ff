package integration_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/ratelimit-functions/ratelimit/functions"
	"github.com/ratelimit-functions/ratelimit/integration_test/backend"
	"github.com/ratelimit-functions/ratelimit/loader"
)

// The vectors of functions/vectors, run step by step at their times, get the same replies on every
// server as offline. An application user makes the FCALLs: its rules grant every command that a
// function calls.
func TestVectors(t *testing.T) {
	files, err := functions.LoadVectors()
	if err != nil {
		t.Fatal(err)
	}
	if len(files) == 0 {
		t.Fatal("functions/vectors holds no vectors")
	}
	eachBackend(t, func(t *testing.T, b *backend.Backend) {
		ctx := testContext(t)
		loadLibrary(ctx, t, b)
		// A server deletes expired keys at times of its own choice. Without that, a vector whose
		// clock goes forward and back finds the same keys in every run.
		stopActiveExpiry(ctx, t, b)
		setUser(t, b, "vectors-app", accessRules(t, loader.Application, "", b.Cluster))
		node := nodeOfVectors(ctx, t, b)
		app := nodeOfVectors(ctx, t, b, asUser("vectors-app"))
		for _, file := range files {
			t.Run(file.Name, func(t *testing.T) {
				if len(file.Vectors) == 0 {
					t.Fatal("the file holds no vectors")
				}
				for _, v := range file.Vectors {
					t.Run(v.Name, func(t *testing.T) {
						if err := b.FlushAll(ctx); err != nil {
							t.Fatal(err)
						}
						runVector(ctx, t, b, node, app, file.StartUS, v)
					})
				}
			})
		}
	}, withClock)
}

// runVector makes the FCALLs with app, and the other calls with node.
func runVector(ctx context.Context, t *testing.T, b *backend.Backend, node, app *redis.Client, start int64, v functions.Vector) {
	t.Helper()
	if len(v.Steps) == 0 {
		t.Fatal("the vector has no steps")
	}
	if err := b.SetTime(start); err != nil {
		t.Fatal(err)
	}
	after := int64(0)
	for i, step := range v.Steps {
		if step.AtUS != nil {
			after = *step.AtUS
			if err := b.SetTime(start + after); err != nil {
				t.Fatalf("step %d: %v", i+1, err)
			}
		}
		c := node
		if strings.HasPrefix(strings.ToUpper(step.Call[0]), "FCALL") {
			c = app
		}
		if err := step.Check(call(ctx, c, step.Call)); err != nil {
			t.Errorf("step %d, at %d µs: %v", i+1, after, err)
		}
	}
}

// call sends one command and returns its reply or error for Step.Check. A nil reply is not an
// error.
func call(ctx context.Context, c *redis.Client, words []string) (any, error) {
	args := make([]any, len(words))
	for i, w := range words {
		args[i] = w
	}
	reply, err := c.Do(ctx, args...).Result()
	if errors.Is(err, redis.Nil) {
		return nil, nil
	}
	return reply, err
}

// nodeOfVectors returns a client of the one server that has the vectors' keys, which all have the
// hash tag {v}. The client neither retries nor redirects a call, and uses RESP2, so that replies
// have the shapes in the vectors.
func nodeOfVectors(ctx context.Context, t *testing.T, b *backend.Backend, modify ...func(*redis.UniversalOptions)) *redis.Client {
	t.Helper()
	addr := b.Nodes[0].Addr
	if b.Cluster {
		cluster, ok := newClient(t, b).(*redis.ClusterClient)
		if !ok {
			t.Fatalf("the client of the cluster %s is no cluster client", b.Name)
		}
		n, err := cluster.MasterForKey(ctx, "{v}")
		if err != nil {
			t.Fatal(err)
		}
		addr = n.Options().Addr
	}
	single, ok := newClient(t, b, append(modify, func(o *redis.UniversalOptions) {
		o.Addrs, o.IsClusterMode = []string{addr}, false
		o.Protocol, o.MaxRetries = 2, -1
	})...).(*redis.Client)
	if !ok {
		t.Fatalf("the client of %s is no client of one server", addr)
	}
	return single
}

// loadLibrary loads the library into every primary.
func loadLibrary(ctx context.Context, t *testing.T, b *backend.Backend) {
	t.Helper()
	loadText(ctx, t, b, functions.Source())
}

func loadText(ctx context.Context, t *testing.T, b *backend.Backend, text string) {
	t.Helper()
	primaries, err := b.Primaries(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range primaries {
		if err := n.Client().FunctionLoadReplace(ctx, text).Err(); err != nil {
			t.Fatalf("%s: %v", n, err)
		}
	}
}

func stopActiveExpiry(ctx context.Context, t *testing.T, b *backend.Backend) {
	t.Helper()
	set := func(ctx context.Context, on int) error {
		for _, n := range b.Nodes {
			if err := n.Client().Do(ctx, "DEBUG", "SET-ACTIVE-EXPIRE", on).Err(); err != nil {
				return fmt.Errorf("%s: %w", n, err)
			}
		}
		return nil
	}
	if err := set(ctx, 0); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := set(context.Background(), 1); err != nil {
			t.Error(err)
		}
	})
}
