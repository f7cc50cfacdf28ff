package cli

import (
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
	"golang.org/x/mod/module"

	"github.com/ratelimit-functions/ratelimit/functions"
)

func (a *app) versionCommand() *cobra.Command {
	return a.jsonFlag(&cobra.Command{
		Use:     "version",
		Short:   "Print the versions of this program and of the library in it",
		Example: "  ratelimit version --json",
		Args:    noArgs,
		RunE:    func(*cobra.Command, []string) error { return a.printVersion() },
	})
}

func (a *app) printVersion() error {
	build, err := functions.New()
	if err != nil {
		return err
	}
	program := aboutProgram(debug.ReadBuildInfo())
	if a.json {
		return a.printJSON(struct {
			programReport
			Library buildReport `json:"library"`
		}{program, about(build)})
	}
	return a.printf("program %s\nlibrary %s, contract %d\n", program, about(build), functions.Contract)
}

type programReport struct {
	Program string `json:"program"`          // the program's version; the library has the same one
	Commit  string `json:"commit,omitempty"` // commit of the sources; "" if Go did not record it, as with go run
	Changed bool   `json:"changed,omitempty"`
	Go      string `json:"go"`
}

// aboutProgram reads the data that go build records in a program: the commit of a checkout, or the
// version that go install used.
func aboutProgram(info *debug.BuildInfo, ok bool) programReport {
	report := programReport{Program: functions.Version(), Go: runtime.Version()}
	if !ok {
		return report
	}
	if commit, err := module.PseudoVersionRev(info.Main.Version); err == nil { // a pseudo-version: the commit has no tag
		report.Commit = commit
	}
	for _, setting := range info.Settings {
		switch setting.Key {
		case "vcs.revision":
			report.Commit = setting.Value
		case "vcs.modified":
			report.Changed = setting.Value == "true"
		}
	}
	return report
}

func (p programReport) String() string {
	text := p.Program
	if p.Commit != "" {
		text += ", commit " + p.Commit[:min(12, len(p.Commit))]
	}
	if p.Changed {
		text += " with changes"
	}
	return text + ", " + p.Go
}
