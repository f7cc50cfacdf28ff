package combinations

import (
	"context"
	"errors"
	"log/slog"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/ratelimit-functions/ratelimit/client"
)

// scenario runs a plan in a bubble.
type scenario struct {
	*world
	plan       plan
	clients    [2]*client.Client
	redis      [2]*redis.Client
	limiters   [2]client.Limiter // the clients with the user's layers
	waits      [2]func(context.Context, client.Request) error
	counters   [2][]*counts // the layers that count
	closed     [2]bool
	calls      int64 // number of exported calls so far
	pools      map[pool]int64
	admissions map[span][]admitted
	forgot     map[pool]int64              // the last command when a client forgot the denials of a key
	judged     map[string]int64            // the units that the last crowd had taken from each key when it was judged
	lasted     time.Duration               // how long the last crowd took
	idle       bool                        // whether the client had no units of the key before the last crowd
	room       time.Time                   // when a change gave the wait of a step room; zero: it did not
	plain      bool                        // whether the first key had no block and no override before the step
	hit        func(marks map[string]bool) // called after each step with the features that took effect
}

// pool identifies the units of a key that a client has taken in advance.
type pool struct {
	client int
	key    string
}

// observation is what an observer was told, with the number of the exported call.
type observation = client.Observation

const timeout = 500 * time.Millisecond

// ttl is how long the units of a batch are valid.
const ttl = 100 * time.Millisecond

// slowest is the longest delay of a reply that arrives.
const slowest = 50 * time.Millisecond

// remembered is how long a client remembers a denial.
const remembered = 500 * time.Millisecond

// localShare is the share of each limit that a LocalFallback admits.
const localShare = 0.5

// run runs a plan, and returns the first broken invariant, or nil. hit is called after each step.
func run(t *testing.T, w *world, p plan, hit func(map[string]bool)) *violation {
	synctest.Test(t, func(t *testing.T) {
		s := &scenario{world: w, plan: p, pools: map[pool]int64{}, hit: hit, admissions: map[span][]admitted{}, forgot: map[pool]int64{}}
		w.mu.Lock()
		w.begin(&p)
		w.mu.Unlock()
		for i := range s.clients {
			s.open(i)
		}
		for i := range p.Steps {
			if w.failed == nil && !w.lostTrack {
				s.step(&p.Steps[i])
			}
		}
		w.mu.Lock()
		w.step = nil
		w.mu.Unlock()
		if w.failed == nil {
			s.end()
		}
		for i := range s.clients {
			s.shut(i)
			_ = s.redis[i].Close()
		}
		if w.failed == nil && !w.lostTrack {
			w.mu.Lock()
			now := time.Now()
			w.outside(func() { w.sync(now); w.checkCounts() })
			w.mu.Unlock()
		}
	})
	return w.failed
}

// open makes client i.
func (s *scenario) open(i int) {
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:6379", ContextTimeoutEnabled: true, ReadTimeout: time.Minute})
	rdb.AddHook(wire{s.world})
	opts := []client.Option{
		client.WithTimeout(timeout),
		client.WithObserver(client.Observer{Call: func(ctx context.Context, o client.Observation) {
			s.mu.Lock()
			s.seen[idOf(ctx)] = append(s.seen[idOf(ctx)], o)
			n := len(s.seen[idOf(ctx)])
			s.mu.Unlock()
			if n >= mostCommands {
				s.broke("a call sends few commands", "%d observations of one exported call; the last: %+v", n, o)
				time.Sleep(time.Second) // so that the deadline of a caller that retries without a pause passes
			}
		}}),
		client.WithObserver(client.LogTo(slog.New(slog.DiscardHandler))),
	}
	if s.plan.Prefix != "" {
		opts = append(opts, client.WithPrefix(s.plan.Prefix))
	}
	if s.plan.Batches {
		opts = append(opts, client.WithBatches(8, ttl))
	}
	if s.plan.Memory {
		opts = append(opts, client.WithDenialMemory(remembered))
	}
	switch s.plan.Fallback {
	case "open":
		opts = append(opts, client.WithFallback(client.FailOpen))
	case "closed":
		opts = append(opts, client.WithFallback(client.FailClosed))
	case "local":
		opts = append(opts, client.WithFallback(client.LocalFallback(localShare)))
	}
	for at := range opts { // the order of options has no effect
		with := s.plan.Order[at] % len(opts)
		opts[at], opts[with] = opts[with], opts[at]
	}
	c, err := client.New(rdb, opts...)
	must(err)
	s.clients[i], s.redis[i], s.closed[i] = c, rdb, false
	s.surround(i)
}

// shut closes client i.
func (s *scenario) shut(i int) {
	if !s.closed[i] {
		if err := s.clients[i].Close(); err != nil {
			s.broke("Close succeeds", "%v", err)
		}
		s.closed[i] = true
	}
	for p := range s.pools {
		if p.client == i {
			delete(s.pools, p)
		}
	}
}

// broke records a broken invariant that the harness found outside the server.
func (s *scenario) broke(rule, format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fail(rule, format, args...)
}

// call starts an exported call: it returns its number, and a context that carries the number.
func (s *scenario) call(ctx context.Context) (int64, context.Context) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls++
	return s.calls, context.WithValue(ctx, callID{}, s.calls)
}

