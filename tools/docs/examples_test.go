//go:build unix

package docs

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ratelimit-functions/ratelimit/embedded"
	"github.com/ratelimit-functions/ratelimit/internal/redistest"
)

func must[T any](t testing.TB) func(T, error) T { return redistest.Must[T](t) }

var require = redistest.Require

// first returns the clone that newClone copies. firstDir is the directory that holds it, which
// TestMain removes.
var (
	firstDir string
	first    = sync.OnceValues(func() (*Clone, error) {
		var err error
		if firstDir, err = os.MkdirTemp("", "ratelimit-docs-"); err != nil {
			return nil, err
		}
		return NewClone(context.Background(), "../..", firstDir)
	})
)

func TestMain(m *testing.M) {
	code := m.Run()
	if firstDir != "" {
		_ = os.RemoveAll(firstDir)
	}
	os.Exit(code)
}

func newClone(t *testing.T) *Clone {
	t.Helper()
	return must[*Clone](t)(must[*Clone](t)(first()).Copy(t.Context(), t.TempDir()))
}

func TestTheDocuments(t *testing.T) {
	t.Parallel()
	documents := must[[]Document](t)(All("../.."))
	clone := newClone(t)
	for _, document := range documents {
		server := embedded.Run(t, embedded.WithTime(time.Now()))
		for _, example := range document.Examples {
			if example.Needs != "" {
				continue // another test runs it
			}
			t.Run(example.Name, func(t *testing.T) {
				if err := example.Run(t.Context(), clone, "bash", "redis://"+server.Addr()); err != nil {
					t.Error(err)
				}
			})
		}
	}
}

// TestEveryShellReadsTheDocumentsAlike checks that every shell calls the same programs with the
// same arguments for a block. Therefore the other tests run the blocks in only one shell.
func TestEveryShellReadsTheDocumentsAlike(t *testing.T) {
	documents := must[[]Document](t)(All("../.."))
	for _, document := range documents {
		for _, example := range document.Examples {
			if example.Language != "sh" {
				continue
			}
			want, err := callsOf(t, example, "bash")
			if err != nil || want == "" {
				t.Errorf("%s calls %q in bash: %v", example.Name, want, err)
			}
			for _, shell := range []string{"zsh", "sh"} {
				if got, err := callsOf(t, example, shell); got != want || err != nil {
					t.Errorf("%s calls in %s:\n%s(%v)\nand in bash:\n%s", example.Name, shell, got, err, want)
				}
			}
		}
	}
}

// called lists the programs that the blocks call. recorder replaces each of them.
var called = []string{"docker", "go", "make", "python3", "ratelimit", "redis-cli", "sed"}

const recorder = "#!/bin/sh\n{ printf '%s' \"${0##*/}, REDIS_URL=$REDIS_URL\"; printf ' <%s>' \"$@\"; echo; } >>\"$CALLS\"\n"

// callsOf runs the example in a shell, and returns the programs that the shell starts, with their
// arguments, one per line.
func callsOf(t *testing.T, example Example, shell string) (string, error) {
	t.Helper()
	dir := t.TempDir()
	clone := &Clone{Dir: filepath.Join(dir, "clone"), env: []string{"PATH=" + dir + ":/usr/bin:/bin", "CALLS=" + filepath.Join(dir, "calls"), "PWD="}}
	require(t, os.MkdirAll(filepath.Join(clone.Dir, example.in), 0o755))
	for _, name := range called {
		require(t, os.WriteFile(filepath.Join(dir, name), []byte(recorder), 0o755))
	}
	example.prints, example.until, example.statuses = "", "", nil
	err := example.Run(t.Context(), clone, shell, "redis://127.0.0.1:1")
	text, _ := os.ReadFile(filepath.Join(dir, "calls"))
	return strings.ReplaceAll(string(text), dir, ""), err
}

