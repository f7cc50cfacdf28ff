package cli

import (
	"bytes"
	"context"
	"flag"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
	"go.uber.org/goleak"

	"github.com/ratelimit-functions/ratelimit/embedded"
	"github.com/ratelimit-functions/ratelimit/functions"
	"github.com/ratelimit-functions/ratelimit/internal/fakeredis"
	"github.com/ratelimit-functions/ratelimit/internal/redistest"
	"github.com/ratelimit-functions/ratelimit/internal/redisurl"
)

var update = flag.Bool("update", false, "rewrite the files of testdata")

// TestMain ignores a go-redis goroutine: a pool that failed to dial retries once a second until it
// is closed, so the goroutine may end up to a second after the pool is closed.
func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/redis/go-redis/v9/internal/pool.(*ConnPool).tryDial"),
		goleak.Cleanup(func(code int) {
			if built != "" {
				_ = os.RemoveAll(built)
			}
			os.Exit(code)
		}))
}

// began is the time of the tests' embedded servers.
var began = time.UnixMilli(1_700_000_000_000)

// outcome is the result of running a command line.
type outcome struct {
	code           int
	stdout, stderr string
}

// run executes a command line in this process. env contains strings of the form name=value.
func run(t *testing.T, env []string, args ...string) outcome {
	t.Helper()
	var stdout, stderr bytes.Buffer
	a := testApp(env, &stdout, &stderr)
	code := a.execute(t.Context(), args)
	return outcome{code, stdout.String(), stderr.String()}
}

// fine runs a command line that must succeed.
func fine(t *testing.T, env []string, args ...string) {
	t.Helper()
	if got := run(t, env, args...); got.code != exitFine {
		t.Fatalf("%v: %+v", args, got)
	}
}

// started is a command that runs in the background.
type started struct {
	stdout, stderr redistest.Output
	stop           context.CancelFunc
	code           chan int
}

func start(t *testing.T, env []string, args ...string) *started {
	t.Helper()
	return startWith(t, env, func(*app) {}, args...)
}

// startWith is like start, but first calls set to change the command's settings.
func startWith(t *testing.T, env []string, set func(*app), args ...string) *started {
	t.Helper()
	s := &started{code: make(chan int, 1)}
	a := testApp(env, &s.stdout, &s.stderr)
	a.reuse = 0
	set(a)
	ctx, stop := context.WithCancel(t.Context())
	s.stop = stop
	t.Cleanup(stop)
	go func() { s.code <- a.execute(ctx, args) }()
	return s
}

// end interrupts the command, and returns its outcome.
func (s *started) end() outcome {
	s.stop()
	return outcome{<-s.code, s.stdout.String(), s.stderr.String()}
}

func testApp(env []string, stdout, stderr io.Writer) *app {
	a := newApp(func(name string) string {
		for _, e := range env {
			if value, ok := strings.CutPrefix(e, name+"="); ok {
				return value
			}
		}
		return ""
	}, stdout, stderr)
	a.program = "ratelimit"
	a.timeout = time.Minute // for a busy machine
	a.vectors = fewVectors
	return a
}

// fewVectors returns, for each function, only the vectors with its first three successful calls and
// its first three failed calls. Running all vectors takes long; only TestVerify does that.
var fewVectors = sync.OnceValues(func() ([]functions.VectorFile, error) {
	files, err := functions.LoadVectors()
	type call struct {
		function string
		fails    bool
	}
	calls := map[call]int{}
	for i := range files {
		files[i].Vectors = slices.DeleteFunc(files[i].Vectors, func(v functions.Vector) bool {
			few := false
			for _, step := range v.Steps {
				if strings.HasPrefix(step.Call[0], "FCALL") {
					call := call{step.Call[1], step.Reply == nil}
					calls[call]++
					few = few || calls[call] <= 3
				}
			}
			return !few
		})
	}
	return files, err
})

// want checks an outcome, word for word.
func (got outcome) want(t *testing.T, code int, stdout, stderr string) {
	t.Helper()
	if got.code != code {
		t.Errorf("exit code %d, want %d", got.code, code)
	}
	wantText(t, "stdout", got.stdout, stdout)
	wantText(t, "stderr", got.stderr, stderr)
}

