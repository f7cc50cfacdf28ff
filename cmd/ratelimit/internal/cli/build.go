package cli

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/ratelimit-functions/ratelimit/functions"
)

type buildReport struct {
	Library  string `json:"library"`
	Version  string `json:"version"`
	Contract int    `json:"contract"`
	BuildID  string `json:"build_id"`
	Digest   string `json:"digest"` // SHA-256 of the library's source code, hexadecimal
	Bytes    int    `json:"bytes"`
	Policies int    `json:"policies"` // number of policies in the library
}

func about(b functions.Build) buildReport {
	return buildReport{
		Library: functions.Name, Version: b.Version(), Contract: functions.Contract,
		BuildID: b.ID(), Digest: b.Digest(), Bytes: len(b.Text()), Policies: len(b.Policies()),
	}
}

func (r buildReport) String() string {
	text := fmt.Sprintf("%s %s, build %s", r.Library, r.Version, r.BuildID)
	if r.Policies > 0 {
		text += " with " + countPolicies(r.Policies)
	}
	return text
}

func (a *app) buildCommand() *cobra.Command {
	var output string
	cmd := a.jsonFlag(&cobra.Command{
		Use:   "build",
		Short: "Print the library text that a server loads",
		Long: `Print the library text that a server loads, or write it to a file with -o. A file that exists and is no library is left
as it is.

With --json it prints the version, the build id, the digest (SHA-256) and the size instead of the text.`,
		Example: `  ratelimit build | redis-cli -x FUNCTION LOAD REPLACE
  ratelimit build --policies policies.yaml -o ratelimit.lua`,
		Args: noArgs,
		RunE: func(*cobra.Command, []string) error {
			file := reportFile{"-o", output, "library", "#!lua name=" + functions.Name + "\n"}
			if err := file.check(); err != nil {
				return err
			}
			build, err := a.build()
			if err != nil {
				return err
			}
			err = file.write(func(w io.Writer) error {
				_, err := io.WriteString(w, build.Text())
				return err
			})
			if err != nil {
				return err
			}
			switch {
			case a.json:
				return a.printJSON(about(build))
			case output != "":
				return a.printf("wrote %s: %s, %s\n", output, about(build), plural(len(build.Text()), "byte"))
			}
			return a.write(build.Text())
		},
	})
	cmd.Flags().StringVarP(&output, "output", "o", "", "write the text to this file")
	a.policiesFlag(cmd)
	a.namespaceFlag(cmd)
	return cmd
}
