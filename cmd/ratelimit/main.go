// Command ratelimit builds, deploys, checks and tries the rate limiting library; see `ratelimit
// --help`.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/ratelimit-functions/ratelimit/cmd/ratelimit/internal/cli"
)

func main() {
	ends := []os.Signal{os.Interrupt, syscall.SIGTERM, syscall.SIGQUIT}
	if !signal.Ignored(syscall.SIGHUP) { // under nohup, the program ignores SIGHUP
		ends = append(ends, syscall.SIGHUP)
	}
	ctx, stop := signal.NotifyContext(context.Background(), ends...)
	context.AfterFunc(ctx, stop) // a second Ctrl-C kills the program, even in code that ignores ctx, such as a read from a pipe
	code := cli.Execute(ctx, os.Args[1:], os.Getenv, os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}
