package histories

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/ratelimit-functions/ratelimit/client"
	"github.com/ratelimit-functions/ratelimit/lua_test/model"
)

// Dialer makes a connection. It has the signature of go-redis's Dialer.
type Dialer = func(ctx context.Context, network, addr string) (net.Conn, error)

// Config describes a run.
type Config struct {
	Seed   uint64
	Ops    int // how many calls must return at least
	Lanes  int // episodes at a time
	Actors int // in each episode
	Calls  int // of each actor
	Most   int // how many impossible histories end the run

	Servers Servers
	// Faults returns the faults of a round. They happen one after another, each when Every more calls
	// have returned. The run ends after the round in which the calls have returned.
	Faults  func(round uint64) []Fault
	Every   int
	Timeout time.Duration // of a call
}

// Servers are the servers of a run.
type Servers struct {
	StartUS int64                // the first time of the clock
	SetTime func(us int64) error // sets the clock of all servers, which stands still between calls
	// During allows clock moves while calls run. The servers must read the clock only once per call.
	During    bool
	NewClient func(Dialer) redis.UniversalClient
	Builds    []map[string]model.Policy // the policies of each version of the build; version 0 is loaded
	Shard     func(tag string) int      // the shard of a hash tag; nil if there is only one server
	// Heal loads the library on a server that has lost it. One of the clients calls it; nil if none does.
	Heal   func(ctx context.Context, server redis.UniversalClient) error
	Settle func(ctx context.Context) error // waits until every server has executed what it has received
}

// Fault is something that a run does to the servers or to the connections.
type Fault struct {
	Name string
	Do   func(ctx context.Context, r *Run) error
}

// Run is a run in progress.
type Run struct {
	Config
	report  *Report
	clock   *timeline
	net     *network
	clients []*client.Client

	replies          sync.Map // *atomic.Int64 by shard: calls with a reply
	stamps, episodes atomic.Int64
	returned, failed atomic.Int64 // calls that have returned, and those of them without a reply
	fault            atomic.Pointer[string]
	outage           atomic.Pointer[chan struct{}] // closed when the outage in progress is over
	happened         atomic.Bool                   // whether all faults have happened

	mu       sync.Mutex
	live     map[*running]bool
	events   []*Event     // in progress
	versions map[int]int  // of the build, by shard
	stale    map[int]bool // whether a former primary may still accept calls, by shard
}

// running is an episode in progress.
type running struct {
	tag   string
	shard atomic.Int64
	first int // the position of the clock at the begin

	unknown atomic.Int64 // calls without a known outcome

	mu      sync.Mutex
	history History
}

// mostUnknown is how many calls of an episode can lose their reply before its actors stop, each at
// its next lost reply: the time of a search grows fast with their number.
const mostUnknown = 1

// Execute makes a run and returns its report. The error is not nil if the run could not be made;
// impossible replies are in the report only.
func Execute(ctx context.Context, cfg Config) (*Report, error) {
	r := &Run{Config: cfg, report: newReport(), net: &network{sent: map[string]int{}}, live: map[*running]bool{}, versions: map[int]int{}, stale: map[int]bool{}}
	clock, err := newTimeline(cfg.Servers.StartUS, cfg.Servers.During, cfg.Servers.SetTime)
	if err != nil {
		return nil, err
	}
	r.clock, r.net.delivery = clock, r.deliver
	for i := range 3 {
		rdb := cfg.Servers.NewClient(r.net.dial)
		defer rdb.Close()
		opts := []client.Option{client.WithTimeout(cfg.Timeout)}
		if i == 0 && cfg.Servers.Heal != nil {
			opts = append(opts, client.WithHealer(cfg.Servers.Heal))
		}
		c, err := client.New(rdb, opts...)
		if err != nil {
			return nil, err
		}
		r.clients = append(r.clients, c)
		defer c.Close()
	}
	began := time.Now()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var group sync.WaitGroup
	for range cfg.Lanes {
		group.Go(func() {
			for !r.finished(ctx) {
				r.episode(ctx, uint64(r.episodes.Add(1)))
			}
		})
	}
	err = r.faults(ctx)
	if err != nil {
		cancel()
	}
	group.Wait()
	r.net.held.Wait()
	r.report.Elapsed = time.Since(began)
	if err == nil {
		err = errors.Join(ctx.Err(), clock.err)
	}
	return r.report, err
}

func (r *Run) finished(ctx context.Context) bool {
	return ctx.Err() != nil || r.report.ended(r.Most) || r.returned.Load() >= int64(r.Ops) && r.happened.Load()
}

// faults makes the faults of the run.
func (r *Run) faults(ctx context.Context) error {
	defer r.happened.Store(true)
	for round := uint64(0); r.Faults != nil && (round == 0 || r.returned.Load() < int64(r.Ops)); round++ {
		for _, f := range r.Faults(round) {
			if err := r.AfterCalls(ctx, r.Every); err != nil || r.report.ended(r.Most) {
				return err
			}
			began := time.Now()
			r.fault.Store(&f.Name)
			err := f.Do(ctx, r)
			r.recover()
			if err != nil {
				return fmt.Errorf("%s: %w", f.Name, err)
			}
			r.report.happened(f.Name, time.Since(began))
			if err := errors.Join(r.AfterCalls(ctx, 1), r.barrier(ctx)); err != nil {
				return err
			}
			r.fault.Store(nil)
		}
	}
	return nil
}

