package lua51

import (
	"context"
	"errors"
	"time"

	"github.com/ratelimit-functions/ratelimit/embedded/internal/lua51/syntax"
	lua "github.com/yuin/gopher-lua"
)

// ErrBudget ends a call that ran longer than its limit.
var ErrBudget = errors.New("the call ran longer than its limit")

// budget stops a runaway call. gopher-lua asks its context before every
// instruction whether it is done, so that this counts instructions, and looks
// at the clock once in many of them: a context with a deadline would cost a
// timer and a goroutine per call.
type budget struct {
	context.Context
	count    uint32
	deadline time.Time
	spent    bool
	closed   chan struct{}

	// Registers of local variables, for messages.
	locals map[*lua.FunctionProto][]syntax.Local

	// The last error value that Go code raised, and where.
	raised lua.LValue
	source string
	line   int
}

// shared finds the budget behind the context of any thread.
func (b *budget) shared() *budget { return b }

// clockEvery is how many instructions pass between two looks at the clock.
const clockEvery = 1 << 14

func newBudget() *budget {
	b := &budget{Context: context.Background(), closed: make(chan struct{}), locals: map[*lua.FunctionProto][]syntax.Local{}}
	close(b.closed)
	return b
}

func (b *budget) start(limit time.Duration) {
	b.count = 0
	b.spent = false
	b.deadline = time.Time{}
	if limit > 0 {
		b.deadline = time.Now().Add(limit)
	}
}

func (b *budget) stop() { b.deadline, b.spent = time.Time{}, false }

// Done is asked once per instruction; a nil channel is never ready.
func (b *budget) Done() <-chan struct{} {
	b.count++
	if b.spent || b.count%clockEvery == 0 && b.expired() {
		return b.closed
	}
	return nil
}

// work accounts for n steps that a Go function does on behalf of Lua, and
// reports whether the call must end.
func (b *budget) work(n int) bool {
	before := b.count / clockEvery
	b.count += uint32(n)
	return b.spent || b.count/clockEvery != before && b.expired()
}

func (b *budget) expired() bool {
	if !b.deadline.IsZero() && time.Now().After(b.deadline) {
		b.spent = true
	}
	return b.spent
}

// Err is the text with which gopher-lua raises; it does not reach a user,
// since the call ends with ErrBudget.
func (b *budget) Err() error {
	if b.spent {
		return ErrBudget
	}
	return nil
}
