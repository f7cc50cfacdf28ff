// Package integration_test tests the library, the client and the tools on real servers. Package
// backend describes the servers, and tools/test.sh describes the variable that selects them. If no
// server is available, every test fails, and its message explains how to get one.
package integration_test

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/ratelimit-functions/ratelimit/client"
	"github.com/ratelimit-functions/ratelimit/integration_test/backend"
	"github.com/ratelimit-functions/ratelimit/internal/redistest"
)

func must[T any](t testing.TB) func(T, error) T { return redistest.Must[T](t) }

var require = redistest.Require

var (
	fleet    *backend.Fleet
	fleetErr error // the reason why there is no fleet

	excludedMu sync.Mutex
	excluded   = map[string][]string{} // kinds of tests that could not run, by backend
	notRun     = map[string][]string{} // names of the tests that could not run, by backend
)

// dialing names a function of go-redis that a goroutine may still run after the tests. A pool that
// failed to dial retries once a second, and may do so for up to a second after it is closed.
const dialing = "github.com/redis/go-redis/v9/internal/pool.(*ConnPool).tryDial"

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	if code, is := runDeployer(); is {
		return code
	}
	flag.Parse()
	if err := flag.Set("test.parallel", "1000"); err != nil { // high, because a test that waits for a backend counts as running
		panic(err)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	fleet, fleetErr = backend.Start(ctx)
	if fleet == nil {
		return m.Run() // every test fails
	}
	finished, watched := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(watched)
		select {
		case <-finished:
		case <-ctx.Done():
			fmt.Fprintln(os.Stderr, "interrupted: removing the servers")
			_ = fleet.Stop()
			os.Exit(130)
		}
	}()
	code := m.Run()
	if err := os.RemoveAll(commandDir); err != nil {
		fmt.Fprintln(os.Stderr, "removing the command:", err)
		code = 1
	}
	if err := writeSummary(); err != nil {
		fmt.Fprintln(os.Stderr, "writing the summary:", err)
		code = 1
	}
	if err := fleet.Stop(); err != nil {
		fmt.Fprintln(os.Stderr, "removing the servers:", err)
		code = 1
	}
	close(finished)
	<-watched
	stop()
	if err := goleak.Find(goleak.IgnoreAnyFunction(dialing)); err != nil {
		fmt.Fprintln(os.Stderr, "the tests left goroutines behind:", err)
		code = 1
	}
	return code
}

// writeSummary prints the servers that the tests ran on. It also writes this summary to a file for
// tools/test.sh.
func writeSummary() error {
	var all []backend.Summary
	for _, b := range fleet.Backends {
		s := backend.Summary{Name: b.Name, About: b.About(), Excluded: excluded[b.Name], NotRun: notRun[b.Name]}
		fmt.Printf("ran on %s: %s\n", s.Name, s.About)
		for _, what := range s.Excluded {
			fmt.Printf("  not run there: %s\n", what)
		}
		all = append(all, s)
	}
	if file := os.Getenv("RATELIMIT_TEST_SERVERS"); file != "" {
		return backend.WriteSummaries(file, all)
	}
	return nil
}

// A need is a requirement of a test. It returns "" if the backend meets the requirement, and the
// reason if not.
type need func(*backend.Backend) string

func withClock(b *backend.Backend) string {
	if b.Clock == nil {
		return "tests that move the clock: they need Linux"
	}
	return ""
}

func ofCluster(b *backend.Backend) string {
	if !b.Cluster {
		return "tests of a cluster"
	}
	return ""
}

func standalone(b *backend.Backend) string {
	if b.Cluster {
		return "tests of a standalone server"
	}
	return ""
}

// noEngine is the reason that inDocker returns for servers that do not run in containers.
const noEngine = "tests of the container image: they need a Docker engine, and servers in containers"

func inDocker(b *backend.Backend) string {
	if b.Place != "container" {
		return noEngine
	}
	return ""
}

// prepared returns a need that every backend meets. The need calls prepare, which builds what the
// test runs, before eachBackend locks a backend. So other tests can use the backends during the
// build. Pass this need last: then nothing is built unless a backend meets the other needs.
func prepared[T any](prepare func() (T, error)) need {
	return func(*backend.Backend) string {
		_, _ = prepare() // the test reports the error
		return ""
	}
}

