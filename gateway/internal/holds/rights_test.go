package holds

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/ratelimit-functions/ratelimit/client"
	"github.com/ratelimit-functions/ratelimit/loader/acl"
)

// TestRights checks that an application's user may do everything that reservations need.
func TestRights(t *testing.T) {
	b := newTestbed(t)
	rules := must[[]string](t)(acl.Rules(b.library, acl.Application, "", true))
	used := commands{}
	b.db.AddHook(used)
	b.commit(b.reserve(part("u", "100/h"), 60, time.Minute), 10)
	b.reserve(part("u", "100/h"), 99, time.Minute) // denied
	b.reserve(part("v", "100/h"), 60, time.Minute)
	b.limiter.Block(ctx, client.Block{For: time.Hour}, "v")
	b.advance(time.Minute)
	b.sweep()
	if len(used) < 7 {
		t.Errorf("only %d commands were seen: %v", len(used), used)
	}
	for command := range used {
		if !slices.Contains(rules, "+"+command) {
			t.Errorf("%s is not a right of an application", command)
		}
	}
}

// commands is a hook that collects the names of commands.
type commands map[string]bool

func (c commands) DialHook(next redis.DialHook) redis.DialHook { return next }

func (c commands) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		c.add(cmd)
		return next(ctx, cmd)
	}
}

func (c commands) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, list []redis.Cmder) error {
		c.add(list...)
		return next(ctx, list)
	}
}

var commandsLock sync.Mutex // sweeps send commands at the same time

func (c commands) add(list ...redis.Cmder) {
	commandsLock.Lock()
	defer commandsLock.Unlock()
	for _, cmd := range list {
		if cmd.Name() != "hello" && cmd.Name() != "client" { // of a new connection; everyone may use them
			c[cmd.Name()] = true
		}
	}
}
