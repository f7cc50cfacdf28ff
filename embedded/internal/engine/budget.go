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

// budget stops a call that takes too long or too much memory. It is the context of every Lua thread, which gopher-lua asks
// before each instruction whether it is done: that is one look at a word of memory. The clock and the heap are looked at
// every millisecond by a goroutine, which is there while calls are made, and leaves when none has been for a while.
type budget struct {
	context.Context
	verdict atomic.Pointer[verdict]
	call    atomic.Int64  // counts calls' beginnings and ends: odd while one runs
	limit   atomic.Int64  // of the call that runs, in ns
	memory  atomic.Uint64 // that it may use, in bytes
	closed  chan struct{}

	mu       sync.Mutex
	watching bool
	quit     chan struct{}
}

// verdict is that a call has to end, and why.
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
	if v := b.verdict.Load(); v != nil && v.call == b.call.Load() {
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

// start begins a call, which may take the given time and bytes.
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

// end ends the call, and returns why it was stopped, or nil.
func (b *budget) end() error {
	why := b.Err()
	b.call.Add(1)
	return why
}

// close ends the goroutine; no call may run, nor begin.
func (b *budget) close() { close(b.quit) }

// idle is for how many ms without a call the goroutine stays.
const idle = 100

// longestLook is what counts at most from one look to the next: a process that the machine gave no time has not run.
const longestLook = 2 * time.Millisecond

func (b *budget) watch() {
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	seen, quiet := int64(0), 0 // the call at the last look, and how many looks found none
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
		ran += min(now.Sub(last), longestLook)
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
			runtime.GC() // what is garbage does not count
			if heapSize() > heap+b.memory.Load() {
				b.verdict.Store(&verdict{call, errMemory})
			}
		}
	}
}

// leave ends the watch if no call has begun since the given count.
func (b *budget) leave(call int64) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.call.Load() != call {
		return false
	}
	b.watching = false
	return true
}

// heapSize is what the objects on the heap take, in bytes.
func heapSize() uint64 {
	sample := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
	metrics.Read(sample)
	return sample[0].Value.Uint64()
}
