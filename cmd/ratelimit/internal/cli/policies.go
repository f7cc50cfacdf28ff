package cli

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ratelimit-functions/ratelimit/functions"
	"github.com/ratelimit-functions/ratelimit/policies"
)

func (a *app) policiesFlag(cmd *cobra.Command) {
	cmd.Flags().StringArrayVar(&a.policies, "policies", nil, "`file` with the policies of the library (docs/policies.md); several are one set")
}

// namespaceFlag adds --namespace. a.build puts the policies into that namespace.
func (a *app) namespaceFlag(cmd *cobra.Command) {
	cmd.Flags().StringVar(&a.namespace, "namespace", "", "`name` of the namespace that the policies are in, as in @NAME/policy")
}

// readPolicies reads the files of --policies. It puts their policies into the namespace given with
// --namespace or named in the files, if any, and sets a.namespace to it.
func (a *app) readPolicies() (*policies.File, error) {
	file, err := policies.Read(a.policies...)
	if err != nil {
		return nil, fmt.Errorf("--policies: %w", err)
	}
	if file, err = file.In(a.namespace); err != nil {
		return nil, fmt.Errorf("--policies: %w", err)
	}
	a.namespace = file.Namespace
	return file, nil
}

// build makes the library with the policies of the files given with --policies, if any. A policy
// that the library refuses is an error. Doubtful policies are accepted; only verify reports them.
func (a *app) build() (functions.Build, error) {
	if len(a.policies) == 0 {
		return functions.New()
	}
	file, err := a.readPolicies()
	if err != nil {
		return functions.Build{}, err
	}
	build, err := file.Build()
	if err != nil {
		return functions.Build{}, fmt.Errorf("--policies: %w", err)
	}
	return build, nil
}

func (a *app) schemaCommand() *cobra.Command {
	var tests bool
	cmd := &cobra.Command{
		Use:   "schema",
		Short: "Print the JSON Schema of policies files, for editors",
		Long: `Print the JSON Schema of policies files or, with --tests, of files with tests of policies. Editors that know YAML
schemas (with the YAML language server) complete and check a file whose first line names the schema:

  # yaml-language-server: $schema=policies.schema.json

A schema cannot check everything: run "ratelimit verify" and "ratelimit test", too.`,
		Example: `  ratelimit policies schema > policies.schema.json
  ratelimit policies schema --tests > tests.schema.json`,
		Args: noArgs,
		RunE: func(*cobra.Command, []string) error {
			if tests {
				return a.write(policies.TestSchema)
			}
			return a.write(policies.Schema)
		},
	}
	cmd.Flags().BoolVar(&tests, "tests", false, "the schema of files with tests")
	return cmd
}

type policyReport struct {
	File     string            `json:"file"` // several are separated by commas
	Policies []verifiedPolicy  `json:"policies"`
	Problems policies.Mistakes `json:"problems"`
	Notes    policies.Mistakes `json:"notes"` // limits that never allow a call, which are not problems
}

type verifiedPolicy struct {
	Name   string          `json:"name"`
	Limits []verifiedLimit `json:"limits"`
	Shadow bool            `json:"shadow"`
	Track  bool            `json:"track"`
	Canary *verifiedCanary `json:"canary,omitempty"`
}

type verifiedCanary struct {
	Limits []string `json:"limits"`
	Share  string   `json:"share"` // such as "5%"
	Shadow bool     `json:"shadow"`
}

type verifiedLimit struct {
	Key   string `json:"key,omitempty"`
	Limit string `json:"limit"`
}

// checkPolicies reads and checks files. The report contains the problems in the files. The error
// means that a file could not be read or that the check failed to run.
func checkPolicies(names ...string) (policyReport, error) {
	report := policyReport{File: strings.Join(names, ", "), Policies: []verifiedPolicy{}, Problems: policies.Mistakes{}, Notes: policies.Mistakes{}}
	file, err := policies.Read(names...)
	if errors.As(err, &report.Problems) {
		return report, nil
	}
	if err != nil {
		return report, fmt.Errorf("--policies: %w", err)
	}
	found, err := file.Findings()
	if err != nil {
		return report, err
	}
	for _, p := range file.Policies {
		v := verifiedPolicy{Name: p.Name, Shadow: p.Shadow, Track: p.Track}
		for _, limit := range p.Limits {
			v.Limits = append(v.Limits, verifiedLimit(limit))
		}
		if c := p.Canary; c != nil {
			v.Canary = &verifiedCanary{c.Limits, c.Percent(), c.Shadow}
		}
		report.Policies = append(report.Policies, v)
	}
	report.Problems = append(append(report.Problems, found.Wrong...), found.Doubtful...)
	report.Notes = append(report.Notes, found.Notes...)
	return report, nil
}

// countPolicies returns text such as "1 policy" or "2 policies".
func countPolicies(n int) string {
	if n == 1 {
		return "1 policy"
	}
	return grouped(int64(n)) + " policies"
}

func (a *app) printPolicies(report policyReport) {
	rows := [][]string{{"POLICY", "KEY", "LIMIT", ""}}
	for _, p := range report.Policies {
		name, words := "@"+p.Name, []string{}
		if p.Shadow {
			words = append(words, "shadow")
		}
		if p.Track {
			words = append(words, "track")
		}
		for _, limit := range p.Limits {
			rows = append(rows, []string{name, dash(limit.Key), limit.Limit, strings.Join(words, ", ")})
			name, words = "", nil
		}
		if p.Canary == nil {
			continue
		}
		words = []string{"canary for " + p.Canary.Share + " of the keys"}
		if p.Canary.Shadow {
			words = append(words, "shadow")
		}
		for i, limit := range p.Canary.Limits {
			rows = append(rows, []string{"", dash(p.Limits[i].Key), limit, strings.Join(words, ", ")})
			words = nil
		}
	}
	if len(report.Policies) > 0 { // empty if report.File could not be parsed
		a.printf("%s: %s\n\n", report.File, countPolicies(len(report.Policies)))
		a.write(table(rows))
	}
	for i, problem := range slices.Concat(report.Problems, report.Notes) {
		space := ""
		if i == 0 && len(report.Policies) > 0 {
			space = "\n"
		}
		a.printf(space+"%s\n", oneLine(problem.Error()))
	}
}
