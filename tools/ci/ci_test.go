// Package ci tests the scripts that docs/ci.md describes: the script in action.yml, and those in
// the workflow and in the GitLab jobs. tools/test.sh checks the rest of the YAML with actionlint.
package ci

import (
	"encoding/xml"
	"errors"
	"fmt"
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
	"github.com/ratelimit-functions/ratelimit/internal/redistest"
)

// root is the path of the checkout.
var root = func() string {
	dir, err := filepath.Abs("../..")
	if err != nil {
		panic(err)
	}
	return dir
}()

// load reads a YAML file in the checkout.
func load(t *testing.T, name string, into any) {
	t.Helper()
	if err := yaml.Load([]byte(read(t, filepath.Join(root, name))), into); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
}

// version is the release tag of this source. The tested files contain it.
var version = "v" + functions.Version()

// workspace makes a user's repository from the project's examples. changed contains the text of
// files that replace those of the examples, by name.
func workspace(t *testing.T, changed map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for _, name := range []string{"policies.yaml", "policies_test.yaml"} {
		write(t, filepath.Join(dir, name), read(t, filepath.Join(root, "examples", name)))
	}
	for name, text := range changed {
		write(t, filepath.Join(dir, name), text)
	}
	return dir
}

func write(t *testing.T, name, text string) {
	t.Helper()
	redistest.Require(t, os.WriteFile(name, []byte(text), 0o600))
}

func read(t *testing.T, name string) string {
	t.Helper()
	text := redistest.Must[[]byte](t)(os.ReadFile(name))
	return string(text)
}

// Files with mistakes that a user could make.
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

var temp string // RUNNER_TEMP, the directory in which the action installs the command

func TestMain(m *testing.M) {
	os.Exit(func() int {
		dir, err := os.MkdirTemp("", "ratelimit-ci-")
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer func() { _ = os.RemoveAll(dir) }()
		temp = dir
		return m.Run()
	}())
}

// script runs a command with the given environment variables, and with those of the test except
// REDIS_URL and the variables that a CI system sets. The directory of the installed ratelimit
// command is first in PATH. script returns the output and the exit code.
func script(t *testing.T, dir string, env []string, command ...string) (string, int) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), command[0], command[1:]...)
	cmd.Dir = dir
	for _, entry := range os.Environ() {
		if !strings.HasPrefix(entry, "REDIS_URL=") && !strings.HasPrefix(entry, "GITHUB_") && !strings.HasPrefix(entry, "CI") {
			cmd.Env = append(cmd.Env, entry)
		}
	}
	cmd.Env = append(append(cmd.Env, "PATH="+filepath.Join(temp, "ratelimit")+":"+os.Getenv("PATH")), env...)
	output, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return string(output), cmd.ProcessState.ExitCode()
}

// installed installs the command, once for all tests.
var installed = sync.OnceValues(func() ([]byte, error) {
	cmd := exec.Command("go", "install", "-buildvcs=false", "./cmd/ratelimit")
	cmd.Dir, cmd.Env = root, append(os.Environ(), "GOBIN="+filepath.Join(temp, "ratelimit"))
	return cmd.CombinedOutput()
})

func install(t *testing.T) {
	t.Helper()
	if output, err := installed(); err != nil {
		t.Fatalf("%v\n%s", err, output)
	}
}

// patient is appended to a server's URL. It sets timeouts that are long enough even for a busy
// machine.
const patient = "?dial_timeout=5m&read_timeout=5m"

// server starts a server without a library, and returns its URL.
func server(t *testing.T) string {
	t.Helper()
	return "redis://" + embedded.Run(t).Addr() + patient
}

// nobody is a URL at which no server listens. No test's server ever uses port 1. Another test's
// server could take a port that was free a moment ago.
const nobody = "redis://127.0.0.1:1"

// wantDeployed checks that the user's policies are deployed on a server, or that they are not if
// want is false.
func wantDeployed(t *testing.T, url string, want bool) {
	t.Helper()
	options := redistest.Must[*redis.Options](t)(redis.ParseURL(url))
	rdb := redis.NewClient(options)
	defer rdb.Close()
	if err := rdb.FCall(t.Context(), "ratelimit_take", []string{"user:42"}, "@api").Err(); (err == nil) != want {
		t.Errorf("a call of the policy api on %s: %v; deployed should be %v", url, err, want)
	}
}

// wantJUnit checks the report for the CI system: the number of tests, the number of failures, and
// the position of each test.
func wantJUnit(t *testing.T, file string, tests, failures int) {
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
	redistest.Require(t, xml.Unmarshal([]byte(read(t, file)), &report))
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
