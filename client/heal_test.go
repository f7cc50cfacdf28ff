package client_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/ratelimit-functions/ratelimit/client"
	"github.com/ratelimit-functions/ratelimit/functions"
	"github.com/ratelimit-functions/ratelimit/internal/fakeredis"
	"github.com/ratelimit-functions/ratelimit/internal/redistest"
	"github.com/ratelimit-functions/ratelimit/loader"
)

// healing counts the calls to a healer.
type healing struct {
	times atomic.Int64
	heal  func(context.Context, redis.UniversalClient) error
}

func (h *healing) run(ctx context.Context, server redis.UniversalClient) error {
	h.times.Add(1)
	return h.heal(ctx, server)
}

func loads(ctx context.Context, server redis.UniversalClient) error {
	return server.FunctionLoadReplace(ctx, functions.Source()).Err()
}

// One call to the healer restores the library on a server, however many calls find it missing. The
// server then decides each of these calls.
func TestHealing(t *testing.T) {
	for name, opts := range map[string][]client.Option{"each by itself": {client.Alone()}, "shared": nil} {
		t.Run(name, func(t *testing.T) { testHealing(t, opts...) })
	}
}

func testHealing(t *testing.T, opts ...client.Option) {
	t.Helper()
	server := redistest.Run(t)
	direct := connect(t, redis.Options{Addr: server.Addr})
	h := &healing{heal: loads}
	c := open(t, "redis://"+server.Addr, append(opts, client.WithHealer(h.run), client.WithTimeout(slow))...)
	for occasion := range 3 {
		var all sync.WaitGroup
		for range 20 {
			all.Go(func() {
				check(t, second(c.Allow(t.Context(), "k", plenty)))
			})
		}
		all.Wait()
		if n := h.times.Load(); n != int64(occasion+1) {
			t.Errorf("healed %d times after %d occasions", n, occasion+1)
		}
		require(t, direct.FunctionFlush(t.Context()).Err())
	}
	deploy(t, direct)
	if n := left(t, c, "k", plenty); n != lots-60 {
		t.Errorf("%d were charged, want 60: each call once", lots-n)
	}
}

// The loader's healer restores the library on the shard that lost it, and is called for no other
// shard.
func TestHealingOfAShard(t *testing.T) {
	nodes := startCluster(t)
	direct := flushCluster(t, nodes)
	build := must[functions.Build](t)(functions.New())
	var given sync.Map
	heal := loader.Healer(build, loader.Config{})
	c := newClient(t, clusterOf(t, nodes), client.WithTimeout(slow),
		client.WithHealer(func(ctx context.Context, server redis.UniversalClient) error {
			given.Store(server.(*redis.Client).Options().Addr, true)
			return heal(ctx, server)
		}))
	require(t, direct[1].FunctionFlush(t.Context()).Err())
	defer deploy(t, direct[1])
	for _, key := range []string{lowKey, highKey} {
		must[client.Result](t)(c.Allow(t.Context(), key, perDay))
	}
	given.Range(func(addr, _ any) bool {
		if addr != nodes.nodes[1].Addr {
			t.Errorf("healed %s, which had the library", addr)
		}
		return true
	})
}

// The healer gets a client for the shard of a Ring that lost the library, not the Ring, which would restore it on any
// shard.
func TestHealingOfAShardOfARing(t *testing.T) {
	var missing atomic.Bool
	server := fakeredis.Run(t, func(words []string) string {
		switch {
		case !strings.HasPrefix(strings.ToLower(words[0]), "fcall"):
			return "-ERR unknown command\r\n"
		case missing.Load():
			return "-ERR Function not found\r\n"
		}
		return fakeredis.RESP([]any{1, 10, 9, 0, 1, 1})
	})
	ring := redis.NewRing(&redis.RingOptions{ContextTimeoutEnabled: true, Addrs: map[string]string{"a": server}, HeartbeatFrequency: time.Hour})
	defer func() { _ = ring.Close() }()
	var healed atomic.Value
	c := newClient(t, ring, client.WithHealer(func(_ context.Context, server redis.UniversalClient) error {
		if one, ok := server.(*redis.Client); ok {
			healed.Store(one.Options().Addr)
		}
		missing.Store(false)
		return nil
	}))
	check(t, second(c.Allow(t.Context(), "k", plenty))) // go-redis knows the shards from now on
	missing.Store(true)
	check(t, second(c.Allow(t.Context(), "k", plenty)))
	if healed.Load() != server {
		t.Errorf("healed %v, want %s", healed.Load(), server)
	}
}

