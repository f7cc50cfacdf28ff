package main

import (
	"math"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/ratelimit-functions/ratelimit/internal/figures"
	"github.com/ratelimit-functions/ratelimit/internal/redistest"
)

// TestThePageHasWhatTheCommandPrints checks that the tables and the plot of docs/scale.md are the
// command's output. It runs the command as a separate program, because with the race detector the
// command would take a minute.
func TestThePageHasWhatTheCommandPrints(t *testing.T) {
	docs, folder := filepath.Join("..", "..", "docs"), t.TempDir()
	page := redistest.Must[[]byte](t)(os.ReadFile(filepath.Join(docs, "scale.md")))
	redistest.Require(t, os.WriteFile(filepath.Join(folder, "scale.md"), page, 0o644))
	if out, err := exec.Command("go", "run", ".", "-write", folder).CombinedOutput(); err != nil {
		t.Fatalf("go run . -write: %v\n%s", err, out)
	}
	for _, name := range []string{"scale.md", "scale.svg"} {
		printed := redistest.Must[[]byte](t)(os.ReadFile(filepath.Join(folder, name)))
		if shown, err := os.ReadFile(filepath.Join(docs, name)); err != nil || string(shown) != string(printed) {
			t.Errorf("docs/%s is not what the command writes (%v); run make scale, and read whether the text around the tables still holds", name, err)
		}
	}
}

// TestThePlanFollowsTheMeasurement compares the constant of the simulations with the figures in
// docs/numbers.md.
func TestThePlanFollowsTheMeasurement(t *testing.T) {
	page := string(redistest.Must[[]byte](t)(os.ReadFile(filepath.Join("..", "..", "docs", "numbers.md"))))
	for name, want := range map[string]int64{"server-decisions": oneShard, "half-load": oneShard / 2} {
		if row := "| `" + name + "` | " + figures.Grouped(want) + " decisions a second |"; !strings.Contains(page, row) {
			t.Errorf("docs/numbers.md has no row %s", row)
		}
	}
}

// TestCapacity runs capacity.sh with few calls, and compares the bytes of a call with the figures in
// docs/numbers.md.
func TestCapacity(t *testing.T) {
	page := string(redistest.Must[[]byte](t)(os.ReadFile(filepath.Join("..", "..", "docs", "numbers.md"))))
	listener := redistest.Must[net.Listener](t)(net.Listen("tcp", "127.0.0.1:0"))
	_, port, _ := net.SplitHostPort(listener.Addr().String())
	redistest.Require(t, listener.Close())
	command := exec.Command("./capacity.sh", "1", "20000")
	command.Env = append(os.Environ(), "PORT="+port)
	out, err := command.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	bytes := regexp.MustCompile(`1: .* µs \(.*\), \d+ per second, (\d+ bytes) received, (\d+) sent\n`).FindStringSubmatch(string(out))
	if bytes == nil || !strings.Contains(page, "| `bytes-call` | "+bytes[1]+" |") || !strings.Contains(page, "| `bytes-reply` | "+bytes[2]+" bytes |") {
		t.Errorf("docs/numbers.md differs from %q", out)
	}
}

// TestAHotKey simulates a hot key with a small limit, under a load below the limit and a load above
// it.
func TestAHotKey(t *testing.T) {
	for _, offered := range []int64{1500, 2500} {
		h := hotKey{processes: 5, rate: 2000, burst: 200, offered: offered, n: 20, ttl: 50_000}
		got := h.run()
		if over := offered > h.rate; over != (got.messages == got.offered) || over != (got.admitted < got.offered) {
			t.Errorf("%d calls a second where the limit is %d: %+v", offered, h.rate, got)
		}
	}
}

// TestSpent compares the results of spent with formulas. For example, the second unit of a batch of
// two is spent if there is another call within ttl.
func TestSpent(t *testing.T) {
	for _, tt := range []struct {
		perTTL float64
		n      int64
		want   float64
	}{{0, 100, 1}, {3, 1, 1}, {3, 2, 2 - math.Exp(-3)}, {3, 1000, 4}, {2000, 100, 100}, {0.5, 3, 3 - 2.5*math.Exp(-0.5)}} {
		if got := spent(tt.perTTL, tt.n); math.Abs(got-tt.want) > 1e-9 {
			t.Errorf("%v calls in ttl, n %d: %v are spent, not %v", tt.perTTL, tt.n, got, tt.want)
		}
	}
}