// step runs one step.
func (s *scenario) step(st *step) {
	time.Sleep(st.pause)
	s.mu.Lock()
	s.world.step, s.faults, s.fired = st, append([]fault(nil), st.faults...), map[string]bool{}
	s.mu.Unlock()
	s.others(st)
	s.mu.Lock()
	if st.clock != 0 {
		s.ahead += st.clock
		s.clockBack = s.clockBack || st.clock < 0
		s.fired[map[bool]string{true: "clock forward", false: "clock back"}[st.clock > 0]] = true
		s.note("             clock %v", st.clock)
	}
	now := time.Now()
	s.outside(func() {
		s.sync(now)
		if len(st.keys) > 0 {
			full := s.plan.Prefix + st.keys[0]
			s.plain = s.model.Blocked(full) == 0 && !s.model.Overridden(full)
		}
		if st.redeploy {
			s.checkCounts()
			s.deploy(1 - s.loaded[0])
			s.fired["redeploy"] = true
			s.note("             redeploy")
		}
	})
	s.mu.Unlock()
	var closing sync.WaitGroup
	if st.close {
		s.mark("close")
		closing.Go(func() { // at the same time as the calls of the step
			time.Sleep(time.Millisecond + 3*st.slow)
			if err := s.clients[st.client].Close(); err != nil {
				s.broke("Close succeeds", "%v", err)
			}
		})
		if st.slow == 0 {
			closing.Wait()
		}
	}
	changed := s.meanwhile(st)
	s.act(st)
	changed()
	closing.Wait()
	synctest.Wait()
	if st.close {
		s.closed[st.client] = true
		s.gaveBack(st)
		s.afterClose(st.client)
		_ = s.redis[st.client].Close()
		s.open(st.client)
	}
	s.mu.Lock()
	for _, name := range st.marks {
		if find(name).kind != event {
			s.fired[name] = true
		}
	}
	for name, on := range map[string]bool{
		"batches": s.plan.Batches, "denial memory": s.plan.Memory, "FailOpen": s.plan.Fallback == "open",
		"FailClosed": s.plan.Fallback == "closed", "LocalFallback": s.plan.Fallback == "local", "prefix": s.plan.Prefix != "",
		"crowd": st.crowd > 0, "user's layers": s.passesLayers(st),
	} {
		if on {
			s.fired[name] = true
		}
	}
	s.world.step, s.faults = nil, nil
	fired := s.fired
	s.mu.Unlock()
	s.hit(fired)
}

// others makes the calls of another process before a step.
func (s *scenario) others(st *step) {
	if st.plants != "" {
		s.mu.Lock()
		planted := false
		s.outside(func() { planted = s.plant(s.plan.Prefix+st.plantIn, st.plants) })
		s.mu.Unlock()
		if planted {
			s.mark("foreign value")
		}
	}
	for _, verb := range st.before {
		key := s.plan.Prefix + st.keys[0]
		if st.beforeLast && (verb == "block" || verb == "override") {
			key = s.plan.Prefix + st.keys[len(st.keys)-1]
		}
		switch verb {
		case "block":
			if _, _, err := s.execute(-1, []string{"fcall", "ratelimit_block", "1", key, "3000"}); err == nil {
				s.mark("blocked key")
			}
		case "acquire":
			if _, _, err := s.execute(-1, []string{"fcall", "ratelimit_acquire", "1", key, "concurrency 3 lease=1h", "other"}); err == nil {
				s.mark("another's lease")
			}
		case "override":
			limit := "token_bucket 4/10s"
			if st.keys[0] == "{v}:leases" {
				limit = "concurrency 2 lease=20s"
			}
			if _, _, err := s.execute(-1, []string{"fcall", "ratelimit_override", "1", key, limit, "30000"}); err == nil {
				s.mark("overridden key")
			}
		case "force":
			if s.takes(st, 1<<53, "FORCE") {
				s.mark("key in debt")
			}
		case "spend":
			b := policyOf(s.loaded[0], st.texts[0]).Limits[0].Rates[0].Capacity()
			if st.beforeLast {
				b--
			}
			if s.takes(st, b) {
				s.mark("spent key")
			}
		}
	}
}

// takes makes another process take units from the first key of a step, under its limit.
func (s *scenario) takes(st *step, cost int64, options ...string) bool {
	if st.keys[0] == "{v}:leases" || len(st.texts) == 0 || size(st.texts[0]) > 1 || tracks(st.texts) {
		return false
	}
	words := []string{"fcall", "ratelimit_take", "1", s.plan.Prefix + st.keys[0], st.texts[0], "COST", strconv.FormatInt(cost, 10)}
	_, _, err := s.execute(-1, append(words, options...))
	return err == nil
}

// context returns the context of a call of the step.
func (s *scenario) context(st *step) (context.Context, context.CancelFunc) {
	if st.canceled {
		s.mark("canceled")
		ctx, cancel := context.WithCancel(context.Background())
		after := 10 * time.Millisecond
		if st.verb == "wait" && st.lateCancel { // in the pause after a denial
			after = timeout + 500*time.Millisecond
		}
		timer := time.AfterFunc(after, cancel)
		return ctx, func() { timer.Stop(); cancel() }
	}
	if st.verb == "wait" || st.verb == "lease wait" {
		return context.WithTimeout(context.Background(), st.patience)
	}
	return context.Background(), func() {}
}

func unknown(err error) bool { return errors.Is(err, client.ErrOutcomeUnknown) }
