package client

import (
	"errors"
	"fmt"
	"math"
	"sync"
	"time"

	lru "github.com/hashicorp/golang-lru/v2/simplelru"
	"golang.org/x/time/rate"
)

// Bounds of what a client keeps for deciding by itself. Of keys beyond the bound the one that was used least recently is
// forgotten, and begins anew with a full share.
const (
	mostReadings = 1000
	mostLocal    = 65536
)

// LocalLimiter lets the process decide by itself, with share of each limit, above 0 and up to 1: LocalLimiter(0.1) of "100/m
// burst=50" admits 10 a minute, and 5 at once, from each process, so ten processes admit together what the limit says.
// Whatever its algorithm, the limit is then a token bucket (golang.org/x/time/rate), one for each key and rate, full at
// first, of one token at least. Blocks, OnceKey and UsageKey are not known to it, and shadow policies always let through.
//
// What a limit says is read by the library on the server, since limits are read nowhere else, and so the client asks for it
// after the first decision on a limit, in the background. A limit that no server has decided on in the life of the client is not known here: then
// the call ends in the error. Result.Source is [SourceLocal].
func LocalLimiter(share float64) Fallback {
	return Fallback{kind: localLimiter, share: share}
}

// check is what is wrong with a fallback.
func (f Fallback) check() error {
	if f.kind == localLimiter && !(f.share > 0 && f.share <= 1) {
		return fmt.Errorf("BADARGS the share %v of LocalLimiter is not above 0 and up to 1; give one such as 0.1", f.share)
	}
	return nil
}

// local decides in the place of a server.
type local struct {
	now      func() time.Time
	mu       sync.Mutex
	readings *lru.LRU[question, *reading]
	buckets  *lru.LRU[bucketKey, *rate.Limiter]
}

// bucketKey tells the buckets apart: of a key, one for each rate and share of it.
type bucketKey struct {
	key   string
	at    int // among the rates of the key
	rate  rateReading
	share float64
}

func newLocal() *local {
	l := &local{now: time.Now}
	l.readings, _ = lru.NewLRU[question, *reading](mostReadings, nil) // fails for a size of 0 only
	l.buckets, _ = lru.NewLRU[bucketKey, *rate.Limiter](mostLocal, nil)
	return l
}

// bucket is that of a key for a rate. It has one token at least, as otherwise a small limit would let nothing through.
func (l *local) bucket(at bucketKey) *rate.Limiter {
	if found, ok := l.buckets.Get(at); ok {
		return found
	}
	perSecond := at.share * float64(at.rate.n) / at.rate.period.Seconds()
	const least = 1e-9 // 0.29 * 100 is 28.999999999999996
	made := rate.NewLimiter(rate.Limit(perSecond), int(max(1, at.share*float64(at.rate.capacity)+least)))
	l.buckets.Add(at, made)
	return made
}

// decideHere decides on a request by this process alone: on all keys, or none, as a server does.
func (c *Client) decideHere(req Request, share float64, why error) (Result, error) {
	l := c.local
	l.mu.Lock()
	defer l.mu.Unlock()
	known, unknown := l.of(req.Limits)
	if unknown != "" {
		return Result{}, notKnownHere(why, unknown)
	}
	if len(known) != len(req.Keys) {
		return Result{}, refused("take", c.keys(req.keys("take")),
			fmt.Errorf("BADKEYS %d keys for limits of %d; give one key for each limit", len(req.Keys), len(known)))
	}
	now := l.now()
	res := Result{Allowed: true, Source: SourceLocal, Err: why, Index: 1, Remaining: math.MaxInt64}
	if req.UpTo {
		res.Taken = req.Costs[0]
	}
	type charge struct {
		bucket *rate.Limiter
		key    int
	}
	var charges []charge
	for i, key := range known {
		for at, r := range key.rates {
			if !key.shadow {
				charges = append(charges, charge{l.bucket(bucketKey{req.Keys[i], at, r, share}), i})
			}
		}
	}
	for _, ch := range charges {
		tokens := ch.bucket.TokensAt(now)
		if req.UpTo {
			res.Taken = min(res.Taken, int64(tokens))
			if tokens < 1 {
				res.deny(ch.bucket, ch.key, 1, tokens)
			}
		} else if cost := req.cost(ch.key); tokens < float64(cost) {
			res.deny(ch.bucket, ch.key, cost, tokens)
		}
	}
	for _, ch := range charges {
		if cost := req.cost(ch.key); res.Allowed && req.UpTo {
			ch.bucket.AllowN(now, int(res.Taken))
		} else if res.Allowed {
			ch.bucket.AllowN(now, int(cost))
		}
		tokens := ch.bucket.TokensAt(now)
		res.ResetAfter = max(res.ResetAfter, refill(ch.bucket, float64(ch.bucket.Burst())-tokens))
		if left := int64(tokens); left < res.Remaining {
			res.Remaining = left
			if res.Allowed {
				res.Index, res.Limit = ch.key+1, int64(ch.bucket.Burst())
			}
		}
	}
	if len(charges) == 0 { // shadow policies alone
		res.Remaining = 0
	}
	if req.UpTo && res.Taken == 0 {
		res.Allowed = false
	}
	return res, nil
}

// deny turns res into a denial by a bucket that has too few tokens; the first says which key it was, the longest how long.
func (res *Result) deny(bucket *rate.Limiter, key int, cost int64, tokens float64) {
	if res.Allowed {
		res.Allowed, res.Taken = false, 0
		res.Index, res.Limit = key+1, int64(bucket.Burst())
	}
	switch {
	case cost > int64(bucket.Burst()):
		res.RetryAfter = Never
	case res.RetryAfter != Never:
		res.RetryAfter = max(res.RetryAfter, refill(bucket, float64(cost)-tokens))
	}
}

// refill returns how long it takes for so many tokens, in whole milliseconds, rounded up, and at most 292 years.
func refill(bucket *rate.Limiter, tokens float64) time.Duration {
	ms := math.Ceil(tokens / float64(bucket.Limit()) * 1000)
	return milliseconds(int64(min(ms, math.MaxInt64/2)))
}

// cost is what the request takes from the key at a place.
func (r Request) cost(key int) int64 {
	switch len(r.Costs) {
	case 0:
		return 1
	case 1:
		return r.Costs[0]
	}
	return r.Costs[key]
}

// notKnownHere is err, with why no local limiter stands in.
func notKnownHere(err error, limit Limit) error {
	var e *Error
	if !errors.As(err, &e) {
		return err
	}
	copied := *e
	copied.sentence += fmt.Sprintf("; and no local limiter stands in, as no server has told yet what the limit %q says", string(limit))
	return &copied
}
