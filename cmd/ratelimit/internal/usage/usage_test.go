package usage

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/ratelimit-functions/ratelimit/client"
	"github.com/ratelimit-functions/ratelimit/cmd/ratelimit/internal/scan"
	"github.com/ratelimit-functions/ratelimit/embedded"
	"github.com/ratelimit-functions/ratelimit/functions"
	"github.com/ratelimit-functions/ratelimit/internal/redistest"
)

var began = time.UnixMilli(1_700_000_000_000).UTC() // 20 s after a whole minute

type tracked struct {
	t   *testing.T
	srv *embedded.Server
	rdb *redis.Client
	c   *client.Client
}

func start(t *testing.T) tracked {
	t.Helper()
	srv := embedded.Run(t, embedded.WithLibrary(functions.Source()), embedded.WithTime(began))
	rdb := redis.NewClient(&redis.Options{Addr: srv.Addr(), MaxRetries: -1, ContextTimeoutEnabled: true})
	t.Cleanup(func() { _ = rdb.Close() })
	c := redistest.Must[*client.Client](t)(client.New(rdb, client.WithTimeout(time.Minute)))
	return tracked{t, srv, rdb, c}
}

// takes makes the given number of calls. The first ten of a day are allowed.
func (s tracked) takes(key string, calls int) {
	s.t.Helper()
	for range calls {
		redistest.Must[client.Result](s.t)(s.c.Take(s.t.Context(), client.Request{Keys: []string{"of " + key}, Limits: []client.Limit{"10/d"}, UsageKey: key}))
	}
}

// scanned runs a scan without pauses.
func scanned(t *testing.T, rdb redis.UniversalClient, by Order, limit int, match string) Snapshot {
	t.Helper()
	s := New(limit, match, by)
	s.keys.Wait = func(context.Context, time.Duration) error { return nil }
	redistest.Require(t, s.Run(t.Context(), rdb))
	return s.Snapshot()
}

func keysOf(s Snapshot) string {
	var keys []string
	for _, records := range s.Top {
		for _, r := range records {
			keys = append(keys, r.Key)
		}
	}
	return strings.Join(keys, " ")
}

