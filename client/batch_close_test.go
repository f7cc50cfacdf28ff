package client_test

import (
	"errors"
	"fmt"
	"reflect"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/ratelimit-functions/ratelimit/client"
)

// Units that have expired in a batch are not given back: neither the next call nor Close sends a
// refund.
func TestBatchIsNotGivenBackAtTTL(t *testing.T) {
	s := newTestbed(t)
	c := s.warm(t)
	s.pass(2 * ttl)
	s.calls(t, c, 1, 0)
	require(t, c.Close())
	s.wantSent(t, "=1")
}

// Close gives back the unspent units, minus the number of units that may refill before the refund
// arrives. Here, the refund may take up to 5 s.
func TestCloseGivesBack(t *testing.T) {
	s := newTestbed(t)
	for _, tt := range []struct {
		limit client.Limit
		after time.Duration
		want  string
	}{
		{"360/h", 0, "14"},
		{"gcra 360/h", 24 * time.Second, "12"},
		{" gcra 360/h", 26 * time.Second, "11"},
		{"360/h burst=4000, 1440/h", 15 * time.Second, "7"},
		{"360/h", 100*time.Second - 1, "4"},
		{"360/h", 100 * time.Second, ""},
		{"1080/h", 45 * time.Second, ""}, // all 15 may have refilled
		{"3600000/h", 0, ""},
		{"token_bucket 360/h", 0, ""},
		{"fixed_window 360/h", 0, ""},
		{"sliding_log 360/h", 0, ""},
		{"sliding_window 360/h", 0, ""},
	} {
		t.Run(fmt.Sprint(tt.limit, " after ", tt.after), func(t *testing.T) {
			s.clear(t)
			c := s.client(t, client.WithBatches(16, 100*time.Second), client.WithTimeout(5*time.Second))
			for range 1 + 2 + 4 + 8 + 1 { // leaves 15 units of the last batch of 16
				allow(t, c, tt.limit, 1)
			}
			s.pass(tt.after)
			s.sent()
			for range 2 {
				check(t, c.Close())
			}
			var got string
			for _, line := range s.sent() {
				if line[1] == "ratelimit_refund" {
					got += line[6].(string)
				}
			}
			if got != tt.want {
				t.Errorf("gave back %q, want %q", got, tt.want)
			}
		})
	}
}

// While Close gives units back, calls are refused, so no new batch is left behind.
func TestCloseStopsCallsFirst(t *testing.T) {
	s := newTestbed(t)
	c := s.client(t, client.WithBatches(16, 100*time.Second), client.WithTimeout(5*time.Second))
	const limit = "360/h"
	for range 1 + 2 + 4 + 8 + 1 { // leaves 15 units of the last batch of 16
		allow(t, c, limit, 1)
	}
	s.hook = func(cmd redis.Cmder) {
		for _, key := range []string{"k", "another"} {
			_, err := c.Allow(t.Context(), key, limit)
			wantClasses(t, "during Close", err, client.ErrUnavailable)
		}
	}
	s.sent()
	check(t, c.Close())
	s.hook = nil
	var sent []any
	for _, line := range s.sent() {
		sent = append(sent, line[1])
	}
	if want := []any{"ratelimit_info", "ratelimit_refund"}; !reflect.DeepEqual(sent, want) {
		t.Errorf("sent %v, want %v", sent, want)
	}
	if n := left(t, s.client(t), "k", limit); n != 360-16-1 { // one unit may have refilled
		t.Errorf("%d units are left", n)
	}
}

