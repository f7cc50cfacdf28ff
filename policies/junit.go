package policies

import (
	"encoding/xml"
	"fmt"
	"io"
	"strings"
	"time"
)

type junitSuites struct {
	XMLName  xml.Name     `xml:"testsuites"`
	Tests    int          `xml:"tests,attr"`
	Failures int          `xml:"failures,attr"`
	Time     string       `xml:"time,attr"`
	Suites   []junitSuite `xml:"testsuite"`
}

type junitSuite struct {
	Name     string      `xml:"name,attr"`
	Tests    int         `xml:"tests,attr"`
	Failures int         `xml:"failures,attr"`
	Errors   int         `xml:"errors,attr"`
	Skipped  int         `xml:"skipped,attr"`
	Time     string      `xml:"time,attr"`
	Cases    []junitCase `xml:"testcase"`
}

type junitCase struct {
	Class   string        `xml:"classname,attr"`
	Name    string        `xml:"name,attr"`
	File    string        `xml:"file,attr"`
	Line    int           `xml:"line,attr"`
	Time    string        `xml:"time,attr"`
	Failure *junitFailure `xml:"failure"`
}

type junitFailure struct {
	Message string `xml:"message,attr"`
	Text    string `xml:",chardata"`
}

// WriteJUnit writes results as JUnit XML for CI systems: a suite for each file, and a case for each
// test.
func WriteJUnit(w io.Writer, all []Results) error {
	var suites junitSuites
	var took time.Duration
	for _, results := range all {
		suite := junitSuite{Name: results.File, Tests: len(results.Tests), Failures: results.Failed(), Time: seconds(results.Took)}
		for _, test := range results.Tests {
			c := junitCase{Class: results.File, Name: test.Name, File: results.File, Line: test.Line, Time: seconds(test.Took)}
			if len(test.Failures) > 0 {
				var lines []string
				for _, failure := range test.Failures {
					lines = append(lines, fmt.Sprintf("%s:%d:%d: %s: %s", results.File, failure.Line, failure.Column, failure.Call, failure))
				}
				c.Failure = &junitFailure{Message: test.Failures[0].String(), Text: strings.Join(lines, "\n")}
			}
			suite.Cases = append(suite.Cases, c)
		}
		suites.Tests += suite.Tests
		suites.Failures += suite.Failures
		took += results.Took
		suites.Suites = append(suites.Suites, suite)
	}
	suites.Time = seconds(took)
	if _, err := io.WriteString(w, xml.Header); err != nil {
		return err
	}
	encoder := xml.NewEncoder(w)
	encoder.Indent("", "  ")
	if err := encoder.Encode(suites); err != nil {
		return err
	}
	_, err := io.WriteString(w, "\n")
	return err
}

// String returns text such as "remaining: expected 19, got 18".
func (f Failure) String() string {
	return fmt.Sprintf("%s: expected %s, got %s", f.Field, f.Expected, f.Got)
}

func seconds(d time.Duration) string { return fmt.Sprintf("%.6f", d.Seconds()) }
