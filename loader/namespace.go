package loader

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/ratelimit-functions/ratelimit/functions"
)

// A Loader works for one namespace, which WithNamespace sets. The default is "": the library's code
// and the policies without a namespace belong to it. A deployment replaces only what belongs to its
// namespace, and takes everything else from the nodes. What a node should run is therefore known
// only after the nodes have been read, and is determined again under the lease.

// WithNamespace makes the Loader work for the policies of one namespace, whose names begin with name
// and a slash. Deploy, Plan, Status, Watch, Repair and Rollback then change and compare only these
// policies. The library's code and all other policies stay as they are on the nodes. Only if no node
// has the library, Deploy also loads the code of the build.
//
// Without WithNamespace, a Loader works for the code and the policies that have no namespace, and
// keeps the policies of all namespaces.
//
// In a namespace, Deploy and Rollback wait for another deployment to finish, unless [WaitForLease]
// says otherwise.
func WithNamespace(name string) Option {
	return func(l *Loader) error {
		l.namespace = name
		return functions.CheckNamespace(name)
	}
}

// owned is a build to deploy: its text, and the policies of the Loader's namespace in it.
type owned struct {
	artifact
	policies []functions.Policy
}

// owns returns the build with its policies, all of which must belong to the namespace.
func (l *Loader) owns(a artifact) (owned, error) {
	list, err := functions.ReadPolicies(a.text)
	if err != nil && l.namespace != "" {
		return owned{}, &Error{Class: ErrBadBuild, Problem: "the policies of the build cannot be read", Remedy: "make it with functions.New", Err: err}
	}
	for _, p := range list {
		switch found := p.Namespace(); {
		case found == l.namespace:
		case l.namespace == "":
			return owned{}, &Error{Class: ErrNamespace, Problem: fmt.Sprintf("the build has the policy %s of the namespace %s", p.Name, found),
				Remedy: "deploy the policies of a namespace with WithNamespace, and the library without them"}
		default:
			return owned{}, &Error{Class: ErrNamespace, Problem: fmt.Sprintf("the build has the policy %s, which is not in the namespace %s", p.Name, l.namespace),
				Remedy: "deploy it without the policies of others"}
		}
	}
	return owned{a, list}, nil
}

// namespaced matches a policy of a namespace in any text that could be a library of policies.
var namespaced = regexp.MustCompile(`(?m)^\s*\[['"][a-z0-9_.-]+/`)

// over combines base, the library that a node runs now, with the build, and returns the library
// that the node should run. It returns an error if base may have policies of other namespaces that
// cannot be read, or if the library would be too large.
func (w owned) over(base, namespace string) (string, error) {
	if base == "" {
		return w.text, nil
	}
	have, err := functions.ReadPolicies(base)
	if err != nil && (namespace != "" || namespaced.MatchString(base)) {
		return "", err
	}
	others := slices.DeleteFunc(have, func(p functions.Policy) bool { return p.Namespace() == namespace })
	switch {
	case namespace != "":
		return functions.Rebuild(base, append(others, w.policies...))
	case len(others) == 0:
		return w.text, nil
	}
	return functions.Rebuild(w.text, append(others, w.policies...))
}

// compose determines what all nodes should run, from the build and from what they run now. If nodes
// run different texts, the text of the newest deployment counts. If it is not known which
// deployment is the newest, each node with a library gets an error.
func (f *fleet) compose() {
	if f.own.text == "" {
		return
	}
	namespace := f.s.l.namespace
	var runs []*member // one member for each text
	for _, m := range f.members {
		same := func(other *member) bool { return other.text == m.text }
		if m.node.Err == nil && m.text != "" && m.node.Running.ours() && !slices.ContainsFunc(runs, same) {
			runs = append(runs, m)
		}
	}
	base, found := f.s.base, map[string]string{} // base of each result
	for _, m := range runs {
		want, err := f.s.over(f.own, m.text, namespace)
		if err != nil {
			m.node.Err = uncomposed(m.conn, err)
			continue
		}
		found[want.text] = m.text
	}
	if len(found) == 1 {
		for _, text := range found {
			base = text
		}
	} else if len(found) > 1 {
		newest := f.newest(runs)
		if newest == nil {
			for _, m := range runs {
				m.node.Err = unknownOrder(m.conn, m.node.Running)
			}
			return
		}
		base = newest.text
	}
	want, err := f.s.over(f.own, base, namespace)
	if err != nil {
		return // a node has the error
	}
	if f.s.reads != nil {
		f.s.base = base
	}
	f.base = base
	changed := want.text != f.want.text
	f.want, f.report.Wanted = want, want.Library
	for _, m := range f.members {
		if !m.inspected() {
			continue
		}
		if changed {
			m.show(m.held, want)
		}
		if namespace != "" {
			m.node.Previous = f.previous(m)
		}
	}
}

