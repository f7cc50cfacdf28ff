package policies

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ratelimit-functions/ratelimit/embedded"
	"github.com/ratelimit-functions/ratelimit/functions"
)

// Effect says what a change of a policy does to keys in use.
type Effect struct {
	Keys    string // such as "carry over: after 50 of 100 units, 50 of 100 are left"
	Denied  bool   // calls are denied although the new limit has room for what the key has used
	Refused string // why the library cannot take the new policy, or ""
}

// Effects tries changes of policies on a library, in the offline engine. It makes calls under the
// old limit, and then finds out how many units the new limit leaves and whether it denies calls.
// Each change has the policy before and after. If the policy before has no limits, the policy is
// new and is only checked.
func Effects(library string, changes [][2]functions.Policy) ([]Effect, error) {
	server, err := embedded.Start(embedded.WithLibrary(library+parser), embedded.WithTime(timeOfChanges))
	if err != nil {
		return nil, fmt.Errorf("the library does not load: %w", err)
	}
	defer func() { _ = server.Close() }()
	t := trial{checker: checker{server: server}, known: map[[2]string]Effect{}}
	effects := make([]Effect, len(changes))
	for i, change := range changes {
		effects[i] = t.policy(change[0], change[1])
	}
	return effects, t.failed
}

// timeOfChanges is in the middle of windows of the clock and the calendar.
var timeOfChanges = time.Date(2026, time.May, 14, 11, 33, 27, 500_000_000, time.UTC)

type trial struct {
	checker
	known map[[2]string]Effect // effects by the limits before and after
}

// side holds the limits for a part of a policy's keys.
type side struct {
	limits []string
	shadow bool
}

func sidesOf(p functions.Policy) []side {
	policy := side{shadow: p.Shadow}
	for _, limit := range p.Limits {
		policy.limits = append(policy.limits, limit.Limit)
	}
	if p.Canary == nil {
		return []side{policy}
	}
	return []side{policy, {p.Canary.Limits, p.Canary.Shadow}}
}

// policy returns the effect of a change of a policy. A key can change from any side of the old
// policy to any side of the new one. The result is the effect of the worst change, among those that
// the old policy did not already allow.
func (t *trial) policy(before, after functions.Policy) Effect {
	for _, to := range sidesOf(after) {
		for _, limit := range to.limits {
			if _, err := t.about(limit); err != nil {
				return Effect{Refused: err.Error()}
			}
		}
	}
	if len(before.Limits) == 0 {
		return Effect{}
	}
	var worst Effect
	for _, from := range sidesOf(before) {
		for _, to := range sidesOf(after) {
			if slices.Equal(from.limits, to.limits) {
				continue
			}
			effect := t.limits(from.limits, to, after)
			if worst.Keys == "" || effect.Denied && !worst.Denied {
				worst = effect
			}
		}
	}
	return worst
}

func (t *trial) limits(from []string, to side, policy functions.Policy) Effect {
	var effect Effect
	var texts []string
	for i := range min(len(from), len(to.limits)) {
		if from[i] == to.limits[i] {
			continue
		}
		one := t.change(from[i], to.limits[i])
		if key := policy.Limits[i].Key; key != "" && len(to.limits) > 1 {
			one.Keys = key + " " + one.Keys
		}
		texts = append(texts, one.Keys)
		effect.Denied = effect.Denied || one.Denied && !to.shadow
	}
	effect.Keys = strings.Join(texts, "; ")
	return effect
}

// change returns the effect of a change of one limit.
func (t *trial) change(from, to string) Effect {
	known, found := t.known[[2]string{from, to}]
	if !found {
		known = t.try(from, to)
		t.known[[2]string{from, to}] = known
	}
	return known
}

func (t *trial) try(from, to string) Effect {
	a, err := t.about(from)
	if err != nil {
		return Effect{Keys: "unknown: the library does not take the limit " + from}
	}
	b, err := t.about(to)
	switch {
	case err != nil || b.capacity == 0:
		return Effect{Keys: "denied: the new limit never allows"}
	case a.capacity == 0:
		return Effect{Keys: "start anew"}
	}
	half := max(1, min(a.capacity, b.capacity)/2)
	var longest time.Duration
	denied := false
	var left int64
	for _, used := range []int64{1, half, a.capacity} {
		if a.leases && used > 1 {
			used = half // each lease is a call
		}
		after := t.after(from, to, a, b, used)
		switch {
		case after.err != nil && a.leases != b.leases:
			return Effect{Keys: "refused until they expire, because a key is for leases or for rates", Denied: true}
		case after.err != nil:
			return Effect{Keys: "refused until they expire: " + after.err.Error(), Denied: true}
		}
		longest = max(longest, after.wait)
		denied = denied || used <= half && used < b.capacity && !after.allowed
		if used == half {
			left = after.left
		}
	}
	switch {
	case denied:
		return Effect{Keys: "denied, for up to " + spanText(longest.Milliseconds()), Denied: true}
	case left >= b.capacity:
		return Effect{Keys: "start anew"}
	}
	return Effect{Keys: fmt.Sprintf("carry over: after %s of %d, %d of %d are left", units(half, a.leases), a.capacity, left, b.capacity)}
}

func units(n int64, leases bool) string {
	noun := "unit"
	if leases {
		noun = "lease"
	}
	if n != 1 {
		noun += "s"
	}
	return fmt.Sprintf("%d %s", n, noun)
}

type aboutLimit struct {
	leases   bool
	capacity int64 // the smallest capacity of all rates
}

// about asks the library about a limit.
func (t *trial) about(text string) (aboutLimit, error) {
	parsed, err := t.parse(text)
	switch {
	case err != nil:
		return aboutLimit{}, err
	case len(parsed.rates) > 0:
		return aboutLimit{capacity: parsed.capacity()}, nil
	}
	n, err := strconv.ParseInt(strings.Fields(text)[1], 10, 64) // concurrency n lease=30s
	return aboutLimit{leases: true, capacity: n}, err
}

// tried is the outcome of one call under the new limit.
type tried struct {
	allowed bool
	left    int64 // units left before the call
	wait    time.Duration
	err     error
}

// after returns the reply to one call under the limit to, after some units were used under from.
func (t *trial) after(from, to string, a, b aboutLimit, used int64) tried {
	const key = "k"
	if _, err := t.server.Do("FLUSHALL"); err != nil {
		t.failed = err
		return tried{err: err}
	}
	var err error
	if !a.leases {
		_, err = t.call("FCALL", "ratelimit_take", 1, key, from, "COST", used)
	}
	for i := range used {
		if a.leases && err == nil {
			_, err = t.call("FCALL", "ratelimit_acquire", 1, key, from, fmt.Sprint("lease-", i))
		}
	}
	if err != nil {
		return tried{err: err}
	}
	call := []any{"FCALL_RO", "ratelimit_peek", 1, key, to}
	if b.leases {
		call = []any{"FCALL", "ratelimit_acquire", 1, key, to, "one more"}
	}
	reply, err := t.call(call...)
	if err != nil {
		return tried{err: err}
	}
	n, _ := numbers(reply)
	found := tried{allowed: n[0] == 1}
	if found.allowed {
		found.left = n[2] + 1
	} else {
		found.wait = time.Duration(n[3]) * time.Millisecond
	}
	return found
}
