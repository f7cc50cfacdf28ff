package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
)

// server is an entry of the -servers file, which the integration tests write: one for each server
// they ran on.
type server struct {
	Name     string   `json:"name"`     // as in the names of the tests: TestVectors/redis-7.0/...
	About    string   `json:"about"`    // product, version, topology
	Excluded []string `json:"excluded"` // kinds of test that could not be run there
	NotRun   []string `json:"not_run"`  // tests that had nothing to run on, and so did not pass
}

// totalCommand prints the summary of all stages and reports whether everything passed.
func totalCommand(args []string, stdout io.Writer) (bool, error) {
	flags := flag.NewFlagSet("total", flag.ContinueOnError)
	checksPassed := flags.Int("checks-passed", 0, "checks other than tests that passed")
	checksFailed := flags.Int("checks-failed", 0, "checks other than tests that failed")
	serversFile := flags.String("servers", "", "file that names the servers the tests ran on")
	seconds := flags.Int("seconds", 0, "how long everything took")
	if err := flags.Parse(args); err != nil {
		return false, err
	}
	stages := loadStages(flags.Args())
	servers, err := loadServers(*serversFile)
	if err != nil {
		return false, err
	}
	for _, sv := range servers {
		for i := range stages {
			stages[i].leaveOut(sv.NotRun)
		}
	}

	good, bad := *checksPassed, *checksFailed
	ran := 0
	fmt.Fprintf(stdout, "\n%-26s %6d passed %6d failed\n", "checks", *checksPassed, *checksFailed)
	for _, s := range stages {
		g, b := count(s.Results)
		good, bad, ran = good+g, bad+b, ran+g+b
		fmt.Fprintf(stdout, "%-26s %6d passed %6d failed\n", s.Label, g, b)
	}
	for _, sv := range servers {
		g, b := sv.count(stages)
		fmt.Fprintf(stdout, "  on %-21s %6d passed %6d failed   %s\n", sv.Name, g, b, sv.About)
		for _, what := range sv.Excluded {
			fmt.Fprintf(stdout, "     not run there: %s\n", what)
		}
	}
	if ran == 0 && bad == 0 {
		bad = 1 // a run without tests has not passed
	}
	var names []string
	for _, sv := range servers {
		names = append(names, sv.Name)
	}
	if names == nil {
		names = []string{"no server"}
		if *serversFile != "" {
			bad++ // nothing was proved on real servers
		}
	}
	// Programs read the first of these lines, so it contains nothing else.
	fmt.Fprintf(stdout, "%d passed, %d failed\n", good, bad)
	fmt.Fprintf(stdout, "%d s: %d checks and %d tests, on %s\n", *seconds, *checksPassed+*checksFailed, ran, strings.Join(names, ", "))
	return bad == 0, nil
}

// count returns how many tests ran on this server: those with its name as a part of theirs.
func (sv server) count(stages []stage) (good, bad int) {
	for _, s := range stages {
		for _, r := range s.Results {
			for part := range strings.SplitSeq(r.Test, "/") {
				if part != sv.Name {
					continue
				}
				if r.Outcome == passed {
					good++
				} else {
					bad++
				}
				break
			}
		}
	}
	return good, bad
}

// leaveOut removes the tests with these names that passed, because they did nothing.
func (s *stage) leaveOut(names []string) {
	s.Results = slices.DeleteFunc(s.Results, func(r result) bool {
		return r.Outcome == passed && slices.Contains(names, r.Test)
	})
}

// loadStages reads the outcomes that run wrote. A stage without an outcome has failed without being
// able to report it.
func loadStages(files []string) []stage {
	stages := make([]stage, len(files))
	for i, file := range files {
		text, err := os.ReadFile(file)
		if err == nil {
			err = json.Unmarshal(text, &stages[i])
		}
		if err != nil {
			why := result{Package: file, Test: "no outcome: " + err.Error(), Outcome: failed}
			stages[i] = stage{Label: file, Results: []result{why}}
		}
	}
	return stages
}

// loadServers reads the servers file. If the file does not exist, no server was reached: the tests
// that need one have failed, and so has the whole run.
func loadServers(file string) ([]server, error) {
	if file == "" {
		return nil, nil
	}
	text, err := os.ReadFile(file)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var servers []server
	if err := json.Unmarshal(text, &servers); err != nil {
		return nil, fmt.Errorf("%s does not list servers: %w", file, err)
	}
	return servers, nil
}
