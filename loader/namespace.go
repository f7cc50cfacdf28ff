package loader

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/ratelimit-functions/ratelimit/functions"
)

// A Loader works for one namespace, which WithNamespace sets. The default, "", owns the library's
// code and the policies without a namespace. A deployment replaces only what its namespace owns,
// and keeps everything else that the nodes have. So it determines the library to load after it has
// read the nodes, and again when it has the lease.

// WithNamespace makes the Loader work for the policies of one namespace, whose names begin with name
// and a slash. Deploy, Plan, Status, Watch, Repair and Rollback then change and compare only these
// policies. The library's code and all other policies stay as they are on the nodes. If no node has
// the library, Deploy also loads the code of the build.
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

// owned is a build to deploy, with its policies. All policies belong to the Loader's namespace.
type owned struct {
	artifact
	policies []functions.Policy
}

// owns returns build with its policies. It returns an error if one of them does not belong to the
// Loader's namespace.
func (l *Loader) owns(build artifact) (owned, error) {
	list, err := functions.ReadPolicies(build.text)
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
	return owned{build, list}, nil
}

// namespaced matches the name of a policy in a namespace, even in source code that ReadPolicies
// cannot parse.
var namespaced = regexp.MustCompile(`(?m)^\s*\[['"][a-z0-9_.-]+/`)

// over returns the library that a node should run. base is the library that the node runs now. With a
// namespace, the result is base, but the policies of the namespace are those of the build. Without
// one, it is the build and, in addition, the policies of all namespaces in base. over returns an error if base may have
// policies of other namespaces that cannot be read, or if the library would be too large.
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

// compose determines the library that all nodes should run, from the build and from what the nodes
// run now. If the nodes run different libraries, compose uses that of the newest deployment. If the
// newest deployment is unknown, and the results would differ, compose sets an error on the nodes.
func (f *fleet) compose() {
	if f.own.text == "" {
		return
	}
	namespace := f.s.l.namespace
	var runs []*member // one member for each different library that over accepts as base
	bases, found := map[string]error{}, map[string]bool{}
	for _, m := range f.members {
		if _, seen := bases[m.text]; m.node.Err != nil || m.text == "" || !m.node.Running.ours() || seen {
			continue
		}
		want, err := f.s.over(f.own, m.text, namespace)
		if bases[m.text] = err; err == nil {
			runs, found[want.text] = append(runs, m), true
		}
	}
	base, newest := f.s.base, f.newest(runs)
	switch {
	case newest != nil:
		base = newest.text
	case len(runs) > 0:
		base = runs[0].text
	}
	want, err := f.s.over(f.own, base, namespace)
	known := err == nil && (len(found) == 1 || newest != nil || len(bases) == 0)
	for _, m := range f.members {
		switch failed := bases[m.text]; {
		case m.node.Err != nil || !m.inspected():
		case failed != nil:
			m.node.Err = uncomposed(m.conn, failed)
		case !known && (m.text == "" || m.node.Running.ours()): // a node without the library gets the error, too, so that nothing is loaded there
			m.node.Err = unknownOrder(m.conn, m.node.Running)
		}
	}
	if !known {
		return
	}
	if f.s.reads != nil {
		f.s.base = base
	}
	if f.base = base; newest == nil && len(runs) > 1 {
		f.base = "" // it is not known which of these builds the new one replaces
	}
	changed := want.text != f.want.text
	f.want, f.report.Wanted = want, want.Library
	for _, m := range f.members {
		if changed && m.inspected() {
			m.show(m.held, want)
		}
	}
}

