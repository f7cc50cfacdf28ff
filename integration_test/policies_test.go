package integration_test

import (
	"fmt"
	"testing"

	"github.com/ratelimit-functions/ratelimit/functions"
	"github.com/ratelimit-functions/ratelimit/integration_test/backend"
	"github.com/ratelimit-functions/ratelimit/lua_test/policyvectors"
)

// A library with policies replies the same on every server as offline. A library with the largest
// number of policies, with long names and limits, close to the largest possible text, can be
// loaded.
func TestPolicies(t *testing.T) {
	build, err := policyvectors.Build()
	if err != nil {
		t.Fatal(err)
	}
	vectors, err := policyvectors.All(build)
	if err != nil || len(vectors) == 0 {
		t.Fatalf("%d vectors, %v", len(vectors), err)
	}
	eachBackend(t, func(t *testing.T, b *backend.Backend) {
		ctx := testContext(t)
		loadText(ctx, t, b, build.Text())
		stopActiveExpiry(ctx, t, b)
		node := nodeOfVectors(ctx, t, b)
		for _, v := range vectors {
			t.Run(v.Name, func(t *testing.T) {
				if err := b.FlushAll(ctx); err != nil {
					t.Fatal(err)
				}
				runVector(ctx, t, b, node, node, policyvectors.StartUS, v)
			})
		}
		t.Run("info", func(t *testing.T) {
			reply, err := node.FCallRO(ctx, "ratelimit_info", nil).Slice()
			if err != nil || len(reply) != 10 {
				t.Fatalf("%v, %v", reply, err)
			}
			names, _ := reply[7].([]any)
			counts, _ := reply[9].([]any)
			shadows := 0
			for _, p := range policyvectors.Policies {
				if p.Shadow {
					shadows++
				}
			}
			if len(names) != len(policyvectors.Policies) || len(counts) != 2*shadows {
				t.Errorf("policies %v, shadow_denied %v", names, counts)
			}
		})
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
