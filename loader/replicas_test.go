package loader_test

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/ratelimit-functions/ratelimit/loader"
	"github.com/ratelimit-functions/ratelimit/loader/doctor"
	"github.com/ratelimit-functions/ratelimit/loader/nodes"
)

// During a failover, nodes that a cluster lists as primaries may all say that they are replicas: of
// each other, or of themselves. The nodes stay in the report; otherwise it would not show that
// their keys have no primary.
func TestReplicasOfEachOther(t *testing.T) {
	for _, tt := range []struct {
		name    string
		primary [2]int // index of the primary that each node names
	}{
		{"of each other", [2]int{1, 0}}, {"of themselves", [2]int{0, 1}}, {"of the first, and that of itself", [2]int{0, 0}},
	} {
		var addrs [2]string
		for i := range addrs {
			addrs[i] = startFake(t, func(command string) string {
				switch {
				case strings.HasPrefix(command, "HELLO"):
					return hello("redis", "7.0.15", "cluster", "replica")
				case command == "ROLE":
					host, port := hostPort(addrs[tt.primary[i]])
					return resp(list{"slave", host, must[int](t)(strconv.Atoi(port)), "connected", 0})
				case command == "CLUSTER SLOTS":
					var slots list
					for n, addr := range addrs {
						host, port := hostPort(addr)
						slots = append(slots, list{n, n, list{host, must[int](t)(strconv.Atoi(port))}})
					}
					return resp(slots)
				}
				return healthy(command)
			})
		}
		l := newLoader(t, at(t, addrs[0]))
		report, err := l.Deploy(t.Context(), build(t), loader.Options{})
		if err == nil || len(report.Nodes) != 2 || strings.Count(err.Error(), "read-only replica") == 0 {
			t.Errorf("%s: deploy: %v\n%s", tt.name, err, states(report))
		}
		got := findings(must[doctor.Diagnosis](t)(doctor.Examine(t.Context(), at(t, addrs[0]), time.Minute, nil)))
		for _, addr := range addrs {
			if !strings.Contains(got, found("writes", addr, nodes.ErrReadOnly)) {
				t.Errorf("%s: doctor does not look at %s:\n%s", tt.name, addr, got)
			}
		}
	}
}
