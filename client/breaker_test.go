package client_test

import (
	"context"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/ratelimit-functions/ratelimit/client"
)

// slowly is a Redis client whose only server replies after a delay, or not at all.
type slowly struct {
	redis.UniversalClient
	delay atomic.Int64 // a duration; below 0: no reply
}

func (s *slowly) Process(ctx context.Context, cmd redis.Cmder) error {
	_ = cmd.Args()
	if delay := time.Duration(s.delay.Load()); delay >= 0 {
		select {
		case <-time.After(delay):
			cmd.(interface{ SetVal(any) }).SetVal(integers(1, 10, 9, 0, 1, 1))
			return nil
		case <-ctx.Done():
		}
	} else {
		<-ctx.Done()
	}
	cmd.SetErr(ctx.Err())
	return ctx.Err()
}

// A probe may take as long as any other call, so a client with a long timeout finds a server again
// that has become slow.
func TestASlowServerIsFoundAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rdb := &slowly{}
		rdb.delay.Store(-1)
		c := newClient(t, rdb, client.WithTimeout(2*time.Second))
		for range 5 {
			_, err := c.Allow(t.Context(), "k", perDay)
			wantClasses(t, "silent", err, client.ErrUnavailable, client.ErrOutcomeUnknown)
		}
		rdb.delay.Store(int64(600 * time.Millisecond))
		_, err := c.Allow(t.Context(), "k", perDay)
		if err == nil || !strings.Contains(err.Error(), "not sent, since the server did not reply to the last 5 calls; it is asked again within 750ms") {
			t.Errorf("the breaker is not open: %v", err)
		}
		time.Sleep(time.Second)
		for range 3 {
			check(t, second(c.Allow(t.Context(), "k", perDay)))
		}
	})
}

// If a probe gets no reply for half a second, another is sent. So a client finds a server again
// within a second, however long its timeout is.
func TestAnotherProbeIsSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rdb, h := &slowly{}, &heard{}
		rdb.delay.Store(-1)
		c := newClient(t, rdb, client.WithTimeout(time.Minute), client.WithObserver(h.observer()))
		for range 5 {
			_, _ = c.Allow(t.Context(), "k", perDay)
		}
		time.Sleep(251 * time.Millisecond)
		ended := make(chan struct{})
		go func() {
			_, _ = c.Allow(t.Context(), "k", perDay) // waits a minute
			close(ended)
		}()
		synctest.Wait()
		rdb.delay.Store(0)
		began := time.Now()
		for second(c.Allow(t.Context(), "k", perDay)) != nil {
			time.Sleep(10 * time.Millisecond)
		}
		if took := time.Since(began); took != 500*time.Millisecond {
			t.Errorf("the server was found after %v, want half a second", took)
		}
		<-ended
		for range 3 {
			check(t, second(c.Allow(t.Context(), "k", perDay)))
		}
		want := changesOf("localhost:6379")
		if !slices.Equal(h.changes, want) {
			t.Errorf("%+v, want %+v", h.changes, want)
		}
	})
}

// While an observer is told of a change, other calls go on, and the observer gets later changes in
// order.
func TestAnObserverOfBreakersDelaysNobody(t *testing.T) {
	rdb := &slowly{}
	rdb.delay.Store(-1)
	var c *client.Client
	var mu sync.Mutex
	var changes []string
	c = newClient(t, rdb, client.WithTimeout(20*time.Millisecond), client.WithObserver(client.Observer{Breaker: func(_, from, to string) {
		mu.Lock()
		changes = append(changes, from+" "+to)
		first := len(changes) == 1
		mu.Unlock()
		if first {
			rdb.delay.Store(0)
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				eventually(t, "another call finds the server again", func() bool { return second(c.Allow(t.Context(), "k", perDay)) == nil })
			}()
			select {
			case <-ended:
			case <-time.After(10 * time.Second):
				t.Error("no other call goes on")
			}
		}
	}}))
	for range 5 {
		_, _ = c.Allow(t.Context(), "k", perDay)
	}
	if want := []string{"closed open", "open half-open", "half-open closed"}; !slices.Equal(changes, want) {
		t.Errorf("%q, want %q", changes, want)
	}
}

// A call counts as a failure if it has 10 ms for the reply, and does not if it has less.
func TestShortestCallThatCounts(t *testing.T) {
	for timeout, counts := range map[time.Duration]bool{10 * time.Millisecond: true, 10*time.Millisecond - 1: false} {
		inBubble(t, func(t *testing.T, v *virtual, _ *client.Client) {
			v.delay = time.Hour
			c := v.client(t, client.WithTimeout(timeout))
			for range 6 {
				_, _ = c.Allow(t.Context(), "k", perDay)
			}
			if n := v.seen("take"); (n == 5) != counts {
				t.Errorf("%v: %d calls are sent", timeout, n)
			}
		})
	}
}

