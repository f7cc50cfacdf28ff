package integration_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/ratelimit-functions/ratelimit/client"
	"github.com/ratelimit-functions/ratelimit/functions"
	"github.com/ratelimit-functions/ratelimit/integration_test/backend"
	"github.com/ratelimit-functions/ratelimit/loader"
)

// verbs holds the values that all cases use: a backend with the build of deployForClients, and a
// client that has only the permissions of an application user.
type verbs struct {
	*testing.T
	*backend.Backend
	ctx   context.Context
	build functions.Build
	*client.Client
}

// with returns a client with additional options.
func (v verbs) with(opts ...client.Option) *client.Client {
	v.Helper()
	return newLimiter(v.T, newClient(v.T, v.Backend, asUser("client-app")), append(opts, client.WithPrefix("it:"))...)
}

// TestClientVerbs tests the client's features that depend on the server's time or on several
// clients: waiting, leases, batches and healing.
func TestClientVerbs(t *testing.T) {
	eachBackend(t, func(t *testing.T, b *backend.Backend) {
		build, c := deployForClients(t, b)
		for name, f := range map[string]func(verbs, string){"wait": waits, "hold": holds, "batches": batches} {
			t.Run(name, func(t *testing.T) {
				v := verbs{t, b, testContext(t), build, c}
				for _, tag := range tags() {
					f(v, tag+":"+name)
				}
			})
		}
		t.Run("heal", func(t *testing.T) { heals(verbs{t, b, testContext(t), build, c}) }) // last, because it removes the library
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
		v.Errorf("%s: after waiting, the lease is held: %v, %v", key, found, err)
	}
}

// batches checks that two batching clients together use up a limit exactly.
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
	// Close returns unspent units, except units that may have refilled since: at most one here.
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

// heals checks that Check reports what is missing, and that a healer loads the library on a node
// when a call finds that the node lacks it.
func heals(v verbs) {
	if err := v.Check(v.ctx, "@calc", "@jobs"); err != nil {
		v.Error(err)
	}
	if err := v.Check(v.ctx, "@calc", "@none"); !errors.Is(err, client.ErrNoPolicy) {
		v.Error(err)
	}
	primaries := primariesOf(v.ctx, v.T, v.Backend)
	for _, n := range primaries {
		require(v.T, n.Client().FunctionFlush(v.ctx).Err())
	}
	if err := v.Check(v.ctx); !errors.Is(err, client.ErrNotDeployed) {
		v.Error(err)
	}
	healing := newLimiter(v.T, newClient(v.T, v.Backend), client.WithHealer(loader.Healer(v.build, loader.Config{})))
	for _, tag := range tags() {
		if res, err := healing.Allow(v.ctx, tag+":heal", "2/d"); err != nil || !res.Allowed || res.Remaining != 1 {
			v.Errorf("%s: %+v, %v", tag, res, err)
		}
	}
	if err := v.Check(v.ctx, "@calc", "@export", "@jobs"); err != nil {
		v.Error(err)
	}
	for n, digest := range deployed(v.ctx, v.T, primaries) {
		if digest == "" {
			v.Errorf("%s has no library", n)
		}
	}
}
