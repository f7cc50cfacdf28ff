package loader

import (
	"context"
)

// Status looks at every primary and compares what it runs with build. It changes nothing. (Pointed at a single server
// that is a replica, it looks at that replica.)
//
// The Report is complete also when there is an error. The error is nil when every node replied, whatever it runs: see
// [Report.InStep]. Else it is a [*PartialError].
func (l *Loader) Status(ctx context.Context, build Build) (Report, error) {
	want, err := readBuild("loader.Status", build)
	if err != nil {
		return Report{}, err
	}
	s := l.session()
	defer s.close()
	f := s.look(ctx, want)
	for _, m := range f.some(f.lacksRecord) {
		f.report.Notes = append(f.report.Notes, m.node.Addr+" runs the build and has lost what it kept to go back to; it gets that from the others with: ratelimit deploy")
	}
	return f.report, f.err(opStatus)
}
