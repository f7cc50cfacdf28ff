// Package overrides finds the keys that have an override or a block, on all primaries. It writes nothing. It
// needs the permissions +type, +getrange, +zrange and +zscore, and those of package scan.
//
// overrides.go contains the scan, and step.go reads the keys of a step. functions/STATE.md
// describes the values that they read.
package overrides

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/ratelimit-functions/ratelimit/cmd/ratelimit/internal/scan"
)

// Override is the override or the block, or both, that were in effect when the key was read. Times
// are in UTC.
type Override struct {
	Key     string
	Limit   string    // with a single space between words; "" if the key has no override
	Ends    time.Time // end of the override; zero if there is none
	Blocked time.Time // end of the key's block; zero if it is not blocked
	Read    time.Time // when the key was read, by the server's clock
}

// Snapshot holds what a scan has found so far. It does not change later.
type Snapshot struct {
	Overrides []Override // sorted by key
	More      int64      // number of keys found but not in Overrides
	Refused   int64      // keys that the user may not read

	scan.Progress
}

// Scan is one pass over the keys of all primaries. It is safe for concurrent use, but Run must be
// called only once.
type Scan struct {
	limit int
	keys  scan.Keys

	mu    sync.Mutex
	found map[string]Override // by key
	rest  Snapshot            // all fields except Overrides and Progress
}

// New returns a Scan. match is the SCAN pattern of the keys to read; "" matches all keys. limit is
// the maximum number of keys that the scan keeps. Further keys are only counted.
func New(limit int, match string) *Scan {
	s := &Scan{limit: limit, keys: scan.Keys{Match: match}, found: map[string]Override{}}
	s.keys.Read = s.read
	return s
}

// Run scans all of rdb's primaries concurrently. If scans fail, it returns their
// [*scan.NodeError]s, joined. Snapshot includes what these scans found before they failed.
func (s *Scan) Run(ctx context.Context, rdb redis.UniversalClient) error { return s.keys.Run(ctx, rdb) }

// Snapshot returns what the scan has found so far.
func (s *Scan) Snapshot() Snapshot {
	s.mu.Lock()
	defer s.mu.Unlock()
	found := s.rest
	found.Progress = s.keys.Progress()
	found.Overrides = slices.SortedFunc(maps.Values(s.found), func(a, b Override) int { return cmp.Compare(a.Key, b.Key) })
	return found
}

// read reads the keys of a step; now is the server's time.
func (s *Scan) read(ctx context.Context, rdb *redis.Client, now time.Time, keys []string) (trips int, _ error) {
	step := step{ctx: ctx, rdb: rdb, now: now.UTC()}
	err := step.read(keys)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rest.Refused += step.refused
	for _, o := range step.found {
		if _, known := s.found[o.Key]; known || len(s.found) < s.limit {
			s.found[o.Key] = o
		} else {
			s.rest.More++
		}
	}
	return step.trips, err
}
