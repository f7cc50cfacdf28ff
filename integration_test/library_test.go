package integration_test

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/ratelimit-functions/ratelimit/functions"
	"github.com/ratelimit-functions/ratelimit/integration_test/backend"
)

// TestLibraryLoadsWithRedisCLI checks that redis-cli alone can load functions/ratelimit.lua, and
// that every server then stores it byte for byte.
func TestLibraryLoadsWithRedisCLI(t *testing.T) {
	eachBackend(t, func(t *testing.T, b *backend.Backend) {
		ctx := testContext(t)
		for _, n := range primariesOf(ctx, t, b) {
			for range 2 { // the second load succeeds because of REPLACE
				if got := loadWithRedisCLI(ctx, t, n.Addr); got != functions.Name {
					t.Fatalf("%s: FUNCTION LOAD answers %q, want %q", n, got, functions.Name)
				}
			}
		}
		for _, n := range b.Nodes {
			checkLibrary(ctx, t, n)
		}
	})
}

func loadWithRedisCLI(ctx context.Context, t *testing.T, addr string) string {
	t.Helper()
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		t.Fatal(err)
	}
	file := must[*os.File](t)(os.Open("../functions/ratelimit.lua"))
	defer file.Close()
	cmd := exec.CommandContext(ctx, "redis-cli", "-h", host, "-p", port, "-x", "FUNCTION", "LOAD", "REPLACE")
	cmd.Stdin = file
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("redis-cli: %v: %s", err, out)
	}
	return strings.TrimSpace(string(out))
}

// checkLibrary waits until a node, possibly a replica, has a library, and checks the library.
func checkLibrary(ctx context.Context, t *testing.T, n *backend.Node) {
	t.Helper()
	var libraries []redis.Library
	waitFor(ctx, t, n.String()+" to list one library", func() (err error) {
		libraries, err = n.Client().FunctionList(ctx, redis.FunctionListQuery{WithCode: true}).Result()
		if err == nil && len(libraries) != 1 {
			err = fmt.Errorf("FUNCTION LIST has %d libraries", len(libraries))
		}
		return err
	})
	if libraries[0].Name != functions.Name {
		t.Errorf("%s: the library is %s, want %s", n, libraries[0].Name, functions.Name)
	}
	if libraries[0].Code != functions.Source() {
		t.Errorf("%s: its code is not functions.Source()", n)
	}
	flags := map[string][]string{}
	for _, f := range libraries[0].Functions {
		flags[f.Name] = f.Flags
		if f.Description == "" {
			t.Errorf("%s: %s has no description", n, f.Name)
		}
	}
	for _, want := range []struct {
		function string
		readOnly bool // can be called with FCALL_RO, and on replicas
		underOOM bool // can be called when memory is full
	}{
		{"ratelimit_take", false, false},
		{"ratelimit_peek", true, false},
		{"ratelimit_reset", false, true},
		{"ratelimit_refund", false, false},
		{"ratelimit_block", false, true},
		{"ratelimit_unblock", false, true},
		{"ratelimit_override", false, true},
		{"ratelimit_override_end", false, true},
		{"ratelimit_acquire", false, false},
		{"ratelimit_renew", false, true},
		{"ratelimit_release", false, true},
		{"ratelimit_usage", true, false},
		{"ratelimit_info", true, false},
	} {
		got, found := flags[want.function]
		if !found {
			t.Errorf("%s: there is no function %s", n, want.function)
			continue
		}
		if slices.Contains(got, "no-writes") != want.readOnly || slices.Contains(got, "allow-oom") != want.underOOM {
			t.Errorf("%s: %s has the flags %v", n, want.function, got)
		}
	}
}
