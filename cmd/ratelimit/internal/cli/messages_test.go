package cli

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/ratelimit-functions/ratelimit/internal/shell"
)

// messages compares the errors that a test provokes with a section of testdata/messages.txt. An
// error has the command line, the text for Go programs if that is another, and what the command
// prints. "go test -update" rewrites the sections of the tests that run.
type messages struct {
	t       *testing.T
	section string
	names   []string // pairs: a text that differs from run to run, such as an address, and its name
	text    strings.Builder
}

var messagesFile, _ = filepath.Abs("testdata/messages.txt") // tests change the working folder

func newMessages(t *testing.T, section string, names ...string) *messages {
	t.Helper()
	m := &messages{t: t, section: section, names: names}
	t.Cleanup(m.check)
	return m
}

// fails runs a command line that must fail and print nothing else.
func (m *messages) fails(env []string, args ...string) {
	m.t.Helper()
	if got := m.failsAfter(env, args...); got != "" {
		m.t.Errorf("%v prints %s", args, got)
	}
}

// failsAfter runs a command line that must fail, and returns what it prints before.
func (m *messages) failsAfter(env []string, args ...string) string {
	m.t.Helper()
	var stdout, stderr bytes.Buffer
	a := testApp(env, &stdout, &stderr)
	err := a.run(m.t.Context(), args)
	if code := a.report(err); code != exitError || err == nil || strings.Count(stderr.String(), "\n") != 1 {
		m.t.Errorf("%v: exit code %d, stderr %q", args, code, stderr.String())
		return stdout.String()
	}
	line := "$ " + shell.Line(append([]string{"ratelimit"}, args...)...)
	if program := oneLine(err.Error()) + "\n"; program != stderr.String() {
		line += "\nin Go:     " + strings.TrimSuffix(strings.TrimPrefix(program, "ratelimit: "), "\n")
	}
	m.add(line + "\n" + stderr.String())
	return stdout.String()
}

// add adds a text to the section.
func (m *messages) add(text string) {
	text = regexp.MustCompile(`\bbuild [0-9a-f]{12}\b`).ReplaceAllString(text, "build BUILD")
	m.text.WriteString(strings.NewReplacer(m.names...).Replace(text) + "\n")
}

func (m *messages) check() {
	m.t.Helper()
	const mark = "\n## "
	content, err := os.ReadFile(messagesFile)
	if err != nil {
		m.t.Fatal(err)
	}
	before, rest, _ := strings.Cut(string(content), mark+m.section+"\n\n")
	want, after, more := strings.Cut(rest, mark)
	if want = strings.TrimRight(want, "\n"); more {
		after = mark + after
	}
	got := strings.TrimRight(m.text.String(), "\n")
	if *update && !m.t.Failed() {
		text := strings.TrimRight(before, "\n") + "\n" + mark + m.section + "\n\n" + got + "\n" + after
		if err := os.WriteFile(messagesFile, []byte(text), 0o666); err != nil {
			m.t.Fatal(err)
		}
	} else if got != want {
		m.t.Errorf("section %q of %s:\n%s\nwant:\n%s", m.section, messagesFile, got, want)
	}
}