// Close waits for a request for a batch that is in progress, and gives back its unspent units. The
// calls that wait for the request get their units. If it has too few units, the other calls are
// refused.
func TestCloseDuringARequest(t *testing.T) {
	s := newTestbed(t)
	const limit = "360/h"
	for _, waiting := range []int{10, 20} {
		s.clear(t)
		c := s.client(t, client.WithBatches(16, 100*time.Second), client.WithTimeout(patient))
		for range 1 + 2 + 4 + 8 {
			allow(t, c, limit, 1)
		}
		leader, others, release := s.together(t, c, t.Context(), waiting, limit)
		closed := make(chan error, 1)
		go func() { closed <- c.Close() }()
		eventually(t, "calls are stopped", func() bool { return client.Stopped(c) })
		release()
		wantAllowed(t, leader, 1)
		for i := range waiting {
			if o := <-others; (o.err == nil) != o.res.Allowed || o.err != nil && (waiting < 16 || !errors.Is(o.err, client.ErrUnavailable)) {
				t.Errorf("%d of %d: %+v", i, waiting, o)
			}
		}
		check(t, <-closed)
		// 31 units were taken, and those that no call got are given back, minus 3 that may have refilled.
		if want := int64(360 - 31 + max(0, 15-waiting-3)); left(t, s.client(t), "k", limit) != want {
			t.Errorf("%d waiting: %d units are left, want %d", waiting, left(t, s.client(t), "k", limit), want)
		}
		if n := client.Kept(c).Batches; n > 0 && waiting < 16 {
			t.Errorf("%d batches are kept", n)
		}
	}
}

// TestCloseAsksOnce checks that Close sends one request for the refill rate of a limit, even if
// several keys use the limit.
func TestCloseAsksOnce(t *testing.T) {
	s := newTestbed(t)
	c := s.client(t, client.WithBatches(16, ttl))
	for _, key := range []string{"a", "b", "c"} {
		for range 2 { // one unit, then a batch of 2, of which one is left
			must[client.Result](t)(c.Allow(t.Context(), key, wide))
		}
	}
	s.sent()
	require(t, c.Close())
	if sent := s.sent(); len(sent) != 1 || sent[0][1] != "ratelimit_info" {
		t.Errorf("sent %v", sent)
	}
}

// Units are refunded only if the client knows that the limit refills slowly enough.
func TestCloseDoesNotGuess(t *testing.T) {
	s := newTestbed(t)
	c := s.client(t, client.WithBatches(16, 10*time.Second))
	for range 16 {
		allow(t, c, "3600/h", 1)
	}
	s.sent()
	s.lose = func(cmd redis.Cmder) bool { return cmd.Args()[1] == "ratelimit_info" }
	check(t, c.Close())
	for _, line := range s.sent() {
		if line[1] != "ratelimit_info" {
			t.Error(line)
		}
	}
}

// A unit from a batch can be refunded like any other.
func TestUnitFromABatchIsGivenBack(t *testing.T) {
	s := newTestbed(t)
	c := s.warm(t)
	res := must[client.Result](t)(c.Allow(t.Context(), "k", wide))
	charged, err := res.Charged(client.For("k", wide))
	if !res.Allowed || res.Source != "batch" || err != nil {
		t.Fatalf("%+v, %v", res, err)
	}
	s.sent()
	must[client.Result](t)(c.Refund(t.Context(), client.For("k", wide, charged...)))
	s.wantSent(t, "=1")
}

// A second Close waits until the first has given the units back.
func TestSecondCloseWaits(t *testing.T) {
	server, direct := deployed(t)
	p := startProxy(t, server.Addr)
	c := open(t, "redis://"+p.addr()+"?read_timeout=1m", client.WithBatches(16, time.Minute), client.WithTimeout(slow))
	for range 1 + 2 + 4 + 8 + 1 { // leaves 15 units of the last batch of 16
		must[client.Result](t)(c.Allow(t.Context(), "k", "100/h"))
	}
	p.arm(1_000_000, holds)
	first, second := make(chan error, 1), make(chan error, 1)
	go func() { first <- c.Close() }()
	eventually(t, "the first gives back", func() bool { return p.seen() > 0 })
	go func() { second <- c.Close() }()
	select {
	case <-second:
		t.Error("the second Close returned before the first")
	case <-time.After(bound / 10): // long enough for the second Close to return if it does not wait
	}
	p.release()
	for _, ended := range []chan error{first, second} {
		check(t, <-ended)
	}
	if got := must[client.Result](t)(newClient(t, direct).Peek(t.Context(), client.For("k", "100/h", 0))); got.Remaining < 80 {
		t.Errorf("%d are left of 100 after 16 calls, so nothing was given back", got.Remaining)
	}
}
