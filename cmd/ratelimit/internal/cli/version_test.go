package cli

import (
	"encoding/json"
	"runtime"
	"runtime/debug"
	"testing"

	"github.com/ratelimit-functions/ratelimit/functions"
)

func TestVersion(t *testing.T) {
	want := "program " + functions.Version() + ", " + runtime.Version() + "\nlibrary ratelimit " + functions.Version() +
		", build " + functions.BuildID() + ", contract 1\n" // a test binary has no commit
	run(t, nil, "version").want(t, exitFine, want, "")
	run(t, nil, "--version").want(t, exitFine, want, "")

	var report struct {
		Program, Go string
		Library     buildReport
	}
	err := json.Unmarshal([]byte(run(t, nil, "version", "--json").stdout), &report)
	if err != nil || report.Program != functions.Version() || report.Go != runtime.Version() || report.Library.BuildID != functions.BuildID() {
		t.Errorf("json: %v: %+v", err, report)
	}
}

func TestVersionNamesTheCommit(t *testing.T) {
	const revision = "503dee0ff785b0871af839ec0a9c7e27aa3d85d1"
	settings := func(modified string) []debug.BuildSetting {
		return []debug.BuildSetting{{Key: "vcs", Value: "git"}, {Key: "vcs.revision", Value: revision}, {Key: "vcs.modified", Value: modified}}
	}
	before, after := functions.Version(), ", "+runtime.Version()
	for _, tt := range []struct {
		name     string
		version  string
		settings []debug.BuildSetting
		want     string
	}{
		{"go build", "v0.0.0-20261121235933-503dee0ff785", settings("false"), before + ", commit 503dee0ff785" + after},
		{"go build of changed sources", "v0.1.0+dirty", settings("true"), before + ", commit 503dee0ff785 with changes" + after},
		{"go install at a release", "v0.1.0", nil, before + after},
		{"go install at a commit", "v0.1.1-0.20261121235933-503dee0ff785", nil, before + ", commit 503dee0ff785" + after},
		{"go run", "(devel)", nil, before + after},
	} {
		info := &debug.BuildInfo{Main: debug.Module{Version: tt.version}, Settings: tt.settings}
		wantText(t, tt.name, aboutProgram(info, true).String(), tt.want)
	}
	wantText(t, "a build without modules", aboutProgram(nil, false).String(), before+after)
}
