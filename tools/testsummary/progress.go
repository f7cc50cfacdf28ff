package main

import (
	"bufio"
	"fmt"
	"io"
	"strings"
	"time"
)

// progress shows what a go test is doing, in whole lines, so that it is readable in a log too.
type progress struct {
	c     *collector
	out   io.Writer
	began time.Time
	said  bool // whether something was printed since the last tick
}

// read reads the output of go test from r until its end.
func (p *progress) read(r io.Reader, ticks <-chan time.Time) error {
	lines, ended := make(chan string), make(chan error, 1)
	go func() {
		defer close(lines)
		in := bufio.NewReader(r)
		for {
			text, err := in.ReadString('\n')
			if text != "" {
				lines <- text
			}
			if err == io.EOF {
				err = nil
			} else if err == nil {
				continue
			}
			ended <- err
			return
		}
	}()
	for {
		select {
		case text, ok := <-lines:
			if !ok {
				if err := <-ended; err != nil {
					return fmt.Errorf("reading what go test prints: %w", err)
				}
				return nil
			}
			p.line(text)
		case now := <-ticks:
			p.tick(now)
		}
	}
}

// line processes one line, and prints one when a package has ended. It prints nothing for a package
// without tests.
func (p *progress) line(text string) {
	e := p.c.line(text)
	if e.Test != "" || (e.Action != "pass" && e.Action != "fail") {
		return
	}
	word, seconds := "ok  ", e.Time.Sub(p.began).Seconds()
	good, bad := count(p.c.resultsOf(e.Package))
	if bad > 0 {
		word = "FAIL"
		fmt.Fprintf(p.out, "     %s %s: %d of %d tests, after %.0f s\n", word, e.Package, bad, good+bad, seconds)
	} else {
		fmt.Fprintf(p.out, "     %s %s: %d tests, after %.0f s\n", word, e.Package, good, seconds)
	}
	p.said = true
}

// tick prints the progress, unless something was printed since the last tick.
func (p *progress) tick(now time.Time) {
	if p.said {
		p.said = false
		return
	}
	ended := 0
	for pkg := range p.c.tests {
		for _, r := range p.c.resultsOf(pkg) {
			if r.Outcome != unfinished {
				ended++
			}
		}
	}
	fmt.Fprintf(p.out, "     %.0f s: %d tests have ended; %s\n", now.Sub(p.began).Seconds(), ended, p.doing(now))
}

// doing names the test that has been running longest, or the package if no test is running.
func (p *progress) doing(now time.Time) string {
	var longest test
	var since time.Time
	n := 0
	for t, at := range p.c.running {
		if p.hasRunning(t) {
			continue
		}
		n++
		if n == 1 || at.Before(since) || (at.Equal(since) && t.name < longest.name) {
			longest, since = t, at
		}
	}
	if n == 0 {
		return "building"
	}
	text := fmt.Sprintf("running %s for %.0f s", result{Package: longest.pkg, Test: longest.name}.name(), now.Sub(since).Seconds())
	if n > 1 {
		text += fmt.Sprintf(", and %d more", n-1)
	}
	return text
}

// hasRunning reports whether a test of this package, or a subtest of this test, is running and is
// the one to name.
func (p *progress) hasRunning(t test) bool {
	for other := range p.c.running {
		if other.pkg == t.pkg && other.name != t.name && (t.name == "" || strings.HasPrefix(other.name, t.name+"/")) {
			return true
		}
	}
	return false
}