func clusterOf(t *testing.T, c *cluster) redis.UniversalClient {
	rdb := redis.NewClusterClient(&redis.ClusterOptions{ContextTimeoutEnabled: true, Addrs: []string{c.nodes[0].Addr}})
	t.Cleanup(func() { _ = rdb.Close() })
	return rdb
}

// After a failure, the client does not call the healer again immediately. The error that the caller
// gets contains the reason for the failure and the command to run.
func TestHealingFails(t *testing.T) { synctest.Test(t, testHealingFails) }

func testHealingFails(t *testing.T) {
	h := &healing{heal: func(context.Context, redis.UniversalClient) error { return errors.New("NOPERM no") }}
	c := newClient(t, &fake{err: answered("ERR Function not found"), sent: true}, client.WithHealer(h.run))
	for range 3 {
		_, err := c.Allow(t.Context(), "k", perDay)
		const want = `ratelimit: take "k": the server does not have the library, and the healer failed (NOPERM no) (ERR Function not found); deploy the library with: ratelimit deploy, or with package loader`
		wantText(t, err, want)
		wantClasses(t, "not healed", err, client.ErrNotDeployed)
	}
	if n := h.times.Load(); n != 1 {
		t.Errorf("healed %d times at once, want once", n)
	}
	for _, tt := range []struct {
		pause time.Duration
		times int64
	}{{time.Second - 1, 1}, {1, 2}} { // the healer is called again after a second
		time.Sleep(tt.pause)
		_, _ = c.Allow(t.Context(), "k", perDay)
		if n := h.times.Load(); n != tt.times {
			t.Errorf("healed %d times, want %d", n, tt.times)
		}
	}
	// If the healer succeeds but the library is still missing, the call returns the server's error.
	c = newClient(t, &fake{err: answered("ERR Function not found"), sent: true}, client.WithHealer(func(context.Context, redis.UniversalClient) error { return nil }))
	if _, err := c.Allow(t.Context(), "k", perDay); err == nil || !strings.HasSuffix(err.Error(), "the server does not have the library (ERR Function not found); deploy the library with: ratelimit deploy, or with package loader") {
		t.Error(err)
	}
}

// If a healer takes longer than the timeout of a call, the call returns an error at its timeout.
// The healer runs until the client is closed.
func TestHealingTakesLong(t *testing.T) { synctest.Test(t, testHealingTakesLong) }

func testHealingTakesLong(t *testing.T) {
	ended := make(chan struct{})
	heal := func(ctx context.Context, _ redis.UniversalClient) error {
		<-ctx.Done()
		close(ended)
		return ctx.Err()
	}
	c := newClient(t, &fake{err: answered("ERR Function not found"), sent: true}, client.WithHealer(heal), client.WithTimeout(bound))
	for range 2 {
		began := time.Now()
		_, err := c.Allow(t.Context(), "k", perDay)
		if took := time.Since(began); took != bound {
			t.Errorf("it took %v, want %v", took, bound)
		}
		wantClasses(t, "late", err, client.ErrNotDeployed)
		if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "(it is still at it: no reply within 200ms)") {
			t.Error(err)
		}
	}
	got, err := c.Take(t.Context(), client.Request{Keys: []string{"k"}, Limits: []client.Limit{perDay}, Fallback: client.FailOpen})
	if err != nil || !got.Allowed || !errors.Is(got.Err, client.ErrNotDeployed) {
		t.Errorf("%+v, %v", got, err)
	}
	check(t, c.Close())
	select {
	case <-ended:
	default:
		t.Error("the healer goes on after Close")
	}
}

// If the client is closed while a call waits for a healer, the call's error says that the client is
// closed. The error is not context.Canceled, because the call's own context is not done. The
// fallback does not apply.
func TestHealingOfAClientThatIsClosed(t *testing.T) {
	synctest.Test(t, testHealingOfAClientThatIsClosed)
}

func testHealingOfAClientThatIsClosed(t *testing.T) {
	heal := func(ctx context.Context, _ redis.UniversalClient) error {
		<-ctx.Done()
		return ctx.Err()
	}
	c := newClient(t, &fake{err: answered("ERR Function not found"), sent: true}, client.WithHealer(heal), client.WithFallback(client.FailOpen))
	ended := make(chan error)
	go func() {
		_, err := c.Allow(t.Context(), "k", perDay)
		ended <- err
	}()
	synctest.Wait()
	check(t, c.Close())
	err := <-ended
	wantClasses(t, "closed", err, client.ErrNotDeployed)
	if err == nil || !strings.Contains(err.Error(), "(the client is closed)") || errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}