func TestBlocksThatNobodyCouldPaste(t *testing.T) {
	for _, tt := range []struct{ text, want string }{
		{"```sh\necho a # says a\n```\n", `README.md:1: zsh takes "# says a" for words of the command, or for a command; say it outside of the block`},
		{"\n```sh\n# says a\necho a\n```\n", `README.md:2: zsh takes "# says a" for words of the command`},
		{"```\nls\n```\n", `README.md:1: a block in ""; write one of ["sh" "go" "python"], which are run, or of ["text" "yaml" "json" "lua" "nginx" "caddyfile" "haproxy" "apache"]`},
		{"```sh\nls\n", "README.md:1: this block does not end"},
		{"<!-- prints: a -->\n\n```sh\necho a\n```\n", "README.md:2: a mark stands before this line, which begins no block"},
	} {
		if _, err := parse("README.md", tt.text); err == nil || !strings.HasPrefix(err.Error(), tt.want) {
			t.Errorf("%q: %v, want %s", tt.text, err, tt.want)
		}
	}
	document, err := parse("README.md", "<!-- not run: it takes an hour -->\n```sh\nls\n```\n")
	if err != nil || len(document.Examples) != 0 || strings.Join(document.NotRun, "") != "README.md:2: it takes an hour" {
		t.Errorf("%+v, %v", document, err)
	}
}

// TestBlocksThatFail checks the errors for invalid blocks, such as blocks whose output differs from
// their marks. Some errors occur in every shell, others in only one.
func TestBlocksThatFail(t *testing.T) {
	clone := &Clone{Dir: t.TempDir(), env: os.Environ()}
	for _, tt := range []struct {
		example Example
		want    string // part of the error; "" if the block is valid
		only    string // the only shell in which the error occurs; "" for all shells
	}{
		{example: Example{code: "true\necho a\n"}},
		{example: Example{code: "(exit 3)\ntrue\n"}, want: "exit statuses 3 0, want 0 0"},
		{example: Example{code: "(exit 3)\ntrue\n", statuses: []string{"3", "0"}}},
		{example: Example{code: "(exit 3)\ntrue\n", statuses: []string{"3"}}, want: "exit statuses 3 0, want 3"},
		{example: Example{code: "(exit 3)\ntrue\n", statuses: []string{"*", "0"}}},
		{example: Example{code: "(exit 3)\ntrue\n", statuses: []string{"*", "*", "0"}}, want: "exit statuses 3 0, want * * 0"},
		{example: Example{code: "# a\n"}, want: "exit statuses 127, want 0", only: "zsh"},
		{example: Example{code: "echo a b c\n", prints: "a * c"}},
		{example: Example{code: "echo a b\n", prints: "a"}, want: `printed "a b", want "a"`},
		{example: Example{code: "echo a\n", with: "b c", prints: "a b c"}},
		{example: Example{code: "sh -c 'echo ready; exec sleep 600'\n", until: "ready"}},
		{example: Example{code: "true\n", until: "ready"}, want: `it ended, and has not printed "ready"`},
		{example: Example{code: "echo 127.0.0.1:6379\n"}, want: "it names a server that may be somebody's"},
		{example: Example{code: "echo localhost:6379 $REDIS_URL\n", prints: "127.0.0.1:1 redis://127.0.0.1:1"}},
		{example: Example{code: "ratelimit() { echo $*; }\nratelimit deploy --json\nratelimit build\n", prints: "deploy --timeout 5m --json build"}},
		{example: Example{Language: "python", code: "raise SystemExit(3)\n"}, want: "exit status 3"},
	} {
		if tt.example.Language == "" {
			tt.example.Language = "sh"
		}
		for _, shell := range []string{"bash", "zsh", "sh"} {
			want := tt.want
			if tt.only != "" && tt.only != shell {
				want = ""
			}
			err := tt.example.Run(t.Context(), clone, shell, "redis://127.0.0.1:1")
			if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
				t.Errorf("in %s, %q: %v, want %q", shell, tt.example.code, err, want)
			}
		}
	}
}

func TestClientsOfBlocksArePatient(t *testing.T) {
	got := patient("limiter, err := client.Open(os.Getenv(\"REDIS_URL\"))\n")
	if want := "limiter, err := client.Open(os.Getenv(\"REDIS_URL\"), client.WithTimeout(300e9))\n"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}
