package usage

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	// Share is the largest share of a server's time that a scan uses. After each step the scan
	// waits in proportion to the step's duration, not counting the network round trip.
	Share = 0.05

	step  = 100                  // keys that one SCAN examines
	least = 4 * time.Millisecond // the shortest wait after a step; with it, a step of an ordinary server takes less than Share of the time
)

// Scan is one pass over the keys of all primaries. A key that exists during the whole pass is
// counted once, or twice if the server shrinks its hash table meanwhile. Memory is bounded by the
// records that are kept. A Scan is safe for concurrent use, but Run must be called only once.
type Scan struct {
	limit int
	match string
	wait  func(context.Context, time.Duration) error

	mu    sync.Mutex
	kept  []*first
	found Snapshot // without Top
	began time.Time
}

// New makes a Scan of the keys that match a pattern of SCAN; "" matches all. It keeps the first
// limit keys in each of the given orders.
func New(limit int, match string, by ...Order) *Scan {
	s := &Scan{limit: limit, match: cmp.Or(match, "*"), wait: wait}
	for _, order := range by {
		s.kept = append(s.kept, &first{by: order, keys: map[string]bool{}})
	}
	return s
}

func wait(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// NodeError is the reason why the scan of one server ended early.
type NodeError struct {
	Addr string
	Err  error // from go-redis or the context
}

func (e *NodeError) Error() string { return e.Addr + ": " + e.Err.Error() }

func (e *NodeError) Unwrap() error { return e.Err }

// EachPrimary calls f concurrently for all primaries that rdb knows.
func EachPrimary(ctx context.Context, rdb redis.UniversalClient, f func(context.Context, *redis.Client) error) error {
	switch rdb := rdb.(type) {
	case *redis.ClusterClient:
		var some atomic.Bool
		err := rdb.ForEachMaster(ctx, func(ctx context.Context, node *redis.Client) error {
			some.Store(true)
			return f(ctx, node)
		})
		if err == nil && !some.Load() {
			err = errors.New("the cluster lists no primary")
		}
		return err
	case *redis.Client:
		return f(ctx, rdb)
	}
	return fmt.Errorf("a %T does not say how to reach each server; pass a *redis.Client or *redis.ClusterClient", rdb)
}

// Run concurrently scans all primaries that rdb knows. It returns the joined [*NodeError]s of the
// primaries whose scans failed. Snapshot includes what these scans found before they failed.
func (s *Scan) Run(ctx context.Context, rdb redis.UniversalClient) error {
	var mu sync.Mutex
	var failed []error
	each := func(ctx context.Context, node *redis.Client) error {
		if err := s.node(ctx, node); err != nil {
			mu.Lock()
			failed = append(failed, &NodeError{node.Options().Addr, err})
			mu.Unlock()
		}
		return nil
	}
	err := EachPrimary(ctx, rdb, each)
	s.mu.Lock()
	if s.found.Complete = err == nil && len(failed) == 0; s.found.Complete {
		s.found.Looked = max(s.found.Looked, s.found.Keys)
	}
	s.mu.Unlock()
	slices.SortFunc(failed, func(a, b error) int { return cmp.Compare(a.Error(), b.Error()) })
	return errors.Join(append(failed, err)...)
}

// Snapshot returns what has been found so far.
func (s *Scan) Snapshot() Snapshot {
	s.mu.Lock()
	defer s.mu.Unlock()
	found := s.found
	found.Top = map[Order][]Record{}
	for _, kept := range s.kept {
		found.Top[kept.by] = slices.Clone(kept.records)
	}
	return found
}

// node scans one server.
func (s *Scan) node(ctx context.Context, rdb *redis.Client) error {
	if keys, err := rdb.DBSize(ctx).Result(); err == nil { // without DBSIZE, the progress is unknown
		s.mu.Lock()
		s.found.Keys += keys
		s.mu.Unlock()
	}
	way := time.Duration(1<<63 - 1) // the network round trip
	for range 3 {
		began := time.Now()
		if err := rdb.Ping(ctx).Err(); err != nil {
			return err
		}
		way = min(way, time.Since(began))
	}
	for cursor := uint64(0); ; {
		began := time.Now()
		pipe := rdb.Pipeline()
		clock, scan := pipe.Time(ctx), pipe.ScanType(ctx, cursor, s.match, step, "hash")
		_, _ = pipe.Exec(ctx) // each command has its own error
		if err := cmp.Or(clock.Err(), scan.Err()); err != nil {
			return err
		}
		if s := clock.Val().Unix(); s < 0 || s > 1<<40 {
			return badReply("got %d s from TIME", s)
		}
		keys, next := scan.Val()
		if err := s.read(ctx, rdb, clock.Val(), keys); err != nil {
			return err
		}
		if cursor = next; cursor == 0 {
			return nil
		}
		if err := s.wait(ctx, pause(time.Since(began), 2*way)); err != nil {
			return err
		}
	}
}

// pause returns how long to wait after a step. took is the step's duration, and way is the part of
// it that the network round trips took.
func pause(took, way time.Duration) time.Duration {
	return max(least, time.Duration(float64(took-way)*(1/Share-1)))
}

// read reads what was counted under keys; now is the server's time.
func (s *Scan) read(ctx context.Context, rdb *redis.Client, now time.Time, keys []string) error {
	s.mu.Lock()
	if s.began.IsZero() {
		s.began = now
	}
	minute := s.began.Unix() / 60
	s.mu.Unlock()
	pipe := rdb.Pipeline()
	replies := make([]*redis.Cmd, len(keys))
	for i, key := range keys {
		replies[i] = pipe.Do(ctx, append([]any{"hmget", key}, fields(minute)...)...) // go-redis's HMGet would mistake a number for an array length
	}
	if len(keys) > 0 {
		_, _ = pipe.Exec(ctx) // each command has its own error
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.found.Looked += step; s.found.Keys > 0 {
		s.found.Looked = min(s.found.Looked, s.found.Keys)
	}
	s.found.At, s.found.minute = now, minute
	for i, reply := range replies {
		switch err := reply.Err(); {
		case redis.HasErrorPrefix(err, "NOPERM"):
			s.found.Refused++
			continue
		case redis.HasErrorPrefix(err, "WRONGTYPE"), redis.HasErrorPrefix(err, "MOVED"), redis.HasErrorPrefix(err, "ASK"):
			continue // the key is no longer a hash, or has moved to another server
		case err != nil && !errors.Is(err, redis.Nil):
			return err
		}
		r, ok, err := record(keys[i], reply.Val())
		if err != nil {
			return err
		}
		if ok {
			r.At, r.minute = now, minute
			s.keep(r)
		}
	}
	return nil
}

// badReply returns an error for a reply that no Redis server sends. The text starts like the errors
// of go-redis, which is how dialing.Gibberish recognizes it.
func badReply(format string, args ...any) error { return fmt.Errorf("redis: "+format, args...) }

// fields returns the fields of a record to read; see functions/STATE.md. ratelimit_usage would read
// the whole series, which takes a server thirty times as long.
func fields(minute int64) []any {
	at, before := strconv.FormatInt(minute, 10), strconv.FormatInt(minute-1, 10)
	return []any{"first", "last", "cost", "allowed", "denied", "a" + at, "d" + at, "a" + before, "d" + before}
}

// record parses a reply to HMGET. It returns false if the hash was not written by TRACK, and an
// error for a reply that HMGET never sends.
func record(key string, reply any) (r Record, ok bool, _ error) {
	const most = 1 << 53
	var n [9]int64
	values, isList := reply.([]any)
	if !isList || len(values) != len(n) {
		return r, false, badReply("got %.60q from HMGET, wanted a list of %d values", fmt.Sprint(reply), len(n))
	}
	ok = true
	for i, value := range values {
		text, isText := value.(string)
		switch {
		case !isText && value != nil:
			return r, false, badReply("got %.60q from HMGET for a value, wanted text", fmt.Sprint(value))
		case value == nil && i > 2: // nothing was counted yet
			continue
		}
		var err error
		if n[i], err = strconv.ParseInt(text, 10, 64); err != nil || n[i] < 0 || n[i] > most {
			ok = false
		}
	}
	return Record{
		Key: key, First: time.UnixMilli(n[0]).UTC(), Last: time.UnixMilli(n[1]).UTC(), Cost: n[2], Count: Count{n[3], n[4]},
		recent: recent{counts: [2]Count{{n[5], n[6]}, {n[7], n[8]}}},
	}, ok, nil
}

// keep adds a record to the totals, and keeps it if it is among the first in an order. It ignores a
// record that it has kept already.
func (s *Scan) keep(r Record) {
	for _, kept := range s.kept {
		if kept.keys[r.Key] {
			return
		}
	}
	s.found.Tracked++
	s.found.Sum = s.found.Sum.plus(r.Count)
	s.found.Cost += r.Cost
	for i := range s.found.counts {
		s.found.counts[i] = s.found.counts[i].plus(r.counts[i])
	}
	for _, kept := range s.kept {
		kept.add(r, s.limit)
	}
}

// first holds the records that come first in an order.
type first struct {
	by      Order
	records []Record // sorted
	keys    map[string]bool
}

// add inserts a record, unless limit other records come before it.
func (f *first) add(r Record, limit int) {
	i, _ := slices.BinarySearchFunc(f.records, r, f.by.compare)
	f.records = slices.Insert(f.records, i, r)
	f.keys[r.Key] = true
	if len(f.records) > limit {
		delete(f.keys, f.records[limit].Key)
		f.records = f.records[:limit]
	}
}
