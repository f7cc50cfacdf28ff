package backend

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/ratelimit-functions/ratelimit/internal/redistest"
)

func TestStale(t *testing.T) {
	child := exec.Command("cat")
	in, err := child.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	redistest.Require(t, child.Start())
	owner := ownerOf(child.Process.Pid)
	now := time.Now()
	if stale(owner, now.Add(-24*time.Hour)) {
		t.Errorf("%q counts as ended while it runs", owner)
	}
	redistest.Require(t, in.Close())
	redistest.Require(t, child.Wait())
	for _, row := range []struct {
		owner string
		age   time.Duration
		want  bool
	}{
		{owner, 0, true},                      // the process has ended
		{ownerOf(os.Getpid()) + "0", 0, true}, // an earlier process with the same number
		{ownerOf(os.Getpid()), 3 * time.Hour, false},
		{"pid:[1] 1 1", time.Hour, false}, // a process in another PID namespace; it may still be running
		{"pid:[1] 1 1", 3 * time.Hour, true},
		{"", time.Hour, false},
	} {
		if got := stale(row.owner, now.Add(-row.age)); got != row.want {
			t.Errorf("stale(%q) after %v is %v, want %v", row.owner, row.age, got, row.want)
		}
	}
}

func TestMakeDirRemovesWhatAKilledRunLeft(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	old := filepath.Join(os.TempDir(), "ratelimit-test-1")
	redistest.Require(t, os.Mkdir(old, 0o700))
	redistest.Require(t, os.WriteFile(filepath.Join(old, ownerFile), nil, 0o600))
	long := time.Now().Add(-3 * time.Hour)
	redistest.Require(t, os.Chtimes(filepath.Join(old, ownerFile), long, long))
	first := redistest.Must[string](t)(makeDir())
	second := redistest.Must[string](t)(makeDir())
	if _, err := os.Stat(old); !os.IsNotExist(err) {
		t.Errorf("the folder of a run that is long over is still there: %v", err)
	}
	for _, dir := range []string{first, second} {
		if _, err := os.Stat(dir); err != nil {
			t.Errorf("the folder of a running test is missing: %v", err)
		}
	}
}
