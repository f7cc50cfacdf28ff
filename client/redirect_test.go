package client_test

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/ratelimit-functions/ratelimit/client"
	"github.com/ratelimit-functions/ratelimit/internal/fakeredis"
)

// redirecting returns a client for a cluster of one primary, which redirects calls for the key
// "moving" with ASK to the node at addr, and decides all others.
func redirecting(t *testing.T, addr string, opts ...client.Option) *client.Client {
	t.Helper()
	primary := fakeredis.Run(t, func(words []string) string {
		line := strings.ToLower(strings.Join(words, " "))
		switch {
		case strings.HasPrefix(line, "fcall") && strings.Contains(line, " moving "):
			return "-ASK 7 " + addr + "\r\n"
		case strings.HasPrefix(line, "fcall"):
			return fakeredis.RESP([]any{1, 10, 9, 0, 1, 1})
		}
		return "-ERR unknown command\r\n"
	})
	m := newMoving(t, primary)
	return newClient(t, m.ClusterClient, append(opts, client.DefaultTimeout(slow))...)
}

// A call that is redirected to a node that is gone counts against that node: calls for other keys of
// the primary are sent, and soon the redirection is no longer followed.
func TestRedirectedToANodeThatIsGone(t *testing.T) {
	silent := must[net.Listener](t)(net.Listen("tcp", "127.0.0.1:0")) // accepts, and never replies
	defer func() { _ = silent.Close() }()
	c := redirecting(t, silent.Addr().String(), client.WithTimeout(200*time.Millisecond))
	left := 0
	for range 20 {
		_, err := c.Allow(t.Context(), "moving", plenty)
		if !errors.Is(err, client.ErrUnavailable) {
			t.Error(err)
		}
		if !errors.Is(err, client.ErrOutcomeUnknown) && strings.Contains(err.Error(), "not sent, since the server did not reply") {
			left++
		}
		check(t, second(c.Allow(t.Context(), "stays", plenty)))
	}
	if left == 0 {
		t.Error("every redirection was followed")
	}
}

// A node that does not have the library, and to which a call is redirected, gets the healer.
func TestRedirectedToANodeWithoutTheLibrary(t *testing.T) {
	healed := make(chan struct{})
	importing := fakeredis.Run(t, func(words []string) string {
		switch line := strings.ToLower(words[0]); line {
		case "asking":
			return "+OK\r\n"
		case "fcall":
			select {
			case <-healed:
				return fakeredis.RESP([]any{1, 10, 9, 0, 1, 1})
			default:
				return "-ERR Function not found\r\n"
			}
		}
		return "-ERR unknown command\r\n"
	})
	c := redirecting(t, importing, client.WithHealer(func(_ context.Context, server redis.UniversalClient) error {
		if addr := server.(*redis.Client).Options().Addr; addr != importing {
			t.Errorf("the healer gets %s, want %s", addr, importing)
		}
		close(healed)
		return nil
	}))
	for range 3 {
		check(t, second(c.Allow(t.Context(), "moving", plenty)))
	}
}

// A call whose keys are moving was not executed, so it is sent again until its deadline.
func TestMovingKeys(t *testing.T) {
	for _, once := range []string{"", "o"} {
		var sent atomic.Int64
		primary := fakeredis.Run(t, func(words []string) string {
			switch {
			case strings.ToLower(words[0]) != "fcall":
				return "-ERR unknown command\r\n"
			case sent.Add(1) < 4:
				return "-TRYAGAIN Multiple keys request during rehashing of slot\r\n"
			}
			return fakeredis.RESP([]any{1, 10, 9, 0, 1, 1})
		})
		c := newClient(t, newMoving(t, primary).ClusterClient, client.WithTimeout(slow))
		req := client.Request{Keys: []string{"k"}, Limits: []client.Limit{plenty}, OnceKey: once}
		if once != "" {
			req.OnceTTL = time.Hour
		}
		if _, err := c.Take(t.Context(), req); err != nil || sent.Load() != 4 {
			t.Errorf("%v after %d calls", err, sent.Load())
		}
		sent.Store(-1 << 40)
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		_, err := c.Take(ctx, req)
		cancel()
		if e := (*client.Error)(nil); !errors.As(err, &e) || e.Code != "TRYAGAIN" || errors.Is(err, client.ErrOutcomeUnknown) {
			t.Error(err)
		}
	}
}

