package cli

import (
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/ratelimit-functions/ratelimit/functions"
)

func (a *app) versionCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "version",
		Short:   "Print the versions of this program and of the library in it",
		Example: "  ratelimit version --json",
		Args:    noArgs,
		RunE: func(*cobra.Command, []string) error {
			build, err := functions.New()
			if err != nil {
				return err
			}
			program := "unknown"
			if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
				program = info.Main.Version
			}
			if a.json {
				return a.printJSON(struct {
					Program string      `json:"program"`
					Library buildReport `json:"library"`
				}{program, about(build)})
			}
			return a.printf("program %s\nlibrary %s, contract %d\n", program, about(build), functions.Contract)
		},
	}
	a.jsonFlag(cmd)
	return cmd
}
