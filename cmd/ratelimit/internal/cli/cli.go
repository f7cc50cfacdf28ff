// Package cli implements the ratelimit command line, with one file for each command. Commands write
// only to the writers that they are given.
//
// Output for scripts goes to stdout. A failure is one line on stderr, "ratelimit: what is wrong;
// what to do", and exit code 1.
package cli

import (
	"context"
	"io"
	"os"
	"runtime/debug"
	"strings"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"

	"github.com/ratelimit-functions/ratelimit/cmd/ratelimit/internal/shell"
	"github.com/ratelimit-functions/ratelimit/embedded"
	"github.com/ratelimit-functions/ratelimit/functions"
)

// `ratelimit --help` lists these exit codes.
const (
	exitFine  = 0
	exitError = 1
	// exitDiffers means that the answer is negative: a server lacks this build (status), the plan
	// is not empty (plan, rollback --plan), there are findings (doctor), a call is denied, or a
	// lease is not held.
	exitDiffers = 2
)

// Execute runs one command line (without the program's name) and returns the exit code. If ctx is
// canceled, Execute stops early and cleans up. env returns the value of an environment variable, or
// "" if it is not set.
func Execute(ctx context.Context, args []string, env func(string) string, stdout, stderr io.Writer) int {
	return newApp(env, stdout, stderr).execute(ctx, args)
}

// app is one run of a command line, with the state that the commands share. Tests replace some of
// the fields.
type app struct {
	env            func(string) string
	stdin          io.Reader
	stdout, stderr io.Writer
	unwritten      error // the first error from a write to stdout

	program  string // the program's name, as a user would type it
	terminal bool   // whether stdout is a terminal
	size     func() (width, height int)

	// For the demo: its clock, and the function that starts its server.
	pace          pace
	startEmbedded func() (*embedded.Server, error)

	vectors func() ([]functions.VectorFile, error) // for verify

	timeout time.Duration // default of --timeout
	reuse   time.Duration // how long the output of --auth-command is used for new connections

	args      []string // the command line
	commands  []*cobra.Command
	servers   serverFlags
	password  string      // the password from --askpass
	auth      *passwords  // the passwords of --auth-command, or nil
	named     servers     // set after the flags are parsed
	clustered atomic.Bool // whether a server has said that it is a node of a cluster
	json      bool
	library   string   // file given with --library
	policies  []string // files given with --policies
	namespace string   // value of --namespace
	back      bool     // whether the command is rollback
	watches   bool     // whether the command is status --watch
	examines  bool     // whether the command is doctor
	reads     bool     // whether the command needs only the rights of a planner
}

func newApp(env func(string) string, stdout, stderr io.Writer) *app {
	return &app{
		env: env, stdin: os.Stdin, stdout: stdout, stderr: stderr,
		program:  programName(os.Args[0], debug.ReadBuildInfo),
		terminal: isTerminal(stdout), size: func() (int, int) { return terminalSize(stdout) },
		pace: realPace{make(chan struct{}, 32)}, startEmbedded: func() (*embedded.Server, error) { return embedded.Start() },
		vectors: functions.LoadVectors,
		timeout: 5 * time.Second, reuse: 5 * time.Second,
	}
}

func (a *app) execute(ctx context.Context, args []string) int { return a.report(a.run(ctx, args)) }

// run runs a command line. Its errors contain remedies for Go programs; the method explained
// replaces these remedies.
func (a *app) run(ctx context.Context, args []string) error {
	a.args = args
	root := a.root()
	if err := known(root, args); err != nil {
		return err
	}
	root.SetArgs(append([]string{}, args...)) // with nil, cobra uses the arguments of the process
	err := groupError(root.ExecuteContext(ctx))
	if a.unwritten != nil {
		return a.unwritten
	}
	return err
}

// commandLine returns the command line as a user would type it.
func (a *app) commandLine() string { return shell.Line(append([]string{a.program}, a.args...)...) }

// programName returns the program's name for suggested commands. Under `go run`, which deletes the
// program when it ends, the name is a `go run` command line.
func programName(arg0 string, info func() (*debug.BuildInfo, bool)) string {
	if !strings.Contains(arg0, "go-build") {
		return "ratelimit"
	}
	built, ok := info()
	if !ok || built.Main.Version == "" || strings.Contains(built.Main.Version, "devel") {
		return "go run ./cmd/ratelimit"
	}
	return "go run " + built.Path + "@" + built.Main.Version
}
