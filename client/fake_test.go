package client_test

import (
	"context"
	"slices"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// answers is a hook that executes the commands of a go-redis client itself.
type answers func(context.Context, redis.Cmder) error

func (a answers) DialHook(next redis.DialHook) redis.DialHook { return next }

func (a answers) ProcessHook(redis.ProcessHook) redis.ProcessHook { return redis.ProcessHook(a) }

func (a answers) ProcessPipelineHook(redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		for _, cmd := range cmds {
			if err := a(ctx, cmd); err != nil {
				return err
			}
		}
		return nil
	}
}

// client returns a go-redis client whose commands a executes. It never dials.
func (a answers) client() *redis.Client {
	rdb := redis.NewClient(&redis.Options{
		ContextTimeoutEnabled: true, MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	})
	rdb.AddHook(a)
	return rdb
}

// fake executes the commands of a go-redis client with replies set by the test. See newClient.
type fake struct {
	redis.UniversalClient
	reply any
	err   error
	errs  []error     // errors from successive calls, instead of err; the last one repeats
	after func(n int) // called for each command; n is the number of commands in lines
	hangs bool        // commands wait until the context ends
	sent  bool        // whether the command was written before it failed
	lines [][]any     // commands, except those that failed before they were written
}

// client returns a go-redis client whose commands f executes.
func (f *fake) client() *redis.Client { return answers(f.Process).client() }

func (f *fake) Process(ctx context.Context, cmd redis.Cmder) error {
	if f.hangs {
		<-ctx.Done()
	}
	if f.sent || f.err == nil {
		f.lines = append(f.lines, cmd.Args())
	}
	if f.after != nil {
		f.after(len(f.lines))
	}
	if len(f.errs) > 0 {
		f.err = f.errs[min(len(f.lines), len(f.errs))-1]
	}
	if f.err != nil {
		cmd.SetErr(f.err)
		return f.err
	}
	cmd.(interface{ SetVal(any) }).SetVal(f.reply)
	return nil
}

// answered is a server's error reply.
type answered string

func (a answered) Error() string { return string(a) }
func (answered) RedisError()     {}

func integers(n ...int64) []any {
	reply := make([]any, len(n))
	for i := range n {
		reply[i] = n[i]
	}
	return reply
}

// usageReply returns a reply from ratelimit_usage. change is a list of field names and new values;
// the value nil removes the field.
func usageReply(change ...any) []any {
	return fields([]any{
		"allowed", int64(7), "denied", int64(2), "cost", int64(30), "first_ms", int64(1_700_000_000_000), "last_ms", int64(1_700_000_060_500),
		"interval_ms", int64(60000), "series", []any{integers(1_699_999_980_000, 6, 0), integers(1_700_000_040_000, 1, 2)},
	}, change)
}

// infoReply is like usageReply, but for ratelimit_info.
func infoReply(change ...any) []any {
	return fields([]any{
		"version", "0.1.0", "contract", int64(1), "build_id", "abc", "policies", []any{"calc", "export"}, "shadow_denied", []any{"export", int64(3)},
	}, change)
}

func fields(reply, change []any) []any {
	for i := 0; i < len(change); i += 2 {
		at := slices.Index(reply, change[i])
		switch {
		case at < 0:
			reply = append(reply, change[i], change[i+1])
		case change[i+1] == nil:
			reply = slices.Delete(reply, at, at+2)
		default:
			reply[at+1] = change[i+1]
		}
	}
	return reply
}
