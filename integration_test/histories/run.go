package histories

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
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
	Ops    int // how many calls with a reply or an unknown outcome to make at least
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
	executed         atomic.Int64 // calls with a reply or an unknown outcome
	fault            atomic.Pointer[string]
	outage           atomic.Pointer[chan struct{}] // closed when the outage in progress is over
	happened         atomic.Bool                   // whether all faults have happened

	outageFrom int64 // calls that had failed when the outage began; only faults use it

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

	pending atomic.Int64 // calls and attempts of which it is not known whether they were executed

	mu      sync.Mutex
	history History
}

// mostPending is how many calls and attempts of an episode can have an unknown outcome before its actors
// stop, each after its current call: the steps of a search grow fast with their number.
const mostPending = 4

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
	return ctx.Err() != nil || r.report.ended(r.Most) || r.executed.Load() >= int64(r.Ops) && r.happened.Load()
}

// faults makes the faults of the run.
func (r *Run) faults(ctx context.Context) error {
	defer r.happened.Store(true)
	for round := uint64(0); r.Faults != nil && (round == 0 || r.executed.Load() < int64(r.Ops)); round++ {
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
	r.report.add(&one.history, one.history.Judge())
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
			if one.pending.Load() > mostPending {
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
	r.executed.Add(1)
	if s.executed {
		r.repliesOf(int(one.shard.Load())).Add(1)
	}
	one.mu.Lock()
	defer one.mu.Unlock()
	one.history.Ops = append(one.history.Ops, op)
	if s.unknown {
		one.pending.Add(1)
	}
	// Requests of other calls that look alike count too: then some attempts are assumed that the call
	// has not made.
	for range min(mostAttempts, r.net.requests(id)-sentBefore) - 1 {
		attempt := *op
		attempt.Fate, attempt.Reply = Repeated, ""
		if s.unknown {
			attempt.Fate = Unknown
		}
		one.history.Ops = append(one.history.Ops, &attempt)
		one.pending.Add(1)
	}
	return s
}
