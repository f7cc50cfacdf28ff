package client_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ratelimit-functions/ratelimit/client"
)

// under is a layer that adds nothing.
type under struct{ client.Limiter }

func (u under) Unwrap() client.Limiter { return u.Limiter }

// If the Client changes a key, those who wait for it do not wait for what an earlier denial said, and
// those who come later are not refused for it: also in the queues of a layer above the Client.
func TestWaitForAChangedKey(t *testing.T) {
	const limit = client.Limit("2/h")
	inBubble(t, func(t *testing.T, v *virtual, c *client.Client) {
		layered := must[func(context.Context, client.Request) error](t)(client.WaitFunc(under{c}))
		for name, wait := range map[string]func(context.Context, client.Request) error{"Wait": c.Wait, "WaitFunc": layered} {
			for _, tt := range []struct {
				change      string
				before, now func(key string) error
			}{
				{"Unblock",
					func(key string) error { return c.Block(t.Context(), client.Block{For: time.Hour}, key) },
					func(key string) error { return second(c.Unblock(t.Context(), key)) }},
				{"Reset",
					func(key string) error { return second(c.AllowN(t.Context(), key, limit, 2)) },
					func(key string) error { return second(c.Reset(t.Context(), key)) }},
				{"Override",
					func(key string) error { return second(c.AllowN(t.Context(), key, limit, 2)) },
					func(key string) error { return c.Override(t.Context(), "100/s", time.Hour, key) }},
				{"EndOverride",
					func(key string) error { return c.Override(t.Context(), "1000/h burst=1", time.Hour, key) },
					func(key string) error { return second(c.EndOverride(t.Context(), key)) }},
				{"Refund",
					func(key string) error { return second(c.AllowN(t.Context(), key, limit, 2)) },
					func(key string) error { return second(c.Refund(t.Context(), client.For(key, limit, 2))) }},
			} {
				key := name + tt.change
				check(t, tt.before(key))
				if tt.change == "EndOverride" { // the limit then has room for one more call
					check(t, second(c.Allow(t.Context(), key, limit)))
				}
				began, first := time.Now(), make(chan error, 1)
				go func() { first <- wait(t.Context(), client.For(key, limit)) }()
				synctest.Wait() // it was denied
				check(t, tt.now(key))
				soon, cancel := context.WithTimeout(t.Context(), time.Second)
				if tt.change != "EndOverride" {
					check(t, wait(soon, client.For(key, limit)))
				}
				check(t, <-first)
				cancel()
				if took := time.Since(began); took > time.Second {
					t.Errorf("%s: after %s, the wait took %v", name, tt.change, took)
				}
			}
		}
		wantNoQueue(t, c)
	})
}

// A cost that an Override has made possible is not refused for what a denial said before.
func TestWaitForARaisedCapacity(t *testing.T) {
	inBubble(t, func(t *testing.T, v *virtual, c *client.Client) {
		check(t, second(c.AllowN(t.Context(), "k", "5/h", 5)))
		first := make(chan error, 1)
		go func() { first <- c.Wait(t.Context(), client.For("k", "5/h")) }()
		synctest.Wait()
		check(t, c.Override(t.Context(), "100/s", time.Hour, "k"))
		check(t, c.Wait(t.Context(), client.For("k", "5/h", 20)))
		check(t, <-first)
	})
}

// A LocalFallback whose share is used denies for hours what a server allows at once. Who waits is served
// soon after the server is back, and so is who comes then.
func TestWaitAfterALocalShare(t *testing.T) {
	inBubble(t, func(t *testing.T, v *virtual, _ *client.Client) {
		c := v.client(t, client.WithFallback(client.LocalFallback(0.1)))
		v.refuse = func(string, int) (error, error) { return answered("LOADING"), nil }
		check(t, second(c.AllowN(t.Context(), "k", "60/d", 6)))
		began, first := time.Now(), make(chan error, 1)
		go func() { first <- c.Wait(t.Context(), client.For("k", "60/d")) }()
		synctest.Wait() // this process has denied it
		v.set(func() { v.refuse = nil })
		soon, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		check(t, c.Wait(soon, client.For("k", "60/d")))
		check(t, <-first)
		if took := time.Since(began); took > 3*time.Second {
			t.Errorf("the server is back, and the wait took %v", took)
		}
	})
}

// A caller asks again after a minute, because another process may have lifted the block, or given the key
// another limit. It asks no more often.
func TestWaitForAKeyThatAnotherProcessChanges(t *testing.T) {
	inBubble(t, func(t *testing.T, v *virtual, c *client.Client) {
		other := v.client(t, client.WithPrefix("rl:"))
		check(t, c.Block(t.Context(), client.Block{For: 24 * time.Hour}, "k"))
		began, calls := time.Now(), v.seen("take")
		done := make(chan error, 1)
		go func() { done <- c.Wait(t.Context(), client.For("k", "2/h")) }()
		time.Sleep(10*time.Hour + time.Second)
		check(t, second(other.Unblock(t.Context(), "k")))
		check(t, <-done)
		if took := time.Since(began); took > 10*time.Hour+2*time.Minute {
			t.Errorf("the wait took %v", took)
		}
		if n := v.seen("take") - calls; n < 600 || n > 603 {
			t.Errorf("%d calls in ten hours", n)
		}
	})
}
