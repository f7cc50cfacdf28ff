package client

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"golang.org/x/time/rate"

	"github.com/ratelimit-functions/ratelimit/functions"
)

// LocalFallback lets this process decide if no server does, with a share of each limit. share is
// above 0 and at most 1. With the limit "100/m burst=50", LocalFallback(0.1) admits 10 a minute, and
// 5 at once, per process, so ten processes together admit the whole limit. For every algorithm, the
// local limiter is a token bucket (golang.org/x/time/rate), one for each key and rate. It is full
// at first and holds at least one token. A month counts as 31 days, and a year as 366. The local
// limiter ignores blocks, canaries, OnceKey and UsageKey, and allows all calls under shadow
// policies. A limit such as "0/m" allows nothing, as on a server. With Force, units that do not fit
// become debt, at most one burst. Floor and Class keep their percentage of the share free, rounded up. If
// that is all of a small share, but not all of the limit, they keep one unit less, so that the calls are
// not denied until a server is back. As on a server, a Class that the policy does not list is an
// [ErrMisconfigured], also one of which only the servers know; under `classes: any`, a Class keeps nothing.
// With Borrow, or a policy of a guarantee and a pool, only the share of the guarantee is admitted. A call that needs more than the share, but no more than the limit itself, is denied with a RetryAfter
// of at least 1 s, because a server may be back by then.
//
// The client itself parses a limit such as "100/m". It learns the limits of a policy from a server,
// in the background after the first decision on the policy. If the client does not know a limit, the
// call returns the error. So a program that may start while no server is reachable gives its
// policies here. Once a server has reported its policies, they replace the given ones.
// functions.ReadPolicies returns the policies of a build that `ratelimit build -o FILE` wrote, and
// package policies reads policies.yaml:
//
//	//go:embed limits.lua
//	var build string
//	...
//	policies, err := functions.ReadPolicies(build)
//	...
//	limiter, err := client.Open(url, client.WithFallback(client.LocalFallback(0.1, policies...)))
//
// Result.Source is "local".
func LocalFallback(share float64, policies ...functions.Policy) Fallback {
	local := &localLimits{share: share, given: map[Limit][]parsedKey{}}
	for _, policy := range policies {
		keys, err := readPolicy(policy)
		if err != nil {
			local.err = cmp.Or(local.err, fmt.Errorf("BADARGS LocalFallback: policy %q: %w", policy.Name, err))
		}
		local.given["@"+Limit(policy.Name)] = keys
	}
	return Fallback{kind: localFallback, local: local}
}

// localLimits holds the arguments of a LocalFallback.
type localLimits struct {
	share float64
	given map[Limit][]parsedKey // policies
	err   error                 // what is wrong with a policy
}

func (f Fallback) check() error {
	switch {
	case f.kind != localFallback:
		return nil
	case !(f.local.share > 0 && f.local.share <= 1):
		return fmt.Errorf("BADARGS the share %v of LocalFallback is not above 0 and up to 1; give one such as 0.1", f.local.share)
	}
	return f.local.err
}

// bucketKey identifies a bucket. A key has a bucket for each combination of a rate and a share.
type bucketKey struct {
	key   string
	at    int // index among the rates of the key
	rate  parsedRate
	share float64
}

// bucket returns the bucket of a key for a rate. A bucket holds at least one token; otherwise a
// small limit would allow nothing. The bucket of a rate of 0 holds none. f.buckets.mu must be held.
func (f *fallbacks) bucket(at bucketKey) *rate.Limiter {
	if found, ok := f.buckets.entries.Get(at); ok {
		return found
	}
	perSecond := at.share * float64(at.rate.n) / at.rate.period.Seconds()
	const least = 1e-9 // margin, because 0.29 * 100 is 28.999999999999996
	burst := int(max(1, at.share*float64(at.rate.capacity)+least))
	made := rate.NewLimiter(rate.Limit(perSecond), min(burst, int(at.rate.capacity)))
	f.buckets.entries.Add(at, made)
	return made
}

