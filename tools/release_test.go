// Package tools_test runs the scripts that build a release.
package tools_test

import (
	"bytes"
	"crypto/sha256"
	"debug/elf"
	"encoding/hex"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/ratelimit-functions/ratelimit/functions"
	"github.com/ratelimit-functions/ratelimit/internal/redistest"
)

// command runs a program in a directory and returns its exit code and output.
func command(t *testing.T, dir string, env []string, name string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null",
		"GIT_AUTHOR_NAME=t", "GIT_AUTHOR_EMAIL=t@localhost", "GIT_COMMITTER_NAME=t", "GIT_COMMITTER_EMAIL=t@localhost")
	cmd.Env = append(cmd.Env, env...)
	var out, err bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &err
	if runErr := cmd.Run(); cmd.ProcessState == nil {
		t.Fatalf("%s: %v", name, runErr)
	}
	return cmd.ProcessState.ExitCode(), out.String(), err.String()
}

func must(t *testing.T, dir string, env []string, name string, args ...string) string {
	t.Helper()
	code, stdout, stderr := command(t, dir, env, name, args...)
	if code != 0 {
		t.Fatalf("%s %s: exit code %d\n%s%s", name, strings.Join(args, " "), code, stdout, stderr)
	}
	return strings.TrimSpace(stdout)
}

// clone returns a clone of this checkout, in which the current versions of the scripts are
// committed.
func clone(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "clone")
	must(t, ".", nil, "git", "clone", "-q", "..", dir)
	for _, name := range []string{"build.sh", "release.sh"} {
		text := redistest.Must[[]byte](t)(os.ReadFile(name))
		redistest.Require(t, os.WriteFile(filepath.Join(dir, "tools", name), text, 0o755))
	}
	must(t, dir, nil, "git", "add", "-A")
	must(t, dir, nil, "git", "commit", "-q", "--allow-empty", "-m", "as it is now")
	return dir
}

// TestBuildIsReproducibleAndStatic checks that the build does not depend on the directory or on
// build settings in the environment, and that the program is static and reports its version.
// Building with an empty cache takes a minute, so only a release checks that the build does not
// depend on the cache.
func TestBuildIsReproducibleAndStatic(t *testing.T) {
	first := clone(t)
	second := filepath.Join(t.TempDir(), "elsewhere", "again")
	must(t, ".", nil, "git", "clone", "-q", first, second)
	program := filepath.Join(t.TempDir(), "ratelimit")
	must(t, first, nil, "tools/build.sh", "linux", runtime.GOARCH, program)
	must(t, second, []string{"GOFLAGS=-buildvcs=false -tags=other", "CGO_ENABLED=1", "GOAMD64=v3", "GOARM64=v8.2"},
		"tools/build.sh", "linux", runtime.GOARCH, program+"2")
	one := redistest.Must[[]byte](t)(os.ReadFile(program))
	other := redistest.Must[[]byte](t)(os.ReadFile(program + "2"))
	if !bytes.Equal(one, other) {
		t.Error("two builds of a commit differ")
	}
	file := redistest.Must[*elf.File](t)(elf.NewFile(bytes.NewReader(one)))
	for _, part := range file.Progs {
		if part.Type == elf.PT_INTERP {
			t.Error("it is not static: it names a loader of shared libraries")
		}
	}
	if runtime.GOOS == "linux" {
		want := "program " + functions.Version() + ", commit " + must(t, first, nil, "git", "rev-parse", "HEAD")[:12] + ", "
		if got := must(t, ".", nil, program, "--version"); !strings.HasPrefix(got, want) {
			t.Errorf("--version says %q, want %q and the Go version", got, want)
		}
	}
}

// standIn replaces the go command. It writes the target platform to the output file. In the second
// build, which sets GOCACHE, the output for the platform in $DIFFERS is different. Instead of running
// tools/notices, it writes the names of the programs.
const standIn = `#!/bin/sh
if [ "$1" = run ]; then
	shift 2
	echo "$@" >"$1.cdx.json"
	echo licences >"$1_NOTICES.txt"
	exit
fi
while [ $# -gt 0 ]; do
	if [ "$1" = -o ]; then file=$2; fi
	shift
done
echo "$GOOS $GOARCH" >"$file"
if [ "$GOOS/$GOARCH" = "$DIFFERS" ] && [ -n "$GOCACHE" ]; then echo differs >>"$file"; fi
`