// newest returns the member that runs what the newest deployment loaded, among members with
// different texts, or nil if the records do not say.
func (f *fleet) newest(runs []*member) *member {
	var newest *member
	for _, m := range f.members {
		r := m.record
		if r.deployment == 0 || r.deployed != m.node.Running.Digest || !slices.ContainsFunc(runs, func(other *member) bool { return other.text == m.text }) {
			continue
		}
		switch {
		case newest == nil || r.deployment > newest.record.deployment:
			newest = m
		case r.deployment == newest.record.deployment && r.deployed != newest.record.deployed:
			return nil
		}
	}
	return newest
}

// over calls own.over and caches the last result, because a watch passes the same arguments in each
// round.
func (s *session) over(own owned, base, namespace string) (artifact, error) {
	if s.overBase == base && s.overOwn == own.text && s.overWant.text != "" {
		return s.overWant, nil
	}
	text, err := own.over(base, namespace)
	if err != nil {
		return artifact{}, err
	}
	want := own.artifact
	if text != own.text {
		want = artifact{text: text, Library: describe(text)}
	}
	s.overBase, s.overOwn, s.overWant = base, own.text, want
	return want, nil
}

// explained reports whether the node runs what a deployment left there, or what a deployment was
// about to replace with the text of newer nodes. In both cases it is known what belongs to other
// namespaces.
func (f *fleet) explained(m *member) bool {
	return m.record.deployed == m.node.Running.Digest || m.record.deployed == functions.Digest(f.base)
}

// namespaceRecord is what a record holds about the last deployment of one namespace.
type namespaceRecord struct {
	Deployment int64              `json:"deployment"` // number of the deployment
	Replaced   []functions.Policy `json:"replaced"`   // policies that it replaced; empty for the namespace "", whose record has the whole text
}

// namespaceRecords returns what a record holds about namespaces, by their names.
func (r record) namespaceRecords() map[string]namespaceRecord {
	found := map[string]namespaceRecord{}
	_ = json.Unmarshal([]byte(r.namespaces), &found) // empty in the record of a version without namespaces
	return found
}

// with returns the record after a deployment of a namespace.
func (r record) with(namespace string, of namespaceRecord) record {
	all := r.namespaceRecords()
	all[namespace] = of
	text, err := json.Marshal(all)
	if err == nil { // always, because the map holds only texts and numbers
		r.namespaces = string(text)
	}
	return r
}

// of returns the number of the last deployment of a namespace.
func (r record) of(namespace string) int64 {
	all := r.namespaceRecords()
	if namespace == "" && len(all) == 0 {
		return r.deployment // the record was written by a version without namespaces
	}
	return all[namespace].Deployment
}

// previous returns the library that a rollback of the namespace would load on the node. For a
// watch, which does not need it, the result is empty.
func (f *fleet) previous(m *member) Library {
	if f.s.reads != nil || m.text == "" {
		return Library{}
	}
	of := m.record.namespaceRecords()[f.s.l.namespace]
	if len(of.Replaced) == 0 {
		return Library{}
	}
	text, err := (owned{policies: of.Replaced}).over(m.text, f.s.l.namespace)
	if err != nil {
		return Library{}
	}
	return describe(text)
}

// policiesIn returns the policies of a namespace in a text.
func policiesIn(text, namespace string) []functions.Policy {
	list, _ := functions.ReadPolicies(text)
	return slices.DeleteFunc(list, func(p functions.Policy) bool { return p.Namespace() != namespace })
}

// namespaceOf returns the namespace in the name of a policy.
func namespaceOf(name string) string { return functions.Policy{Name: name}.Namespace() }

func uncomposed(c *conn, err error) *Error {
	return c.fail("FUNCTION LIST", ErrBadBuild, err, "", "cannot take this build together with the policies of other namespaces on it: %s", strings.TrimPrefix(err.Error(), "functions: "))
}

func unknownOrder(c *conn, running Library) *Error {
	return c.fail("FUNCTION LIST", ErrNoNewest, nil,
		"delete the library with FUNCTION DELETE "+functions.Name+" on the nodes that have the wrong one, and deploy again",
		"runs %s, another node runs a build with other policies of other namespaces, and no record says which of them was deployed last", running)
}