// eachBackend runs f as a parallel subtest on every backend that meets the needs, after restoring
// the backend. A backend runs one test at a time. If no backend meets the needs, the test fails,
// unless the reason is that this system is not Linux or has no Docker engine. In that case the test
// does not count as passed, and the summary lists it.
func eachBackend(t *testing.T, f func(t *testing.T, b *backend.Backend), needs ...need) {
	t.Helper()
	t.Parallel()
	ran, excused := false, ""
	for _, b := range backends(t) {
		lack := ""
		for _, n := range needs {
			if lack == "" {
				lack = n(b)
			}
		}
		if lack != "" {
			if b.Clock == nil || lack == noEngine {
				excused = b.Name
				exclude(b, lack)
			}
			continue
		}
		ran = true
		t.Run(b.Name, func(t *testing.T) {
			t.Parallel()
			b.InUse.Lock()
			t.Cleanup(b.InUse.Unlock)
			restore(t, b)
			f(t, b)
		})
	}
	switch {
	case ran:
	case excused != "":
		excludedMu.Lock()
		defer excludedMu.Unlock()
		notRun[excused] = append(notRun[excused], t.Name())
	default:
		t.Fatal("no backend of this run has what the test needs")
	}
}

// goBuild returns a function that returns the path of a program. Its first call builds the program.
// words is a go command without -o, to run in the root module.
func goBuild(t *testing.T, words ...string) func() (program string, err error) {
	t.Helper()
	program := filepath.Join(t.TempDir(), "program")
	return sync.OnceValues(func() (string, error) {
		build := exec.CommandContext(t.Context(), "go", slices.Insert(slices.Clone(words), len(words)-1, "-o", program)...)
		build.Dir = ".."
		if out, err := build.CombinedOutput(); err != nil {
			return "", fmt.Errorf("%v: %w\n%s", build, err, out)
		}
		return program, nil
	})
}

// command builds the command, once for all tests. run removes it.
var command = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "ratelimit-test")
	if err != nil {
		return "", err
	}
	commandDir = dir
	program := filepath.Join(dir, "ratelimit")
	if out, err := exec.Command("go", "build", "-o", program, "../cmd/ratelimit").CombinedOutput(); err != nil {
		return "", fmt.Errorf("building the command: %w\n%s", err, out)
	}
	return program, nil
})

var commandDir string // the directory of the command, or "" if no test needed it

// printed runs the command as a user with --json, and returns what it prints.
func printed[T any](t *testing.T, b *backend.Backend, user string, args ...string) (report T) {
	t.Helper()
	server := "redis://" + user + ":" + userPassword + "@" + b.Addrs()[0]
	cmd := exec.CommandContext(t.Context(), must[string](t)(command()), append(args, "--json", "--redis", server)...)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err == nil {
		err = json.Unmarshal(out, &report)
	}
	if err != nil {
		t.Fatalf("ratelimit %v: %v\n%s%s", args, err, out, stderr.String())
	}
	return report
}

// backends returns all backends, and ends the test if there is none.
func backends(t *testing.T) []*backend.Backend {
	t.Helper()
	if fleetErr != nil {
		t.Fatalf("%s\nThe reason: %v", backend.HowToGetAServer, fleetErr)
	}
	return fleet.Backends
}

// exclude records, for the summary, that a kind of test could not run on the backend.
func exclude(b *backend.Backend, what string) {
	excludedMu.Lock()
	defer excludedMu.Unlock()
	if !slices.Contains(excluded[b.Name], what) {
		excluded[b.Name] = append(excluded[b.Name], what)
	}
}

// restore restores the backend. It fails the test if a server exits during the test without being
// killed.
func restore(t *testing.T, b *backend.Backend) {
	t.Helper()
	if err := b.Restore(testContext(t)); err != nil {
		t.Fatalf("restoring %s: %v", b.Name, err)
	}
	t.Cleanup(func() {
		b.RealTime()
		for _, n := range b.Nodes {
			if ended, log := n.Ended(context.Background()); ended {
				t.Errorf("%s ended by itself; what it printed last:\n%s", n, log[max(0, len(log)-4000):])
			}
		}
	})
}

// testContext returns a context whose timeout is shorter than that of the whole run. The timeout is
// still long, because tests are many times slower on a busy machine.
func testContext(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// newClient returns a client for the backend, closed after the test.
func newClient(t *testing.T, b *backend.Backend, modify ...func(*redis.UniversalOptions)) redis.UniversalClient {
	t.Helper()
	c := b.NewClient(modify...)
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Errorf("closing the client of %s: %v", b.Name, err)
		}
	})
	return c
}

// newLimiter returns a client of this project that uses rdb, with a timeout that is long enough
// even for a busy machine.
func newLimiter(t *testing.T, rdb redis.UniversalClient, opts ...client.Option) *client.Client {
	t.Helper()
	c := must[*client.Client](t)(client.New(rdb, append([]client.Option{client.WithTimeout(time.Minute)}, opts...)...))
	return c
}

// waitFor calls f every few milliseconds until it returns nil. If ctx is done first, the test fails.
func waitFor(ctx context.Context, t *testing.T, what string, f func() error) {
	t.Helper()
	require(t, backend.Until(ctx, what, f))
}
