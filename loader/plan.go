package loader

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"strings"

	"github.com/rogpeppe/go-internal/diff"

	"github.com/ratelimit-functions/ratelimit/functions"
	"github.com/ratelimit-functions/ratelimit/loader/text"
)

// Action is the action that a deployment would take on a node.
type Action string

const (
	// Nothing means that the node already runs the build.
	Nothing Action = "nothing"

	// Load means that the node does not have the library and would get it.
	Load Action = "load"

	// Replace means that the build would replace the library on the node.
	Replace Action = "replace"

	// Refuse means that the build would not be loaded; Node.Err says why.
	Refuse Action = "refuse"
)

// Change is one function, policy, canary or source file that a deployment would add, remove or
// change.
type Change struct {
	Kind string `json:"kind"` // "function", "policy", "canary", or "source" for a file of the library's source
	Name string `json:"name"` // for a canary, the name of its policy
	What string `json:"what"` // "added", "removed" or "changed"

	// Old and New are the limits of a policy before and after the deployment. For a canary, they
	// contain its share and its limits, as in "5% of the keys: 60/m", or only the part that
	// changes.
	Old string `json:"old,omitempty"`
	New string `json:"new,omitempty"`

	// Keys describes the effect on keys in use, if a policy or a canary changes and [WithEffects]
	// is given: "carry over: after 50 units of 100, 50 of 100 are left", "start anew", or "denied,
	// for up to 1h".
	Keys string `json:"keys_in_use,omitempty"`
}

// NodePlan describes what a deployment would do on one node; Node.Changes lists what it would
// change.
type NodePlan struct {
	Node   Node   `json:"node"`
	Action Action `json:"action"`

	// Diff is the change to the library's source code, as `diff -u` shows it; empty unless the node
	// runs a different library.
	Diff string `json:"diff,omitempty"`
}

// Plan describes what a deployment would change. It is not modified after it is returned.
type Plan struct {
	Topology Topology   `json:"topology"`
	Wanted   Library    `json:"wanted"`
	Nodes    []NodePlan `json:"nodes"` // every primary, by address

	// Notes are remarks, such as that a rollback would undo a rollback.
	Notes []*Error `json:"notes,omitempty"`
}

// Empty reports whether there is nothing to change. A Plan without nodes is not empty.
func (p Plan) Empty() bool {
	return len(p.Nodes) > 0 && !slices.ContainsFunc(p.Nodes, func(n NodePlan) bool { return n.Action != Nothing })
}

// Plan inspects every primary and returns what [Loader.Deploy] would change there. It changes
// nothing, and does not need permission to load libraries. With that permission, Plan also detects
// a node that is out of memory or rejects writes.
//
// The Plan is complete even if there is an error. The error is then a [*PartialError] that lists
// the nodes that do not reply or would refuse the build, with all reasons.
func (l *Loader) Plan(ctx context.Context, build Build, o Options) (Plan, error) {
	g, err := l.readBuild(build)
	if err != nil {
		return Plan{}, err
	}
	g.foreign = o.ReplaceForeign
	s := l.session()
	defer s.close()
	return s.look(ctx, g).plan(ctx, o)
}

func (f *fleet) plan(ctx context.Context, o Options) (Plan, error) {
	f.check(ctx, o, false)
	each(f.filter(func(m *member) bool { return m.node.Err == nil && m.node.State != Same }), func(m *member) {
		if err := m.probe(ctx); !errors.Is(err, ErrNoPermission) {
			m.node.Err = err
		}
	})
	f.compare(f.members)
	want := f.want
	plan := f.planned()
	diffs := map[string]string{} // by digest of the running library
	for i, m := range f.members {
		n := &plan.Nodes[i]
		if n.Node.State == Different {
			if diffs[n.Node.Running.Digest] == "" {
				diffs[n.Node.Running.Digest] = unified(n.Node.Running.String(), want.Library.String(), text.Body(m.source), want.text)
			}
			n.Diff = diffs[n.Node.Running.Digest]
		}
		switch {
		case n.Node.Err != nil:
		case n.Node.State == Same:
			n.Action = Nothing
		case n.Node.State == Absent:
			n.Action = Load
		default:
			n.Action = Replace
		}
	}
	return plan, f.err(opPlan)
}

func (f *fleet) planned() Plan {
	plan := Plan{Topology: f.report.Topology, Wanted: f.want.Library, Notes: f.report.Notes}
	for _, n := range f.report.Nodes {
		plan.Nodes = append(plan.Nodes, NodePlan{Node: n, Action: Refuse})
	}
	return plan
}

// unified returns the difference between oldText and newText as `diff -u` shows it, with three
// lines of context, or "" if they are equal. It takes nearly linear time.
func unified(oldName, newName, oldText, newText string) string {
	text := diff.Diff(oldName, []byte(oldText), newName, []byte(newText))
	return strings.TrimPrefix(string(text), "diff "+oldName+" "+newName+"\n")
}

// compare sets Node.Changes of the members that do not run the build.
func (f *fleet) compare(members []*member) {
	found := map[string][]Change{} // by digest of the running library
	for _, m := range members {
		if m.node.State != Different && m.node.State != Absent {
			continue
		}
		if found[m.node.Before.Digest] == nil {
			found[m.node.Before.Digest] = withKeys(changes(text.Body(m.source), f.want.text), f.effectsOn(m))
		}
		m.node.Changes = found[m.node.Before.Digest]
	}
}

