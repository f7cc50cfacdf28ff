package loader_test

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/ratelimit-functions/ratelimit/functions"
	"github.com/ratelimit-functions/ratelimit/internal/redistest"
	"github.com/ratelimit-functions/ratelimit/loader"
	"github.com/ratelimit-functions/ratelimit/loader/nodes"
	"github.com/ratelimit-functions/ratelimit/loader/protocol"
	"github.com/ratelimit-functions/ratelimit/loader/text"
)

// After many failed dials, a go-redis pool starts a goroutine that dials once a second. The
// goroutine can run for up to a second after the pool is closed.
func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/redis/go-redis/v9/internal/pool.(*ConnPool).tryDial"))
}

var (
	eventually = redistest.Eventually
	require    = redistest.Require
)

func must[T any](t testing.TB) func(T, error) T { return redistest.Must[T](t) }

// startRedis starts a redis-server for the test. It returns the address, and a function that stops
// the server early.
func startRedis(t testing.TB, args ...string) (addr string, stop func()) {
	t.Helper()
	server := redistest.Run(t, args...)
	return server.Addr, server.Stop
}

func connect(t testing.TB, opt redis.Options) *redis.Client {
	t.Helper()
	rdb := redis.NewClient(&opt)
	t.Cleanup(func() { _ = rdb.Close() })
	return rdb
}

func at(t testing.TB, addr string) *redis.Client { return connect(t, redis.Options{Addr: addr}) }

// option sets a field of a Config.
type option = func(*loader.Config)

func timeout(d time.Duration) option { return func(c *loader.Config) { c.Timeout = d } }
func every(d time.Duration) option   { return func(c *loader.Config) { c.Interval = d } }

func steps(f func(protocol.Step)) option { return func(c *loader.Config) { c.Steps = f } }

func trace(f func(addr, command string)) option { return func(c *loader.Config) { c.Trace = f } }

// newLoader returns a Loader with a timeout of a minute, because a busy machine is slow. opts may
// change it.
func newLoader(t testing.TB, rdb redis.UniversalClient, opts ...option) *loader.Loader {
	t.Helper()
	c := loader.Config{Timeout: time.Minute}
	loader.SetEffects(&c, noEffects)
	for _, set := range opts {
		set(&c)
	}
	return must[*loader.Loader](t)(loader.New(rdb, c))
}

// noEffects says that no change concerns keys in use.
func noEffects(_ string, changes [][2]functions.Policy) ([]functions.Effect, error) {
	return make([]functions.Effect, len(changes)), nil
}

func build(t testing.TB) functions.Build {
	t.Helper()
	return must[functions.Build](t)(functions.New())
}

// wanted returns b's description, as it appears in a report.
func wanted(b functions.Build) text.Library {
	return text.Library{Version: b.Version(), Contract: functions.Contract, BuildID: b.ID(), Digest: b.Digest()}
}

// older returns another build of the library, with different source code and another build ID.
func older(t testing.TB) (code string, describes text.Library) {
	t.Helper()
	code = strings.Replace(functions.Source(), "local BUILD_ID = '"+functions.BuildID()+"'", "local BUILD_ID = '0123456789ab'", 1)
	code = strings.Replace(code, "local VERSION = '"+functions.Version()+"'", "local VERSION = '0.0.9'", 1)
	return code, text.Library{Version: "0.0.9", Contract: functions.Contract, BuildID: "0123456789ab", Digest: functions.Digest(code)}
}

// want checks the class of a PartialError, if class is not nil, and returns its first node's error.
func want(t *testing.T, name string, err, class error) *nodes.Error {
	t.Helper()
	if class != nil && !errors.Is(err, class) {
		t.Errorf("%s: %v, want the class %v", name, err, class)
	}
	var node *nodes.Error
	var partial *loader.PartialError
	if !errors.As(err, &node) || !errors.As(err, &partial) {
		t.Fatalf("%s: %v is no *PartialError, or has no *Error", name, err)
	}
	return node
}

// rollBack rolls back once for each of the builds, and checks that all servers then run that build.
func rollBack(t *testing.T, l *loader.Loader, to ...loader.Text) {
	t.Helper()
	for i, build := range to {
		report, err := l.Rollback(t.Context(), loader.Options{})
		if err != nil || !report.InStep() || report.Wanted.Digest != functions.Digest(string(build)) {
			t.Fatalf("rollback %d: %v\n%s", i, err, states(report))
		}
	}
}

func states(r loader.Report) string {
	var b strings.Builder
	for _, n := range r.Nodes {
		fmt.Fprintf(&b, "%s %s %s %s changed=%v err=%v\n", n.Addr, n.Role, n.State, n.Running.BuildID, n.Changed, n.Err != nil)
	}
	return b.String()
}

func mustRun(t testing.TB, rdb *redis.Client, args ...any) {
	t.Helper()
	if err := rdb.Do(t.Context(), args...).Err(); err != nil {
		t.Fatalf("%v: %v", args, err)
	}
}

// onEach runs a command on each server.
func onEach(t testing.TB, addrs []string, args ...any) {
	t.Helper()
	for _, addr := range addrs {
		mustRun(t, at(t, addr), args...)
	}
}

func hostPort(addr string) (host, port string) {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	return host, port
}