// newest returns the member of runs whose build was deployed last, according to the records. It
// returns nil if the records do not show which build that is. Each member of runs has a different
// library.
func (f *fleet) newest(runs []*member) *member {
	var newest *member
	tie := false
	for _, m := range f.members {
		r := m.record
		if r.deployment == 0 || r.deployed != m.node.Running.Digest || !slices.ContainsFunc(runs, func(other *member) bool { return other.text == m.text }) {
			continue
		}
		switch {
		case newest == nil || r.deployment > newest.record.deployment:
			newest, tie = m, false
		case r.deployment == newest.record.deployment && r.deployed != newest.record.deployed:
			tie = true
		}
	}
	if tie {
		return nil
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

// explained reports whether a recorded deployment is the reason that the node's policies of other
// namespaces differ from those in f.base. This is so if the node's record names the library that
// the node runs, or f.base. Otherwise the library may have been loaded by hand.
func (f *fleet) explained(m *member) bool {
	return m.record.deployed == m.node.Running.Digest || m.record.deployed == functions.Digest(f.base)
}

// namespaceRecord is the part of a record about the last deployment of one namespace.
type namespaceRecord struct {
	Deployment int64              `json:"deployment"`     // number of the deployment
	Replaced   []functions.Policy `json:"replaced"`       // policies that it replaced; empty for the namespace "", because record.replaced has the whole library
	Back       bool               `json:"back,omitempty"` // whether it was a rollback
}

// namespaceRecords returns a record's entries for namespaces, by name.
func (r record) namespaceRecords() map[string]namespaceRecord {
	found := map[string]namespaceRecord{}
	_ = json.Unmarshal([]byte(r.namespaces), &found) // empty in the record of a version without namespaces
	return found
}

func (r record) with(namespace string, of namespaceRecord) record {
	all := r.namespaceRecords()
	all[namespace] = of
	text, err := json.Marshal(all)
	if err == nil { // always true, because JSON can represent all values in the map
		r.namespaces = string(text)
	}
	return r
}

// deploymentOf returns the number of the last deployment of a namespace.
func (r record) deploymentOf(namespace string) int64 {
	all := r.namespaceRecords()
	if namespace == "" && len(all) == 0 {
		return r.deployment // the record was written by a version without namespaces
	}
	return all[namespace].Deployment
}

// previous returns the library that a rollback would load on a node. In a watch, it returns an
// empty Library, because a watch does not need it.
func (s *session) previous(found held) Library {
	namespace := s.l.namespace
	back := owned{policies: found.record.namespaceRecords()[namespace].Replaced}
	switch {
	case s.reads != nil:
		return Library{}
	case namespace == "":
		back = withoutNamespaces(found.record.replaced)
	case found.text == "" || len(back.policies) == 0:
		return Library{}
	}
	text, err := back.over(found.text, namespace)
	if err != nil {
		return Library{}
	}
	return describe(text)
}

// withoutNamespaces returns the library in text without the policies of namespaces.
func withoutNamespaces(text string) owned {
	all, _ := functions.ReadPolicies(text)
	own := slices.DeleteFunc(slices.Clone(all), func(p functions.Policy) bool { return p.Namespace() != "" })
	if len(own) < len(all) {
		text, _ = functions.Rebuild(text, own) // cannot fail, because ReadPolicies has read the text
	}
	return owned{artifact{text: text, Library: describe(text)}, own}
}

func policiesIn(text, namespace string) []functions.Policy {
	list, _ := functions.ReadPolicies(text)
	return slices.DeleteFunc(list, func(p functions.Policy) bool { return p.Namespace() != namespace })
}

func uncomposed(c *conn, err error) *Error {
	return c.fail("FUNCTION LIST", ErrBadBuild, err, "", "cannot take this build together with the policies of other namespaces on it: %s", strings.TrimPrefix(err.Error(), "functions: "))
}

func unknownOrder(c *conn, running Library) *Error {
	if running.Digest == "" {
		return c.fail("FUNCTION LIST", ErrNoNewest, nil, "", "has no library, and it is not known which policies of other namespaces it should get")
	}
	return c.fail("FUNCTION LIST", ErrNoNewest, nil,
		"delete the library with FUNCTION DELETE "+functions.Name+" on the nodes that have the wrong one, and deploy again",
		"runs %s, another node runs a build with other policies of other namespaces, and no record says which of them was deployed last", running)
}
