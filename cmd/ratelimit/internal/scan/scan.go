// Package scan reads the keys of all primaries in small steps, and limits the load on the servers
// (see [Share]). A scan needs the permissions +scan, +time and +ping. With +dbsize, it also reports
// its progress.
package scan

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/ratelimit-functions/ratelimit/internal/sleep"
)

const (
	// Share is the maximum fraction of a server's time that a scan uses. After each step, the scan
	// waits in proportion to the step's duration without the network round trips.
	Share = 0.05

	// Step is the number of keys that one SCAN examines.
	Step = 100

	least = 4 * time.Millisecond // minimum wait after a step; on an ordinary server, this wait is enough to keep a scan below Share
)

// Keys is one pass over the keys of all primaries. A key that exists during the whole pass is read
// at least once. Progress may be called at any time, but Run only once. Do not change the fields
// after Run has been called.
type Keys struct {
	Match string // pattern of SCAN; "" matches all keys
	Type  string // type as in replies to TYPE; "" for all types

	// Read reads the keys that a step found. now is the server's time. Read returns how many round
	// trips it made. It is called concurrently for different servers.
	Read func(ctx context.Context, rdb *redis.Client, now time.Time, keys []string) (trips int, err error)

	// Wait waits between two steps. It returns an error if the context is done first. If Wait is
	// nil, the scan uses a timer.
	Wait func(context.Context, time.Duration) error

	mu       sync.Mutex
	progress Progress
}

// Progress is how far a pass has advanced.
type Progress struct {
	Looked   int64 // keys examined, of any type
	Keys     int64 // approximate number of keys to examine; 0 if no server reports it
	Complete bool  // whether the pass finished on every server
}

// NodeError is the error that ended the scan of one server.
type NodeError struct {
	Addr string
	Err  error // from go-redis or the context
}

func (e *NodeError) Error() string { return e.Addr + ": " + e.Err.Error() }

func (e *NodeError) Unwrap() error { return e.Err }

// EachPrimary calls f concurrently for all of rdb's primaries.
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

// Run scans all of rdb's primaries concurrently. If scans fail, it returns their [*NodeError]s,
// joined.
func (k *Keys) Run(ctx context.Context, rdb redis.UniversalClient) error {
	var mu sync.Mutex
	var failed []error
	err := EachPrimary(ctx, rdb, func(ctx context.Context, node *redis.Client) error {
		if err := k.node(ctx, node); err != nil {
			mu.Lock()
			failed = append(failed, &NodeError{node.Options().Addr, err})
			mu.Unlock()
		}
		return nil
	})
	slices.SortFunc(failed, func(a, b error) int { return cmp.Compare(a.Error(), b.Error()) })
	err = errors.Join(append(failed, err)...)
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.progress.Complete = err == nil; k.progress.Complete {
		k.progress.Looked = max(k.progress.Looked, k.progress.Keys)
	}
	return err
}

// Progress returns how far the pass has advanced.
func (k *Keys) Progress() Progress {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.progress
}

func (k *Keys) node(ctx context.Context, rdb *redis.Client) error {
	if keys, err := rdb.DBSize(ctx).Result(); err == nil { // without DBSIZE, the progress is unknown
		k.mu.Lock()
		k.progress.Keys += keys
		k.mu.Unlock()
	}
	trip := time.Duration(1<<63 - 1) // duration of a network round trip
	for range 3 {
		began := time.Now()
		if err := rdb.Ping(ctx).Err(); err != nil {
			return err
		}
		trip = min(trip, time.Since(began))
	}
	pause := k.Wait
	if pause == nil {
		pause = sleep.For
	}
	for cursor := uint64(0); ; {
		began := time.Now()
		pipe := rdb.Pipeline()
		clock, scan := pipe.Time(ctx), pipe.ScanType(ctx, cursor, cmp.Or(k.Match, "*"), Step, k.Type)
		_, _ = pipe.Exec(ctx) // each command has its own error
		if err := cmp.Or(clock.Err(), scan.Err()); err != nil {
			return err
		}
		if s := clock.Val().Unix(); s < 0 || s > 1<<40 {
			return BadReply("got %d s from TIME", s)
		}
		keys, next := scan.Val()
		trips, err := k.Read(ctx, rdb, clock.Val(), keys)
		if err != nil {
			return err
		}
		k.looked()
		if cursor = next; cursor == 0 {
			return nil
		}
		if err := pause(ctx, pauseAfter(time.Since(began), time.Duration(1+trips)*trip)); err != nil {
			return err
		}
	}
}

func (k *Keys) looked() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.progress.Looked += Step; k.progress.Keys > 0 {
		k.progress.Looked = min(k.progress.Looked, k.progress.Keys)
	}
}

// pauseAfter returns the time to wait after a step. took is the step's duration, and way is the
// part of it that the network round trips took.
func pauseAfter(took, way time.Duration) time.Duration {
	return max(least, time.Duration(float64(took-way)*(1/Share-1)))
}

// Ask sends a command for each of keys in one round trip, and calls read with the replies. It skips
// keys that are now of another type or on another server. It also skips keys that the user may not
// read, and returns their number.
func Ask(ctx context.Context, rdb *redis.Client, keys []string, command func(key string) []any, read func(key string, reply any) error) (refused int64, _ error) {
	if len(keys) == 0 {
		return 0, nil
	}
	pipe := rdb.Pipeline()
	replies := make([]*redis.Cmd, len(keys))
	for i, key := range keys {
		replies[i] = pipe.Do(ctx, command(key)...)
	}
	_, _ = pipe.Exec(ctx) // each command has its own error
	for i, reply := range replies {
		switch err := reply.Err(); {
		case redis.HasErrorPrefix(err, "NOPERM"):
			refused++
			continue
		case redis.HasErrorPrefix(err, "WRONGTYPE"), redis.HasErrorPrefix(err, "MOVED"), redis.HasErrorPrefix(err, "ASK"):
			continue
		case err != nil && !errors.Is(err, redis.Nil):
			return refused, err
		}
		if err := read(keys[i], reply.Val()); err != nil {
			return refused, err
		}
	}
	return refused, nil
}

// BadReply returns an error for a reply that no Redis server sends. Its message starts like
// go-redis's own errors, which is how dialing.Gibberish recognizes it.
func BadReply(format string, args ...any) error { return fmt.Errorf("redis: "+format, args...) }
