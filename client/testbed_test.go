package client_test

import (
	"context"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/ratelimit-functions/ratelimit/client"
	"github.com/ratelimit-functions/ratelimit/embedded"
	"github.com/ratelimit-functions/ratelimit/functions"
)

// testbed is a server with a clock that it shares with the clients of a test.
type testbed struct {
	*embedded.Server
	rdb *redis.Client

	mu    sync.Mutex
	at    time.Time
	lines [][]any                    // library commands that were sent
	hook  func(cmd redis.Cmder)      // called before a command is sent
	lose  func(cmd redis.Cmder) bool // reports whether the reply is lost
}

func newTestbed(t testing.TB) *testbed {
	t.Helper()
	at := time.UnixMilli(1_700_000_000_000)
	server := must[*embedded.Server](t)(embedded.Start(embedded.WithLibrary(functions.Source()), embedded.WithTime(at)))
	t.Cleanup(func() { _ = server.Close() })
	s := &testbed{Server: server, at: at}
	s.rdb = connect(t, redis.Options{Addr: server.Addr(), ContextTimeoutEnabled: true})
	s.rdb.AddHook(s)
	return s
}

// clear deletes all keys, removes the hooks, and empties the list of sent commands.
func (s *testbed) clear(t testing.TB) {
	t.Helper()
	s.hook, s.lose = nil, nil
	require(t, s.rdb.FlushAll(t.Context()).Err())
	s.sent()
}

func (s *testbed) now() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.at
}

func (s *testbed) pass(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.at = s.at.Add(d)
	s.SetTime(s.at)
}

// client returns a new client for the server. Each client simulates a process.
func (s *testbed) client(t testing.TB, opts ...client.Option) *client.Client {
	t.Helper()
	return newClient(t, s.rdb, append(opts, client.WithClock(s.now))...)
}

// sent returns the library commands that were sent since the last call to sent.
func (s *testbed) sent() [][]any {
	s.mu.Lock()
	defer s.mu.Unlock()
	lines := s.lines
	s.lines = nil
	return lines
}

func (s *testbed) DialHook(next redis.DialHook) redis.DialHook { return next }

func (s *testbed) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (s *testbed) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if !strings.HasPrefix(cmd.Name(), "fcall") {
			return next(ctx, cmd)
		}
		s.mu.Lock()
		s.lines = append(s.lines, cmd.Args())
		hook, lose := s.hook, s.lose
		s.mu.Unlock()
		if hook != nil {
			hook(cmd)
		}
		err := next(ctx, cmd)
		if lose != nil && lose(cmd) {
			cmd.SetErr(io.ErrUnexpectedEOF)
			return io.ErrUnexpectedEOF
		}
		return err
	}
}

const (
	ttl   = 100 * time.Millisecond
	wide  = client.Limit("100000/m")
	tight = client.Limit("10/m")
)

// allow calls AllowN for n units of key "k".
func allow(t testing.TB, c *client.Client, limit client.Limit, n int64) client.Result {
	t.Helper()
	return must[client.Result](t)(c.AllowN(t.Context(), "k", limit, n))
}

// wantSource takes n units of key "k", and checks the source of the decision.
func wantSource(t testing.TB, c *client.Client, limit client.Limit, n int64, want string) {
	t.Helper()
	if res := allow(t, c, limit, n); res.Source != want {
		t.Errorf("%+v, want it from the %v", res, want)
	}
}

// wantSent compares the sizes of the requests sent, as sizes returns them, with want.
func (s *testbed) wantSent(t testing.TB, want string) {
	t.Helper()
	if got := s.sizes(); got != want {
		t.Errorf("asked for %q, want %q", got, want)
	}
}

// sizes returns the number of units that each sent command requested: "8" for a batch of up to 8
// units, "=2" for exactly 2 units. For a command without a cost it is "=1".
func (s *testbed) sizes() string {
	var sizes []string
	for _, line := range s.sent() {
		switch {
		case len(line) == 5:
			sizes = append(sizes, "=1")
		case len(line) == 7:
			sizes = append(sizes, "="+line[6].(string))
		default:
			sizes = append(sizes, line[6].(string))
		}
	}
	return strings.Join(sizes, " ")
}

// calls makes n calls for one unit each, and advances the clock after each. apart is the time
// between two calls.
func (s *testbed) calls(t testing.TB, c *client.Client, n int, apart time.Duration) {
	t.Helper()
	for range n {
		if res := allow(t, c, wide, 1); !res.Allowed {
			t.Fatal(res)
		}
		s.pass(apart)
	}
}

// warm returns a client that has spent 16 units of key "k" under the constant limit wide, and has
// 15 units left in its batch.
func (s *testbed) warm(t testing.TB, opts ...client.Option) *client.Client {
	t.Helper()
	c := s.client(t, append(opts, client.WithBatches(16, ttl))...)
	s.calls(t, c, 1+2+4+8+1, 0)
	s.wantSent(t, "=1 2 4 8 16")
	return c
}

// outcome is the result of a call in a goroutine.
type outcome struct {
	res client.Result
	err error
}

// together starts a caller with the context ctx, and then the given number of callers, which wait
// for the first caller's request. release lets the request continue. The outcomes arrive in leader
// and others.
func (s *testbed) together(t *testing.T, c *client.Client, ctx context.Context, callers int, limit client.Limit) (leader, others chan outcome, release func()) {
	t.Helper()
	leader, others = make(chan outcome, 1), make(chan outcome, callers)
	arrived, goOn := make(chan struct{}), make(chan struct{})
	var came atomic.Bool
	s.mu.Lock()
	s.hook = func(redis.Cmder) {
		if came.CompareAndSwap(false, true) {
			close(arrived)
			<-goOn
		}
	}
	s.mu.Unlock()
	go func() {
		res, err := c.Allow(ctx, "k", limit)
		leader <- outcome{res, err}
	}()
	<-arrived
	for range callers {
		go func() {
			res, err := c.Allow(t.Context(), "k", limit)
			others <- outcome{res, err}
		}()
	}
	eventually(t, "all wait", func() bool { return client.WaitingForBatch(c, "k") == int64(callers) })
	return leader, others, func() { close(goOn) }
}

// wantAllowed checks that n outcomes are allowed.
func wantAllowed(t *testing.T, outcomes <-chan outcome, n int) {
	t.Helper()
	for range n {
		if o := <-outcomes; o.err != nil || !o.res.Allowed {
			t.Error(o)
		}
	}
}

const patient = 30 * time.Second
