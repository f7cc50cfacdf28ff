// Package cli is the ratelimit command line: one file a command, each writing to the writers it is given.
//
// What a script reads goes to stdout; a failure is one line on stderr, "ratelimit: what is wrong; what to do", and exit
// code 1.
package cli

import (
	"context"
	"io"
	"os"
	"runtime/debug"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/ratelimit-functions/ratelimit/embedded"
)

// The exit codes, as `ratelimit --help` lists them.
const (
	exitFine    = 0
	exitError   = 1
	exitDiffers = 2 // status, plan: a server lacks or differs from this build; doctor: findings; take, peek, refund and leases: denied, or not held
)

// Execute runs one command line (without the program's name) and returns the exit code. It ends early, and without a
// mess, when ctx does; env looks up environment variables and returns "" for one that is not set.
func Execute(ctx context.Context, args []string, env func(string) string, stdout, stderr io.Writer) int {
	return newApp(env, stdout, stderr).execute(ctx, args)
}

// app is one run of the command line: what the commands share. Tests replace its parts.
type app struct {
	ctx            context.Context
	env            func(string) string
	stdin          io.Reader
	stdout, stderr io.Writer

	program  string // how a person types this program
	terminal bool   // stdout is a terminal
	size     func() (width, height int)

	// Of the demo: its time, Ctrl-Z, its server, and how many requests may be under way at once.
	pace          pace
	onStop        func(f func(stop func())) (end func())
	startEmbedded func() (*embedded.Server, error)
	parallel      int

	timeout time.Duration // of --timeout, if it is not given

	commands []*cobra.Command
	servers  serverFlags
	named    servers // by the flags, once they are read
	json     bool
	library  string // the file of --library
	policies string // the file of --policies
}

func newApp(env func(string) string, stdout, stderr io.Writer) *app {
	return &app{
		ctx: context.Background(), env: env, stdin: os.Stdin, stdout: stdout, stderr: stderr,
		program:  programName(os.Args[0], debug.ReadBuildInfo),
		terminal: isTerminal(stdout), size: func() (int, int) { return terminalSize(stdout) },
		pace: &realPace{}, onStop: onStop, startEmbedded: startEmbedded, parallel: parallel,
		timeout: 5 * time.Second,
	}
}

func (a *app) execute(ctx context.Context, args []string) int {
	a.ctx = ctx
	root := a.root()
	if err := known(root, args); err != nil {
		return a.report(err)
	}
	root.SetArgs(args)
	return a.report(root.ExecuteContext(ctx))
}

// programName is what to type in place of arg0 in the commands that we suggest: `go run` leaves no program behind.
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

func isTerminal(w io.Writer) bool {
	file, ok := w.(*os.File)
	if !ok {
		return false
	}
	about, err := file.Stat()
	return err == nil && about.Mode()&os.ModeCharDevice != 0
}
