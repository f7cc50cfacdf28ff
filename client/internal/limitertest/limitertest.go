// Package limitertest has code shared by the tests of the packages for HTTP, gRPC and
// OpenTelemetry.
package limitertest

import (
	"context"
	"errors"
	"io"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/ratelimit-functions/ratelimit/client"
	"github.com/ratelimit-functions/ratelimit/embedded"
	"github.com/ratelimit-functions/ratelimit/functions"
	"github.com/ratelimit-functions/ratelimit/internal/redistest"
)

// Noon is the initial time of clocks that tests control.
var Noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

// Fallbacks holds every kind of fallback by name.
var Fallbacks = map[string]client.Fallback{
	"ReturnError": client.ReturnError, "FailOpen": client.FailOpen, "FailClosed": client.FailClosed, "LocalFallback": client.LocalFallback(1),
}

// Must is [redistest.Must].
func Must[T any](t testing.TB) func(T, error) T { return redistest.Must[T](t) }

// Check fails the test if there is an error.
func Check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Error(err)
	}
}

// CodeOf returns the Code of a [client.Error] in err, or "".
func CodeOf(err error) string {
	if e, ok := errors.AsType[*client.Error](err); ok {
		return e.Code
	}
	return ""
}

// Code stands for an error with this Code in the tables of tests.
type Code string

func (c Code) Error() string { return string(c) }

// Is is [errors.Is], and also matches an error against a Code.
func Is(err, class error) bool {
	if c, ok := class.(Code); ok {
		return CodeOf(err) == string(c)
	}
	return errors.Is(err, class)
}

// AsLimited is errors.As for a [client.ErrLimited].
func AsLimited(err error, e **client.Error) bool {
	return errors.Is(err, client.ErrLimited) && errors.As(err, e)
}

// Example returns a client for a server with the library and the policies. The server's clock is stopped.
func Example(policies ...functions.Policy) (limiter *client.Client, stop func()) {
	build, err := functions.New(functions.WithPolicies(policies...))
	if err != nil {
		panic(err)
	}
	server, err := embedded.Start(embedded.WithLibrary(build.Text()), embedded.WithTime(Noon))
	if err != nil {
		panic(err)
	}
	limiter, err = client.Open("redis://"+server.Addr(), client.WithTimeout(time.Minute))
	if err != nil {
		panic(err)
	}
	return limiter, func() {
		_ = limiter.Close()
		_ = server.Close()
	}
}

// Open returns a client for server. The client is closed at the end of the test.
func Open(t testing.TB, server *embedded.Server, opts ...client.Option) *client.Client {
	t.Helper()
	limiter := Must[*client.Client](t)(client.Open("redis://"+server.Addr(), append(opts, client.WithTimeout(time.Minute))...))
	t.Cleanup(func() { _ = limiter.Close() })
	return limiter
}

// Hooked is Open with a hook that sees each command.
func Hooked(t testing.TB, server *embedded.Server, hook Hook, opts ...client.Option) *client.Client {
	t.Helper()
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr(), ContextTimeoutEnabled: true})
	rdb.AddHook(hook)
	limiter := Must[*client.Client](t)(client.New(rdb, append(opts, client.WithTimeout(time.Minute))...))
	t.Cleanup(func() {
		_ = limiter.Close()
		_ = rdb.Close()
	})
	return limiter
}

// Hook runs around each call to a function of the library. next sends the call.
type Hook func(ctx context.Context, function string, next func() error) error

// Before returns a Hook that calls f before each call to a function, such as "ratelimit_take".
func Before(function string, f func(context.Context)) Hook {
	return func(ctx context.Context, called string, next func() error) error {
		if called == function {
			f(ctx)
		}
		return next()
	}
}

// Losing returns a Hook that loses the replies to calls to a function while *lose is above 0, and
// subtracts 1 for each. The calls are executed.
func Losing(function string, lose *atomic.Int64) Hook {
	return func(_ context.Context, called string, next func() error) error {
		err := next()
		if called == function && lose.Load() > 0 {
			lose.Add(-1)
			return io.ErrUnexpectedEOF
		}
		return err
	}
}

// DialHook implements [redis.Hook].
func (Hook) DialHook(next redis.DialHook) redis.DialHook { return next }

// ProcessPipelineHook implements [redis.Hook].
func (Hook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// ProcessHook implements [redis.Hook].
func (h Hook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		function := ""
		if args := cmd.Args(); len(args) > 1 {
			function, _ = args[1].(string)
		}
		return h(ctx, function, func() error { return next(ctx, cmd) })
	}
}

// WantUsed checks that want units of a key with the limit 100/d are used.
func WantUsed(t testing.TB, limiter *client.Client, key string, want int64) {
	t.Helper()
	if got := 100 - Must[client.Result](t)(limiter.Peek(t.Context(), client.For(key, "100/d", 0))).Remaining; got != want {
		t.Errorf("%d are taken from %q, want %d", got, key, want)
	}
}

// WantBlocked checks how long a key is blocked.
func WantBlocked(t testing.TB, limiter *client.Client, key string, want time.Duration) {
	t.Helper()
	if got := Must[client.Result](t)(limiter.Peek(t.Context(), client.For(key, "1/d", 0))).RetryAfter; got != want {
		t.Errorf("%q is blocked for %v, want %v", key, got, want)
	}
}

// Cancelled returns a canceled copy of ctx.
func Cancelled(ctx context.Context) context.Context {
	ctx, cancel := context.WithCancel(ctx)
	cancel()
	return ctx
}

// AboutToExpire is a context whose deadline has passed, but whose timer has not fired yet.
type AboutToExpire struct{ context.Context }

// Deadline returns a time that has passed.
func (AboutToExpire) Deadline() (time.Time, bool) { return time.Now().Add(-time.Microsecond), true }
