package overrides

import (
	"context"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/ratelimit-functions/ratelimit/client"
	"github.com/ratelimit-functions/ratelimit/embedded"
	"github.com/ratelimit-functions/ratelimit/functions"
	"github.com/ratelimit-functions/ratelimit/internal/redistest"
)

var began = time.UnixMilli(1_700_000_000_000).UTC()

func start(t *testing.T) (*embedded.Server, *redis.Client, *client.Client) {
	t.Helper()
	srv := embedded.Run(t, embedded.WithLibrary(functions.Source()), embedded.WithTime(began))
	rdb := redis.NewClient(&redis.Options{Addr: srv.Addr(), MaxRetries: -1, ContextTimeoutEnabled: true})
	t.Cleanup(func() { _ = rdb.Close() })
	return srv, rdb, redistest.Must[*client.Client](t)(client.New(rdb, client.WithTimeout(time.Minute)))
}

var check = redistest.Require

// found returns the result of a scan without pauses.
func found(t *testing.T, rdb redis.UniversalClient, limit int, match string) Snapshot {
	t.Helper()
	s := New(limit, match)
	s.keys.Wait = func(context.Context, time.Duration) error { return nil }
	check(t, s.Run(t.Context(), rdb))
	return s.Snapshot()
}

// TestScan checks that the scan finds the keys with an override or a block among keys of all types,
// regardless of the keys' other content.
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
		redistest.Must[client.Result](t)(c.Lease(key, client.Concurrency(3, d), "id").Acquire(ctx))
	}
	take := func(key string, limit client.Limit) {
		t.Helper()
		redistest.Must[client.Result](t)(c.AllowN(ctx, key, limit, 5))
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
	lease("jobs only blocked", time.Hour)
	lease("jobs blocked longer", time.Hour)
	check(t, c.Block(ctx, 30*time.Minute, "jobs only blocked"))
	check(t, c.Block(ctx, 2*time.Hour, "jobs blocked longer"))
	redistest.Must[int64](t)(c.Reset(ctx, "empty blocked"))
	check(t, c.Block(ctx, 2*time.Hour, "empty blocked"))
	lease("jobs ended", 3*time.Hour)
	override("concurrency 7 lease=1500ms", time.Minute, "jobs ended")
	override("concurrency 7 lease=1500ms", time.Hour, "jobs of ms\xff")
	check(t, c.Block(ctx, 2*time.Hour, "jobs blocked"))
	check(t, c.Block(ctx, time.Minute, "jobs block ended"))
	for _, err := range []error{
		rdb.HSet(ctx, "hash", "limit", 1).Err(), rdb.RPush(ctx, "list", "override:1:2:3").Err(), rdb.SAdd(ctx, "set", "override:1:2:3").Err(),
		rdb.Set(ctx, "words", "limit:of:our:shop", 0).Err(), rdb.Set(ctx, "cut", "limit:1800000000000:0:9:", 0).Err(), rdb.Set(ctx, "empty", "", 0).Err(),
		rdb.Set(ctx, "block of our shop", "blocked:1800000000000", 0).Err(), rdb.ZAdd(ctx, "block in scores", redis.Z{Member: "blocked", Score: 1}, redis.Z{Member: "users", Score: 2}).Err(),
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
	block := func(key string, blocked time.Duration) Override {
		return Override{Key: key, Blocked: began.Add(blocked), Read: now}
	}
	want := []Override{of("block ended", "5/m", 0), of("blocked", "gcra 5/m", 2*time.Hour)}
	for i := range 7 {
		want = append(want, of(fmt.Sprint("both", i), "9/m", 0))
	}
	want = append(want, block("empty blocked", 2*time.Hour), block("ended", 2*time.Hour), of("jobs", "concurrency 7 lease=120s", 0), of("jobs block ended", "concurrency 7 lease=120s", 0), of("jobs blocked", "concurrency 7 lease=120s", 2*time.Hour),
		block("jobs blocked longer", 2*time.Hour), of("jobs empty", "concurrency 7 lease=120s", 0), of("jobs of ms\xff", "concurrency 7 lease=1500ms", 0), block("jobs only blocked", 30*time.Minute), of("long", "100/s, 200/m, 300/h, 400/d, 500/30d", 0), of("long blocked", "100/s, 200/m, 300/h, 400/d, 500/30d", 2*time.Hour))
	for _, protocol := range []int{2, 3} {
		rdb := redis.NewClient(&redis.Options{Addr: srv.Addr(), Protocol: protocol})
		got := found(t, rdb, 100, "")
		if !reflect.DeepEqual(got.Overrides, want) || !got.Complete || got.More != 0 || got.Refused != 0 {
			t.Errorf("RESP%d: %+v\nwant %+v", protocol, got, want)
		}
		check(t, rdb.Close())
	}
	if got := found(t, rdb, 2, "jobs*"); len(got.Overrides) != 2 || got.More != 5 || !strings.HasPrefix(got.Overrides[0].Key, "jobs") {
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
		redistest.Must[int](t)(s.read(t.Context(), rdb, began, keys))
	}
	if got := s.Snapshot(); len(got.Overrides) != 2 || got.More != 0 {
		t.Errorf("%+v", got)
	}
}