func TestRelease(t *testing.T) {
	bin := t.TempDir()
	redistest.Require(t, os.WriteFile(filepath.Join(bin, "go"), []byte(standIn), 0o755))
	env := []string{"PATH=" + bin + ":" + os.Getenv("PATH"), "GOCACHE=", "DIFFERS="}
	dir := clone(t)
	release := filepath.Join(dir, ".build", "release")

	must(t, dir, nil, "git", "tag", "v"+functions.Version())
	must(t, dir, env, "tools/release.sh")
	sums := redistest.Must[[]byte](t)(os.ReadFile(filepath.Join(release, "SHA256SUMS")))
	var names []string
	for line := range strings.Lines(string(sums)) {
		sum, name := strings.Fields(line)[0], strings.Fields(line)[1]
		names = append(names, name)
		text, err := os.ReadFile(filepath.Join(release, name))
		if digest := sha256.Sum256(text); err != nil || hex.EncodeToString(digest[:]) != sum {
			t.Errorf("%s has another digest than SHA256SUMS says (%v)", name, err)
		}
	}
	const want = "ratelimit-gateway.cdx.json ratelimit-gateway_NOTICES.txt ratelimit-gateway_darwin_amd64 ratelimit-gateway_darwin_arm64 ratelimit-gateway_linux_amd64 ratelimit-gateway_linux_arm64 " +
		"ratelimit-gateway_windows_amd64.exe ratelimit-gateway_windows_arm64.exe ratelimit.cdx.json ratelimit_NOTICES.txt ratelimit_darwin_amd64 ratelimit_darwin_arm64 ratelimit_linux_amd64 ratelimit_linux_arm64 " +
		"ratelimit_windows_amd64.exe ratelimit_windows_arm64.exe"
	if got := strings.Join(names, " "); got != want {
		t.Errorf("SHA256SUMS has %s, want %s", got, want)
	}
	if text, err := os.ReadFile(filepath.Join(release, "ratelimit_windows_arm64.exe")); string(text) != "windows arm64\n" {
		t.Errorf("ratelimit_windows_arm64.exe is of %q (%v)", text, err)
	}
	for _, program := range []string{"ratelimit", "ratelimit-gateway"} {
		bill := string(redistest.Must[[]byte](t)(os.ReadFile(filepath.Join(release, program+".cdx.json"))))
		if strings.Count(bill, "/"+program+"_") != 6 {
			t.Errorf("the bill of %s is made of %s", program, bill)
		}
	}

	// With a key, SHA256SUMS is signed, and the signature can be verified as SECURITY.md says.
	key := filepath.Join(t.TempDir(), "key")
	must(t, dir, nil, "ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "release", "-f", key)
	must(t, dir, append(env, "RELEASE_KEY="+key), "tools/release.sh")
	public := redistest.Must[[]byte](t)(os.ReadFile(key + ".pub"))
	redistest.Require(t, os.WriteFile(filepath.Join(release, "signers"), append([]byte("release "), public...), 0o600))
	must(t, release, nil, "sh", "-c", "ssh-keygen -Y verify -f signers -I release -n ratelimit-release -s SHA256SUMS.sig <SHA256SUMS")
	must(t, release, nil, "rm", "signers")

	refused := func(name, message string, env ...string) {
		t.Helper()
		code, stdout, stderr := command(t, dir, env, "tools/release.sh")
		if code != 1 || !strings.Contains(stderr, message) {
			t.Errorf("%s: exit code %d\n%s%s\nwant: %s", name, code, stdout, stderr, message)
		}
	}
	refused("a build that differs", "release.sh: the second build differs", append(env, "DIFFERS=windows/amd64")...)
	if _, err := os.Stat(release); !os.IsNotExist(err) {
		t.Errorf("after a build that differs, there are still files of a release (%v)", err)
	}
	must(t, dir, nil, "git", "tag", "v99.0.0")
	refused("another tag", "release.sh: this commit has the tag v99.0.0, and functions/build.go says version "+functions.Version(), env...)
	redistest.Require(t, os.WriteFile(filepath.Join(dir, "new.go"), nil, 0o644))
	refused("a change", "release.sh: a release is made of a commit, and these changes are not in one; commit them, or git stash -u:\n?? new.go\n", env...)
}