// local decides a request in this process. As on a server, the request charges all of its keys or
// none. why is the reason that no server decided.
func (f *fallbacks) local(req *Request, why error) (Result, error) {
	policies := req.Fallback.local.given
	if len(policies) == 0 && f.preset.kind == localFallback {
		policies = f.preset.local.given
	}
	known, unknown := f.parsed.keys(req.Limits, policies)
	if unknown != "" {
		return Result{}, limitNotKnown(why, unknown)
	}
	if len(known) != len(req.Keys) {
		return Result{}, f.refused(req, fmt.Errorf("BADKEYS %d keys for limits of %d; give one key for each limit", len(req.Keys), len(known)))
	}
	if err := req.optionsKnown(known); err != nil {
		return Result{}, f.refused(req, err)
	}
	f.buckets.mu.Lock()
	defer f.buckets.mu.Unlock()
	now := f.now()
	res := Result{Allowed: true, Source: sourceLocal, Err: why, Index: 1, Remaining: math.MaxInt64}
	each := slices.Repeat([]Result{{Allowed: true, Remaining: math.MaxInt64}}, len(known)) // separate result for each key
	if req.UpTo {
		res.Taken = req.Costs[0]
	}
	type charge struct {
		bucket   *rate.Limiter
		key      int
		capacity int64 // of the whole limit
		kept     int64 // tokens that Floor or Class keeps free
		whole    int64 // units of the whole limit that Floor or Class keeps free
	}
	var charges []charge
	for i, key := range known {
		for at, r := range key.rates {
			if !key.shadow && !key.pool && !(req.Borrow && i > 0) {
				b, percent := f.bucket(bucketKey{req.Keys[i], at, r, req.Fallback.local.share}), req.percent(key)
				free, whole := kept(int64(b.Burst()), percent), kept(r.capacity, percent)
				if whole < r.capacity { // a server can allow the call, so a small share must not keep all
					free = min(free, int64(b.Burst())-1)
				}
				charges = append(charges, charge{b, i, r.capacity, free, whole})
			}
		}
	}
	for _, ch := range charges {
		tokens, least := ch.bucket.TokensAt(now), req.cost(ch.key)
		if req.UpTo {
			least = min(1, req.Costs[0])
			res.Taken = min(res.Taken, max(0, int64(tokens)-ch.kept))
		}
		need := least + ch.kept
		if least == 0 {
			need = 0
		}
		if tokens < float64(need) && !req.Force {
			wait := Never
			switch {
			case need <= int64(ch.bucket.Burst()):
				wait = refill(ch.bucket, float64(need)-tokens)
			case least+ch.whole <= ch.capacity, lends(req, known, least): // more than the share ever holds, but a server can allow it
				wait = retryAfterOutage
			}
			res.deny(ch.bucket, ch.key, wait)
			each[ch.key].deny(ch.bucket, ch.key, wait)
		}
	}
	for _, ch := range charges {
		switch {
		case req.Force:
			force(ch.bucket, now, req.cost(ch.key))
		case res.Allowed && req.UpTo:
			ch.bucket.AllowN(now, int(res.Taken))
		case res.Allowed:
			ch.bucket.AllowN(now, int(req.cost(ch.key)))
		}
		tokens := ch.bucket.TokensAt(now)
		if req.Force && tokens < 1 {
			wait := refill(ch.bucket, 1-tokens)
			res.RetryAfter, each[ch.key].RetryAfter = max(res.RetryAfter, wait), max(each[ch.key].RetryAfter, wait)
		}
		res.include(ch.bucket, ch.key, tokens, ch.kept)
		each[ch.key].include(ch.bucket, ch.key, tokens, ch.kept)
	}
	if len(charges) == 0 { // all keys are under shadow policies
		res.Remaining = 0
	}
	if req.Each {
		res.Each = make([]Result, len(each))
		for i, key := range each {
			if known[i].shadow {
				key.Remaining = 0
			}
			allowed := key.Allowed && !(req.UpTo && req.Costs[0] == 0)
			res.Each[i] = Result{Allowed: allowed, Limit: key.Limit, Remaining: key.Remaining, RetryAfter: key.RetryAfter, ResetAfter: key.ResetAfter}
		}
	}
	if req.UpTo && res.Taken == 0 {
		res.Allowed = false
	}
	return res, nil
}

// lends reports whether req has a guarantee and a pool, and the full pool could lend cost units. A server may then
// allow the call.
func lends(req *Request, known []parsedKey, cost int64) bool {
	for i, key := range known {
		if key.pool || req.Borrow && i > 0 {
			return !slices.ContainsFunc(key.rates, func(r parsedRate) bool { return cost > r.capacity-kept(r.capacity, req.Floor) })
		}
	}
	return false
}

