package integration_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/ratelimit-functions/ratelimit/client"
	"github.com/ratelimit-functions/ratelimit/functions"
	"github.com/ratelimit-functions/ratelimit/integration_test/backend"
	"github.com/ratelimit-functions/ratelimit/loader"
)

// verbs is the environment of a case: a backend with the build of deployForClients, and clients
// with only an application user's rights.
type verbs struct {
	*testing.T
	*backend.Backend
	ctx   context.Context
	build functions.Build
	*client.Client
}

// with returns a client with further options.
func (v verbs) with(opts ...client.Option) *client.Client {
	v.Helper()
	return newLimiter(v.T, newClient(v.T, v.Backend, asUser("client-app")), append(opts, client.WithPrefix("it:"))...)
}

func (v verbs) remaining(key string, limit client.Limit, want int64) {
	v.Helper()
	if got, err := v.PeekN(v.ctx, key, limit, 0); err != nil || got.Remaining != want {
		v.Errorf("%s: %d are left, %v; want %d", key, got.Remaining, err, want)
	}
}

// The client's features beyond single calls: waiting, refunds, leases, checks, healing, batches and
// remembered denials.
func TestClientVerbs(t *testing.T) {
	eachBackend(t, func(t *testing.T, b *backend.Backend) {
		build, c := deployForClients(t, b)
		for name, f := range map[string]func(verbs, string){
			"wait":            waits,
			"wait in a queue": waitsForTurns,
			"reserve":         reserves,
			"hold":            holds,
			"lose":            losesALease,
			"batches":         batches,
			"memory":          remembers,
		} {
			t.Run(name, func(t *testing.T) {
				v := verbs{t, b, testContext(t), build, c}
				for _, tag := range tags() {
					f(v, tag+":"+name)
				}
			})
		}
		t.Run("heal", func(t *testing.T) { heals(verbs{t, b, testContext(t), build, c}) }) // empties the servers, so it comes last
	})
}

func waits(v verbs, key string) {
	began := time.Now()
	for range 3 {
		if err := v.Wait(v.ctx, key, "100/s burst=1"); err != nil {
			v.Error(err)
		}
	}
	if took := time.Since(began); took < 19*time.Millisecond { // the server counts in whole ms
		v.Errorf("%s: three units of 100/s burst=1 in %v", key, took)
	}
	if err := v.WaitN(v.ctx, key+":day", "3/d", 2); err != nil {
		v.Error(err)
	}
	limited, cancel := context.WithTimeout(v.ctx, time.Minute)
	defer cancel()
	var e *client.LimitedError
	err := v.WaitN(limited, key+":day", "3/d", 2)
	if !errors.As(err, &e) || !errors.Is(err, context.DeadlineExceeded) || e.Key != "it:"+key+":day" || !within(e.RetryAfter, 8*time.Hour) {
		v.Errorf("beyond the deadline: %v", err)
	}
	if err := v.WaitN(v.ctx, key+":day", "3/d", 4); !errors.As(err, &e) || e.RetryAfter != client.Never {
		v.Errorf("more than there ever is: %v", err)
	}
	v.remaining(key+":day", "3/d", 1)
	req := client.Request{Keys: []string{key + ":calc", key + ":consumer"}, Limits: []client.Limit{"@calc"}, Costs: []int64{2, 1}, UsageKey: key + ":usage"}
	for range 2 {
		if err := v.WaitRequest(v.ctx, req, time.Now()); err != nil {
			v.Error(err)
		}
	}
	if err := v.WaitRequest(context.WithoutCancel(v.ctx), req, time.Now()); !errors.As(err, &e) || e.Key != "it:"+key+":consumer" || !within(e.RetryAfter, 12*time.Hour) || e.Err != nil {
		v.Errorf("two of two are taken: %v", err)
	}
	v.remaining(key+":calc", "10/d", 6)
}

func waitsForTurns(v verbs, key string) {
	const limit = "leaky_bucket 50/s burst=3"
	began := time.Now()
	var all sync.WaitGroup
	for range 3 {
		all.Go(func() {
			if err := v.Wait(v.ctx, key, limit); err != nil {
				v.Error(err)
			}
		})
	}
	all.Wait()
	if took := time.Since(began); took < 39*time.Millisecond {
		v.Errorf("%s: the third turn of 50/s has come after %v", key, took)
	}
	for i, want := range []error{nil, context.DeadlineExceeded} { // the second call's turn is in a day, and it gives that turn back
		limited, cancel := context.WithTimeout(v.ctx, time.Minute)
		if err := v.Wait(limited, key+":day", "leaky_bucket 1/d burst=2"); !errors.Is(err, want) {
			v.Errorf("%d: %v, want %v", i, err, want)
		}
		cancel()
		v.remaining(key+":day", "leaky_bucket 1/d burst=2", 1)
	}
}

func reserves(v verbs, key string) {
	r, err := v.ReserveN(v.ctx, key, "3/d", 2)
	if err != nil || !r.OK() || r.Delay() != 0 {
		v.Fatalf("%+v, %v", r, err)
	}
	v.remaining(key, "3/d", 1)
	if denied, err := v.ReserveN(v.ctx, key, "3/d", 2); err != nil || denied.OK() || !within(denied.Result().RetryAfter, 8*time.Hour) {
		v.Errorf("%+v, %v", denied, err)
	}
	for range 2 {
		if err := r.Cancel(v.ctx); err != nil {
			v.Error(err)
		}
		v.remaining(key, "3/d", 3)
	}
	for i := range 2 { // the first turn is now, the second in a day
		turn, err := v.Reserve(v.ctx, key+":queue", "leaky_bucket 1/d burst=2")
		if err != nil || !turn.OK() || !within(turn.Delay(), time.Duration(i)*24*time.Hour) {
			v.Fatalf("turn %d: %+v, %v", i, turn, err)
		}
		if i == 1 {
			if err := turn.Cancel(v.ctx); err != nil {
				v.Error(err)
			}
			v.remaining(key+":queue", "leaky_bucket 1/d burst=2", 1)
		}
	}
}

