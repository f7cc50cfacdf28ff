package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"sort"
	"strings"
)

// event is one line of go test -json, as go doc test2json describes it.
type event struct {
	Action     string
	Package    string
	ImportPath string
	Test       string
	Output     string
}

// outcome of one test: how it ended, or how it did not.
type outcome string

const (
	passed     outcome = "passed"
	failed     outcome = "failed"
	skipped    outcome = "skipped"
	unfinished outcome = "unfinished"
)

// result is what became of one test or, with an empty Test, of a package as a whole.
type result struct {
	Package string  `json:"package"`
	Test    string  `json:"test,omitempty"`
	Outcome outcome `json:"outcome"`
}

// collector reads the events of one go test and keeps what a report needs.
type collector struct {
	tests    map[string]map[string]outcome // package, test name
	packages map[string]outcome
	output   []line // in the order in which it came
}

type line struct {
	pkg, test, text string
}

func newCollector() *collector {
	return &collector{tests: map[string]map[string]outcome{}, packages: map[string]outcome{}}
}

// read takes the events from r until its end. Text that is not an event is kept as output of no package.
func (c *collector) read(r io.Reader) error {
	in := bufio.NewReader(r)
	for {
		text, err := in.ReadString('\n')
		if text != "" {
			c.line(text)
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return fmt.Errorf("reading what go test prints: %w", err)
		}
	}
}

func (c *collector) line(text string) {
	var e event
	if !strings.HasPrefix(text, "{") || json.Unmarshal([]byte(text), &e) != nil {
		c.output = append(c.output, line{text: text})
		return
	}
	if e.Package == "" {
		// A build event names the package that does not compile, which may be a test variant: "p [p.test]".
		e.Package, _, _ = strings.Cut(e.ImportPath, " ")
	}
	switch e.Action {
	case "output", "build-output":
		c.output = append(c.output, line{pkg: e.Package, test: e.Test, text: e.Output})
	case "build-fail":
		c.packages[e.Package] = failed
	case "run":
		c.set(e, unfinished)
	case "pass":
		c.set(e, passed)
	case "fail":
		c.set(e, failed)
	case "skip":
		c.set(e, skipped)
	}
}

func (c *collector) set(e event, o outcome) {
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

// results lists what counts, in order: each test without subtests, a test with subtests only if it failed while
// none of them did, and a package only if it failed while none of its tests did.
func (c *collector) results() []result {
	var all []result
	for pkg, tests := range c.tests {
		parents := map[string]bool{}    // has subtests
		badParents := map[string]bool{} // one of them did not pass
		for name, o := range tests {
			for p := parent(name); p != ""; p = parent(p) {
				parents[p] = true
				if o != passed {
					badParents[p] = true
				}
			}
		}
		bad := false
		for name, o := range tests {
			if o != passed {
				bad = true
			}
			if !parents[name] || (o != passed && !badParents[name]) {
				all = append(all, result{Package: pkg, Test: name, Outcome: o})
			}
		}
		if c.packages[pkg] == failed && !bad {
			all = append(all, result{Package: pkg, Outcome: failed})
		}
	}
	for pkg, o := range c.packages {
		if o == failed && c.tests[pkg] == nil {
			all = append(all, result{Package: pkg, Outcome: failed})
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

// failures returns the output of everything that did not pass: of each such test, and of the package around it.
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

// parent returns the name of the test that the named subtest belongs to, or "".
func parent(test string) string {
	if i := strings.LastIndexByte(test, '/'); i >= 0 {
		return test[:i]
	}
	return ""
}
