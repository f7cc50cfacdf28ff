package loader

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/rogpeppe/go-internal/diff"

	"github.com/ratelimit-functions/ratelimit/functions"
	"github.com/ratelimit-functions/ratelimit/loader/nodes"
	"github.com/ratelimit-functions/ratelimit/loader/text"
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

	// Keys describes the effect on keys in use, if a policy or a canary changes: "carry over: after 50
	// units of 100, 50 of 100 are left", "start anew", or "denied, for up to 1h". If the new library
	// does not load offline, it is "unknown", with the reason.
	Keys string `json:"keys_in_use,omitempty"`
}

// Plan inspects every primary and returns what [Loader.Deploy] would change there: Node.Running is what
// a node has, and Node.Changes and Node.Diff are the changes. It changes nothing, and does not need
// permission to load libraries. With that permission, Plan also detects a node that is out of memory or
// rejects writes.
//
// The Report is complete even if there is an error. The error is then a [*PartialError] that lists
// the nodes that do not reply or would refuse the build, with all reasons.
func (l *Loader) Plan(ctx context.Context, build Build, o Options) (Report, error) {
	return l.withBuild(ctx, build, o, func(f *fleet) (Report, error) { return f.plan(ctx, o) })
}

func (f *fleet) plan(ctx context.Context, o Options) (Report, error) {
	f.check(ctx, o, false)
	nodes.Each(f.filter(func(m *member) bool { return m.node.Err == nil && m.node.State != Same }), func(m *member) {
		if err := m.probe(ctx); !errors.Is(err, nodes.ErrNoPermission) {
			m.node.Err = err
		}
	})
	f.compare(f.members)
	diffs := map[string]string{} // by digest of the running library
	for _, m := range f.filter(func(m *member) bool { return m.node.State == Different }) {
		running := m.node.Running
		if diffs[running.Digest] == "" {
			diffs[running.Digest] = unified(running.String(), f.want.Library.String(), text.Body(m.source), f.want.text)
		}
		m.node.Diff = diffs[running.Digest]
	}
	return f.report, f.err(opPlan)
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
	list := slices.Concat(differences("function", text.Bodies(before), text.Bodies(after)),
		differences("policy", policiesOf(before), policiesOf(after)), canaryChanges(canariesOf(before), canariesOf(after)))
	if before != "" {
		list = append(list, differences("source", text.Sources(before), text.Sources(after))...)
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
		text := limitsText(p, p.Shadow, p.Floor) + classesText(p)
		if p.Penalty != nil {
			text += fmt.Sprintf(" (penalty %v)", *p.Penalty)
		}
		if p.Warn != 0 {
			text += fmt.Sprintf(" (warn at %d%%)", p.Warn)
		}
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
		found[p.Name] = p.Canary.Percent() + " of the keys: " + limitsText(p, p.Canary.Shadow, p.Canary.Floor)
	}
	return found
}

// limitsText formats the limits of a policy or of its canary, which have their own shadow and floor.
func limitsText(p functions.Policy, shadow bool, floor int) string {
	var parts []string
	for _, limit := range p.Limits {
		parts = append(parts, limit.String())
	}
	text := strings.Join(parts, "; ")
	if p.Borrow {
		text += fmt.Sprintf(" (borrow, floor %d%%)", floor)
	}
	if shadow {
		text += " (shadow)"
	}
	return text
}

func classesText(p functions.Policy) string {
	var parts []string
	for _, class := range slices.Sorted(maps.Keys(p.Classes)) {
		parts = append(parts, fmt.Sprintf("%s %d%%", class, p.Classes[class]))
	}
	switch {
	case p.AnyClass:
		return " (classes any)"
	case len(parts) > 0:
		return " (classes " + strings.Join(parts, ", ") + ")"
	}
	return ""
}
