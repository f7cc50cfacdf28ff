package protocol

import (
	"encoding/json"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
)

// recorded returns the steps of the deployments in TestTraces of package loader. If these change,
// `go test ./loader -run TestTraces -update` records them again.
func recorded(t *testing.T) []Step {
	t.Helper()
	file, err := os.Open("testdata/trace.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	var steps []Step
	for lines := json.NewDecoder(file); lines.More(); {
		var s Step
		if err := lines.Decode(&s); err != nil {
			t.Fatal(err)
		}
		steps = append(steps, s)
	}
	return steps
}

func TestCheck(t *testing.T) {
	steps := recorded(t)
	if err := Check(steps); err != nil {
		t.Fatal(err)
	}

	// The checker finds each of these broken twins.
	without := func(op Op, nth int) []Step {
		count := 0
		return slices.DeleteFunc(slices.Clone(steps), func(s Step) bool {
			if s.Op == op {
				count++
			}
			return s.Op == op && count == nth
		})
	}
	changed := func(op Op, is func(Step) bool, change func(*Step)) []Step {
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
	any := func(Step) bool { return true }
	deploys := func(s Step) bool { return s.Number > 0 && len(s.Mine) > 0 }
	ends := func(outcome string) func(Step) bool {
		return func(s Step) bool { return s.Outcome == outcome }
	}
	undoing := func(s Step) bool { return strings.HasSuffix(s.Name, UndoSuffix) }
	whats := func(what string) func(Step) bool {
		return func(s Step) bool { return s.What == what && len(s.Mine) > 0 }
	}
	part := func(change func(*Part)) func(*Step) {
		return func(s *Step) {
			p := s.Text[s.Mine[0]]
			change(&p)
			s.Text[s.Mine[0]] = p
		}
	}
	keeps := func(s Step) bool { return len(s.Mine) > 0 && s.Text[s.Mine[0]].Replaced != "" }
	found := map[string]bool{}
	for name, tt := range map[string]struct {
		steps []Step
		rule  string
	}{
		"a text with another name":             {changed(Write, any, func(s *Step) { s.Name = "another" }), "rule 1,"},
		"a node is read before its lease":      {without(Read, 4), "rule 4,"}, // the first deployment reads three nodes before
		"a part that keeps nothing":            {changed(Number, keeps, part(func(p *Part) { p.Replaced = "" })), "rule 6,"},
		"a rollback to something else":         {changed(Number, whats(Rollback), part(func(p *Part) { p.Value = "x" })), "rule 12,"},
		"a delete without a tombstone":         {changed(Number, whats(Delete), part(func(p *Part) { p.Value = "x" })), "rule 12,"},
		"a watch that makes up a part":         {changed(Number, func(s Step) bool { return s.Number == 0 }, func(s *Step) { s.Text["mail"] = Part{Number: 7} }), "rule 11,"},
		"no lease":                             {without(Lease, 1), "rule 3,"},
		"a lease that is not checked":          {without(Checked, 1), "rule 7,"},
		"a takeover without a fence":           {without(Fence, firstOfTakeover(steps)), "rule 10,"},
		"the number is not above the clock":    {changed(Number, deploys, func(s *Step) { s.ClockMS = s.Number + 1 }), "rule 5,"},
		"the number is not above the others":   {changed(Read, any, func(s *Step) { s.Highest = 1 << 50 }), "rule 5,"},
		"a part gets lost":                     {changed(Number, func(s Step) bool { return len(s.Text) > 1 && !slices.Contains(s.Mine, "team") }, func(s *Step) { s.Text["team"] = Part{Number: 1} }), "rule 2,"},
		"the part has another number":          {changed(Number, deploys, func(s *Step) { s.Text[s.Mine[0]] = Part{Number: 1} }), "rule 5,"},
		"another text is written":              {changed(Write, any, func(s *Step) { s.Text[""] = Part{Number: 1} }), "rule 6,"},
		"success without reading again":        {changed(End, ends(Succeeded), func(s *Step) { s.Nodes = append(slices.Clone(s.Nodes), "another:1") }), "rule 8,"},
		"an undo with the old number":          {changed(Undo, any, func(s *Step) { p := s.Text[""]; p.Number--; s.Text[""] = p }), "rule 9,"},
		"an undo that keeps the failed build":  {changed(Undo, any, func(s *Step) { p := s.Text[""]; p.Replaced = "x"; s.Text[""] = p }), "rule 9,"},
		"an undo without a fence":              {without(Fence, 1), "rule 9,"},
		"an undo of the written nodes only":    {changed(End, ends(Undone), func(s *Step) { s.Nodes = append(slices.Clone(s.Nodes), "another:1") }), "rule 9,"},
		"an undo that is called a success":     {changed(End, ends(Undone), func(s *Step) { s.Outcome = Succeeded }), "rule 8,"},
		"released with an unknown outcome":     {without(Wrote, 1), "rule 10,"},
		"an undo with the name of the writes":  {changed(Write, undoing, func(s *Step) { s.Name = strings.TrimSuffix(s.Name, UndoSuffix) }), "rule 10,"},
		"a watch that gives its file a number": {changed(Number, func(s Step) bool { return s.Number == 0 }, func(s *Step) { s.Text[""] = Part{Number: 1 << 49} }), "rule 11,"},
	} {
		if err := Check(tt.steps); err == nil || !strings.HasPrefix(err.Error()[strings.LastIndex(err.Error(), ": rule")+2:], tt.rule) {
			t.Errorf("%s: %v, want %s", name, err, tt.rule)
		}
		found[tt.rule] = true
	}
	if len(found) != 12 {
		t.Errorf("the traces break %d rules of 12: %v", len(found), found)
	}
}

// firstOfTakeover returns the number of the first fence that is against another call.
func firstOfTakeover(steps []Step) int {
	count := 0
	for _, s := range steps {
		if s.Op == Fence {
			if count++; !strings.HasPrefix(s.Name, s.Call) {
				return count
			}
		}
	}
	return 0
}
