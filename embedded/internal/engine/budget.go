package engine

import (
	"context"
	"errors"
	"runtime"
	"runtime/metrics"
	"sync"
	"sync/atomic"
	"time"
)

var (
	errTime   = errors.New("the call ran longer than its limit")
	errMemory = errors.New("the call used more memory than its limit")
)

// budget stops a call that takes too much time or memory. It is the context of every Lua thread:
// before each instruction, gopher-lua checks whether the context is done, which costs one atomic
// load. A goroutine checks the clock and the heap every millisecond. The first call starts the
// goroutine. It ends after a while without calls.
type budget struct {
	context.Context
	verdict atomic.Pointer[verdict]
	call    atomic.Int64  // number of starts and ends of calls; odd while a call runs
	limit   atomic.Int64  // maximum time of the running call, in ns
	memory  atomic.Uint64 // maximum growth of the heap during the running call, in bytes
	closed  chan struct{}

	mu       sync.Mutex
	watching bool
	quit     chan struct{}
}

// verdict records that a call must end, and why.
type verdict struct {
	call int64
	why  error
}

func newBudget() *budget {
	b := &budget{Context: context.Background(), closed: make(chan struct{}), quit: make(chan struct{})}
	close(b.closed)
	return b
}

// Done implements context.Context. A nil channel is never ready.
func (b *budget) Done() <-chan struct{} {
	if b.Err() != nil {
		return b.closed
	}
	return nil
}

// Err implements context.Context.
func (b *budget) Err() error {
	if v := b.verdict.Load(); v != nil && v.call == b.call.Load() {
		return v.why
	}
	return nil
}

func (b *budget) start(limit time.Duration, memory uint64) {
	b.memory.Store(memory)
	b.limit.Store(int64(limit))
	b.call.Add(1)
	b.mu.Lock()
	if !b.watching {
		b.watching = true
		go b.watch()
	}
	b.mu.Unlock()
}

// end ends the call. It returns the reason if the call was stopped, or nil.
func (b *budget) end() error {
	why := b.Err()
	b.call.Add(1)
	return why
}

// close ends the goroutine. It must not be called during a call, and no call may start after it.
func (b *budget) close() { close(b.quit) }

// idle is the number of milliseconds without a call after which the goroutine ends.
const idle = 100

// maxTick is the most that one check adds to the time of a call. If the previous check was longer
// ago, the operating system suspended the process.
const maxTick = 2 * time.Millisecond

func (b *budget) watch() {
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	seen, quiet := int64(0), 0 // seen is b.call at the last check; quiet is the number of checks since a call ran
	var last time.Time
	var ran time.Duration
	var heap uint64
	for {
		select {
		case <-b.quit:
			return
		case <-tick.C:
		}
		call, now := b.call.Load(), time.Now()
		ran += min(now.Sub(last), maxTick)
		last = now
		switch {
		case call != seen:
			seen, quiet, ran = call, 0, 0
			heap = heapSize()
		case call%2 == 0:
			if quiet++; quiet > idle && b.leave(call) {
				return
			}
		case ran > time.Duration(b.limit.Load()):
			b.verdict.Store(&verdict{call, errTime})
		case heapSize() > heap+b.memory.Load():
			runtime.GC() // garbage does not count
			if heapSize() > heap+b.memory.Load() {
				b.verdict.Store(&verdict{call, errMemory})
			}
		}
	}
}

// leave records that the goroutine ends, if b.call is still equal to seen. It reports whether the
// goroutine may end.
func (b *budget) leave(seen int64) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.call.Load() != seen {
		return false
	}
	b.watching = false
	return true
}

// heapSize returns the size of the objects on the heap in bytes.
func heapSize() uint64 {
	sample := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
	metrics.Read(sample)
	return sample[0].Value.Uint64()
}
