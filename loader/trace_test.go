package loader_test

import (
	"encoding/json"
	"maps"
	"slices"
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

func TestTraces(t *testing.T) {
	steps := traced(t)
	require(t, protocol.Check(steps))
	// The same is true of a trace that was written to a file.
	var read []protocol.Step
	require(t, json.Unmarshal(must[[]byte](t)(json.Marshal(steps)), &read))
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

	// The checker finds each of these broken twins.
	without := func(op protocol.Op, nth int) []protocol.Step {
		count := 0
		return slices.DeleteFunc(slices.Clone(steps), func(s protocol.Step) bool {
			if s.Op == op {
				count++
			}
			return s.Op == op && count == nth
		})
	}
	changed := func(op protocol.Op, is func(protocol.Step) bool, change func(*protocol.Step)) []protocol.Step {
		list := slices.Clone(steps)
		for i := range list {
			if list[i].Op == op && is(list[i]) {
				list[i].Text = maps.Clone(list[i].Text)
				change(&list[i])
				return list
			}
		}
		t.Fatalf("no step %s", op)
		return nil
	}
	any := func(protocol.Step) bool { return true }
	deploys := func(s protocol.Step) bool { return s.Number > 0 && len(s.Mine) > 0 }
	ends := func(outcome string) func(protocol.Step) bool {
		return func(s protocol.Step) bool { return s.Outcome == outcome }
	}
	undoing := func(s protocol.Step) bool { return strings.HasSuffix(s.Name, protocol.UndoSuffix) }
	whats := func(what string) func(protocol.Step) bool {
		return func(s protocol.Step) bool { return s.What == what && len(s.Mine) > 0 }
	}
	part := func(change func(*protocol.Part)) func(*protocol.Step) {
		return func(s *protocol.Step) {
			p := s.Text[s.Mine[0]]
			change(&p)
			s.Text[s.Mine[0]] = p
		}
	}
	keeps := func(s protocol.Step) bool { return len(s.Mine) > 0 && s.Text[s.Mine[0]].Replaced != "" }
	found := map[string]bool{}
	for name, tt := range map[string]struct {
		steps []protocol.Step
		rule  string
	}{
		"a text with another name":             {changed(protocol.Write, any, func(s *protocol.Step) { s.Name = "another" }), "rule 1,"},
		"a node is read before its lease":      {without(protocol.Read, 4), "rule 4,"}, // the first deployment reads three nodes before
		"a part that keeps nothing":            {changed(protocol.Number, keeps, part(func(p *protocol.Part) { p.Replaced = "" })), "rule 6,"},
		"a rollback to something else":         {changed(protocol.Number, whats(protocol.Rollback), part(func(p *protocol.Part) { p.Value = "x" })), "rule 12,"},
		"a delete without a tombstone":         {changed(protocol.Number, whats(protocol.Delete), part(func(p *protocol.Part) { p.Value = "x" })), "rule 12,"},
		"a watch that makes up a part":         {changed(protocol.Number, func(s protocol.Step) bool { return s.Number == 0 }, func(s *protocol.Step) { s.Text["mail"] = protocol.Part{Number: 7} }), "rule 11,"},
		"no lease":                             {without(protocol.Lease, 1), "rule 3,"},
		"a lease that is not checked":          {without(protocol.Checked, 1), "rule 7,"},
		"a takeover without a fence":           {without(protocol.Fence, firstOfTakeover(steps)), "rule 10,"},
		"the number is not above the clock":    {changed(protocol.Number, deploys, func(s *protocol.Step) { s.ClockMS = s.Number + 1 }), "rule 5,"},
		"the number is not above the others":   {changed(protocol.Read, any, func(s *protocol.Step) { s.Highest = 1 << 50 }), "rule 5,"},
		"a part gets lost":                     {changed(protocol.Number, func(s protocol.Step) bool { return len(s.Text) > 1 && !slices.Contains(s.Mine, "team") }, func(s *protocol.Step) { s.Text["team"] = protocol.Part{Number: 1} }), "rule 2,"},
		"the part has another number":          {changed(protocol.Number, deploys, func(s *protocol.Step) { s.Text[s.Mine[0]] = protocol.Part{Number: 1} }), "rule 5,"},
		"another text is written":              {changed(protocol.Write, any, func(s *protocol.Step) { s.Text[""] = protocol.Part{Number: 1} }), "rule 6,"},
		"success without reading again":        {changed(protocol.End, ends(protocol.Succeeded), func(s *protocol.Step) { s.Nodes = append(slices.Clone(s.Nodes), "another:1") }), "rule 8,"},
		"an undo with the old number":          {changed(protocol.Undo, any, func(s *protocol.Step) { p := s.Text[""]; p.Number--; s.Text[""] = p }), "rule 9,"},
		"an undo that keeps the failed build":  {changed(protocol.Undo, any, func(s *protocol.Step) { p := s.Text[""]; p.Replaced = "x"; s.Text[""] = p }), "rule 9,"},
		"an undo without a fence":              {without(protocol.Fence, 1), "rule 9,"},
		"an undo of the written nodes only":    {changed(protocol.End, ends(protocol.Undone), func(s *protocol.Step) { s.Nodes = append(slices.Clone(s.Nodes), "another:1") }), "rule 9,"},
		"an undo that is called a success":     {changed(protocol.End, ends(protocol.Undone), func(s *protocol.Step) { s.Outcome = protocol.Succeeded }), "rule 8,"},
		"released with an unknown outcome":     {without(protocol.Wrote, 1), "rule 10,"},
		"an undo with the name of the writes":  {changed(protocol.Write, undoing, func(s *protocol.Step) { s.Name = strings.TrimSuffix(s.Name, protocol.UndoSuffix) }), "rule 10,"},
		"a watch that gives its file a number": {changed(protocol.Number, func(s protocol.Step) bool { return s.Number == 0 }, func(s *protocol.Step) { s.Text[""] = protocol.Part{Number: 1 << 49} }), "rule 11,"},
	} {
		if err := protocol.Check(tt.steps); err == nil || !strings.HasPrefix(err.Error()[strings.LastIndex(err.Error(), ": rule")+2:], tt.rule) {
			t.Errorf("%s: %v, want %s", name, err, tt.rule)
		}
		found[tt.rule] = true
	}
	if len(found) != 12 {
		t.Errorf("the traces break %d rules of 12: %v", len(found), found)
	}
}

// firstOfTakeover returns the number of the first fence that is against another call.
func firstOfTakeover(steps []protocol.Step) int {
	count := 0
	for _, s := range steps {
		if s.Op == protocol.Fence {
			if count++; !strings.HasPrefix(s.Name, s.Call) {
				return count
			}
		}
	}
	return 0
}
