// Command bench compares this project's library with other limiters on one server. It measures the
// server time of each decision with INFO commandstats. `bench clients` measures whole calls in Go
// programs instead. README.md explains the figures.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"syscall"
	"time"

	"github.com/ratelimit-functions/ratelimit/functions"
)

func main() {
	// On SIGPIPE, for example when head exits in `bench | head`, the server must be stopped too.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGPIPE)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout, os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

type options struct {
	redis     string
	only      *regexp.Regexp
	libraries []string // paths of library files
	json      bool
	plan      plan

	instructions bool
}

func parse(args []string, stderr io.Writer) (options, error) {
	var o options
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.StringVar(&o.redis, "redis", os.Getenv("REDIS_URL"),
		"`URL` of an empty server to measure on; without it, and without REDIS_URL, a redis-server is started")
	only := flags.String("only", "", "measure only the cases whose name matches this `regexp`")
	flags.Func("library", "compare this checkout's library with the library text in `FILE`, without peers; may be repeated",
		func(file string) error {
			o.libraries = append(o.libraries, file)
			return nil
		})
	flags.BoolVar(&o.json, "json", false, "write JSON")
	flags.BoolVar(&o.instructions, "instructions", false,
		"count the instructions of a redis-server under valgrind instead of time; give it few --calls and --keys")
	flags.IntVar(&o.plan.Keys, "keys", 100000, "keys of each contender where a case is about keys in use")
	flags.IntVar(&o.plan.Calls, "calls", 2000, "timed calls of each contender in each round")
	flags.IntVar(&o.plan.WarmUp, "warm-up", 200, "calls before them that are not timed")
	flags.IntVar(&o.plan.Rounds, "rounds", 41, "rounds")
	flags.IntVar(&o.plan.Batch, "batch", 50, "decisions sent in one write")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	if flags.NArg() > 0 {
		return o, fmt.Errorf("%q: no arguments are taken beside the flags", flags.Arg(0))
	}
	var err error
	if o.only, err = regexp.Compile(*only); err != nil {
		return o, fmt.Errorf("--only %q: %w", *only, err)
	}
	return o, o.plan.check()
}

// readLibraries returns this checkout's library and the libraries in the given files.
func readLibraries(files []string) ([]*library, error) {
	list := []*library{{name: "this checkout (build " + functions.BuildID() + ")", text: withPolicies(functions.Source())}}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("--library: %w", err)
		}
		if !strings.HasPrefix(string(text), "#!lua name="+libraryName+"\n") {
			return nil, fmt.Errorf("--library %s: its first line is not #!lua name=%s, as that of every build of the library is",
				file, libraryName)
		}
		list = append(list, &library{name: filepath.Base(file), text: withPolicies(string(text))})
	}
	return list, nil
}

// withPolicies adds the policies @api and @new to a library without policies. @new has a canary. A
// build that predates canaries ignores it.
func withPolicies(text string) string {
	limit := "'" + wholeInUse.rate() + "'"
	return strings.Replace(text, "local POLICIES = {}", "local POLICIES = { api = { "+limit+" }, "+
		"new = { "+limit+", canary = { "+limit+", share = 500 } } }", 1)
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	if len(args) > 0 && args[0] == "clients" {
		return runClients(ctx, args[1:], stdout, stderr)
	}
	o, err := parse(args, stderr)
	if err != nil {
		return err
	}
	libraries, err := readLibraries(o.libraries)
	if err != nil {
		return err
	}
	var s *server
	var counts *counter
	if o.instructions {
		s, counts, err = startCounted(ctx)
	} else {
		s, err = openServer(ctx, o.redis)
	}
	if err != nil {
		return err
	}
	defer s.close()
	fmt.Fprintf(stderr, "measuring on %s at %s\n", s.version(), s.rdb.Options().Addr)

	all, err := cases(ctx, s.rdb, libraries)
	if err != nil {
		return err
	}
	began := time.Now()
	result := report{Date: began.UTC().Truncate(time.Second), Server: s.version(), Unit: "microseconds", Plan: o.plan,
		Machine: fmt.Sprintf("%s/%s, %d CPUs", runtime.GOOS, runtime.GOARCH, runtime.NumCPU())}
	for _, lib := range libraries {
		result.Libraries = append(result.Libraries, lib.name)
	}
	if o.instructions {
		result.Unit = "instructions"
	}
	r := runner{rdb: s.rdb, plan: o.plan, counter: counts}
	for _, c := range all {
		if !o.only.MatchString(c.name) || c.few && o.instructions {
			continue
		}
		fmt.Fprintf(stderr, "%3.0f s  %s\n", time.Since(began).Seconds(), c.name)
		figures, err := r.run(ctx, c)
		if err != nil {
			return fmt.Errorf("%s: %w", c.name, err)
		}
		result.add(c, figures)
	}
	if len(result.Cases) == 0 {
		return fmt.Errorf("--only %q matches none of the cases", o.only)
	}
	result.Seconds = time.Since(began).Seconds()
	if o.json {
		encoder := json.NewEncoder(stdout)
		encoder.SetIndent("", "  ")
		return encoder.Encode(result)
	}
	return result.writeText(stdout)
}
