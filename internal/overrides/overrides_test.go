package overrides

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/ratelimit-functions/ratelimit/client"
	"github.com/ratelimit-functions/ratelimit/embedded"
	"github.com/ratelimit-functions/ratelimit/functions"
	"github.com/ratelimit-functions/ratelimit/internal/scan"
)

var began = time.UnixMilli(1_700_000_000_000).UTC()

func start(t *testing.T) (*embedded.Server, *redis.Client, *client.Client) {
	t.Helper()
	srv := embedded.Run(t, embedded.WithLibrary(functions.Source()), embedded.WithTime(began))
	rdb := redis.NewClient(&redis.Options{Addr: srv.Addr(), MaxRetries: -1, ContextTimeoutEnabled: true})
	t.Cleanup(func() { _ = rdb.Close() })
	c, err := client.New(rdb, client.WithTimeout(time.Minute))
	check(t, err)
	return srv, rdb, c
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// found runs a scan without pauses.
func found(t *testing.T, rdb redis.UniversalClient, limit int, match string) Snapshot {
	t.Helper()
	s := New(limit, match)
	s.keys.Wait = func(context.Context, time.Duration) error { return nil }
	check(t, s.Run(t.Context(), rdb))
	return s.Snapshot()
}

// TestScan checks that the scan finds the keys with an override among keys of all types, regardless
// of the keys' other content.
func TestScan(t *testing.T) {
	ctx := t.Context()
	srv, rdb, c := start(t)
	long := client.Limit(strings.Repeat(" ", 900) + "100/s, 200/m, 300/h, 400/d, 500/30d")
	override := func(limit client.Limit, d time.Duration, keys ...string) {
		t.Helper()
		check(t, c.Override(ctx, limit, d, keys...))
	}
	lease := func(key string, d time.Duration) {
		t.Helper()
		_, err := c.Lease(key, client.Concurrency(3, d), "id").Acquire(ctx)
		check(t, err)
	}
	take := func(key string, limit client.Limit) {
		t.Helper()
		_, err := c.AllowN(ctx, key, limit, 5)
		check(t, err)
	}
	for i, limit := range []client.Limit{"10/m", "100000/m", "token_bucket 10/m", "fixed_window 10/m", "sliding_window 10/m", "sliding_log 10/m", "10/s, 100/m"} {
		take(fmt.Sprint("state", i), limit)
		take(fmt.Sprint("both", i), limit)
		override("9/m", time.Hour, fmt.Sprint("both", i))
	}
	override("5/m", time.Minute, "ended")
	check(t, c.Block(ctx, 2*time.Hour, "ended"))
	override(long, time.Hour, "long")
	override(long, time.Hour, "long blocked")
	check(t, c.Block(ctx, 2*time.Hour, "long blocked", "blocked"))
	override("gcra 5/m", time.Hour, "blocked")
	override("5/m", time.Hour, "block ended")
	check(t, c.Block(ctx, time.Minute, "block ended", "only blocked"))
	override(client.Concurrency(7, 2*time.Minute), time.Hour, "jobs", "jobs blocked", "jobs empty", "jobs block ended")
	lease("jobs", time.Second)
	lease("jobs blocked", 3*time.Hour)
	lease("jobs without", time.Hour)
	lease("jobs ended", 3*time.Hour)
	override("concurrency 7 lease=1500ms", time.Minute, "jobs ended")
	override("concurrency 7 lease=1500ms", time.Hour, "jobs of ms\xff")
	check(t, c.Block(ctx, 2*time.Hour, "jobs blocked"))
	check(t, c.Block(ctx, time.Minute, "jobs block ended"))
	for _, err := range []error{
		rdb.HSet(ctx, "hash", "limit", 1).Err(), rdb.RPush(ctx, "list", "override:1:2:3").Err(), rdb.SAdd(ctx, "set", "override:1:2:3").Err(),
		rdb.Set(ctx, "words", "limit:of:our:shop", 0).Err(), rdb.Set(ctx, "cut", "limit:1800000000000:0:9:", 0).Err(), rdb.Set(ctx, "empty", "", 0).Err(),
		rdb.ZAdd(ctx, "scores", redis.Z{Member: "override:a:b:c"}).Err(),
	} {
		check(t, err)
	}
	srv.Advance(time.Minute)

	now := began.Add(time.Minute)
	of := func(key string, limit client.Limit, blocked time.Duration) Override {
		o := Override{Key: key, Limit: string(limit), Ends: began.Add(time.Hour), Read: now}
		if blocked > 0 {
			o.Blocked = began.Add(blocked)
		}
		return o
	}
	want := []Override{of("block ended", "5/m", 0), of("blocked", "gcra 5/m", 2*time.Hour)}
	for i := range 7 {
		want = append(want, of(fmt.Sprint("both", i), "9/m", 0))
	}
	want = append(want, of("jobs", "concurrency 7 lease=120s", 0), of("jobs block ended", "concurrency 7 lease=120s", 0), of("jobs blocked", "concurrency 7 lease=120s", 2*time.Hour),
		of("jobs empty", "concurrency 7 lease=120s", 0), of("jobs of ms\xff", "concurrency 7 lease=1500ms", 0), of("long", "100/s, 200/m, 300/h, 400/d, 500/30d", 0), of("long blocked", "100/s, 200/m, 300/h, 400/d, 500/30d", 2*time.Hour))
	for _, protocol := range []int{2, 3} {
		rdb := redis.NewClient(&redis.Options{Addr: srv.Addr(), Protocol: protocol})
		got := found(t, rdb, 100, "")
		if !reflect.DeepEqual(got.Overrides, want) || !got.Complete || got.More != 0 || got.Refused != 0 {
			t.Errorf("RESP%d: %+v\nwant %+v", protocol, got, want)
		}
		check(t, rdb.Close())
	}
	if got := found(t, rdb, 2, "jobs*"); len(got.Overrides) != 2 || got.More != 3 || !strings.HasPrefix(got.Overrides[0].Key, "jobs") {
		t.Errorf("two of those that match: %+v", got)
	}
}

// TestKeysThatSCANRepeats checks that a key is listed once even if SCAN returns it again, in the
// same step or in a later one.
func TestKeysThatSCANRepeats(t *testing.T) {
	_, rdb, c := start(t)
	check(t, c.Override(t.Context(), "5/m", time.Hour, "{k}a", "{k}b"))
	s := New(2, "")
	for _, keys := range [][]string{{"{k}a", "{k}a"}, {"{k}b"}, {"{k}a", "{k}b"}} {
		if _, err := s.read(t.Context(), rdb, began, keys); err != nil {
			t.Fatal(err)
		}
	}
	if got := s.Snapshot(); len(got.Overrides) != 2 || got.More != 0 {
		t.Errorf("%+v", got)
	}
}

// TestCluster checks that every primary of a cluster is scanned. If a primary is dead, the error
// must name it, and the scan must find the overrides on the other primaries.
func TestCluster(t *testing.T) {
	one, _, c1 := start(t)
	two, _, c2 := start(t)
	check(t, c1.Override(t.Context(), "5/m", time.Hour, "b"))
	check(t, c2.Override(t.Context(), "6/m", time.Hour, "a"))
	rdb := redis.NewClusterClient(&redis.ClusterOptions{ClusterSlots: func(context.Context) (slots []redis.ClusterSlot, _ error) {
		for i, addr := range []string{one.Addr(), two.Addr()} {
			slots = append(slots, redis.ClusterSlot{Start: i * 5000, End: i*5000 + 4999, Nodes: []redis.ClusterNode{{Addr: addr}}})
		}
		return slots, nil
	}, MaxRetries: -1, DialerRetries: 1})
	t.Cleanup(func() { _ = rdb.Close() })
	limits := func(found Snapshot) (limits []string) {
		for _, o := range found.Overrides {
			limits = append(limits, o.Key+" "+o.Limit)
		}
		return limits
	}
	if got := found(t, rdb, 10, ""); !slices.Equal(limits(got), []string{"a 6/m", "b 5/m"}) || !got.Complete {
		t.Errorf("%+v", got)
	}
	_ = two.Close()
	s := New(10, "")
	err := s.Run(t.Context(), rdb)
	var node *scan.NodeError
	if got := s.Snapshot(); !errors.As(err, &node) || !strings.HasSuffix(two.Addr(), node.Addr) || got.Complete || !slices.Equal(limits(got), []string{"b 5/m"}) {
		t.Errorf("%v: %+v", err, got)
	}
}