// force takes cost tokens from the bucket, which can go into debt by at most one burst. The rest of
// cost is not charged.
func force(bucket *rate.Limiter, now time.Time, cost int64) {
	burst := bucket.Burst()
	units := min(cost, int64(math.Floor(bucket.TokensAt(now)))+int64(burst))
	for units > 0 {
		n := min(int(units), burst) // the most that one reservation takes
		bucket.ReserveN(now, n)
		units -= int64(n)
	}
}

// deny turns res into a denial by a bucket that can allow the call after the given wait, or Never.
// key is the index of the bucket's key. The first bucket that denies sets Index and Limit, and the
// longest wait sets RetryAfter.
func (res *Result) deny(bucket *rate.Limiter, key int, wait time.Duration) {
	if res.Allowed {
		res.Allowed, res.Taken = false, 0
		res.Index, res.Limit = key+1, int64(bucket.Burst())
	}
	if wait == Never || res.RetryAfter != Never && wait > res.RetryAfter {
		res.RetryAfter = wait
	}
}

// optionsKnown returns an error if a server would refuse the options of r. A guarantee and a pool take none of
// UpTo, Force, Each and Class. For a Class, each limit must be a policy that has it, or takes any.
func (r *Request) optionsKnown(known []parsedKey) error {
	word := ""
	switch {
	case r.UpTo:
		word = "UpTo"
	case r.Force:
		word = "Force"
	case r.Each:
		word = "Each"
	case r.Class != "":
		word = "Class"
	}
	if word != "" && slices.ContainsFunc(known, func(key parsedKey) bool { return key.pool }) {
		return fmt.Errorf("BADARGS %s is set for the policy %q; a guarantee and a pool do not take it", word, r.Limits[0])
	}
	if r.Class == "" {
		return nil
	}
	for _, limit := range r.Limits {
		if !isPolicy(limit) {
			return fmt.Errorf("BADARGS Class is %q and the limit %q; only policies have classes: give a Floor", r.Class, limit)
		}
	}
	for _, key := range known {
		if _, listed := key.classes[r.Class]; key.classes == nil {
			return fmt.Errorf("BADARGS %q: the policy has no classes; give it some, or classes: any", r.Class)
		} else if !listed && len(key.classes) > 0 {
			return fmt.Errorf("BADARGS %q: no such class; the policy has %s", r.Class, strings.Join(slices.Sorted(maps.Keys(key.classes)), ", "))
		}
	}
	return nil
}

// percent returns the percentage that the request keeps free under a limit.
func (r *Request) percent(key parsedKey) int {
	switch {
	case r.Force, r.Borrow:
		return 0
	case r.Floor > 0:
		return r.Floor
	}
	return key.classes[cmp.Or(r.Class, "default")]
}

// kept returns percent of a capacity, rounded up.
func kept(capacity int64, percent int) int64 {
	return capacity/100*int64(percent) + (capacity%100*int64(percent)+99)/100
}

// include adds a bucket to res. tokens is the number of tokens in the bucket after the call, and kept of
// them are kept free. key is the index of the bucket's key.
func (res *Result) include(bucket *rate.Limiter, key int, tokens float64, kept int64) {
	res.ResetAfter = max(res.ResetAfter, refill(bucket, float64(bucket.Burst())-tokens))
	if left := max(0, int64(tokens)-kept); left < res.Remaining {
		res.Remaining = left
		if res.Allowed {
			res.Index, res.Limit = key+1, int64(bucket.Burst())
		}
	}
}

// refill returns how long the bucket takes to gain the given number of tokens, in whole
// milliseconds, rounded up, and at most 292 years.
func refill(bucket *rate.Limiter, tokens float64) time.Duration {
	if tokens == 0 { // avoids 0/0 for a limit of 0
		return 0
	}
	ms := math.Ceil(tokens / float64(bucket.Limit()) * 1000)
	return milliseconds(int64(min(ms, math.MaxInt64/2)))
}

// limitNotKnown adds to err the reason why the client cannot decide on limit locally.
func limitNotKnown(err error, limit Limit) error {
	var e *Error
	if !errors.As(err, &e) {
		return err
	}
	copied := *e
	why := "no server has told yet what it says; give it to LocalFallback"
	if !strings.HasPrefix(string(limit), "@") {
		_, unread := readLimit(string(limit))
		why = "it cannot be read"
		if unread != nil {
			why += ": " + unread.Error()
		}
	}
	copied.sentence += fmt.Sprintf("; and no local limiter stands in for the limit %q: %s", string(limit), why)
	return &copied
}
