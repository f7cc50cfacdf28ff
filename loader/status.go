package loader

import (
	"context"
)

// Status inspects every primary and compares what it runs with build. It changes nothing. If the
// client points to a single server that is a replica, Status inspects that replica.
//
// The Report is complete even if there is an error. The error is nil if every node replied,
// whatever it runs: see [Report.InStep]. Otherwise it is a [*PartialError].
func (l *Loader) Status(ctx context.Context, build Build) (Report, error) {
	want, err := readBuild(build)
	if err != nil {
		return Report{}, err
	}
	s := l.session()
	defer s.close()
	f := s.look(ctx, want)
	for _, m := range f.filter(f.lacksRecord) {
		f.report.Notes = append(f.report.Notes, m.fail("FUNCTION LIST", ErrNoRecord, nil, "call Deploy to copy it from the other nodes", "runs the build and has lost its record for a rollback"))
	}
	return f.report, f.err(opStatus)
}
