package loader

import (
	"context"
	"slices"

	"github.com/ratelimit-functions/ratelimit/loader/nodes"
	"github.com/ratelimit-functions/ratelimit/loader/text"
)

// Rollback restores the build that the last deployment replaced. It deploys that build to every
// primary as [Loader.Deploy] would, and fails for the same reasons, except that an older version
// may replace a newer one of the same contract, and that it may remove the policies that the last
// deployment added. The servers keep the library to restore, so Rollback works from any machine.
// They then keep the build that Rollback replaced, so a second Rollback undoes the first.
//
// In a namespace, Rollback restores only the policies that the namespace's last deployment
// replaced. Without a namespace, it keeps the policies of all namespaces.
//
// Rollback fails with [ErrNothingKept] if the last deployment replaced nothing.
func (l *Loader) Rollback(ctx context.Context, o Options) (Report, error) {
	return l.lookBack(ctx, o, func(f *fleet) (Report, error) { return f.deploy(ctx, opRollback, o) })
}

// PlanRollback returns what [Loader.Rollback] would change, as [Loader.Plan] does for a deployment.
// Report.Wanted is the build that Rollback would restore.
func (l *Loader) PlanRollback(ctx context.Context, o Options) (Report, error) {
	return l.lookBack(ctx, o, func(f *fleet) (Report, error) { return f.plan(ctx, o) })
}

// lookBack is rule 12: it inspects every node, and calls then with what a rollback restores: the value
// that the joined text's part replaced.
func (l *Loader) lookBack(ctx context.Context, o Options, then func(*fleet) (Report, error)) (Report, error) {
	namespace := l.config.Namespace
	s := l.session()
	defer s.Close()
	f := s.look(ctx, goal{foreign: o.ReplaceForeign, back: true, values: func(joined text.Text) map[string]string {
		part := joined.Parts[namespace]
		if part.Replaced == "" {
			return nil
		}
		return map[string]string{namespace: part.Replaced}
	}})
	if err := f.err(opRollback); err != nil {
		return f.report, err
	}
	part := f.joined.Parts[namespace]
	of, remedy := "", "call Deploy with the build that you want, or Delete"
	if namespace != "" {
		of, remedy = " of the namespace "+namespace, "call Deploy with the policies that you want"
	}
	problem := ""
	switch {
	case part.Number == 0:
		problem = "the servers keep no record of a deployment" + of
	case part.Replaced == "" && namespace != "":
		problem = "the last deployment" + of + " replaced no policy"
	case part.Replaced == "" && part.Value == "":
		problem = "the library was deleted, and the servers keep nothing of it"
	case part.Replaced == "":
		problem = "the last deployment found no library to replace"
	case namespace != "" && f.joined.Parts[""].Value == "":
		problem = "no node has the library"
	}
	if problem != "" {
		return f.report, &nodes.Error{Class: ErrNothingKept, Problem: "nothing to go back to: " + problem, Remedy: remedy}
	}
	if len(part.Log) > 0 && part.Log[0].Back {
		f.note(nil, "the last deployment was a rollback, which this one undoes", "")
	}
	return then(f)
}

// Delete deletes the library from every primary. Calls then return "ERR Function not found". The
// keys stay until they expire. An unrelated library of the same name is left alone, unless
// Options.ReplaceForeign is set. Delete also deletes the policies of all namespaces. No Rollback can
// restore what it deletes.
//
// Each node keeps a small library that registers none of the functions. It says that the library was
// deleted, so that a server that returns with an old one does not bring it back.
//
// With Config.Namespace, Delete removes the policies of the namespace and nothing else. It is then a
// deployment without policies, which Rollback can undo.
//
// If another deployment ends while Delete waits for the leases, Delete fails with [ErrOvertaken].
func (l *Loader) Delete(ctx context.Context, o Options) (Report, error) {
	s := l.session()
	defer s.Close()
	g := goal{foreign: o.ReplaceForeign, erase: l.config.Namespace == "", values: func(joined text.Text) map[string]string {
		values := map[string]string{}
		for namespace := range joined.Parts {
			if l.config.Namespace == "" || namespace == l.config.Namespace {
				values[namespace] = ""
			}
		}
		return values
	}}
	o.RemovePolicies = true
	f := s.look(ctx, g)
	if err := f.err(opDelete); err != nil || !slices.ContainsFunc(f.members, func(m *member) bool { return m.source != "" }) {
		return f.report, err
	}
	report, err := f.deploy(ctx, opDelete, o)
	if l.config.Namespace == "" {
		for i, n := range report.Nodes { // a node that had nothing got a tombstone
			report.Nodes[i].Changed = n.Changed && n.Before.Digest != ""
		}
	}
	return report, err
}
