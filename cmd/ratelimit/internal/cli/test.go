package cli

import (
	"fmt"
	"io"
	"regexp"

	"github.com/spf13/cobra"

	"github.com/ratelimit-functions/ratelimit/policies"
)

type testReport struct {
	OK     bool               `json:"ok"`
	Tests  int                `json:"tests"`
	Failed int                `json:"failed"` // number of failed tests
	Files  []policies.Results `json:"files"`
}

func (a *app) testCommand() *cobra.Command {
	var junit, only string
	cmd := a.jsonFlag(&cobra.Command{
		Use:   "test FILE...",
		Short: "Run unit tests of policies, offline: for CI",
		Long: `Run unit tests of policies: calls at given times, and their expected replies, in files that name the policies to test.
Each test begins without keys, in the engine of this program: it needs no server. docs/policies.md describes the
files.

Exit codes: 0 all passed · 1 one failed, or a file cannot be read.`,
		Example: `  ratelimit test policies_test.yaml
  ratelimit test *_test.yaml --junit report.xml
  ratelimit test policies_test.yaml --run 'burst'`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return wrongUse(example(cmd), "test needs a file with tests")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			chosen, err := regexp.Compile(only)
			if err != nil {
				return fmt.Errorf("--run %q is not a regular expression: %w", only, err)
			}
			xml := reportFile{"--junit", junit, "JUnit report", "<?xml"}
			if err := xml.check(); err != nil {
				return err
			}
			report := testReport{}
			for _, name := range args {
				file, err := policies.ReadTests(name, a.namespace)
				if err != nil {
					return err
				}
				results, err := file.Run(cmd.Context(), chosen)
				if err != nil {
					return err
				}
				report.Files = append(report.Files, results)
				report.Tests += len(results.Tests)
				report.Failed += results.Failed()
			}
			if report.Tests == 0 {
				return fmt.Errorf("no test matches --run %q, so nothing was tested", only)
			}
			report.OK = report.Failed == 0
			if err := xml.write(func(w io.Writer) error { return policies.WriteJUnit(w, report.Files) }); err != nil {
				return err
			}
			return a.printTests(report)
		},
	})
	a.namespaceFlag(cmd)
	cmd.Flags().StringVar(&junit, "junit", "", "also write the results to this file, as JUnit XML")
	cmd.Flags().StringVar(&only, "run", "", "run only the tests whose names match this regular expression")
	return cmd
}

func (a *app) printTests(report testReport) error {
	if a.json {
		a.printJSON(report)
	} else {
		for _, file := range report.Files {
			a.printTestFile(file)
		}
	}
	if report.OK {
		return nil
	}
	return fmt.Errorf("%d of %s failed; stdout lists what they expected", report.Failed, plural(report.Tests, "test"))
}

func (a *app) printTestFile(file policies.Results) {
	for _, test := range file.Tests {
		for i, f := range test.Failures {
			if i == 0 {
				a.printf("FAIL  %s\n", oneLine(test.Name))
			}
			a.printf("  %s:%d:%d: %s\n    %s: expected %s\n    %*s  got      %s\n",
				file.File, f.Line, f.Column, f.Call, f.Field, f.Expected, len(f.Field), "", f.Got)
		}
	}
	word := "ok  "
	if file.Failed() > 0 {
		word = "FAIL"
	}
	text := fmt.Sprintf("%s, %s", plural(len(file.Tests), "test"), plural(file.Calls(), "call"))
	if file.Failed() > 0 {
		text += fmt.Sprintf(", %d failed", file.Failed())
	}
	a.printf("%s  %s: %s\n", word, file.File, text)
}
