package loader_test

import (
	"context"
	"errors"
	"reflect"
	"sync"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/ratelimit-functions/ratelimit/loader"
	"github.com/ratelimit-functions/ratelimit/loader/nodes"
)

// Primaries that a cluster lists only after a deployment has begun get the build, or make the
// deployment fail on all nodes.
func TestPrimariesThatComeMeanwhile(t *testing.T) {
	newest := version("0.9.0", "000000000009")
	for _, tt := range []struct {
		name  string
		holds loader.Text // library on the new primary
		dies  bool        // whether another server stops when the new one joins
		want  error
		runs  [3]string
	}{
		{"an empty one", "", false, nil, [3]string{"00000000000b", "00000000000b", "00000000000b"}},
		{"one that has the build from its former primary", buildB, false, nil, [3]string{"00000000000b", "00000000000b", "00000000000b"}},
		{"one that has what the others had", buildA, false, nil, [3]string{"00000000000b", "00000000000b", "00000000000b"}},
		{"one that refuses the build", newest, false, loader.ErrDowngrade, [3]string{"00000000000a", "00000000000a", "000000000009"}},
		{"the replica of one that got the build and died", buildB, true, nodes.ErrUnreachable, [3]string{"00000000000a", "", "00000000000a"}},
		{"the replica of one that died before it got the build", buildA, true, nodes.ErrUnreachable, [3]string{"00000000000a", "", "00000000000a"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := startThree(t, redis.Options{})
			listed := 2
			var mu sync.Mutex
			cluster := redis.NewClusterClient(&redis.ClusterOptions{ClusterSlots: func(context.Context) ([]redis.ClusterSlot, error) {
				mu.Lock()
				defer mu.Unlock()
				var slots []redis.ClusterSlot
				for i, addr := range f.addrs[:listed] {
					slots = append(slots, redis.ClusterSlot{Start: i, End: i, Nodes: []redis.ClusterNode{{Addr: addr}}})
				}
				return slots, nil
			}})
			t.Cleanup(func() { _ = cluster.Close() })
			must[loader.Report](t)(newLoader(t, cluster).Deploy(t.Context(), buildA, loader.Options{}))
			if tt.holds != "" {
				put(t, f.addrs[2], string(tt.holds))
			}
			l := newLoader(t, cluster, trace(func(node, command string) {
				if node == f.addrs[1] && command == "FUNCTION LOAD REPLACE ratelimit" {
					mu.Lock()
					defer mu.Unlock()
					if listed = 3; tt.dies {
						f.stop[1]()
					}
				}
			}))
			report, err := l.Deploy(t.Context(), buildB, loader.Options{})
			if !errors.Is(err, tt.want) || len(report.Nodes) != 3 {
				t.Errorf("%v\n%s", err, states(report))
			}
			want := map[string]string{}
			for i, addr := range f.addrs {
				if tt.runs[i] != "" {
					want[addr] = tt.runs[i]
				}
			}
			if got := builds(t, f.addrs); !reflect.DeepEqual(got, want) {
				t.Errorf("%v, want %v; %v\n%s", got, want, err, states(report))
			}
			for _, n := range report.Nodes {
				if n.Err == nil && n.Running.BuildID != want[n.Addr] {
					t.Errorf("%+v", n)
				}
			}
		})
	}
}
