// Package ci runs the files that docs/ci.md tells users to copy as the CI systems would: the shell
// steps of action.yml, of the workflow and of the GitLab jobs, unchanged, with the command as they
// install it and with servers.
package ci

import (
	"encoding/xml"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/redis/go-redis/v9"
	"go.yaml.in/yaml/v4"

	"github.com/ratelimit-functions/ratelimit/embedded"
	"github.com/ratelimit-functions/ratelimit/functions"
)

// root is the path of the checkout.
var root = func() string {
	dir, err := filepath.Abs("../..")
	if err != nil {
		panic(err)
	}
	return dir
}()

// load reads a YAML file of the checkout. A field that the types here do not have is an error,
// because it would be ignored.
func load(t *testing.T, name string, into any) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, name))
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.Load(text, into, yaml.WithKnownFields()); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
}

// version is the tag of the release with this source; the files contain it.
var version = "v" + functions.Version()

// workspace makes a user's repository from the project's own examples, with some files replaced.
func workspace(t *testing.T, differs map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for _, name := range []string{"policies.yaml", "policies_test.yaml"} {
		text, err := os.ReadFile(filepath.Join(root, "examples", name))
		if err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(dir, name), string(text))
	}
	for name, text := range differs {
		write(t, filepath.Join(dir, name), text)
	}
	return dir
}

func write(t *testing.T, name, text string) {
	t.Helper()
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// Faults in a user's repository.
var (
	badPolicies = map[string]string{"policies.yaml": "policies: {api: 10/fortnight}\n"}
	badTests    = map[string]string{"policies_test.yaml": `policies: policies.yaml
tests:
  - name: six passwords
    calls:
      - take: [login, "login:203.0.113.7"]
        times: 6
        expect: {allowed: 6}
`}
)

// environment returns a script's environment: this process's, without variables for servers or a
// CI, and the given ones.
func environment(more ...string) []string {
	var env []string
	for _, entry := range os.Environ() {
		if !strings.HasPrefix(entry, "REDIS_URL=") && !strings.HasPrefix(entry, "GITHUB_") && !strings.HasPrefix(entry, "CI") {
			env = append(env, entry)
		}
	}
	// Without folder names in the compiled packages, runs can share them.
	return append(append(env, "GOFLAGS=-trimpath -modcacherw"), more...)
}

// installing is locked while a script installs the command to a shared place.
var installing sync.Mutex

// script runs a command and returns its output and its exit code.
func script(t *testing.T, dir string, env []string, command ...string) (string, int) {
	t.Helper()
	if strings.Contains(strings.Join(command, " "), " install ") {
		installing.Lock()
		defer installing.Unlock()
	}
	cmd := exec.CommandContext(t.Context(), command[0], command[1:]...)
	cmd.Dir, cmd.Env = dir, env
	output, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return string(output), cmd.ProcessState.ExitCode()
}

// patient is the end of a server's URL that lets a step take as long as a busy machine needs.
const patient = "?dial_timeout=5m&read_timeout=5m"

// server starts a server without a library, and returns its URL.
func server(t *testing.T) string {
	t.Helper()
	return "redis://" + embedded.Run(t).Addr() + patient
}

// nobody returns the URL of a port without a server.
func nobody(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if err := listener.Close(); err != nil {
		t.Fatal(err)
	}
	return "redis://" + listener.Addr().String()
}

func client(t *testing.T, url string) *redis.Client {
	t.Helper()
	options, err := redis.ParseURL(url)
	if err != nil {
		t.Fatal(err)
	}
	rdb := redis.NewClient(options)
	t.Cleanup(func() { _ = rdb.Close() })
	return rdb
}

// wantDeployed checks whether a server has the user's policies.
func wantDeployed(t *testing.T, url string, want bool) {
	t.Helper()
	err := client(t, url).FCall(t.Context(), "ratelimit_take", []string{"user:42"}, "@api").Err()
	if (err == nil) != want {
		t.Errorf("a call of the policy api on %s: %v; deployed should be %v", url, err, want)
	}
}

// flush deletes the library.
func flush(t *testing.T, url string) {
	t.Helper()
	if err := client(t, url).FunctionFlush(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
}

// wantJUnit checks the report that the CI system displays.
func wantJUnit(t *testing.T, text string, tests, failures int) {
	t.Helper()
	var report struct {
		Tests    int `xml:"tests,attr"`
		Failures int `xml:"failures,attr"`
		Suites   []struct {
			Cases []struct {
				File string `xml:"file,attr"`
				Line int    `xml:"line,attr"`
			} `xml:"testcase"`
		} `xml:"testsuite"`
	}
	if err := xml.Unmarshal([]byte(text), &report); err != nil {
		t.Fatal(err)
	}
	if report.Tests != tests || report.Failures != failures {
		t.Errorf("the report has %d tests and %d failures, want %d and %d", report.Tests, report.Failures, tests, failures)
	}
	for _, suite := range report.Suites {
		for _, c := range suite.Cases {
			if c.File != "policies_test.yaml" || c.Line == 0 {
				t.Errorf("a case is in %s, line %d: no place in the repository", c.File, c.Line)
			}
		}
	}
}
