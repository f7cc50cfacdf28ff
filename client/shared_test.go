package client_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/ratelimit-functions/ratelimit/client"
	"github.com/ratelimit-functions/ratelimit/internal/redistest"
)

// crowd is a server behind a proxy that holds its replies, and a client whose calls share round
// trips. Some calls are in progress: ShareAbove calls that were sent separately, and two round
// trips of one call each. Later calls wait until a round trip ends.
type crowd struct {
	proxy  *proxy
	client *client.Client
	direct *redis.Client
	calls  sync.WaitGroup
}

const ahead = client.ShareAbove + 2

func startCrowd(t *testing.T) *crowd {
	t.Helper()
	return startCrowdOf(t, func(addr string) *client.Client {
		return open(t, "redis://"+addr+"?read_timeout=1m", client.WithTimeout(slow))
	})
}

// startCrowdOf is like startCrowd, but make returns the client for the address of the proxy.
func startCrowdOf(t *testing.T, make func(addr string) *client.Client) *crowd {
	t.Helper()
	server := redistest.Run(t)
	c := &crowd{proxy: startProxy(t, server.Addr), direct: connect(t, redis.Options{Addr: server.Addr})}
	deploy(t, c.direct)
	c.client = make(c.proxy.addr())
	c.proxy.arm(1_000_000, holds)
	for i := range ahead {
		c.calls.Go(func() {
			if _, err := c.client.Allow(t.Context(), "k", plenty); err != nil {
				t.Errorf("a call ahead of others: %v", err)
			}
		})
		eventually(t, "each call is on its way by itself", func() bool { return c.proxy.seen() == i+1 })
	}
	c.proxy.arm(0, none)
	return c
}

// wait starts n more calls, and returns when they wait for a round trip. Each call then passes its
// error to the function ended.
func (c *crowd) wait(t *testing.T, ctx context.Context, n int, ended func(error)) {
	t.Helper()
	before, _ := client.SharedWaiting(c.client)
	for range n {
		c.calls.Go(func() {
			_, err := c.client.Allow(ctx, "k", plenty)
			ended(err)
		})
	}
	eventually(t, "the calls wait", func() bool {
		calls, underWay := client.SharedWaiting(c.client)
		return calls == before+n && underWay == 2
	})
}

// end releases the replies, waits for all calls, and checks how many of them were executed.
func (c *crowd) end(t *testing.T, executed int) {
	t.Helper()
	c.proxy.release()
	c.calls.Wait()
	if n := lots - int(left(t, newClient(t, c.direct), "k", plenty)); n != executed {
		t.Errorf("%d calls were executed, want %d", n, executed)
	}
	eventually(t, "no round trip is left", func() bool {
		calls, underWay := client.SharedWaiting(c.client)
		return calls == 0 && underWay == 0
	})
}

func TestCallsShareRoundTrips(t *testing.T) {
	c := startCrowd(t)
	c.wait(t, t.Context(), 1200, func(err error) {
		if err != nil {
			t.Error(err)
		}
	})
	before := c.proxy.seen()
	c.end(t, ahead+1200)
	// There are three round trips of at most 500 calls. Each round trip may reach the proxy in
	// several pieces.
	if n := c.proxy.seen() - before; n > 120 {
		t.Errorf("1200 calls came in %d pieces, want a few", n)
	}
}

// expiring is a context whose deadline has passed when done is closed.
type expiring struct {
	context.Context
	done chan struct{}
}

func (e expiring) Done() <-chan struct{} { return e.done }

func (e expiring) Err() error {
	select {
	case <-e.done:
		return context.DeadlineExceeded
	default:
		return e.Context.Err()
	}
}

// A call whose context ends before it is sent is never sent, and is reported as not counted.
func TestSharedCallsThatEndBeforeTheyAreSent(t *testing.T) {
	c := startCrowd(t)
	cancelled, cancel := context.WithCancel(t.Context())
	defer cancel()
	expired := expiring{t.Context(), make(chan struct{})}
	var all sync.WaitGroup
	for ctx, want := range map[context.Context]error{cancelled: context.Canceled, expired: context.DeadlineExceeded} {
		all.Add(3)
		c.wait(t, ctx, 3, func(err error) {
			defer all.Done()
			if !errors.Is(err, want) || errors.Is(err, client.ErrOutcomeUnknown) {
				t.Errorf("%v, want %v, and that nothing was counted", err, want)
			}
			wantClasses(t, "not sent", err, client.ErrUnavailable)
		})
	}
	cancel()
	close(expired.done)
	all.Wait() // these calls do not wait for the held replies
	c.end(t, ahead)
}