// withKeys sets Change.Keys in changes of policies and canaries. effects has the effects by policy
// name. If a policy and its canary both change, withKeys sets Keys only in the first of the two
// changes.
func withKeys(list []Change, effects map[string]functions.Effect) []Change {
	said := map[string]bool{}
	for i, c := range list {
		if (c.Kind == "policy" && c.What == "changed" || c.Kind == "canary") && !said[c.Name] {
			list[i].Keys, said[c.Name] = effects[c.Name].Keys, true
		}
	}
	return list
}

func changes(before, after string) []Change {
	list := slices.Concat(differences("function", bodies(before), bodies(after)),
		differences("policy", policiesOf(before), policiesOf(after)), canaryChanges(canariesOf(before), canariesOf(after)))
	if before != "" {
		list = append(list, differences("source", sources(before), sources(after))...)
	}
	for i := range list {
		if list[i].Kind == "function" || list[i].Kind == "source" {
			list[i].Old, list[i].New = "", ""
		}
	}
	return list
}

func differences(kind string, before, after map[string]string) []Change {
	var list []Change
	for name, text := range after {
		if old, ok := before[name]; !ok {
			list = append(list, Change{Kind: kind, Name: name, What: "added", New: text})
		} else if old != text {
			list = append(list, Change{Kind: kind, Name: name, What: "changed", Old: old, New: text})
		}
	}
	for name, text := range before {
		if _, ok := after[name]; !ok {
			list = append(list, Change{Kind: kind, Name: name, What: "removed", Old: text})
		}
	}
	slices.SortFunc(list, func(a, b Change) int { return cmp.Compare(a.Name, b.Name) })
	return list
}

// files splits a library's source code at the lines that the build writes before each source file.
func files(code string) map[string]string {
	const mark = "\n--@ "
	parts := strings.Split(code, mark)
	found := map[string]string{"": parts[0]}
	for _, part := range parts[1:] {
		name, body, _ := strings.Cut(part, "\n")
		found[name] = body
	}
	return found
}

// bodies returns the functions that a library registers, each with the source file that registers
// it.
func bodies(code string) map[string]string {
	found := map[string]string{}
	for _, body := range files(code) {
		for _, name := range functionsOf(body) {
			found[name] = body
		}
	}
	return found
}

// sources returns a library's source files, without those that register a function, and without the
// version and the policies.
func sources(code string) map[string]string {
	found := files(code)
	maps.DeleteFunc(found, func(name, body string) bool {
		return name == "" || len(functionsOf(body)) > 0
	})
	for name, body := range found {
		if strings.Contains(body, "local BUILD_ID = ") {
			body = versionLine.ReplaceAllString(body, "")
			body = buildIDLine.ReplaceAllString(body, "")
		}
		if begin, rest, ok := strings.Cut(body, "\nlocal POLICIES = {"); ok {
			if _, end, ok := strings.Cut("\n"+rest, "\n}\n"); ok {
				body = begin + end
			} else if _, end, ok := strings.Cut(rest, "}\n"); ok {
				body = begin + end
			}
		}
		found[name] = body
	}
	return found
}

// canaryChanges lists the differences between canaries. If only the share or only the limits of a
// canary change, it lists only that part.
func canaryChanges(before, after map[string]string) []Change {
	list := differences("canary", before, after)
	for i, c := range list {
		oldShare, oldLimits, _ := strings.Cut(c.Old, ": ")
		newShare, newLimits, _ := strings.Cut(c.New, ": ")
		if oldLimits == newLimits {
			list[i].Old, list[i].New = oldShare, newShare
		} else if oldShare == newShare {
			list[i].Old, list[i].New = oldLimits, newLimits
		}
	}
	return list
}

// policiesOf returns the policies in a library's source code, without canaries, formatted for
// display and keyed by name.
func policiesOf(code string) map[string]string {
	found := map[string]string{}
	// An error means that code is not a build of this library, or is from a version without
	// policies.
	list, _ := functions.ReadPolicies(code)
	for _, p := range list {
		text := limitsText(p.Limits, p.Shadow)
		if p.Track {
			text += " (track)"
		}
		found[p.Name] = text
	}
	return found
}

// canariesOf returns the canaries in a library's source code, formatted for display and keyed by
// the name of the policy.
func canariesOf(code string) map[string]string {
	found := map[string]string{}
	list, _ := functions.ReadPolicies(code)
	for _, p := range list {
		if p.Canary == nil {
			continue
		}
		for i, limit := range p.Canary.Limits {
			p.Limits[i].Limit = limit
		}
		found[p.Name] = p.Canary.Percent() + " of the keys: " + limitsText(p.Limits, p.Canary.Shadow)
	}
	return found
}

func limitsText(limits []functions.PolicyLimit, shadow bool) string {
	var parts []string
	for _, limit := range limits {
		parts = append(parts, limit.String())
	}
	text := strings.Join(parts, "; ")
	if shadow {
		text += " (shadow)"
	}
	return text
}
