package loader_test

import (
	"encoding/json"
	"flag"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/ratelimit-functions/ratelimit/loader"
	"github.com/ratelimit-functions/ratelimit/loader/nodes"
	"github.com/ratelimit-functions/ratelimit/loader/protocol"
)

// tracing collects the protocol steps of Loaders.
type tracing struct {
	mu    sync.Mutex
	steps []protocol.Step
}

func (tr *tracing) option() option {
	return steps(func(s protocol.Step) {
		tr.mu.Lock()
		defer tr.mu.Unlock()
		tr.steps = append(tr.steps, s)
	})
}

// traced runs deployments, an undo, a takeover, a rollback, a deletion and a watch, and returns their
// steps.
func traced(t *testing.T) []protocol.Step {
	t.Helper()
	f := startThree(t, redis.Options{})
	ctx := t.Context()
	tr := &tracing{}
	l := newLoader(t, f.ring, tr.option())
	must[loader.Report](t)(l.Deploy(ctx, set(t, "api 1/m"), loader.Options{}))
	must[loader.Report](t)(in(t, f.ring, "team", tr.option()).Deploy(ctx, set(t, "team/x 1/m"), loader.Options{}))
	must[loader.Report](t)(l.Deploy(ctx, set(t, "api 2/m"), loader.Options{}))
	must[loader.Report](t)(l.Rollback(ctx, loader.Options{}))

	// The second server refuses the build.
	var once sync.Once
	fails := newLoader(t, f.ring, tr.option(), trace(func(node, command string) {
		if node == f.addrs[1] && command == "FUNCTION LOAD REPLACE ratelimit" {
			once.Do(func() {
				mustRun(t, at(t, node), "FUNCTION", "LOAD", "#!lua name=mine\nredis.register_function('ratelimit_usage2', function() return 1 end)")
				mustRun(t, at(t, node), "CONFIG", "SET", "maxmemory", "1")
			})
		} else if node == f.addrs[1] && strings.HasPrefix(command, "FUNCTION LOAD ratelimit_fence_") {
			mustRun(t, at(t, node), "CONFIG", "SET", "maxmemory", "0")
		}
	}))
	report, err := fails.Deploy(ctx, set(t, "api 3/m"), loader.Options{})
	if want(t, "undo", err, nodes.ErrNotWritable); !report.Nodes[0].PutBack {
		t.Errorf("%s", states(report))
	}
	allRun(t, f.addrs, "api 1/m, team/x 1/m")

	// A deployer loses its leases to another one before its first write.
	var slow sync.Once
	late := newLoader(t, f.ring, tr.option(), trace(func(_, command string) {
		if command == "FUNCTION LOAD REPLACE ratelimit" {
			slow.Do(func() {
				for _, addr := range f.addrs {
					expire(t, addr)
				}
				must[loader.Report](t)(l.Deploy(ctx, set(t, "api 4/m"), loader.Options{}))
			})
		}
	}))
	_, err = late.Deploy(ctx, set(t, "api 5/m"), loader.Options{})
	want(t, "late", err, loader.ErrOvertaken)
	allRun(t, f.addrs, "api 4/m, team/x 1/m")

	mustRun(t, at(t, f.addrs[2]), "FUNCTION", "FLUSH")
	require(t, newLoader(t, f.ring, tr.option()).Repair(ctx, set(t, "api 9/m")))
	allRun(t, f.addrs, "api 4/m, team/x 1/m")
	must[loader.Report](t)(l.Delete(ctx, loader.Options{}))
	return tr.steps
}

var update = flag.Bool("update", false, "rewrite protocol/testdata/trace.jsonl, in which the tests of protocol break each rule")

func TestTraces(t *testing.T) {
	steps := traced(t)
	require(t, protocol.Check(steps))
	// The same is true of a trace that was written to a file.
	var written strings.Builder
	for _, s := range steps {
		require(t, json.NewEncoder(&written).Encode(s))
	}
	if *update {
		require(t, os.WriteFile("protocol/testdata/trace.jsonl", []byte(written.String()), 0o644))
	}
	var read []protocol.Step
	for lines := json.NewDecoder(strings.NewReader(written.String())); lines.More(); {
		var s protocol.Step
		require(t, lines.Decode(&s))
		read = append(read, s)
	}
	require(t, protocol.Check(read))
	outcomes := map[string]int{}
	for _, s := range steps {
		if s.Op == protocol.End {
			outcomes[s.Outcome]++
		}
	}
	if outcomes[protocol.Succeeded] != 6 || outcomes[protocol.Undone] != 1 || outcomes[protocol.Nothing] != 1 || outcomes[protocol.Unknown] != 1 {
		t.Errorf("%v", outcomes)
	}
}
