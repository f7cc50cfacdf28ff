package loader

import (
	"context"
	"slices"
	"strings"

	"github.com/ratelimit-functions/ratelimit/functions"
	"github.com/ratelimit-functions/ratelimit/loader/nodes"
	"github.com/ratelimit-functions/ratelimit/loader/text"
)

// compose is rule 6: it joins the texts of the members (rule 2), and determines the text that all of them
// should have. It then compares the members with that text.
func (f *fleet) compose(ctx context.Context) {
	f.joined = text.Text{}
	for _, m := range f.members {
		if m.node.Err == nil && (m.source == "" || m.isOurs() || f.goal.foreign) {
			f.joined = text.Join(f.joined, m.text)
		}
	}
	f.next, f.mine = f.joined, nil
	if f.goal.fill != nil {
		f.next = f.goal.fill(f.joined)
	}
	var values map[string]string
	if f.goal.values != nil {
		values = f.goal.values(f.joined)
	}
	parts := map[string]text.Part{}
	for namespace, value := range values {
		value = text.Sorted(value) // a rollback may restore a text that was loaded by hand
		old, digest := f.joined.Parts[namespace], text.Digest(value)
		if text.Digest(old.Value) == digest {
			continue
		}
		part := text.Part{Number: max(f.number, f.joined.Highest+1), Value: value}
		entry := text.Entry{Number: part.Number, AtMS: f.atMS, Who: f.s.who, Back: f.goal.back, Digest: digest[:min(12, len(digest))]}
		entry.Changed, entry.More = changedNames(namespace, old.Value, value)
		part.Log = append([]text.Entry{entry}, old.Log[:min(len(old.Log), text.MaxLog-1)]...)
		if !f.goal.erase {
			part.Replaced = old.Value
		}
		parts[namespace], f.mine = part, append(f.mine, namespace)
	}
	if len(parts) > 0 {
		slices.Sort(f.mine)
		f.next = f.joined.With(parts)
	}
	if body, err := f.next.Body(); err != nil {
		f.uncomposed(err)
	} else {
		f.want = f.goal.own
		if body != f.want.text {
			f.want = artifact{text.Describe(body), body}
		}
		f.report.Wanted = f.want.Library
	}
	f.show(f.members)
	f.checkNames(ctx, f.members)
}

// uncomposed sets the error that there is no text for all nodes. The nodes that have policies of
// several namespaces get it, or else all.
func (f *fleet) uncomposed(err error) {
	members := f.filter(func(m *member) bool { return m.node.Err == nil && len(m.text.Parts) > 1 })
	if len(members) == 0 {
		members = f.filter(func(m *member) bool { return m.node.Err == nil })
	}
	for _, m := range members {
		m.node.Err = uncomposed(m.Conn, err)
	}
}

func (m *member) isOurs() bool {
	return len(m.text.Parts) > 0 && (m.text.Highest > 0 || text.Describe(text.Body(m.source)).IsOurs())
}

// show sets whether each member runs the build, another library, or none.
func (f *fleet) show(members []*member) {
	described := map[string]text.Library{f.want.text: f.want.Library, "": {}}
	for _, m := range members {
		if stateOf := m.node.State; stateOf == Unreachable || stateOf == Unknown {
			continue
		}
		body := text.Body(m.source)
		running, known := described[body]
		if !known {
			running = text.Describe(body)
			described[body] = running
		}
		m.node.Running, m.node.State = running, Different
		if f.s.lists == nil {
			m.node.Previous = f.s.previous(m.text)
		}
		switch running.Digest {
		case "":
			m.node.State = Absent
		case f.want.Digest:
			m.node.State, m.node.Taken = Same, nil
		}
	}
}

// checkNames looks for other libraries that register function names of the wanted one.
func (f *fleet) checkNames(ctx context.Context, members []*member) {
	names := text.Functions(f.want.text)
	nodes.Each(members, func(m *member) {
		if m.node.Err != nil || m.node.State == Same {
			return
		}
		if taken, err := taken(ctx, m.Conn, names); err != nil {
			m.node.fail(err)
		} else {
			m.node.Taken = taken
		}
	})
}

// taken returns the functions in names that other libraries on the node have registered.
func taken(ctx context.Context, c *nodes.Conn, names []string) ([]Taken, error) {
	libraries, err := c.Libraries(ctx)
	var found []Taken
	for _, l := range libraries {
		for _, function := range l.Functions {
			if l.Name != functions.Name && slices.ContainsFunc(names, func(ours string) bool { return strings.EqualFold(ours, function) }) {
				found = append(found, Taken{Function: strings.ToLower(function), Library: l.Name})
			}
		}
	}
	slices.SortFunc(found, func(a, b Taken) int { return strings.Compare(a.Function, b.Function) })
	return found, err
}

// behind reports whether the node has another text than all nodes should have.
func (f *fleet) behind(m *member) bool { return !text.Equal(m.text, f.next) }

// previous returns the library that a rollback would load on a node with the text t.
func (s *session) previous(t text.Text) text.Library {
	part := t.Parts[s.l.config.Namespace]
	if part.Replaced == "" || s.l.config.Namespace != "" && t.Parts[""].Value == "" {
		return text.Library{}
	}
	body, err := t.With(map[string]text.Part{s.l.config.Namespace: {Value: text.Sorted(part.Replaced)}}).Body()
	if err != nil {
		return text.Library{}
	}
	return text.Describe(body)
}

// changedNames returns the names of the policies that differ between two values of a namespace, and
// "code" if the code differs. It returns at most ten names, and the number of the others.
func changedNames(namespace, before, after string) (names []string, more int) {
	if namespace == "" && before != "" && after != "" && !sameCode(before, after) {
		names = append(names, "code")
	}
	read := func(value string) map[string]string {
		list, _ := text.Policies(value)
		if namespace == "" {
			list, _ = functions.ReadPolicies(value)
		}
		found := map[string]string{}
		for _, p := range list {
			found[p.Name] = text.ValueOf([]functions.Policy{p})
		}
		return found
	}
	for _, c := range differences("policy", read(before), read(after)) {
		names = append(names, c.Name)
	}
	const most = 10
	return names[:min(most, len(names))], max(0, len(names)-most)
}

func uncomposed(c *nodes.Conn, err error) *nodes.Error {
	return c.Fail("FUNCTION LIST", ErrBadBuild, err, "", "cannot take this build together with the policies of other namespaces on it: %s", strings.TrimPrefix(err.Error(), "functions: "))
}
