package holds

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
)

// Store has the commands that are not calls to the library. Each method is one round trip.
type Store interface {
	// Add stores a record for life, and its end.
	Add(ctx context.Context, id string, record []byte, end time.Time, life time.Duration) error
	// Record returns the record of an id, which is empty if there is none.
	Record(ctx context.Context, id string) ([]byte, error)
	// Decide stores a decision for life, unless there is one, and sets the end to now. It returns the
	// decision that is stored.
	Decide(ctx context.Context, id, decision string, now time.Time, life time.Duration) (string, error)
	// Finish stores that a decision was carried out. It reports whether this is news.
	Finish(ctx context.Context, id, decision string) (bool, error)
	// Drop deletes a record and its end.
	Drop(ctx context.Context, id string) error
	// Ended returns at most n ids of a shard whose end is not after now, the earliest first.
	Ended(ctx context.Context, shard string, now time.Time, n int64) ([]string, error)
	// Postpone moves the end of an id.
	Postpone(ctx context.Context, id string, end time.Time) error
	// Wait moves the end of an id, and keeps the record for life from now on.
	Wait(ctx context.Context, id string, end time.Time, life time.Duration) error
	// Expire makes keys expire after a time, in place of when they would have.
	Expire(ctx context.Context, life time.Duration, keys ...string) error
	// Now returns a server's time.
	Now(ctx context.Context) (time.Time, error)
}

// shards holds the first characters of ids.
const shards = "abcdefghijklmnop"

const (
	kept       = 24 * time.Hour   // how long a record stays after its end
	longer     = time.Hour        // how much longer decisions and replies of ONCE stay
	repeatable = 10 * time.Minute // how long a decision that was carried out can be repeated
	replies    = time.Minute      // how long the replies of ONCE stay after that; only delayed attempts need them
)

// Redis is the Store on a Redis server or a cluster.
type Redis struct{ DB redis.UniversalClient }

func recordKey(id string) string   { return "ratelimit:{holds:" + id[:1] + "}:" + id }
func decisionKey(id string) string { return recordKey(id) + ":end" }
func endsKey(shard string) string  { return "ratelimit:{holds:" + shard + "}:ends" }

// score returns t as a score, rounded up so that no reservation ends early.
func score(t time.Time) float64 { return float64(t.Add(time.Millisecond - 1).UnixMilli()) }

// Add is a method of [Store]. The shard's sorted set expires when all of its records have.
func (r Redis) Add(ctx context.Context, id string, record []byte, end time.Time, life time.Duration) error {
	_, err := r.DB.Pipelined(ctx, func(p redis.Pipeliner) error {
		p.Set(ctx, recordKey(id), record, life)
		p.ZAdd(ctx, endsKey(id[:1]), redis.Z{Score: score(end), Member: id})
		p.PExpire(ctx, endsKey(id[:1]), LongestTTL+kept+longer)
		return nil
	})
	return err
}

func (r Redis) Record(ctx context.Context, id string) ([]byte, error) {
	return r.DB.GetRange(ctx, recordKey(id), 0, -1).Bytes() // not GET, which the library does not call, so users may lack the right
}

func (r Redis) Decide(ctx context.Context, id, decision string, now time.Time, life time.Duration) (string, error) {
	var first *redis.StatusCmd
	_, err := r.DB.Pipelined(ctx, func(p redis.Pipeliner) error {
		first = p.SetArgs(ctx, decisionKey(id), decision, redis.SetArgs{Mode: "NX", Get: true, TTL: life})
		p.ZAddXX(ctx, endsKey(id[:1]), redis.Z{Score: score(now), Member: id})
		return nil
	})
	switch text, failed := first.Result(); {
	case errors.Is(failed, redis.Nil):
		return decision, nil
	case failed != nil:
		return "", failed
	default:
		_ = err // the end is moved only so that another gateway need not wait for it
		return text, nil
	}
}

func (r Redis) Finish(ctx context.Context, id, decision string) (bool, error) {
	var removed *redis.IntCmd
	_, err := r.DB.Pipelined(ctx, func(p redis.Pipeliner) error {
		p.PExpire(ctx, recordKey(id), repeatable)
		p.Set(ctx, decisionKey(id), decision, 2*repeatable)
		removed = p.ZRem(ctx, endsKey(id[:1]), id)
		return nil
	})
	return removed.Val() > 0, err
}

func (r Redis) Drop(ctx context.Context, id string) error {
	_, err := r.DB.Pipelined(ctx, func(p redis.Pipeliner) error {
		p.ZRem(ctx, endsKey(id[:1]), id)
		p.Del(ctx, recordKey(id))
		return nil
	})
	return err
}

func (r Redis) Ended(ctx context.Context, shard string, now time.Time, n int64) ([]string, error) {
	return r.DB.ZRangeArgs(ctx, redis.ZRangeArgs{Key: endsKey(shard), Start: "-inf", Stop: fmt.Sprint(now.UnixMilli()), ByScore: true, Count: n}).Result()
}

func (r Redis) Postpone(ctx context.Context, id string, end time.Time) error {
	return r.DB.ZAddXX(ctx, endsKey(id[:1]), redis.Z{Score: score(end), Member: id}).Err()
}

func (r Redis) Wait(ctx context.Context, id string, end time.Time, life time.Duration) error {
	_, err := r.DB.Pipelined(ctx, func(p redis.Pipeliner) error {
		p.PExpire(ctx, recordKey(id), life)
		p.ZAddXX(ctx, endsKey(id[:1]), redis.Z{Score: score(end), Member: id})
		p.PExpire(ctx, endsKey(id[:1]), LongestTTL+kept+longer)
		return nil
	})
	return err
}

func (r Redis) Expire(ctx context.Context, life time.Duration, keys ...string) error {
	_, err := r.DB.Pipelined(ctx, func(p redis.Pipeliner) error {
		for _, key := range keys {
			p.PExpire(ctx, key, life)
		}
		return nil
	})
	return err
}

func (r Redis) Now(ctx context.Context) (time.Time, error) { return r.DB.Time(ctx).Result() }