// The outcome of a call whose context ends after the call was sent is unknown.
func TestASharedCallThatWasSentIsUnknown(t *testing.T) {
	c := startCrowd(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	c.wait(t, ctx, 5, func(err error) {
		if !errors.Is(err, context.Canceled) {
			t.Errorf("%v, want %v", err, context.Canceled)
		}
		wantClasses(t, "sent", err, client.ErrUnavailable, client.ErrOutcomeUnknown)
	})
	c.proxy.arm(1, closes)
	c.proxy.onNext(cancel) // cancel after the calls are sent and before their reply
	c.end(t, ahead+5)
}

// A broken connection is one failure, however many calls shared it, and does not open the breaker.
func TestABrokenRoundTripIsOneFailure(t *testing.T) {
	c := startCrowd(t)
	c.proxy.arm(1, closes)
	c.wait(t, t.Context(), 30, func(err error) { wantClasses(t, "lost", err, client.ErrUnavailable, client.ErrOutcomeUnknown) })
	c.end(t, ahead+30)
	must[client.Result](t)(c.client.Allow(t.Context(), "k", plenty))
}

// Five broken round trips in a row open the breaker, and the server is used again when it is back.
func TestBrokenRoundTripsOpenTheBreaker(t *testing.T) {
	server, _ := deployed(t)
	p := startProxy(t, server.Addr)
	c := open(t, "redis://"+p.addr(), client.WithTimeout(slow))
	p.arm(1_000_000, closes)
	var all sync.WaitGroup
	for range sharing {
		all.Go(func() {
			for range 1000 {
				_, err := c.Allow(t.Context(), "k", plenty)
				if err == nil {
					t.Error("decided through a proxy that loses every reply")
					return
				}
				if strings.Contains(err.Error(), "not sent, since the server did not reply") {
					return
				}
			}
			t.Error("1000 calls of a goroutine, and the server was not left alone")
		})
	}
	all.Wait()
	p.arm(0, none)
	eventually(t, "the server is found again", func() bool {
		_, err := c.Allow(t.Context(), "k", plenty)
		return err == nil
	})
}

// Close ends the waiting calls, and leaves no goroutine (TestMain checks that).
func TestCloseEndsSharedRoundTrips(t *testing.T) {
	hole := blackHole(t)
	c := open(t, "redis://"+hole+"?read_timeout=1m", client.WithTimeout(slow))
	var all sync.WaitGroup
	ask := func() {
		all.Go(func() {
			_, err := c.Allow(t.Context(), "k", plenty)
			wantClasses(t, "closed", err, client.ErrUnavailable)
		})
	}
	waiting := func() bool {
		calls, underWay := client.SharedWaiting(c)
		return calls > 0 && underWay == 2
	}
	eventually(t, "a call waits for a round trip", func() bool { ask(); return waiting() })
	check(t, c.Close())
	all.Wait()
}

// If the client is closed while a call waits for a round trip, the error says so. It is not a
// context error, and no Fallback decides.
func TestSharedCallsOfAClientThatIsClosed(t *testing.T) {
	c := startCrowdOf(t, func(addr string) *client.Client {
		rdb := connect(t, redis.Options{Addr: addr, ContextTimeoutEnabled: true, ReadTimeout: time.Minute})
		return newClient(t, rdb, client.WithFallback(client.FailOpen))
	})
	const want = `ratelimit: take "k": no reply, nothing was counted (the client is closed)`
	c.wait(t, t.Context(), 5, func(err error) {
		if err == nil || err.Error() != want || errors.Is(err, context.Canceled) {
			t.Errorf("%v\nwant %s", err, want)
		}
		wantClasses(t, "closed", err, client.ErrUnavailable)
	})
	c.calls.Go(func() { check(t, c.client.Close()) })
	eventually(t, "the client is closed", func() bool { return client.Ended(c.client) })
	c.end(t, ahead)
}

// A shard that hangs does not delay calls to the others, even if the client does not know the nodes
// yet.
func TestSharedRoundTripsOfEachNode(t *testing.T) {
	nodes := startCluster(t)
	flushCluster(t, nodes)
	proxies, dial := dialThrough(t, nodes)
	c := client.OpenWithDialer(t, nodes.nodes[0].Addr+","+nodes.nodes[1].Addr, dial, client.WithTimeout(slow))
	proxies[0].arm(1_000_000, silent)
	var all sync.WaitGroup
	for range sharing {
		all.Go(func() {
			for range perFault {
				ctx, cancel := context.WithTimeout(t.Context(), bound)
				_ = inTime(t, "the shard that hangs", func() error { return second(c.Allow(ctx, lowKey, plenty)) })
				cancel()
			}
		})
		all.Go(func() {
			for range 10 * perFault {
				check(t, inTime(t, "the other", func() error { return second(c.Allow(t.Context(), highKey, plenty)) }))
			}
		})
	}
	all.Wait()
}
