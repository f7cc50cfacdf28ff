package combinations

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/ratelimit-functions/ratelimit/embedded"
	"github.com/ratelimit-functions/ratelimit/lua_test/model"
)

// wire is a hook that sends the commands of a redis.Client to the server of a world. It never
// dials.
type wire struct{ *world }

func (wire) DialHook(next redis.DialHook) redis.DialHook { return next }

func (w wire) ProcessHook(redis.ProcessHook) redis.ProcessHook { return w.process }

// A pipeline is one round trip: a fault affects all of its commands.
func (w wire) ProcessPipelineHook(redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		f := w.next(cmds[0])
		for _, cmd := range cmds {
			_ = w.send(ctx, cmd, f)
		}
		return nil
	}
}

// callID is the key of a context's value: the number of the exported call.
type callID struct{}

func idOf(ctx context.Context) int64 {
	id, _ := ctx.Value(callID{}).(int64)
	return id
}

func (w wire) process(ctx context.Context, cmd redis.Cmder) error {
	return w.send(ctx, cmd, w.next(cmd))
}

// next returns the fault that affects a command.
func (w *world) next(cmd redis.Cmder) (f fault) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.step == nil {
		return fault{}
	}
	if w.step.outage {
		w.fired["outage"] = true
		return fault{kind: refuse}
	}
	if len(w.faults) > 0 && (cmd.Name() == "fcall" || w.faults[0].kind == refuse) {
		f, w.faults = w.faults[0], w.faults[1:]
		w.fired[map[faultKind]string{loseReply: "lost reply", loseRequest: "lost request", refuse: "no connection", hang: "hung server"}[f.kind]] = true
	}
	return f
}

// serverError is an error reply.
type serverError string

func (e serverError) Error() string { return string(e) }
func (serverError) RedisError()     {}

func (w wire) send(ctx context.Context, cmd redis.Cmder, f fault) error {
	reply, err := w.answer(ctx, cmd, f)
	if err != nil {
		cmd.SetErr(err)
		return err
	}
	cmd.(interface{ SetVal(any) }).SetVal(reply)
	return nil
}

func (w wire) answer(ctx context.Context, cmd redis.Cmder, f fault) (any, error) {
	if f.kind == refuse {
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: errors.New("connection refused")}
	}
	args := cmd.Args()
	if args[0] == "ping" { // an abandoned command
		return "PONG", nil
	}
	words := make([]string, len(args))
	for i, arg := range args {
		words[i] = fmt.Sprint(arg)
	}
	if f.kind == loseRequest {
		return nil, io.ErrUnexpectedEOF
	}
	var x *execution
	var reply any
	var err error
	if f.kind != hang || f.ran {
		x, reply, err = w.execute(idOf(ctx), words)
	}
	w.mu.Lock()
	slow, between, canceled := time.Duration(0), (*step)(nil), false
	if w.step != nil && words[1] != "ratelimit_info" {
		slow, canceled = w.step.slow, w.step.canceled
		if slow > 0 && words[1] == "ratelimit_refund" { // callers make several calls while Close gives units back
			slow = max(slow, min(10*slow, ttl/2))
		}
		if f.kind == loseReply && w.step.between != nil {
			between, w.step.between = w.step.between, nil
		}
	}
	w.mu.Unlock()
	if canceled {
		slow = max(slow, 20*time.Millisecond)
	}
	if between != nil {
		w.mark("another's call")
		_, _, _ = w.execute(-1, between.words(w.prefix))
	}
	switch {
	case f.kind == hang:
		<-ctx.Done()
		return nil, ctx.Err()
	case f.kind == loseReply:
		return nil, io.ErrUnexpectedEOF
	case slow > 0:
		w.mark("slow replies")
		select {
		case <-time.After(slow):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	if x != nil {
		w.mu.Lock()
		x.delivered = true
		w.mu.Unlock()
	}
	return reply, err
}

func (w *world) mark(name string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.fired[name] = true
}

// words returns the command of another process's call.
func (s *step) words(prefix string) []string {
	words := []string{"fcall", "ratelimit_" + s.verb, "1", prefix + s.keys[0]}
	ms := strconv.FormatInt(s.span.Milliseconds(), 10)
	switch s.verb {
	case "block":
		words = append(words, ms)
	case "override":
		words = append(words, s.texts[0], ms)
	}
	return words
}

// execute runs a command on the server, and holds it against the model and the invariants. id is
// the exported call that sent the command, or 0.
func (w *world) execute(id int64, words []string) (x *execution, reply any, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if id == 0 {
		id = w.crowd
	}
	if n := len(w.ledger[id]); n >= mostCommands {
		if n == mostCommands {
			w.fail("a call sends few commands", "%d commands of one exported call; the last: %v", n, words)
		}
		w.ledger[id] = append(w.ledger[id], &execution{reason: "too many commands"})
		return nil, nil, context.DeadlineExceeded
	}
	now := time.Now()
	w.outside(func() {
		w.sync(now)
		if words[1] == "ratelimit_info" {
			reply, err = w.raw(words)
			return
		}
		w.executed++
		x = &execution{Call: w.parse(words), at: now}
		found := false
		if reply, err, found = w.onForeign(x, words); !found {
			reply, err = w.held(x, words)
		}
	})
	if refused, ok := err.(embedded.Error); ok {
		err = serverError(refused)
	}
	if x != nil {
		w.ledger[id] = append(w.ledger[id], x)
	}
	return x, reply, err
}

func (w *world) raw(words []string) (any, error) {
	args := make([]any, len(words))
	for i, word := range words {
		args[i] = word
	}
	return w.server.Do(args...)
}

// mostCommands is how many commands an exported call, or a crowd of them, may send. It ends a caller
// that retries without a pause.
const mostCommands = 500

// parse returns the call of a command.
func (w *world) parse(words []string) model.Call {
	c, err := model.ParseCall(words, func(text string) (model.Policy, error) { return w.policy(text), nil })
	must(err)
	c.Force = c.Force && c.Verb == model.Take
	return c
}

func (w *world) policy(text string) model.Policy { return policyOf(w.loaded[0], text) }
