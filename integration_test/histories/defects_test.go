package histories

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/ratelimit-functions/ratelimit/internal/redistest"
)

// TestDefectsAreFound checks the checker: a run on a library with a defect finds an impossible reply.
func TestDefectsAreFound(t *testing.T) {
	for _, d := range Defects {
		t.Run(d.Name, func(t *testing.T) {
			t.Parallel()
			text, err := d.Apply(libraryText(t))
			redistest.Require(t, err)
			found(t, offline(t, text))
		})
	}
}

// found checks that a run finds an impossible reply.
func found(t *testing.T, cfg Config) {
	t.Helper()
	cfg.Ops = 1_000_000
	report, err := Execute(context.Background(), cfg)
	redistest.Require(t, err)
	if len(report.Impossible) == 0 || len(report.Undecided) > 0 {
		t.Fatalf("not found:\n%s", report)
	}
	t.Logf("found after %d calls in %.1f s", report.Calls, report.Elapsed.Seconds())
}

// hook is a defect of the connection: it runs every tenth decision as wrong does.
type hook struct {
	calls *atomic.Int64
	wrong func(send func() error) error
}

func (hook) DialHook(next redis.DialHook) redis.DialHook { return next }

func (h hook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		send := func() error { return next(ctx, cmd) }
		if strings.EqualFold(cmd.Name(), "fcall") && h.calls.Add(1)%10 == 0 {
			return h.wrong(send)
		}
		return send()
	}
}

func (hook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// TestClientDefectsAreFound checks that runs find a client that sends calls twice, or that says that
// calls were not executed though they were.
func TestClientDefectsAreFound(t *testing.T) {
	for name, wrong := range map[string]func(send func() error) error{
		"a call sent twice": func(send func() error) error { return errors.Join(send(), send()) },
		"an executed call reported as not executed": func(send func() error) error {
			return errors.Join(send(), &net.OpError{Op: "dial", Err: errors.New("refused")})
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg := offline(t, libraryText(t))
			newClient := cfg.Servers.NewClient
			calls := &atomic.Int64{}
			cfg.Servers.NewClient = func(dial Dialer) redis.UniversalClient {
				rdb := newClient(dial)
				rdb.AddHook(hook{calls, wrong})
				return rdb
			}
			found(t, cfg)
		})
	}
}