// TestScan checks that the scan finds the keys that TRACK writes among other keys, and that their
// records agree with the library's reply.
func TestScan(t *testing.T) {
	s := start(t)
	for i, key := range []string{"b", "a", "\x1b[31m\xff\n", "c"} {
		s.takes(key, 4*(i+1))
		s.srv.Advance(time.Second)
	}
	s.takes("a", 1)
	ctx := t.Context()
	for _, err := range []error{
		s.rdb.Set(ctx, "string", 1, 0).Err(), s.rdb.ZAdd(ctx, "zset", redis.Z{Member: "a"}).Err(),
		s.rdb.HSet(ctx, "hash", "name", "ann").Err(), s.rdb.HSet(ctx, "words", "first", "x", "last", "y", "cost", "z", "allowed", 1).Err(),
		s.rdb.HSet(ctx, "part", "first", 1, "last", 1, "cost", 1).Err(),
		s.rdb.HSet(ctx, "below", "first", -1, "last", 1, "cost", 1, "allowed", 1).Err(), s.rdb.HSet(ctx, "above", "first", 1, "last", 1, "cost", "9007199254740993", "allowed", 1).Err(),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	for by, want := range map[Order]string{
		Total: "c \x1b[31m\xff\n a b", Denied: "c \x1b[31m\xff\n a b", Last: "a c \x1b[31m\xff\n b", Newest: "c \x1b[31m\xff\n a b", Oldest: "b a \x1b[31m\xff\n c",
	} {
		found := scanned(t, s.rdb, by, 10, "")
		if got := keysOf(found); got != want {
			t.Errorf("by %s: %q, want %q", by, got, want)
		}
		if two := keysOf(scanned(t, s.rdb, by, 2, "")); !strings.HasPrefix(want, two+" ") || strings.Count(two, " ") != 1 {
			t.Errorf("the first two by %s are %q", by, two)
		}
		if !found.Complete || found.Tracked != 4 || found.Sum != (Count{33, 8}) || found.Cost != 33 || found.Refused != 0 {
			t.Errorf("%+v", found)
		}
		for _, r := range found.Top[by] {
			u, err := s.c.Usage(ctx, r.Key)
			if err != nil || u.Allowed != r.Allowed || u.Denied != r.Denied || u.Cost != r.Cost || u.First != r.First || u.Last != r.Last {
				t.Errorf("%v: %+v, and the library says %+v", err, r, u)
			}
		}
	}
	if got := keysOf(scanned(t, s.rdb, Total, 10, "[ab]")); got != "a b" {
		t.Errorf("of those that match: %q", got)
	}
}

// TestScanOfMany checks that, if there are many keys, the scan keeps the first ones in order, and
// that the sums include all keys.
func TestScanOfMany(t *testing.T) {
	s := start(t)
	const keys = 3000
	pipe := s.rdb.Pipeline()
	for i, n := range rand.New(rand.NewPCG(1, 2)).Perm(keys) {
		pipe.HSet(t.Context(), fmt.Sprint("k", i), "first", 1, "last", 1, "cost", 1, "allowed", n)
	}
	redistest.Must[[]redis.Cmder](t)(pipe.Exec(t.Context()))
	found := scanned(t, s.rdb, Total, 5, "")
	var got []int64
	for _, r := range found.Top[Total] {
		got = append(got, r.Allowed)
	}
	if !slices.Equal(got, []int64{2999, 2998, 2997, 2996, 2995}) || found.Tracked != keys || found.Sum.Allowed != keys*(keys-1)/2 || found.Looked != keys {
		t.Errorf("%v of %+v", got, found)
	}
}

// TestKeysThatSCANRepeats checks that a key counts once even if SCAN returns it again, in the same
// step or in a later one.
func TestKeysThatSCANRepeats(t *testing.T) {
	s := start(t)
	s.takes("a", 12)
	s.takes("b", 1)
	repeated := New(10, "", Total, Last)
	for _, keys := range [][]string{{"a", "a"}, {"b"}, {"a", "b"}} {
		redistest.Must[int](t)(repeated.read(t.Context(), s.rdb, began, keys))
	}
	found := repeated.Snapshot()
	if found.Tracked != 2 || found.Sum != (Count{11, 2}) || found.Cost != 11 || len(found.Top[Total]) != 2 || len(found.Top[Last]) != 2 {
		t.Errorf("%+v", found)
	}
}

// TestRate checks that a rate is measured since the previous scan, or else over the last full
// minute.
func TestRate(t *testing.T) {
	s := start(t)
	s.takes("k", 6)
	first := scanned(t, s.rdb, Total, 10, "")
	if got := first.Rate(nil); got != (Rate{}) {
		t.Errorf("without a minute before: %v", got)
	}
	s.srv.Advance(10 * time.Second)
	s.takes("k", 5) // one of these is denied
	second := scanned(t, s.rdb, Total, 10, "")
	if got, want := second.Rate(&first), (Rate{0.4, 0.1}); got != want || second.RateOf(second.Top[Total][0], &first) != want {
		t.Errorf("in the same minute: %v, want %v", got, want)
	}
	s.srv.Advance(time.Minute)
	s.takes("k", 6)
	third := scanned(t, s.rdb, Total, 10, "")
	if got, want := third.Rate(&second), (Rate{0, 0.1}); got != want || third.RateOf(third.Top[Total][0], &second) != want {
		t.Errorf("in the next minute: %v, want %v", got, want)
	}
	if got, want := third.Rate(&Snapshot{}), (Rate{10. / 60, 1. / 60}); got != want || third.RateOf(third.Top[Total][0], nil) != want {
		t.Errorf("of the last minute: %v, want %v", got, want)
	}
	redistest.Must[int64](t)(s.c.Reset(t.Context(), "k"))
	s.takes("k", 1)
	s.srv.Advance(time.Second)
	if got := scanned(t, s.rdb, Total, 10, "").Rate(&third); got != (Rate{}) {
		t.Errorf("after a reset: %v", got)
	}
}

// TestCluster checks that every primary of a cluster is scanned. If a primary is dead, the error
// must name it, and the scan must find the keys on the other primaries.
func TestCluster(t *testing.T) {
	one, two, dead := start(t), start(t), start(t)
	one.takes("a", 3)
	two.takes("b", 2)
	addrs := []string{one.srv.Addr(), two.srv.Addr(), dead.srv.Addr()}
	if found := scanned(t, redistest.ClusterOf(t, addrs[:2]...), Total, 10, ""); keysOf(found) != "a b" || found.Sum.Allowed != 5 || !found.Complete {
		t.Errorf("%+v", found)
	}
	_ = dead.srv.Close()
	s := New(10, "", Total)
	err := s.Run(t.Context(), redistest.ClusterOf(t, addrs...))
	var node *scan.NodeError
	if found := s.Snapshot(); !errors.As(err, &node) || addrs[2] != "127.0.0.1"+node.Addr || found.Complete || keysOf(found) != "a b" {
		t.Errorf("%v: %+v", err, found)
	}
	if err := New(1, "", Total).Run(t.Context(), redis.NewRing(&redis.RingOptions{})); err == nil {
		t.Error("a ring was scanned")
	}
}

// TestInterrupted checks that an interrupted scan returns what it has found so far, and reports
// that it is incomplete.
func TestInterrupted(t *testing.T) {
	rdb := redis.NewClient(&redis.Options{Addr: redistest.Run(t).Addr}) // a real server, because the embedded server lists all keys in one step
	t.Cleanup(func() { _ = rdb.Close() })
	pipe := rdb.Pipeline()
	for i := range 10 * scan.Step {
		pipe.HSet(t.Context(), fmt.Sprint("k", i), "first", 1, "last", 1, "cost", 1, "allowed", 1)
	}
	redistest.Must[[]redis.Cmder](t)(pipe.Exec(t.Context()))
	s, steps := New(10, "", Total), 0
	s.keys.Wait = func(context.Context, time.Duration) error {
		if steps++; steps == 2 {
			return context.Canceled
		}
		return nil
	}
	err := s.Run(t.Context(), rdb)
	if found := s.Snapshot(); !errors.Is(err, context.Canceled) || found.Complete || found.Tracked == 0 || found.Tracked >= 10*scan.Step || len(found.Top[Total]) != 10 {
		t.Errorf("%v: %+v", err, found)
	}
}
