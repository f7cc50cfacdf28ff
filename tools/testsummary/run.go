package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"time"

	"github.com/ratelimit-functions/ratelimit/internal/replace"
)

// stage is the outcome of one go test, as run writes it for total.
type stage struct {
	Label   string   `json:"label"`
	Results []result `json:"results"`
}

// runCommand runs go test and reports whether all of it passed. An error means that it could not be
// run. At each tick it prints the progress, unless a package has just ended.
func runCommand(args []string, stdout io.Writer, ticks <-chan time.Time) (bool, error) {
	flags := flag.NewFlagSet("run", flag.ContinueOnError)
	label := flags.String("label", "", "what these tests are, for the report")
	out := flags.String("out", "", "file for the outcome")
	dir := flags.String("dir", ".", "folder to run in")
	if err := flags.Parse(args); err != nil {
		return false, err
	}
	if *label == "" || *out == "" || flags.NArg() == 0 {
		return false, errors.New("run needs -label, -out and, after --, the command")
	}
	// Ctrl-C reaches the whole process group: go test and the tests clean up and end, and this
	// program waits for them. Catching the signal rather than ignoring it lets the children receive
	// it.
	interrupts := make(chan os.Signal, 1)
	signal.Notify(interrupts, os.Interrupt, syscall.SIGTERM)
	defer signal.Stop(interrupts)

	fmt.Fprintf(stdout, "run  %s\n", *label)
	c := newCollector()
	p := &progress{c: c, out: stdout, began: time.Now()}
	runErr, err := p.run(*dir, flags.Args(), ticks)
	if err != nil {
		return false, err
	}
	s := stage{Label: *label, Results: c.results()}
	s.settle(runErr)
	if err := s.save(*out); err != nil {
		return false, err
	}
	good, bad := count(s.Results)
	if bad > 0 {
		fmt.Fprintf(stdout, "FAIL %s\n%s", s.Label, c.failures())
		for _, r := range s.Results {
			if r.Outcome != passed {
				fmt.Fprintf(stdout, "     %s: %s\n", r.Outcome, r.name())
			}
		}
		if runErr != nil {
			fmt.Fprintf(stdout, "     %s: %v\n", flags.Arg(0), runErr)
		}
		return false, nil
	}
	fmt.Fprintf(stdout, "ok   %s: %d tests (%.0f s)\n", s.Label, good, time.Since(p.began).Seconds())
	return true, nil
}

// run starts the command and reads its output to the end. runErr is the command's exit error, err a
// failure to read.
func (p *progress) run(dir string, command []string, ticks <-chan time.Time) (runErr, err error) {
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Dir = dir
	pipe, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	cmd.Stderr = cmd.Stdout
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("cannot start the tests: %w", err)
	}
	readErr := p.read(pipe, ticks)
	return cmd.Wait(), readErr
}

// settle adds a failure if the run failed but no result did.
func (s *stage) settle(runErr error) {
	good, bad := count(s.Results)
	if bad == 0 && (runErr != nil || good == 0) {
		what := "the run as a whole"
		if runErr == nil {
			what = "no test ran"
		}
		s.Results = append(s.Results, result{Package: s.Label, Test: what, Outcome: failed})
	}
}

func count(results []result) (good, bad int) {
	for _, r := range results {
		if r.Outcome == passed {
			good++
		} else {
			bad++
		}
	}
	return good, bad
}

func (s *stage) save(file string) error {
	text, err := json.Marshal(s)
	if err != nil {
		return err
	}
	if err := replace.File(file, text); err != nil {
		return fmt.Errorf("writing the outcome: %w", err)
	}
	return nil
}

func (r result) name() string {
	if r.Test == "" {
		return r.Package
	}
	return r.Package + " " + r.Test
}
