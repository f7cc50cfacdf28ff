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

// TestCheckOfSteps checks what the recorded deployments do not contain. In each trace, a call named c leases and
// reads the node n, and goes on with the steps of the row. rule is the rule that these break, or "".
func TestCheckOfSteps(t *testing.T) {
	type parts = map[string]Part
	mine, mail, older := Part{Number: 9, Value: "mine"}, Part{Number: 7, Value: "mail"}, Part{Number: 6, Value: "older"}
	unnumbered := Part{Value: "unnumbered"}
	nodes := []string{"n"}
	lease, read := Step{Op: Lease, Addr: "n"}, func(t parts) Step { return Step{Op: Read, Addr: "n", Text: t, Highest: 8} }
	deploy := func(t parts) Step {
		return Step{Op: Number, Number: 9, Mine: []string{"mine"}, Nodes: nodes, Text: t}
	}
	watch := func(t parts) Step { return Step{Op: Number, Nodes: nodes, Text: t} }
	checked := Step{Op: Checked, Addr: "n"}
	write := func(t parts) Step { return Step{Op: Write, Addr: "n", Name: "c", Text: t} }
	undoing := func(t parts) Step { return Step{Op: Write, Addr: "n", Name: "c" + UndoSuffix, Text: t} }
	fence := Step{Op: Fence, Addr: "n", Name: "c"}
	// lost is a deployment whose lease was lost and taken again before the write, which then read t.
	lost := func(had, t parts) []Step {
		all := maps.Clone(had)
		if all == nil {
			all = parts{}
		}
		all["mine"] = mine
		return []Step{lease, read(had), deploy(all), lease, read(t), write(all)}
	}
	of := func(call string, s Step) Step { s.Call = call; return s }
	for name, tt := range map[string]struct {
		steps []Step
		rule  string
	}{
		"the number is one above the highest": {[]Step{lease, read(nil), deploy(parts{"mine": mine})}, ""},
		"a step without a call before":        {[]Step{write(nil)}, "rule 4,"},

		"a part that another call deployed": {[]Step{lease, read(nil), of("d", Step{Op: Number, Number: 1, ClockMS: 1, Mine: []string{"mail"}, Text: parts{"mail": {Number: 1}}}), watch(parts{"mail": {Number: 1}})}, ""},
		"a part that another call read":     {[]Step{lease, read(nil), of("d", read(parts{"mail": mail})), watch(parts{"mail": mail})}, ""},
		"a part of another call's undo":     {[]Step{lease, read(nil), of("d", Step{Op: Number, Number: 1, ClockMS: 1}), of("d", Step{Op: Undo, Text: parts{"mail": mail}}), watch(parts{"mail": mail})}, ""},
		"a part that both calls read":       {[]Step{of("d", read(parts{"mail": mail})), lease, read(parts{"mail": mail}), read(nil), watch(parts{"mail": mail})}, ""},
		"a part that only this call read":   {[]Step{lease, read(parts{"mail": mail}), read(parts{"mail": mail}), read(nil), watch(parts{"mail": mail})}, "rule 11,"},
		"a part that a watch names":         {[]Step{lease, read(parts{"mail": mail}), of("d", Step{Op: Number, Text: parts{"mail": mail}}), read(nil), watch(parts{"mail": mail})}, "rule 11,"},
		"a part without a number":           {[]Step{lease, read(nil), watch(parts{"mail": unnumbered})}, ""},

		"a deployment loses a part without a number": {[]Step{lease, read(parts{"mail": unnumbered}), deploy(parts{"mine": mine})}, "rule 2,"},
		"a watch replaces a part without a number":   {[]Step{lease, read(parts{"mail": unnumbered}), watch(parts{"mail": {Value: "x"}})}, ""},
		"a watch loses a part":                       {[]Step{lease, read(parts{"mail": mail}), watch(nil)}, "rule 11,"},
		"the older of two parts":                     {[]Step{lease, read(parts{"mail": mail}), {Op: Lease, Addr: "m"}, {Op: Read, Addr: "m", Text: parts{"mail": older}}, {Op: Number, Nodes: []string{"n", "m"}, Text: parts{"mail": older}}}, "rule 11,"},
		"the newer of two parts":                     {[]Step{lease, read(parts{"mail": mail}), {Op: Lease, Addr: "m"}, {Op: Read, Addr: "m", Text: parts{"mail": older}}, {Op: Number, Nodes: []string{"n", "m"}, Text: parts{"mail": mail}}}, ""},
		"either of two parts with one number":        {[]Step{lease, read(parts{"mail": {Number: 7}}), {Op: Lease, Addr: "m"}, {Op: Read, Addr: "m", Text: parts{"mail": mail}}, {Op: Number, Nodes: []string{"n", "m"}, Text: parts{"mail": {Number: 7}}}}, ""},

		"a new part that replaced something": {[]Step{lease, read(nil), deploy(parts{"mine": {Number: 9, Replaced: "x"}})}, "rule 6,"},
		"a deletion of what is not there":    {[]Step{lease, read(parts{"mine": mail}), {Op: Number, Number: 9, What: Delete, Mine: []string{"mine"}, Nodes: nodes, Text: parts{"mine": {Number: 9, Replaced: "x"}}}}, "rule 6,"},
		"a deletion that forgets":            {[]Step{lease, read(parts{"mine": mail}), {Op: Number, Number: 9, What: Delete, Mine: []string{"mine"}, Nodes: nodes, Text: parts{"mine": {Number: 9}}}}, ""},

		"a lost lease, and nothing new":             {lost(nil, nil), ""},
		"a lost lease, and the write is there":      {lost(parts{"mail": mail}, parts{"mail": mail, "mine": mine}), ""},
		"a lost lease, and a new part":              {lost(nil, parts{"mail": mail}), "rule 7,"},
		"a lost lease, and an empty part":           {lost(nil, parts{"mail": {}}), ""},
		"a lost lease, and a newer part":            {lost(parts{"mail": older}, parts{"mail": mail}), "rule 7,"},
		"a lost lease, and another part as new":     {lost(parts{"mail": mail}, parts{"mail": {Number: 7, Value: "x"}}), "rule 7,"},
		"a lost lease, and the same part":           {lost(parts{"mail": mail}, parts{"mail": mail}), ""},
		"a lost lease, and an older part":           {lost(parts{"mail": mail}, parts{"mail": older}), ""},
		"a lost lease, and a part without a number": {lost(parts{"mail": unnumbered}, parts{"mail": {Value: "x"}}), ""},

		"an undo that nobody began": {[]Step{lease, read(nil), deploy(parts{"mine": mine}), checked, write(parts{"mine": mine}), fence, checked, undoing(nil)}, "rule 9,"},
		"an undo to nothing":        {[]Step{lease, read(nil), deploy(parts{"mine": mine}), {Op: Undo, Text: parts{"mine": {Number: 10}}}}, ""},
		"an undo to another value":  {[]Step{lease, read(parts{"mine": mail}), deploy(parts{"mine": {Number: 9, Replaced: "mail"}}), {Op: Undo, Text: parts{"mine": {Number: 10, Value: "x"}}}}, "rule 9,"},
		"an undo that makes up":     {[]Step{lease, read(nil), deploy(parts{"mine": mine}), {Op: Undo, Text: parts{"mine": {Number: 10, Value: "x"}}}}, "rule 9,"},
	} {
		for i := range tt.steps {
			if tt.steps[i].Call == "" {
				tt.steps[i].Call = "c"
			}
		}
		if err := Check(tt.steps); tt.rule == "" && err != nil || tt.rule != "" && (err == nil || !strings.Contains(err.Error(), ": "+tt.rule)) {
			t.Errorf("%s: %v, want %q", name, err, tt.rule)
		}
	}
}