// AfterCalls waits until n more calls have returned.
func (r *Run) AfterCalls(ctx context.Context, n int) error { return r.after(ctx, &r.returned, n) }

// AfterFailures waits until n more calls have returned without a reply.
func (r *Run) AfterFailures(ctx context.Context, n int) error { return r.after(ctx, &r.failed, n) }

func (r *Run) after(ctx context.Context, counter *atomic.Int64, n int) error {
	for from := counter.Load(); counter.Load() < from+int64(n) && !r.report.ended(r.Most); {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(time.Millisecond):
		}
	}
	return nil
}

// AfterReplies waits until n more calls on a shard have got a reply.
func (r *Run) AfterReplies(ctx context.Context, shard, n int) error {
	return r.after(ctx, r.repliesOf(shard), n)
}

func (r *Run) repliesOf(shard int) *atomic.Int64 {
	counter, _ := r.replies.LoadOrStore(shard, &atomic.Int64{})
	return counter.(*atomic.Int64)
}

// Outage says that calls fail until the fault in progress is over. Actors whose calls fail then
// wait.
func (r *Run) Outage() {
	over := make(chan struct{})
	r.outage.Store(&over)
}

func (r *Run) recover() {
	if over := r.outage.Swap(nil); over != nil {
		close(*over)
	}
}

// deliver delivers a late request after some other calls have returned.
func (r *Run) deliver(write func() error) {
	for from, i := r.returned.Load(), 0; r.returned.Load() < from+20 && i < 1000; i++ {
		time.Sleep(time.Millisecond)
	}
	r.clock.begin()
	defer r.clock.end()
	if write() == nil {
		_ = r.settle(context.Background())
	}
}

func (r *Run) settle(ctx context.Context) error {
	if r.Servers.Settle == nil {
		return nil
	}
	return r.Servers.Settle(ctx)
}

// barrier waits until the servers have executed all requests that they have received. Calls that
// returned before without a known outcome cannot be executed any more.
func (r *Run) barrier(ctx context.Context) error {
	began := r.stamps.Add(1)
	if err := r.settle(ctx); err != nil {
		return err
	}
	r.close(began, func(int) bool { return true })
	return nil
}

// Dead says that the server of a shard is killed. Calls that have returned without a known outcome
// cannot be executed any more.
func (r *Run) Dead(shard int) {
	r.close(r.stamps.Add(1), func(other int) bool { return other == shard })
}

// close closes the calls that returned before a stamp.
func (r *Run) close(before int64, on func(shard int) bool) {
	ended, last := r.stamps.Add(1), r.clock.last()
	r.mu.Lock()
	defer r.mu.Unlock()
	for one := range r.live {
		if !on(int(one.shard.Load())) {
			continue
		}
		one.mu.Lock()
		for _, op := range one.history.Ops {
			if op.To == open && op.Returned < before {
				op.To, op.UntilClock = ended, last-one.first
			}
		}
		one.mu.Unlock()
	}
}

// stopped is the version for the begin of a failover whose former primary may still decide calls.
const stopped = -1

// Begin records that an event begins on a shard. End records its end.
func (r *Run) Begin(what What, shard, version int) *Event {
	r.mu.Lock()
	defer r.mu.Unlock()
	e := &Event{What: what, Shard: shard, Version: version, Alive: what == TakenOver && version == stopped, Cause: *r.fault.Load(), From: r.stamps.Add(1)}
	r.events = append(r.events, e)
	for one := range r.live {
		if int(one.shard.Load()) == shard {
			one.mu.Lock()
			one.history.Events = append(one.history.Events, e)
			one.mu.Unlock()
		}
	}
	return e
}

// End records the end of an event.
func (r *Run) End(e *Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	e.clock.Store(int64(r.clock.last()))
	e.to.Store(r.stamps.Add(1))
	r.events = slices.DeleteFunc(r.events, func(other *Event) bool { return other == e })
	switch e.What {
	case Deployed, Restored:
		r.versions[e.Shard] = e.Version
	case TakenOver:
		r.stale[e.Shard] = e.Alive
	case Demoted:
		r.stale[e.Shard] = false
	}
}

// Version returns the version of the build on a shard.
func (r *Run) Version(shard int) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.versions[shard]
}

// Moved records that slots have moved to other shards.
func (r *Run) Moved() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for one := range r.live {
		one.shard.Store(int64(r.Servers.Shard(one.tag)))
	}
}

// Tag returns the hash tag of an episode in progress, or "".
func (r *Run) Tag() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	for one := range r.live {
		return one.tag
	}
	return ""
}

// Still runs f while the clock stands still. advance moves the clock.
func (r *Run) Still(f func(advance func(us int64) error) error) error {
	r.clock.moving.Lock()
	defer r.clock.moving.Unlock()
	return f(r.clock.advance)
}

