package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/ratelimit-functions/ratelimit/cmd/ratelimit/internal/shell"
	"github.com/ratelimit-functions/ratelimit/embedded"
	"github.com/ratelimit-functions/ratelimit/functions"
)

type verifyReport struct {
	OK       bool            `json:"ok"`
	Digest   string          `json:"digest"` // digest of the verified library
	Bytes    int             `json:"bytes"`
	Vectors  int             `json:"vectors"`
	Steps    int             `json:"steps"` // steps that were run
	Files    []verifiedFile  `json:"files"`
	Failures []verifyFailure `json:"failures"`
	Rules    []string        `json:"rules"` // broken rules, of reach.missing

	Policies *policyReport `json:"policies,omitempty"` // with --policies
}

type verifiedFile struct {
	Name    string `json:"name"`
	Vectors int    `json:"vectors"`
	Steps   int    `json:"steps"`
	Failed  int    `json:"failed"` // number of failed vectors
}

type verifyFailure struct {
	File    string `json:"file"`
	Vector  string `json:"vector"`
	Step    int    `json:"step"`    // number of the step, from 1
	AfterUS int64  `json:"at_us"`   // the time of the call, in microseconds since the start of the vector
	Says    string `json:"problem"` // the call, its reply, and the expected reply
}

func (a *app) verifyCommand() *cobra.Command {
	cmd := a.jsonFlag(&cobra.Command{
		Use:   "verify",
		Short: "Check the library without a server: for CI",
		Long: `Load the library into the engine of this program, and compare its replies with all test vectors, with the clock set
for each call. It needs no server and no network. It also checks that a vector calls every function, and that exactly
the functions flagged no-writes write nothing.

With --policies it also checks the policies, which the library parses itself: their names and limits, rates that never
decide because another always denies first, bursts below the cost that the policy states, and guarantees that add up
to more than their pool. It notes limits of 0 per period, which never allow, limits that must not share a key, and
bursts of guarantees that can exceed their pool, but they are no problem.

Exit codes: 0 all agree · 1 one does not, the library does not load, or a policy has a problem.`,
		Example: `  ratelimit verify
  ratelimit verify --policies policies.yaml
  ratelimit verify --library ratelimit.lua --json`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 && (strings.HasSuffix(args[0], ".yaml") || strings.HasSuffix(args[0], ".yml")) {
				return fmt.Errorf("verify takes no argument, not %q; did you mean %s?", args[0], shell.Line("--policies", args[0]))
			}
			return noArgs(cmd, args)
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch {
			case a.library != "":
				text, err := a.readLibrary()
				if err != nil {
					return err
				}
				return a.verify(cmd.Context(), a.library, text, nil)
			case len(a.policies) > 0:
				return a.verifyPolicies(cmd.Context())
			}
			return a.verifyBuild(cmd.Context(), nil)
		},
	})
	a.libraryFlags(cmd)
	return cmd
}

// verifyPolicies checks the policies. If the library accepts all of them, it also checks the
// library that contains them.
func (a *app) verifyPolicies(ctx context.Context) error {
	report, err := checkPolicies(a.policies...)
	if err != nil {
		return err
	}
	if !a.json {
		a.printPolicies(report)
	}
	if len(report.Problems) > 0 {
		if a.json {
			a.printJSON(verifyReport{Policies: &report, Files: []verifiedFile{}, Failures: []verifyFailure{}, Rules: []string{}})
		}
		return fmt.Errorf("%s has %s, listed on stdout", report.File, report.Problems.Count())
	}
	if !a.json {
		a.printf("\n")
	}
	return a.verifyBuild(ctx, &report)
}

func (a *app) verifyBuild(ctx context.Context, checked *policyReport) error {
	build, err := a.build()
	if err != nil {
		return err
	}
	return a.verify(ctx, about(build).String(), build.Text(), checked)
}

