// Command testcount counts the tests that the stages of tools/test.sh ran, by stage and by server.
//
//	testcount -servers FILE [-checks-passed N] [-checks-failed N] [-seconds N] LABEL STATUS FILE...
//
// A stage is described by its label, the exit status of its go test, and a file with the output of go
// test -json. The last two lines of output are "N passed, N failed", and then the time, the counts
// and the servers. The exit status is 1 unless something ran and all of it passed. These also count
// as failed: a skipped test, a test that did not end, a package that fails without a failing test, a
// stage that fails without a failing package, a stage without tests, and a run without servers.
package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
)

// server is an entry of the list of servers that the integration tests write.
type server struct {
	Name     string   `json:"name"` // part of the names of its tests: TestVectors/redis-7.0/...
	About    string   `json:"about"`
	Excluded []string `json:"excluded"` // kinds of test that could not run on this server
	NotRun   []string `json:"not_run"`  // names of these tests; they do nothing and pass
}

// words maps the actions of go test -json to the outcomes of tests.
var words = map[string]string{"run": "unfinished", "pass": "passed", "fail": "failed", "skip": "skipped"}

// outcomes returns the outcomes to count, by package and test. It includes every test without
// subtests. It includes a test with subtests, or a package, only if it failed although everything
// within it passed.
func outcomes(file string) (map[[2]string]string, error) {
	in, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer in.Close()
	all := map[[2]string]string{}
	for events := json.NewDecoder(in); ; {
		var e struct{ Action, Package, Test string }
		if err := events.Decode(&e); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		if word := words[e.Action]; word != "" && e.Package != "" {
			all[[2]string{e.Package, e.Test}] = word
		}
	}
	within := map[[2]string][]string{} // outcomes of each test's subtests and each package's tests
	for id, outcome := range all {
		for parent := id; parent[1] != ""; {
			parent[1] = parent[1][:max(0, strings.LastIndexByte(parent[1], '/'))]
			within[parent] = append(within[parent], outcome)
		}
	}
	maps.DeleteFunc(all, func(id [2]string, outcome string) bool {
		explained := slices.ContainsFunc(within[id], func(o string) bool { return o != "passed" })
		isPackage := id[1] == ""
		return isPackage && outcome == "skipped" || // a package without tests
			(isPackage || within[id] != nil) && (outcome == "passed" || explained)
	})
	return all, nil
}

func count(args []string, stdout, stderr io.Writer) int {
	flags := flag.NewFlagSet("testcount", flag.ContinueOnError)
	flags.SetOutput(stderr)
	good := flags.Int("checks-passed", 0, "how many checks passed")
	bad := flags.Int("checks-failed", 0, "how many checks failed")
	seconds := flags.Int("seconds", 0, "how long everything took")
	serversFile := flags.String("servers", "", "file that names the servers; if there is none, no server was reached")
	if flags.Parse(args) != nil || flags.NArg()%3 != 0 {
		return 2
	}
	var servers []server
	if text, err := os.ReadFile(*serversFile); err == nil {
		if err := json.Unmarshal(text, &servers); err != nil {
			fmt.Fprintf(stderr, "testcount: %s does not list servers: %v\n", *serversFile, err)
			return 2
		}
	}
	names, notRun := []string{}, []string{}
	for _, s := range servers {
		names, notRun = append(names, s.Name), append(notRun, s.NotRun...)
	}
	checks, tests := *good+*bad, 0
	onServer := map[string][2]int{} // passed and failed
	var failures []string
	fmt.Fprintf(stdout, "\n%-26s %6d passed %6d failed\n", "checks", *good, *bad)
	for stage := range slices.Chunk(flags.Args(), 3) {
		all, err := outcomes(stage[2])
		var n [2]int
		for id, outcome := range all {
			failed := 0
			if outcome != "passed" {
				failed = 1
				failures = append(failures, strings.TrimSpace(outcome+": "+id[0]+" "+id[1]))
			} else if slices.Contains(notRun, id[1]) {
				continue
			}
			n[failed]++
			for part := range strings.SplitSeq(id[1], "/") {
				on := onServer[part]
				on[failed]++
				onServer[part] = on
			}
		}
		tests += n[0] + n[1]
		if n[1] == 0 && (err != nil || stage[1] != "0" || n[0] == 0) {
			n[1] = 1
			failures = append(failures, fmt.Sprintf("failed: %s as a whole: go test exited with %s after %d tests; %v", stage[0], stage[1], n[0], err))
		}
		*good, *bad = *good+n[0], *bad+n[1]
		fmt.Fprintf(stdout, "%-26s %6d passed %6d failed\n", stage[0], n[0], n[1])
	}
	for _, s := range servers {
		fmt.Fprintf(stdout, "  on %-21s %6d passed %6d failed   %s\n", s.Name, onServer[s.Name][0], onServer[s.Name][1], s.About)
		for _, what := range s.Excluded {
			fmt.Fprintf(stdout, "     not run there: %s\n", what)
		}
	}
	if len(servers) == 0 {
		names = []string{"no server"}
		*bad++
	}
	for _, text := range slices.Sorted(slices.Values(failures)) {
		fmt.Fprintln(stdout, text)
	}
	// The first line is for programs, so it contains only the two counts.
	fmt.Fprintf(stdout, "%d passed, %d failed\n%d s: %d checks and %d tests, on %s\n", *good, *bad, *seconds, checks, tests, strings.Join(names, ", "))
	return min(*bad, 1)
}

func main() { os.Exit(count(os.Args[1:], os.Stdout, os.Stderr)) }