// moving is a cluster of one primary at a time, which may change.
type moving struct {
	*redis.ClusterClient
	primary atomic.Pointer[string]
}

func (m *moving) to(addr string) {
	m.primary.Store(&addr)
	m.ReloadState(context.Background())
}

func newMoving(t *testing.T, addr string) *moving {
	t.Helper()
	m := &moving{}
	m.primary.Store(&addr)
	m.ClusterClient = redis.NewClusterClient(&redis.ClusterOptions{ContextTimeoutEnabled: true, ClusterSlots: func(context.Context) ([]redis.ClusterSlot, error) {
		return []redis.ClusterSlot{{Start: 0, End: 16383, Nodes: []redis.ClusterNode{{Addr: *m.primary.Load()}}}}, nil
	}, MaxRetries: -1, DialerRetries: 1})
	t.Cleanup(func() { _ = m.Close() })
	return m
}

// If a node leaves the cluster, its breaker is reported as closed, and forgotten.
func TestBreakersOfNodesThatLeft(t *testing.T) {
	server, _ := deployed(t)
	m := newMoving(t, server.Addr)
	var mu sync.Mutex
	open := map[string]int{} // by port, because go-redis leaves out the host
	c := newClient(t, m.ClusterClient, client.WithObserver(client.Observer{Breaker: func(node, from, to string) {
		_, port, _ := net.SplitHostPort(node)
		mu.Lock()
		defer mu.Unlock()
		switch {
		case from == "closed":
			open[port]++
		case to == "closed":
			open[port]--
		}
	}}))
	isOpen := func(addr string) int {
		_, port, _ := net.SplitHostPort(addr)
		mu.Lock()
		defer mu.Unlock()
		return open[port]
	}
	must[client.Result](t)(c.Allow(t.Context(), "k", plenty))
	gone := must[net.Listener](t)(net.Listen("tcp", "127.0.0.1:0"))
	check(t, gone.Close())
	m.to(gone.Addr().String())
	eventually(t, "the breaker of the node that is gone opens", func() bool {
		_, _ = c.Allow(t.Context(), "k", plenty)
		return isOpen(gone.Addr().String()) == 1
	})
	eventually(t, "something looks whether the node leaves later", func() bool { return client.Sweep(c) })
	// No call is needed.
	m.to(server.Addr)
	eventually(t, "its breaker is reported as closed", func() bool { return isOpen(gone.Addr().String()) == 0 })
	// Nodes that never failed are forgotten too.
	proxies := make([]*proxy, 5)
	for i := range proxies {
		proxies[i] = startProxy(t, server.Addr)
		m.to(proxies[i].addr())
		eventually(t, "calls go to the next node", func() bool {
			check(t, second(c.Allow(t.Context(), "k", plenty)))
			return proxies[i].seen() > 0
		})
	}
	eventually(t, "one breaker is left", func() bool { return client.Nodes(c) == 1 })
	if client.Sweep(c) {
		t.Error("it looks again, although no breaker is open")
	}
	mu.Lock()
	defer mu.Unlock()
	for node, n := range open {
		if n != 0 {
			t.Errorf("%s: %d", node, n)
		}
	}
}

// firstAfter is a hook that lets the first command of a cluster wait, and fails the next ones.
type firstAfter struct {
	n       atomic.Int32
	release chan struct{}
}

func (f *firstAfter) DialHook(next redis.DialHook) redis.DialHook { return next }

func (f *firstAfter) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (f *firstAfter) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		switch n := f.n.Add(1); {
		case n == 1:
			<-f.release
		case n <= 6:
			cmd.SetErr(io.EOF)
			return io.EOF
		}
		return next(ctx, cmd)
	}
}

// If the breaker that all nodes share at first is open when the nodes become known, no later call
// uses it, and it is reported as closed.
func TestSharedBreakerIsOpenWhenTheNodesAreKnown(t *testing.T) {
	server, _ := deployed(t)
	m, f := newMoving(t, server.Addr), &firstAfter{release: make(chan struct{})}
	m.AddHook(f)
	var state atomic.Pointer[string]
	c := newClient(t, m.ClusterClient, client.WithObserver(client.Observer{Breaker: func(_, _, to string) { state.Store(&to) }}))
	var first sync.WaitGroup
	first.Go(func() { check(t, second(c.Allow(t.Context(), "k", plenty))) })
	eventually(t, "the first call is sent", func() bool { return f.n.Load() == 1 })
	for range 5 {
		_, _ = c.Allow(t.Context(), "k", plenty)
	}
	if to := state.Load(); to == nil || *to == "closed" {
		t.Error("the breaker is not open")
	}
	close(f.release)
	first.Wait()
	client.Sweep(c)
	if to := *state.Load(); to != "closed" {
		t.Errorf("the breaker is %s", to)
	}
}
