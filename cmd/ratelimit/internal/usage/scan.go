package usage

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/ratelimit-functions/ratelimit/cmd/ratelimit/internal/scan"
)

// Scan is one pass over the usage keys of all primaries. A key that exists during the whole pass is
// counted once, or twice if the server shrinks its key table during the pass. A Scan needs memory
// only for the records that it keeps. It is safe for concurrent use, but Run must be called only
// once.
type Scan struct {
	limit int
	keys  scan.Keys

	mu    sync.Mutex
	kept  []*first
	found Snapshot // all fields except Top and Progress
	began time.Time
}

// New returns a Scan. match is the SCAN pattern of the keys to read; "" matches all keys. The scan
// keeps the first keys in each of the orders, up to limit.
func New(limit int, match string, orders ...Order) *Scan {
	s := &Scan{limit: limit, keys: scan.Keys{Match: match, Type: "hash"}}
	s.keys.Read = s.read
	for _, order := range orders {
		s.kept = append(s.kept, &first{by: order, keys: map[string]bool{}})
	}
	return s
}

// Run scans all of rdb's primaries concurrently. If scans fail, it returns their
// [*scan.NodeError]s, joined. Snapshot includes what these scans found before they failed.
func (s *Scan) Run(ctx context.Context, rdb redis.UniversalClient) error { return s.keys.Run(ctx, rdb) }

// RunShown calls Run and returns the final Snapshot. Until Run returns, it calls show with the
// current Snapshot at intervals of every.
func (s *Scan) RunShown(ctx context.Context, rdb redis.UniversalClient, every time.Duration, show func(Snapshot)) (Snapshot, error) {
	over := make(chan error, 1)
	go func() { over <- s.Run(ctx, rdb) }()
	for {
		select {
		case err := <-over:
			return s.Snapshot(), err
		case <-time.After(every):
			show(s.Snapshot())
		}
	}
}

// Snapshot returns what the scan has found so far.
func (s *Scan) Snapshot() Snapshot {
	s.mu.Lock()
	defer s.mu.Unlock()
	found := s.found
	found.Progress = s.keys.Progress()
	found.Top = map[Order][]Record{}
	for _, kept := range s.kept {
		found.Top[kept.by] = slices.Clone(kept.records)
	}
	return found
}

// read reads the usage records of keys; now is the server's time.
func (s *Scan) read(ctx context.Context, rdb *redis.Client, now time.Time, keys []string) (trips int, _ error) {
	s.mu.Lock()
	if s.began.IsZero() {
		s.began = now
	}
	minute := s.began.Unix() / 60
	s.mu.Unlock()
	var records []Record
	refused, err := scan.Ask(ctx, rdb, keys, func(key string) []any {
		return append([]any{"hmget", key}, fields(minute)...) // not go-redis's HMGet, which would mistake a number in the reply for an array length
	}, func(key string, reply any) error {
		r, ok, err := record(key, reply)
		if ok {
			r.At, r.minute = now, minute
			records = append(records, r)
		}
		return err
	})
	s.mu.Lock()
	defer s.mu.Unlock()
	s.found.At, s.found.minute = now, minute
	s.found.Refused += refused
	for _, r := range records {
		s.keep(r)
	}
	return min(1, len(keys)), err
}

// fields returns the names of the fields to read from a record; functions/STATE.md describes them.
// minute is the minute in which the scan began, counted from the epoch. ratelimit_usage would read
// the counts of all minutes, which takes the server more than a hundred times as long.
func fields(minute int64) []any {
	at, before := strconv.FormatInt(minute, 10), strconv.FormatInt(minute-1, 10)
	return []any{"first", "last", "cost", "allowed", "denied", "a" + at, "d" + at, "a" + before, "d" + before}
}

// record parses a reply to HMGET. ok is false if the hash lacks a field that each record has. record returns an
// error for a reply that HMGET never sends.
func record(key string, reply any) (r Record, ok bool, _ error) {
	const most = 1 << 53
	var n [9]int64
	values, isList := reply.([]any)
	if !isList || len(values) != len(n) {
		return r, false, scan.BadReply("got %.60q from HMGET, wanted a list of %d values", fmt.Sprint(reply), len(n))
	}
	ok = values[3] != nil || values[4] != nil
	for i, value := range values {
		text, isText := value.(string)
		switch {
		case !isText && value != nil:
			return r, false, scan.BadReply("got %.60q from HMGET for a value, wanted text", fmt.Sprint(value))
		case value == nil && i > 2: // a missing count is 0
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

// keep adds a record to the totals, and keeps it if it ranks among the first s.limit records in any
// of the requested orders. It ignores a record that it has already kept.
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

type first struct {
	by      Order
	records []Record // sorted
	keys    map[string]bool
}

// add inserts r, and then removes the last record if there are more than limit.
func (f *first) add(r Record, limit int) {
	i, _ := slices.BinarySearchFunc(f.records, r, f.by.compare)
	f.records = slices.Insert(f.records, i, r)
	f.keys[r.Key] = true
	if len(f.records) > limit {
		delete(f.keys, f.records[limit].Key)
		f.records = f.records[:limit]
	}
}
