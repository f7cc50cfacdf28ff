package cli

import (
	"bytes"
	"cmp"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/ratelimit-functions/ratelimit/cmd/ratelimit/internal/shell"
)

// messages compares the errors that a test provokes with a section of testdata/messages.txt. For
// each error the section has the command line, the text for Go programs if that differs, and the
// command's output. "go test -update" rewrites the sections of the tests that run.
type messages struct {
	t       *testing.T
	section string
	names   []string // pairs: a string that differs between runs, such as an address, then its placeholder
	text    strings.Builder
	timeout time.Duration // of the commands; 0: that of testApp
}

var messagesFile, _ = filepath.Abs("testdata/messages.txt") // tests change the working directory

func newMessages(t *testing.T, section string, names ...string) *messages {
	t.Helper()
	m := &messages{t: t, section: section, names: names}
	t.Cleanup(m.check)
	return m
}

// fails runs a command line that must fail and print only the error.
func (m *messages) fails(env []string, args ...string) {
	m.t.Helper()
	if got := m.failsAfter(env, args...); got != "" {
		m.t.Errorf("%v prints %s", args, got)
	}
}

// failsAfter runs a command line that must fail, and returns its stdout.
func (m *messages) failsAfter(env []string, args ...string) string {
	m.t.Helper()
	var stdout, stderr bytes.Buffer
	a := testApp(env, &stdout, &stderr)
	a.timeout = cmp.Or(m.timeout, a.timeout)
	err := a.run(m.t.Context(), args)
	if code := a.report(err); code != exitError || err == nil || strings.Count(stderr.String(), "\n") != 1 {
		m.t.Errorf("%v: exit code %d, stderr %q", args, code, stderr.String())
		return stdout.String()
	}
	line := "$ " + shell.Line(append([]string{"ratelimit"}, args...)...)
	if program := "ratelimit: " + oneLine(err.Error()) + "\n"; program != stderr.String() {
		line += "\nin Go:     " + strings.TrimSuffix(strings.TrimPrefix(program, "ratelimit: "), "\n")
	}
	m.add(line + "\n" + stderr.String())
	return stdout.String()
}

// add adds text to the section.
func (m *messages) add(text string) {
	text = regexp.MustCompile(`\bbuild [0-9a-f]{12}\b`).ReplaceAllString(text, "build BUILD")
	text = regexp.MustCompile(`\buser_function:\d+`).ReplaceAllString(text, "user_function:LINE")
	m.text.WriteString(strings.NewReplacer(m.names...).Replace(text) + "\n")
}

const mark = "\n## "

// read returns the section of testdata/messages.txt, and the text before and after it.
func (m *messages) read() (before, section, after string) {
	m.t.Helper()
	content := must[[]byte](m.t)(os.ReadFile(messagesFile))
	before, rest, _ := strings.Cut(string(content), mark+m.section+"\n\n")
	section, after, more := strings.Cut(rest, mark)
	if more {
		after = mark + after
	}
	return before, strings.TrimRight(section, "\n"), after
}

func (m *messages) check() {
	m.t.Helper()
	before, want, after := m.read()
	got := strings.TrimRight(m.text.String(), "\n")
	if *update && !m.t.Failed() {
		text := strings.TrimRight(before, "\n") + "\n" + mark + m.section + "\n\n" + got + "\n" + after
		require(m.t, os.WriteFile(messagesFile, []byte(text), 0o666))
	} else if got != want {
		m.t.Errorf("section %q of %s:\n%s\nwant:\n%s", m.section, messagesFile, got, want)
	}
}

// Each section of testdata/messages.txt belongs to a test. Otherwise, nothing would check the
// section.
func TestSections(t *testing.T) {
	files := must[[]string](t)(filepath.Glob("*_test.go"))
	read := func(file string) string {
		content := must[[]byte](t)(os.ReadFile(file))
		return string(content)
	}
	var tests strings.Builder
	for _, file := range files {
		tests.WriteString(read(file))
	}
	for _, section := range regexp.MustCompile(`(?m)^## (.+)$`).FindAllStringSubmatch(read(messagesFile), -1) {
		if !strings.Contains(tests.String(), `"`+section[1]+`"`) {
			t.Errorf("no test has the section %q", section[1])
		}
	}
}

// TestCommandLines runs the command lines in the listed sections of testdata/messages.txt.
func TestCommandLines(t *testing.T) {
	inFolder(t, map[string]string{
		"access.log":    logLines("203.0.113.7", 20, "198.51.100.1", 3),
		"policies.yaml": "policies:\n  api: {limit: 5/m, shadow: true, track: true}\n  calc:\n    limits:\n      - resource: 7/h\n      - consumer: 5/m\n",
		"empty.pem":     "x",
	})
	srv := withLibrary(t)
	for _, section := range []string{"acl", "backtest", "URLs", "empty keys", "load", "calls", "TLS files", "wrong use"} {
		m := newMessages(t, section)
		_, text, _ := m.read()
		n := 0
		for line := range strings.Lines(text) {
			if words := strings.TrimPrefix(line, "$ ratelimit"); words != line {
				m.fails([]string{redisURL(srv.Addr())}, wordsOf(strings.TrimSpace(words))...)
				n++
			} else if strings.Contains(line, "secret") {
				t.Errorf("a message has a password: %s", line)
			}
		}
		if n == 0 {
			t.Errorf("the section %q has no command line", section)
		}
	}
	if n, err := srv.Do("DBSIZE"); err != nil || n != int64(0) {
		t.Errorf("the server has %v keys, %v", n, err)
	}
}

// wordsOf splits a command line as a shell does.
func wordsOf(line string) []string {
	words, quoted := []string{""}, false
	for i := 0; i < len(line); i++ {
		last := &words[len(words)-1]
		switch c := line[i]; {
		case c == '\'':
			quoted = !quoted
		case c == '\\' && !quoted:
			i++
			*last += line[i : i+1]
		case c == ' ' && !quoted:
			words = append(words, "")
		default:
			*last += line[i : i+1]
		}
	}
	return words
}