// A settlement whose keys are moving was not executed either: it is sent again until its deadline. Then it has
// changed nothing, and can be repeated.
func TestSettleMovingKeys(t *testing.T) {
	for verb, tt := range map[string]struct{ actual, left int64 }{"refund": {2, 8}, "take": {9, 1}} { // 5 of 10 are estimated
		inBubble(t, func(t *testing.T, v *virtual, c *client.Client) {
			estimate := must[*client.Estimate](t)(c.TakeEstimate(t.Context(), client.For("k", "10/d", 5)))
			moving := 1 << 40 // calls that get TRYAGAIN
			v.set(func() {
				v.refuse = func(function string, _ int) (before, after error) {
					if function == verb && moving > 0 {
						moving--
						return answered("TRYAGAIN Multiple keys request during rehashing of slot"), nil
					}
					return nil, nil
				}
			})
			already := v.seen(verb)
			err := second(estimate.Settle(t.Context(), tt.actual))
			if e := (*client.Error)(nil); !errors.As(err, &e) || e.Code != "TRYAGAIN" || errors.Is(err, client.ErrOutcomeUnknown) || v.seen(verb)-already < 3 {
				t.Errorf("%s: %v after %d calls", verb, err, v.seen(verb)-already)
			}
			if n := left(t, c, "k", "10/d"); n != 5 {
				t.Errorf("%s: %d are left after the failed settlement, want 5", verb, n)
			}
			v.set(func() { moving = 3 })
			already = v.seen(verb)
			for range 2 { // the second sends nothing
				check(t, second(estimate.Settle(t.Context(), tt.actual)))
			}
			if n, sent := left(t, c, "k", "10/d"), v.seen(verb)-already; n != tt.left || sent != 4 {
				t.Errorf("%s: %d are left after %d calls, want %d after 4", verb, n, sent, tt.left)
			}
		})
	}
}

// A Ring would send a call for keys of several shards to the shard of the first, so the call is not
// sent.
func TestKeysOfSeveralShards(t *testing.T) {
	var sent atomic.Int64
	server := fakeredis.Run(t, func(words []string) string {
		if strings.HasPrefix(strings.ToLower(words[0]), "fcall") {
			sent.Add(1)
			return fakeredis.RESP([]any{1, 10, 9, 0, 1, 1})
		}
		return "-ERR unknown command\r\n"
	})
	ring := redis.NewRing(&redis.RingOptions{ContextTimeoutEnabled: true, Addrs: map[string]string{"a": server, "b": "127.0.0.1:1"}, HeartbeatFrequency: time.Hour})
	defer func() { _ = ring.Close() }()
	c := newClient(t, ring)
	limits := []client.Limit{plenty, plenty}
	for name, call := range map[string]func() error{
		"take": func() error {
			return second(c.Take(t.Context(), client.Request{Keys: []string{"x", "y"}, Limits: limits}))
		},
		"peek": func() error {
			return second(c.Peek(t.Context(), client.Request{Keys: []string{"x", "y"}, Limits: limits}))
		},
		"refund": func() error {
			return second(c.Refund(t.Context(), client.Request{Keys: []string{"x", "y"}, Limits: limits}))
		},
		"borrow": func() error {
			return second(c.Take(t.Context(), client.Request{Keys: []string{"tenant", "pool"}, Limits: limits, Borrow: true}))
		},
		"once": func() error {
			return second(c.Take(t.Context(), client.Request{Keys: []string{"x"}, Limits: limits[:1], OnceKey: "o", OnceTTL: time.Minute}))
		},
		"usage": func() error {
			return second(c.Take(t.Context(), client.Request{Keys: []string{"{x}1"}, Limits: limits[:1], UsageKey: "{u}x"}))
		},
		"reset":   func() error { return second(c.Reset(t.Context(), "x", "y")) },
		"unblock": func() error { return second(c.Unblock(t.Context(), "x", "y")) },
		"block":   func() error { return c.Block(t.Context(), client.Block{For: time.Minute}, "x", "y") },
	} {
		err := call()
		wantClasses(t, name, err, typed("cross_slot"), client.ErrMisconfigured)
		if e := (*client.Error)(nil); errors.As(err, &e) && e.Code != "CROSSSLOT" {
			t.Errorf("%s: %s", name, e.Code)
		}
	}
	if sent.Load() != 0 {
		t.Errorf("%d calls were sent", sent.Load())
	}
	for i := 0; sent.Load() == 0 && i < 1000; i++ {
		key := strings.Repeat("k", i+1)
		if node, _ := ring.GetShardClientForKey(key); node.Options().Addr == server {
			check(t, second(c.Take(t.Context(), client.Request{Keys: []string{"{" + key + "}1", "{" + key + "}2"}, Limits: limits})))
		}
	}
}

// The pauses before a call is repeated because its keys are moving are random, within a factor of 2.
func TestPausesWhileKeysMove(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var last time.Time
		f := &fake{err: answered("TRYAGAIN Multiple keys request during rehashing of slot"), sent: true}
		f.after = func(n int) {
			most := 40 * time.Millisecond
			if n == 2 {
				most = 10 * time.Millisecond
			}
			if pause := time.Since(last); n > 1 && (pause < most/2 || pause > most) {
				t.Errorf("a pause of %v, want %v to %v", pause, most/2, most)
			}
			last = time.Now()
		}
		c := newClient(t, f, client.WithTimeout(time.Second))
		wantClasses(t, "moving", second(c.Allow(t.Context(), "k", perDay)), client.ErrUnavailable)
		check(t, c.Close())
	})
}
