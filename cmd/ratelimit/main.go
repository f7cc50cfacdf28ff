// Command ratelimit builds, deploys, checks and tries the rate limiting library; `ratelimit --help` says how.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/ratelimit-functions/ratelimit/internal/cli"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second Ctrl-C ends what does not look at ctx, such as reading a pipe
	code := cli.Execute(ctx, os.Args[1:], os.Getenv, os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}
