package loader

import (
	"cmp"
	"context"
	"slices"

	"github.com/ratelimit-functions/ratelimit/loader/text"
)

// Status inspects every primary and compares what it runs with build or, if build is nil, with what
// was deployed last. If a library was not put there by a deployment, and build is nil, Report.Wanted is
// empty, and all nodes count as Different. Status changes nothing. If the client points to a single
// server that is a replica, Status inspects that replica.
//
// The Report is complete even if there is an error. The error is nil if every node replied,
// regardless of what it runs: see [Report.InStep]. Otherwise it is a [*PartialError].
func (l *Loader) Status(ctx context.Context, build Build) (Report, error) {
	var g goal
	if build != nil {
		var err error
		if g, err = l.readBuild(build); err != nil {
			return Report{}, err
		}
	}
	s := l.session()
	defer s.Close()
	f := s.look(ctx, g)
	if part := f.joined.Parts[""]; build == nil && part.Number == 0 && part.Value != "" {
		f.want, f.report.Wanted = artifact{}, text.Library{} // no deployment put the library there
		f.show(f.members)
	}
	for _, m := range f.members {
		if m.node.State == Same && m.node.Role == "primary" && !text.Equal(m.text, f.joined) {
			f.report.Notes = append(f.report.Notes, m.Fail("FUNCTION LIST", ErrNoRecord, nil, "call Deploy to copy it from the other nodes", "runs the build and has lost the record of its deployment"))
		}
	}
	return f.report, f.err(opStatus)
}

// Deployment describes a deployment that the nodes remember.
type Deployment struct {
	Namespace string `json:"namespace,omitempty"`
	text.Entry
}

// History returns the last deployments, the latest first. With Config.Namespace, these are the
// deployments of that namespace, otherwise those of all. The nodes remember the last ten of each
// namespace. History fails if a node cannot be inspected.
func (l *Loader) History(ctx context.Context) ([]Deployment, error) {
	s := l.session()
	defer s.Close()
	f := s.look(ctx, goal{})
	if err := f.err(opStatus); err != nil {
		return nil, err
	}
	var list []Deployment
	for namespace, part := range f.joined.Parts {
		if l.config.Namespace != "" && namespace != l.config.Namespace {
			continue
		}
		for _, e := range part.Log {
			list = append(list, Deployment{namespace, e})
		}
	}
	slices.SortFunc(list, func(a, b Deployment) int {
		return cmp.Or(cmp.Compare(b.Number, a.Number), cmp.Compare(a.Namespace, b.Namespace))
	})
	return list, nil
}
