package main

import (
	"encoding/json"
	"sort"
	"strings"
	"time"
)

// event is one line of go test -json; see go doc test2json.
type event struct {
	Time       time.Time
	Action     string
	Package    string
	ImportPath string
	Test       string
	Output     string
}

// outcome is how a test ended, or that it did not end.
type outcome string

const (
	passed     outcome = "passed"
	failed     outcome = "failed"
	skipped    outcome = "skipped"
	unfinished outcome = "unfinished"
)

// result is the outcome of one test or, if Test is empty, of a whole package.
type result struct {
	Package string  `json:"package"`
	Test    string  `json:"test,omitempty"`
	Outcome outcome `json:"outcome"`
}

// collector reads the events of one go test and keeps what a report needs.
type collector struct {
	tests    map[string]map[string]outcome // by package and test name
	packages map[string]outcome
	running  map[test]time.Time // start times; with an empty name, of a package
	output   []line             // in the order of arrival
}

type test struct {
	pkg, name string
}

type line struct {
	pkg, test, text string
}

func newCollector() *collector {
	return &collector{tests: map[string]map[string]outcome{}, packages: map[string]outcome{}, running: map[test]time.Time{}}
}

// line parses one line that go test prints, and returns it as an event. Text that is not an event
// is kept as output without a package.
func (c *collector) line(text string) event {
	var e event
	if !strings.HasPrefix(text, "{") || json.Unmarshal([]byte(text), &e) != nil {
		c.output = append(c.output, line{text: text})
		return event{}
	}
	if e.Package == "" {
		// A build event names the package that does not compile, possibly a test variant: "p
		// [p.test]".
		e.Package, _, _ = strings.Cut(e.ImportPath, " ")
	}
	switch e.Action {
	case "output", "build-output":
		c.output = append(c.output, line{pkg: e.Package, test: e.Test, text: e.Output})
	case "build-fail":
		c.packages[e.Package] = failed
	case "start", "cont":
		c.running[test{e.Package, e.Test}] = e.Time
	case "pause":
		delete(c.running, test{e.Package, e.Test})
	case "run":
		c.running[test{e.Package, e.Test}] = e.Time
		c.set(e, unfinished)
	case "pass":
		c.set(e, passed)
	case "fail":
		c.set(e, failed)
	case "skip":
		c.set(e, skipped)
	}
	return e
}

func (c *collector) set(e event, o outcome) {
	if o != unfinished {
		delete(c.running, test{e.Package, e.Test})
	}
	if e.Test == "" {
		if c.packages[e.Package] != failed {
			c.packages[e.Package] = o
		}
		return
	}
	if c.tests[e.Package] == nil {
		c.tests[e.Package] = map[string]outcome{}
	}
	c.tests[e.Package][e.Test] = o
}

// results lists everything that counts, in order.
func (c *collector) results() []result {
	var all []result
	for pkg := range c.tests {
		all = append(all, c.resultsOf(pkg)...)
	}
	for pkg := range c.packages {
		if c.tests[pkg] == nil {
			all = append(all, c.resultsOf(pkg)...)
		}
	}
	sort.Slice(all, func(i, j int) bool {
		if all[i].Package != all[j].Package {
			return all[i].Package < all[j].Package
		}
		return all[i].Test < all[j].Test
	})
	return all
}

// resultsOf lists what counts in one package: each test without subtests; a test with subtests only
// if it failed and none of them did; the package only if it failed and none of its tests did.
func (c *collector) resultsOf(pkg string) []result {
	tests := c.tests[pkg]
	parents := map[string]bool{}    // tests with subtests
	badParents := map[string]bool{} // tests with a subtest that did not pass
	bad := false
	for name, o := range tests {
		for p := parent(name); p != ""; p = parent(p) {
			parents[p] = true
			if o != passed {
				badParents[p] = true
			}
		}
		bad = bad || o != passed
	}
	var all []result
	for name, o := range tests {
		if !parents[name] || (o != passed && !badParents[name]) {
			all = append(all, result{Package: pkg, Test: name, Outcome: o})
		}
	}
	if c.packages[pkg] == failed && !bad {
		all = append(all, result{Package: pkg, Outcome: failed})
	}
	return all
}

// failures returns the output of everything that did not pass: of each such test, and of its
// package.
func (c *collector) failures() string {
	badPackage := map[string]bool{"": true}
	for pkg, o := range c.packages {
		badPackage[pkg] = badPackage[pkg] || o == failed
	}
	for pkg, tests := range c.tests {
		for _, o := range tests {
			badPackage[pkg] = badPackage[pkg] || o != passed
		}
	}
	var b strings.Builder
	for _, l := range c.output {
		if badPackage[l.pkg] && (l.test == "" || c.tests[l.pkg][l.test] != passed) {
			b.WriteString(l.text)
		}
	}
	return b.String()
}

// parent returns the name of the test that a subtest belongs to, or "".
func parent(test string) string {
	if i := strings.LastIndexByte(test, '/'); i >= 0 {
		return test[:i]
	}
	return ""
}