func holds(v verbs, key string) {
	limit := client.Concurrency(1, time.Hour)
	first, second := v.Lease(key, limit, ""), v.Lease(key, limit, "")
	running, end := make(chan struct{}), make(chan struct{})
	held := make(chan error, 1)
	go func() {
		held <- first.Hold(v.ctx, func(context.Context) error { close(running); <-end; return nil })
	}()
	<-running
	var e *client.LimitedError
	if err := second.Hold(v.ctx, func(context.Context) error { return errors.New("it ran") }); !errors.As(err, &e) || !within(e.RetryAfter, time.Hour) {
		v.Errorf("%s: %v", key, err)
	}
	waited := make(chan error, 1)
	go func() { waited <- second.Wait(v.ctx) }()
	close(end)
	if err := errors.Join(<-held, <-waited); err != nil {
		v.Error(err)
	}
	if found, err := second.Release(v.ctx); err != nil || !found {
		v.Errorf("%s: what was waited for is held: %v, %v", key, found, err)
	}
}

func losesALease(v verbs, key string) {
	err := v.Lease(key, "concurrency 1 lease=1s", "").Hold(v.ctx, func(ctx context.Context) error {
		if n, err := v.Reset(v.ctx, key); err != nil || n > 1 {
			v.Errorf("%d, %v", n, err)
		}
		<-ctx.Done()
		return context.Cause(ctx)
	})
	if !errors.Is(err, client.ErrLeaseLost) {
		v.Errorf("%s: %v", key, err)
	}
}

// Two processes with batches use up a limit completely, and take no more than that.
func batches(v verbs, key string) {
	const limit = "300/d"
	processes := []*client.Client{v.with(client.WithBatches(32, time.Hour)), v.with(client.WithBatches(32, time.Hour))}
	got := map[client.Source]int{}
	for denied := 0; denied < len(processes); {
		denied = 0
		for _, c := range processes {
			switch res, err := c.Allow(v.ctx, key, limit); {
			case err != nil:
				v.Fatal(err)
			case res.Allowed:
				got[res.Source]++
			default:
				denied++
			}
		}
	}
	if all := got[client.SourceServer] + got[client.SourceBatch]; all != 300 || got[client.SourceBatch] < 200 {
		v.Errorf("%s: %v were let through, want 300 in all, most of them from batches", key, got)
	}
	// Unspent units are returned, except those that would refill within a call's time: one unit at
	// 300 a day.
	for range 20 {
		if res, err := processes[0].Allow(v.ctx, key+":left", limit); err != nil || !res.Allowed {
			v.Fatalf("%+v, %v", res, err)
		}
	}
	if err := errors.Join(processes[0].Close(), processes[1].Close()); err != nil {
		v.Error(err)
	}
	if left, err := v.PeekN(v.ctx, key+":left", limit, 0); err != nil || left.Remaining != 280 && left.Remaining != 279 {
		v.Errorf("%s: %d are left of 300 after 20, %v", key, left.Remaining, err)
	}
}

func remembers(v verbs, key string) {
	c := v.with(client.WithDenialMemory(time.Second))
	sources := map[client.Source]bool{}
	for range 3 {
		res, err := c.Allow(v.ctx, key, "1/d")
		if err != nil || res.Allowed != (len(sources) == 0) || !res.Allowed && !within(res.RetryAfter, 24*time.Hour) {
			v.Errorf("%s: %+v, %v", key, res, err)
		}
		sources[res.Source] = true
	}
	if n, err := c.Reset(v.ctx, key); err != nil || n != 1 {
		v.Errorf("%s: reset %d, %v", key, n, err)
	}
	if res, err := c.Allow(v.ctx, key, "1/d"); err != nil || !res.Allowed || res.Source != client.SourceServer {
		v.Errorf("%s: after a reset %+v, %v", key, res, err)
	}
}

// The check reports what is missing, and a healer restores it on each node on which a call finds it
// missing.
func heals(v verbs) {
	if err := v.Check(v.ctx, "@calc", "@jobs"); err != nil {
		v.Error(err)
	}
	if err := v.Check(v.ctx, "@calc", "@none"); !errors.Is(err, client.ErrNoPolicy) {
		v.Error(err)
	}
	primaries, err := v.Primaries(v.ctx)
	if err != nil {
		v.Fatal(err)
	}
	for _, n := range primaries {
		if err := n.Client().FunctionFlush(v.ctx).Err(); err != nil {
			v.Fatal(err)
		}
	}
	if err := v.Check(v.ctx); !errors.Is(err, client.ErrNotDeployed) {
		v.Error(err)
	}
	healing := newLimiter(v.T, newClient(v.T, v.Backend), client.WithHealer(loader.Healer(v.build)))
	for _, tag := range tags() {
		if res, err := healing.Allow(v.ctx, tag+":heal", "2/d"); err != nil || !res.Allowed || res.Remaining != 1 {
			v.Errorf("%s: %+v, %v", tag, res, err)
		}
	}
	if err := v.Check(v.ctx, "@calc", "@export", "@jobs"); err != nil {
		v.Error(err)
	}
	for _, n := range primaries {
		if got := countLibraries(v.ctx, v.T, n); got == 0 {
			v.Errorf("%s has no library", n)
		}
	}
}
