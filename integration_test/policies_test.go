package integration_test

import (
	"fmt"
	"testing"

	"github.com/ratelimit-functions/ratelimit/functions"
	"github.com/ratelimit-functions/ratelimit/integration_test/backend"
)

// TestPolicies checks that a library with policies replies on every server as it does offline. It
// also loads a library that is close to the maximum size, with the maximum number of policies, long
// names and long limits.
func TestPolicies(t *testing.T) {
	files := must[[]functions.VectorFile](t)(functions.LoadPolicyVectors())
	eachBackend(t, func(t *testing.T, b *backend.Backend) {
		ctx := testContext(t)
		node := nodeOfVectors(ctx, t, b)
		for i, file := range files {
			loadText(ctx, t, b, newBuild(t, file.Policies...).Text())
			runVectors(ctx, t, b, files[i:i+1], moved{ctx, b, node}.Do)
		}
		t.Run("the most policies", func(t *testing.T) {
			loadText(ctx, t, b, largest(t).Text())
			if err := node.FCall(ctx, "ratelimit_take", []string{"{v}:a"}, "@"+nameOf(functions.MostPolicies-1)).Err(); err != nil {
				t.Error(err)
			}
		})
	}, withClock)
}

func nameOf(i int) string { return fmt.Sprintf("%064d", i) }

func largest(t *testing.T) functions.Build {
	t.Helper()
	list := make([]functions.Policy, functions.MostPolicies)
	for i := range list {
		list[i] = functions.Policy{Name: nameOf(i), Limits: []functions.PolicyLimit{{Limit: fmt.Sprintf("sliding_window %d/m buckets=10, 100000/h, %d/d buckets=24, 300000/7d, 400000/30d, 500000/365d", i+1, 100001+i)}}}
	}
	build, err := functions.New(functions.WithPolicies(list...))
	if size := len(build.Text()); err != nil || size < 1_900_000 {
		t.Fatalf("a text of %d bytes, not close to the 2 MiB that a build may have: %v", size, err)
	}
	return build
}
