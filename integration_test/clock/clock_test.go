package clock

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/ratelimit-functions/ratelimit/internal/redistest"
)

// date runs the date program with the shim and returns its output.
func date(t *testing.T, library, file string) string {
	t.Helper()
	cmd := exec.Command("date", "-u", "+%s.%N")
	cmd.Env = append(os.Environ(), "LD_PRELOAD="+library, Env+"="+file)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("date: %v: %s", err, out)
	}
	return strings.TrimSpace(string(out))
}

func TestClock(t *testing.T) {
	dir := t.TempDir()
	library := redistest.Must[string](t)(Build(dir))
	file := redistest.Must[*File](t)(Create(filepath.Join(dir, "now")))
	defer file.Close()
	before := time.Now().Unix()
	seconds, _, _ := strings.Cut(date(t, library, file.Path()), ".")
	if got, err := strconv.ParseInt(seconds, 10, 64); err != nil || got < before || got > time.Now().Unix() {
		t.Errorf("date prints %s s in real time, between %d and now", seconds, before)
	}
	for us, want := range map[int64]string{
		1_700_000_000_123_456:  "1700000000.123456000",
		1:                      "0.000001000",
		32_503_680_000_000_000: "32503680000.000000000",
	} {
		redistest.Require(t, file.Set(us))
		if got := date(t, library, file.Path()); got != want {
			t.Errorf("at %d µs date prints %s, want %s", us, got, want)
		}
	}
	for _, us := range []int64{0, -1} {
		if err := file.Set(us); err == nil {
			t.Errorf("Set(%d) succeeded", us)
		}
	}
}

func TestAMissingFileEndsTheProcess(t *testing.T) {
	dir := t.TempDir()
	library := redistest.Must[string](t)(Build(dir))
	cmd := exec.Command("date")
	cmd.Env = append(os.Environ(), "LD_PRELOAD="+library, Env+"="+filepath.Join(dir, "gone"))
	out, err := cmd.CombinedOutput()
	if err == nil || !strings.Contains(string(out), "cannot map the file") {
		t.Errorf("a process whose clock is missing: %v: %s", err, out)
	}
}
