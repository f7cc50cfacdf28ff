package integration_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ratelimit-functions/ratelimit/embedded"
	"github.com/ratelimit-functions/ratelimit/functions"
	"github.com/ratelimit-functions/ratelimit/integration_test/backend"
)

// TestVectorsInPython checks examples/languages/vectors.py, which runs the vectors through redis-py:
// with all vectors, with the policies' vectors, and with a wrong reply.
func TestVectorsInPython(t *testing.T) {
	all := must[[]string](t)(filepath.Glob("../functions/vectors/*.json"))
	vectors, steps := 0, 0
	for _, file := range must[[]functions.VectorFile](t)(functions.LoadVectors()) {
		vectors += len(file.Vectors)
		for _, vector := range file.Vectors {
			steps += len(vector.Steps)
		}
	}
	server := embedded.Run(t, embedded.WithLibrary(functions.Source()))
	want := fmt.Sprintf("%d vectors, %d steps, 0 failed\n", vectors, steps)
	if stdout, stderr, err := runPythonVectors(t.Context(), server.Addr(), all...); err != nil || stdout != want || stderr != "" {
		t.Errorf("%v; it printed %q and, as an error, %q; want %q", err, stdout, stderr, want)
	}
	for _, file := range must[[]functions.VectorFile](t)(functions.LoadPolicyVectors()) {
		server := embedded.Run(t, embedded.WithLibrary(newBuild(t, file.Policies...).Text()))
		stdout, _, err := runPythonVectors(t.Context(), server.Addr(), "../functions/vectors/policies/"+file.Name+".json")
		if err != nil || !strings.HasPrefix(stdout, fmt.Sprintf("%d vectors, ", len(file.Vectors))) {
			t.Errorf("%s: %v; it printed %q", file.Name, err, stdout)
		}
	}

	wrong := filepath.Join(t.TempDir(), "wrong.json")
	require(t, os.WriteFile(wrong, []byte(`{"start_us": 1700000000000000, "vectors": [
		{"name": "reply", "steps": [
			{"at_us": 0, "call": ["FCALL", "ratelimit_take", "1", "k", "3/m"], "reply": [1, 3, 2, 0, 20000, 1]},
			{"at_us": 1000, "call": ["FCALL", "ratelimit_take", "1", "k", "3/m"], "reply": [1, 3, 1, 0, 40000, 1]}]},
		{"name": "error", "steps": [{"call": ["FCALL", "ratelimit_take", "1", "k", "3/m"], "error": "RATELIMIT BADKEYS"}]},
		{"name": "no error", "steps": [{"call": ["FCALL", "ratelimit_take", "0", "3/m"], "reply": [1, 3, 2, 0, 20000, 1]}]},
		{"name": "another error", "steps": [{"call": ["FCALL", "ratelimit_take", "0", "3/m"], "error_prefix": "ERR RATELIMIT BADCOST"}]}
	]}`), 0o600))
	const lines = `%[1]s: reply, step 2: ['FCALL', 'ratelimit_take', '1', 'k', '3/m']: want [1, 3, 1, 0, 40000, 1], got [1, 3, 1, 0, 39999, 1]
%[1]s: error, step 1: ['FCALL', 'ratelimit_take', '1', 'k', '3/m']: want the error 'RATELIMIT BADKEYS', got [1, 3, 2, 0, 20000, 1]
%[1]s: no error, step 1: ['FCALL', 'ratelimit_take', '0', '3/m']: want [1, 3, 2, 0, 20000, 1], got RATELIMIT BADKEYS the number of keys is 0; give each limit one key
%[1]s: another error, step 1: ['FCALL', 'ratelimit_take', '0', '3/m']: want the error 'RATELIMIT BADCOST', got 'RATELIMIT BADKEYS the number of keys is 0; give each limit one key'
4 vectors, 5 steps, 4 failed
`
	if stdout, _, err := runPythonVectors(t.Context(), server.Addr(), wrong); err == nil || stdout != fmt.Sprintf(lines, wrong) {
		t.Errorf("%v; it printed:\n%s\nwant:\n%s", err, stdout, fmt.Sprintf(lines, wrong))
	}
	if stdout, _, err := runPythonVectors(t.Context(), server.Addr()); err == nil {
		t.Errorf("without files: it printed %q and did not fail", stdout)
	}
}

// TestVectorsInPythonKeepServers checks that vectors.py leaves a server alone whose clock it cannot
// set.
func TestVectorsInPythonKeepServers(t *testing.T) {
	eachBackend(t, func(t *testing.T, b *backend.Backend) {
		ctx := testContext(t)
		loadLibrary(ctx, t, b)
		node := nodeOfVectors(ctx, t, b)
		require(t, node.Set(ctx, "{v}:kept", "1", 0).Err())
		stdout, stderr, err := runPythonVectors(ctx, node.Options().Addr, "../functions/vectors/gcra.json")
		if err == nil || stdout != "" || !strings.Contains(stderr, "SET-TIME") && !strings.Contains(stderr, "DEBUG command not allowed") {
			t.Errorf("%v; it printed %q and, as an error, %q", err, stdout, stderr)
		}
		if n := must[int64](t)(node.Exists(ctx, "{v}:kept").Result()); n != 1 {
			t.Error("it has deleted a key")
		}
	})
}

func runPythonVectors(ctx context.Context, addr string, files ...string) (stdout, stderr string, err error) {
	cmd := exec.CommandContext(ctx, "/usr/bin/env", append([]string{"python3", "../examples/languages/vectors.py"}, files...)...)
	// The distribution's client packages work with the distribution's interpreters.
	cmd.Env = append(os.Environ(), "REDIS_URL=redis://"+addr, "PATH=/usr/bin:"+os.Getenv("PATH"))
	var out, failure strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &failure
	err = cmd.Run()
	return out.String(), failure.String(), err
}