// verify runs the vectors. checked is the report on the library's policies, or nil without
// --policies.
func (a *app) verify(ctx context.Context, name, text string, checked *policyReport) error {
	files, err := a.vectors()
	if err != nil {
		return err
	}
	report, err := runVectors(ctx, name, text, files)
	if err != nil {
		return err
	}
	if a.json {
		report.Policies = checked
		a.printJSON(report)
	} else {
		a.printVerified(name, report)
	}
	switch {
	case report.OK:
		return nil
	case len(report.Failures) == 0:
		return fmt.Errorf("the text of %s breaks %s, listed on stdout", name, plural(len(report.Rules), "rule"))
	}
	return fmt.Errorf("wrong replies from %s in %d of %s, listed on stdout",
		name, len(report.Failures), plural(report.Vectors, "vector"))
}

// runVectors runs all vectors on one engine. Each vector starts with an empty keyspace and sets the
// clock.
func runVectors(ctx context.Context, name, text string, files []functions.VectorFile) (verifyReport, error) {
	report := verifyReport{Digest: functions.Digest(text), Bytes: len(text), Failures: []verifyFailure{}, Rules: []string{}}
	srv, err := embedded.Start(embedded.WithClusterRules())
	if err != nil {
		return report, err
	}
	defer func() { _ = srv.Close() }()
	if err := srv.Load(text); err != nil {
		return report, fmt.Errorf("%s does not load (%w); servers would refuse it too", name, err)
	}
	reached, err := newReach(srv)
	if err != nil {
		return report, err
	}
	for _, file := range files {
		done := verifiedFile{Name: file.Name, Vectors: len(file.Vectors)}
		for _, vector := range file.Vectors {
			if ctx.Err() != nil {
				return report, errors.New("interrupted before all vectors were run")
			}
			steps, failure, err := runVector(srv, reached, file.StartUS, vector)
			if err != nil {
				return report, err
			}
			done.Steps += steps
			if failure != nil {
				failure.File = file.Name
				report.Failures = append(report.Failures, *failure)
				done.Failed++
			}
		}
		report.Files = append(report.Files, done)
		report.Vectors += done.Vectors
		report.Steps += done.Steps
	}
	if report.Steps == 0 {
		return report, errors.New("this program has no vectors, so nothing was verified; build it from a complete checkout")
	}
	report.Rules = append(report.Rules, reached.missing()...)
	report.OK = len(report.Failures) == 0 && len(report.Rules) == 0
	return report, nil
}

// runVector runs a vector up to its first wrong reply. Later replies depend on the same state.
func runVector(srv *embedded.Server, reached *reach, start int64, vector functions.Vector) (int, *verifyFailure, error) {
	if _, err := srv.Do("FLUSHALL"); err != nil {
		return 0, nil, fmt.Errorf("the engine does not empty its keyspace: %w", err)
	}
	setTime := func(us int64) error {
		srv.SetTime(time.UnixMicro(us))
		return nil
	}
	err := vector.Run(start, setTime, reached.call)
	if wrong, ok := errors.AsType[*functions.StepError](err); ok {
		return wrong.Step, &verifyFailure{Vector: vector.Name, Step: wrong.Step, AfterUS: wrong.AfterUS, Says: wrong.Err.Error()}, nil
	}
	return len(vector.Steps), nil, err
}

func (a *app) printVerified(name string, report verifyReport) {
	rows := [][]string{{"VECTORS OF", "COUNT", "STEPS", "RESULT"}}
	for _, file := range report.Files {
		result := "ok"
		if file.Failed > 0 {
			result = fmt.Sprintf("%d FAILED", file.Failed)
		}
		rows = append(rows, []string{file.Name, fmt.Sprint(file.Vectors), fmt.Sprint(file.Steps), result})
	}
	a.printf("%s: loads, %s\n\n", name, plural(report.Bytes, "byte"))
	a.write(table(rows))
	for _, f := range report.Failures {
		a.printf("\n%s: %s, step %d, at %s µs\n  %s\n", f.File, f.Vector, f.Step, grouped(f.AfterUS), f.Says)
	}
	for _, rule := range report.Rules {
		a.printf("\n%s\n", rule)
	}
	if report.OK {
		a.printf("\nok: %s, %s\n", plural(report.Vectors, "vector"), plural(report.Steps, "step"))
	}
}