// Quiet runs f while no call is in progress and the clock stands still.
func (r *Run) Quiet(f func() error) error {
	r.clock.moving.Lock()
	defer r.clock.moving.Unlock()
	r.clock.gate.Lock()
	defer r.clock.gate.Unlock()
	return f()
}

// Cut makes the next requests suffer faults of the network, and waits until they have.
// Requests that are late have then arrived.
func (r *Run) Cut(ctx context.Context, faults ...cut) error {
	r.net.arm(faults...)
	for armed, late := r.net.left(); armed+late > 0 && !r.report.ended(r.Most); armed, late = r.net.left() {
		if err := r.AfterCalls(ctx, 1); err != nil {
			return err
		}
	}
	return nil
}

// Move moves the clock.
func (r *Run) Move(us int64) error {
	return r.Still(func(advance func(us int64) error) error { return advance(us) })
}

func (r *Run) episode(ctx context.Context, number uint64) {
	e := newEpisode(r.Seed, number, fmt.Sprintf("%x-%d", r.Seed, number))
	calls := make([][]model.Call, r.Actors)
	for range r.Calls {
		for i := range calls {
			calls[i] = append(calls[i], e.call())
		}
	}
	one := r.enter(e.tag)
	var group sync.WaitGroup
	for i, mine := range calls {
		moves := &episode{Rand: rand.New(rand.NewPCG(r.Seed^number, uint64(i)))}
		group.Go(func() { r.act(ctx, one, i, mine, moves) })
	}
	group.Wait()
	r.leave(one)
	r.report.add(&one.history, one.history.Check())
}

// enter begins an episode.
func (r *Run) enter(tag string) *running {
	r.mu.Lock()
	defer r.mu.Unlock()
	one := &running{tag: tag, first: r.clock.now()}
	shard := 0
	if r.Servers.Shard != nil {
		shard = r.Servers.Shard(tag)
	}
	one.shard.Store(int64(shard))
	one.history = History{first: one.first, Version: r.versions[shard], Stale: r.stale[shard], Builds: r.Servers.Builds}
	for _, e := range r.events {
		if e.Shard == shard {
			one.history.Events = append(one.history.Events, e)
		}
	}
	r.live[one] = true
	return one
}

// leave ends an episode, and completes its history.
func (r *Run) leave(one *running) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.live, one)
	r.net.forget(one.history.Ops)
	one.history.Clock = r.clock.from(one.first)
	for _, op := range one.history.Ops {
		if op.To == open {
			op.UntilClock = len(one.history.Clock) - 1
		}
	}
}

// act makes the calls of an actor.
func (r *Run) act(ctx context.Context, one *running, actor int, calls []model.Call, moves *episode) {
	for _, call := range calls {
		retry := int64(0)
		for try := range 200 {
			s := r.call(ctx, one, actor, call)
			if !s.executed {
				r.failed.Add(1)
				if over := r.outage.Load(); over != nil {
					select {
					case <-*over:
					case <-ctx.Done():
					}
				} else if !s.unknown {
					time.Sleep(time.Duration(1+try) * time.Millisecond) // until the client calls the server again
				}
			}
			if ctx.Err() != nil || r.report.ended(r.Most) {
				return
			}
			if s.unknown && one.unknown.Add(1) > mostUnknown {
				return
			}
			if retry = s.retry; s.executed || s.unknown {
				break
			}
		}
		if moves.IntN(10) == 0 {
			r.clock.move(moves.move(retry))
		}
	}
}

const mostAttempts = 4 // of the client for one call

// call makes a call, and records it unless it was not executed.
func (r *Run) call(ctx context.Context, one *running, actor int, call model.Call) sent {
	op := &Op{Actor: actor, Call: call}
	before := r.fault.Load()
	id := repeatable(call)
	sentBefore := r.net.requests(id)
	op.FromClock = r.clock.begin() - one.first
	op.From = r.stamps.Add(1)
	s := send(ctx, r.clients[actor%len(r.clients)], call)
	op.Returned = r.stamps.Add(1)
	op.To = op.Returned
	op.UntilClock = r.clock.end() - one.first
	op.Reply = s.reply
	if s.unknown {
		op.Fate, op.Reply, op.To = Unknown, "", open
	}
	r.report.call(op.Call, s, before, r.fault.Load())
	r.returned.Add(1)
	if !s.executed && !s.unknown {
		return s
	}
	if s.executed {
		r.repliesOf(int(one.shard.Load())).Add(1)
	}
	one.mu.Lock()
	defer one.mu.Unlock()
	one.history.Ops = append(one.history.Ops, op)
	// Requests of other calls that look alike count too: then some attempts are assumed that the call
	// has not made.
	for range min(mostAttempts, r.net.requests(id)-sentBefore) - 1 {
		attempt := *op
		attempt.Fate, attempt.Reply = Repeated, ""
		if s.unknown {
			attempt.Fate = Unknown
		}
		one.history.Ops = append(one.history.Ops, &attempt)
	}
	return s
}