func wantText(t *testing.T, what, got, want string) {
	t.Helper()
	if got != want {
		t.Errorf("%s:\n%s\nwant:\n%s", what, got, want)
	}
}

// golden compares got with a file in testdata, in which {{...}} stands for text that differs
// between runs; see steady.
func golden(t *testing.T, name, got string) {
	t.Helper()
	file := filepath.Join("testdata", name)
	if *update {
		require(t, os.WriteFile(file, []byte(got), 0o666))
	}
	want := must[[]byte](t)(os.ReadFile(file))
	wantText(t, name, got, string(want))
}

// steady replaces the build ID and an address in text with placeholders.
func steady(text, addr string) string {
	text = strings.ReplaceAll(text, functions.BuildID(), "{{BUILD}}")
	return strings.ReplaceAll(text, addr, "{{ADDR}}")
}

// withLibrary starts an embedded server that has the library and a stopped clock.
func withLibrary(t *testing.T) *embedded.Server {
	t.Helper()
	return embedded.Run(t, embedded.WithLibrary(functions.Source()), embedded.WithTime(began))
}

func redisURL(addr string) string { return "REDIS_URL=redis://" + addr }

// startRedis starts a redis-server for the test, and returns its address.
func startRedis(t *testing.T, args ...string) string {
	t.Helper()
	return redistest.Run(t, args...).Addr
}

var (
	eventually = redistest.Eventually
	require    = redistest.Require
)

func must[T any](t testing.TB) func(T, error) T { return redistest.Must[T](t) }

// admin returns a client for one server, for setting up and checking a test.
func admin(t *testing.T, addr string) *redis.Client {
	t.Helper()
	s := must[redisurl.Servers](t)(redisurl.Parse("redis://" + addr))
	s.Punctual(time.Minute)
	logging.Disable()
	rdb := s.Open().(*redis.Client)
	t.Cleanup(func() { _ = rdb.Close() })
	return rdb
}

func do(t *testing.T, rdb *redis.Client, words ...any) any {
	t.Helper()
	reply, err := rdb.Do(t.Context(), words...).Result()
	if err != nil {
		t.Fatalf("%v: %v", words, err)
	}
	return reply
}

var resp = fakeredis.RESP

// standIn starts a server, either standalone or the only node of a cluster. It sends the reply that
// answer returns. If answer returns "", it replies like srv.
func standIn(t *testing.T, srv *embedded.Server, cluster bool, answer func(words []string) string) string {
	t.Helper()
	var port int
	started := make(chan struct{})
	addr := fakeredis.Run(t, func(words []string) string {
		<-started
		if text := answer(words); text != "" {
			return text
		}
		mode := "standalone"
		if cluster {
			mode = "cluster"
		}
		self := []any{"127.0.0.1", port, "id", []any{}}
		switch strings.ToUpper(strings.Join(words[:min(2, len(words))], " ")) {
		case "HELLO 2", "HELLO 3":
			return resp([]any{"server", "redis", "version", "7.0.15", "proto", 2, "id", 1, "mode", mode, "role", "master", "modules", []any{}})
		case "ROLE":
			return resp([]any{"master", 0, []any{}})
		case "CLUSTER SLOTS":
			return resp([]any{[]any{0, 16383, self}})
		case "CLUSTER SHARDS":
			return resp([]any{[]any{"slots", []any{0, 16383}, "nodes", []any{[]any{"port", port, "ip", "127.0.0.1", "endpoint", "127.0.0.1", "role", "master", "health", "online"}}}})
		case "CLUSTER INFO":
			return resp("cluster_state:ok\r\n")
		}
		if strings.EqualFold(words[0], "WAIT") {
			return resp(0)
		}
		args := make([]any, len(words))
		for i, word := range words {
			args[i] = word
		}
		reply, err := srv.Do(args...)
		if err != nil {
			return resp(err)
		}
		if about, isText := reply.(string); isText && strings.EqualFold(words[0], "INFO") {
			reply = strings.Replace(about, "os:embedded", "os:Linux", 1) // doctor checks less on an embedded server
		}
		return resp(reply)
	})
	_, text, _ := net.SplitHostPort(addr)
	port, _ = strconv.Atoi(text)
	close(started)
	return addr
}
