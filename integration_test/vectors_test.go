package integration_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/ratelimit-functions/ratelimit/functions"
	"github.com/ratelimit-functions/ratelimit/integration_test/backend"
)

// TestVectors checks that every server gives the replies that functions/vectors specifies. An
// application user makes the calls, so the test also shows that the user's rules grant every
// command that a function needs.
func TestVectors(t *testing.T) {
	files, err := functions.LoadVectors()
	if err != nil || len(files) == 0 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	eachBackend(t, func(t *testing.T, b *backend.Backend) {
		ctx := testContext(t)
		loadLibrary(ctx, t, b)
		setUser(t, b, "vectors-app", allFunctions(t, newBuild(t), "", b.Cluster))
		node := moved{ctx, b, nodeOfVectors(ctx, t, b)}
		app := moved{ctx, b, nodeOfVectors(ctx, t, b, asUser("vectors-app"))}
		runVectors(ctx, t, b, files, func(words ...string) (any, error) {
			if strings.HasPrefix(strings.ToUpper(words[0]), "FCALL") {
				return app.Do(words...)
			}
			return node.Do(words...)
		})
	}, withClock)
}

// runVectors runs each vector on an empty server. call sends a command to the server that holds the
// vectors' keys. runVectors turns off the background deletion of expired keys, because some vectors
// set the clock back, and would then find different keys in each run.
func runVectors(ctx context.Context, t *testing.T, b *backend.Backend, files []functions.VectorFile, call func(words ...string) (any, error)) {
	stopActiveExpiry(ctx, t, b)
	for _, file := range files {
		t.Run(file.Name, func(t *testing.T) {
			for _, v := range file.Vectors {
				t.Run(v.Name, func(t *testing.T) {
					must[any](t)(call("FLUSHALL"))
					if err := v.Run(file.StartUS, b.SetTime, call); err != nil {
						t.Error(err)
					}
				})
			}
		})
	}
}

// nodeOfVectors returns a client for the server that holds the vectors' keys, which all have the
// hash tag {v}. The client does not retry or redirect calls. It uses RESP2, because the vectors
// contain RESP2 replies.
func nodeOfVectors(ctx context.Context, t *testing.T, b *backend.Backend, modify ...func(*redis.UniversalOptions)) *redis.Client {
	t.Helper()
	addr := b.Nodes[0].Addr
	if b.Cluster {
		n := must[*redis.Client](t)(clusterClient(t, b).MasterForKey(ctx, "{v}"))
		addr = n.Options().Addr
	}
	single, ok := newClient(t, b, append(modify, func(o *redis.UniversalOptions) {
		o.Addrs, o.IsClusterMode = []string{addr}, false
		o.Protocol, o.MaxRetries = 2, -1
	})...).(*redis.Client)
	if !ok {
		t.Fatalf("the client of %s is not a client of one server", addr)
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
	for _, n := range primariesOf(ctx, t, b) {
		slow := n.Client().WithTimeout(time.Minute) // 2 MiB take seconds on a busy machine
		if err := slow.FunctionLoadReplace(ctx, text).Err(); err != nil {
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
	require(t, set(ctx, 0))
	t.Cleanup(func() {
		if err := set(context.Background(), 1); err != nil {
			t.Error(err)
		}
	})
}
