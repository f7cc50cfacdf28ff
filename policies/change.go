package policies

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ratelimit-functions/ratelimit/embedded"
	"github.com/ratelimit-functions/ratelimit/functions"
	"github.com/ratelimit-functions/ratelimit/internal/span"
)

// Effects returns the effect of each change of a policy on keys in use. It runs the library in the
// offline engine: it makes calls under the old limit, and then checks how many units the new limit
// leaves and whether it denies calls. Each change consists of the old and the new policy. If the
// old policy has no limits, the policy is new, and Effects only checks it.
func Effects(library string, changes [][2]functions.Policy) ([]functions.Effect, error) {
	server, err := embedded.Start(embedded.WithLibrary(library+parser), embedded.WithTime(timeOfChanges))
	if err != nil {
		return nil, fmt.Errorf("the library does not load: %w", err)
	}
	defer func() { _ = server.Close() }()
	t := trial{checker: checker{server: server}, known: map[[2]string]functions.Effect{}}
	effects := make([]functions.Effect, len(changes))
	for i, change := range changes {
		effects[i] = t.policy(change[0], change[1])
	}
	return effects, t.failed
}

// timeOfChanges is near the middle of a second, a minute, an hour, a day, a week and a month.
var timeOfChanges = time.Date(2026, time.May, 14, 11, 33, 27, 500_000_000, time.UTC)

type trial struct {
	checker
	known map[[2]string]functions.Effect // cache of effects, keyed by the limits before and after
}

// side holds the limits of a policy or of its canary.
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

// policy returns the effect of a change of a policy. A change can move a key into a canary or out
// of one, so policy tries every pair of an old and a new side with different limits, and returns
// the worst effect.
func (t *trial) policy(before, after functions.Policy) functions.Effect {
	for _, to := range sidesOf(after) {
		for _, limit := range to.limits {
			if _, err := t.about(limit); err != nil {
				return functions.Effect{Refused: err.Error()}
			}
		}
	}
	if len(before.Limits) == 0 {
		return functions.Effect{}
	}
	var worst functions.Effect
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
	var denied []string
	if lost := lostClasses(before, after); lost != "" {
		denied = append(denied, fmt.Sprintf("calls with %s are refused with BADARGS", lost))
	}
	if had, takes := keysOf(before), keysOf(after); had != takes {
		denied = append(denied, fmt.Sprintf("calls with %s are refused with BADKEYS until they pass %d", counted(int64(had), "key"), takes))
	}
	switch {
	case before.Borrow && !after.Borrow:
		denied = append(denied, "refunds of what a guarantee or its pool paid are refused with BADARGS")
	case after.Borrow && !before.Borrow:
		denied = append(denied, "refunds, and calls with UPTO, FORCE or EACH, are refused with BADARGS")
	}
	if len(denied) > 0 {
		worst.Denied = true
	}
	described := append(denied, leavesMore(before, after)...)
	if worst.Keys != "" {
		described = append(described, worst.Keys)
	}
	worst.Keys = strings.Join(described, "; ")
	return worst
}

// leavesMore describes the calls that must leave a larger part of a limit to others than before. Like a smaller
// limit, it may deny them on keys that have units left, and is what the change is for.
func leavesMore(before, after functions.Policy) (list []string) {
	if after.Shadow {
		return nil
	}
	classes := maps.Clone(before.Classes)
	if before.AnyClass {
		classes = maps.Clone(after.Classes)
	}
	if classes == nil {
		classes = map[string]int{}
	}
	classes["default"] = 0 // calls without a class
	for _, class := range slices.Sorted(maps.Keys(classes)) {
		if left, leaves := before.Classes[class], after.Classes[class]; leaves > left {
			calls := "calls with CLASS " + class
			if class == "default" {
				calls = "calls without CLASS"
			}
			list = append(list, fmt.Sprintf("%s leave %d %% in place of %d %%", calls, leaves, left))
		}
	}
	left, leaves := before.Floor, after.Floor
	if before.Canary != nil {
		left = min(left, before.Canary.Floor)
	}
	if after.Canary != nil {
		leaves = max(leaves, after.Canary.Floor)
	}
	if before.Borrow && after.Borrow && leaves > left {
		list = append(list, fmt.Sprintf("borrowers leave %d %% of the pool in place of %d %%", leaves, left))
	}
	return list
}

// lostClasses describes the classes that calls can no longer name, or returns "". Calls need not name
// the class default, so it is not lost.
func lostClasses(before, after functions.Policy) string {
	switch {
	case after.AnyClass:
		return ""
	case before.AnyClass && len(after.Classes) == 0:
		return "any CLASS"
	case before.AnyClass:
		return "a CLASS other than " + strings.Join(slices.Sorted(maps.Keys(after.Classes)), ", ")
	}
	var lost []string
	for _, class := range slices.Sorted(maps.Keys(before.Classes)) {
		if _, ok := after.Classes[class]; !ok && class != "default" {
			lost = append(lost, class)
		}
	}
	if len(lost) == 0 {
		return ""
	}
	return "CLASS " + strings.Join(lost, ", ")
}

// keysOf returns the number of keys that ratelimit_take needs for a policy.
func keysOf(p functions.Policy) int {
	if p.Track {
		return len(p.Limits) + 1
	}
	return len(p.Limits)
}

func (t *trial) limits(from []string, to side, policy functions.Policy) functions.Effect {
	var effect functions.Effect
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
func (t *trial) change(from, to string) functions.Effect {
	known, found := t.known[[2]string{from, to}]
	if !found {
		known = t.try(from, to)
		t.known[[2]string{from, to}] = known
	}
	return known
}

func (t *trial) try(from, to string) functions.Effect {
	a, err := t.about(from)
	if err != nil {
		return functions.Effect{Keys: "unknown: the library does not take the limit " + from}
	}
	b, err := t.about(to)
	switch {
	case err != nil || b.capacity == 0:
		return functions.Effect{Keys: "denied: the new limit never allows"}
	case a.capacity == 0:
		return functions.Effect{Keys: "start anew"}
	}
	half := max(1, min(a.capacity, b.capacity)/2)
	noun := "unit"
	if a.leases {
		noun = "lease"
	}
	var longest, exhausted time.Duration // exhausted is the wait after all units were used
	denied := false
	var left int64
	for _, used := range []int64{1, half, a.capacity} {
		if a.leases && used > 1 {
			used = half // not a.capacity, because acquiring each lease takes a call
		}
		after := t.callAfter(from, to, a, b, used)
		switch {
		case after.err != nil && a.leases != b.leases:
			return functions.Effect{Keys: "refused until they expire, because a key is for leases or for rates", Denied: true}
		case after.err != nil:
			return functions.Effect{Keys: "refused until they expire: " + after.err.Error(), Denied: true}
		}
		longest, exhausted = max(longest, after.wait), after.wait
		denied = denied || used <= half && used < b.capacity && !after.allowed
		if used == half {
			left = after.left
		}
	}
	switch {
	case denied:
		return functions.Effect{Keys: "denied, for up to " + span.Text(longest), Denied: true}
	case left >= b.capacity:
		return functions.Effect{Keys: "start anew"}
	}
	keys := fmt.Sprintf("carry over: after %s of %d, %d of %d are left", counted(half, noun), a.capacity, left, b.capacity)
	if a.leases || b.capacity < a.capacity {
		return functions.Effect{Keys: keys}
	}
	if before := t.callAfter(from, from, a, a, a.capacity).wait; exhausted > before {
		keys += fmt.Sprintf("; after %d, the wait is up to %s and was %s", a.capacity, span.Text(exhausted), span.Text(before))
	}
	return functions.Effect{Keys: keys}
}

func counted(n int64, noun string) string {
	if n != 1 {
		noun += "s"
	}
	return fmt.Sprintf("%d %s", n, noun)
}

type aboutLimit struct {
	leases   bool
	capacity int64 // the smallest capacity of all rates
}

func (t *trial) about(text string) (aboutLimit, error) {
	parsed, err := t.parse(text)
	switch {
	case err != nil:
		return aboutLimit{}, err
	case len(parsed.rates) > 0:
		return aboutLimit{capacity: parsed.capacity()}, nil
	}
	n, err := strconv.ParseInt(strings.Fields(text)[1], 10, 64) // such as "concurrency 100 lease=30s"
	return aboutLimit{leases: true, capacity: n}, err
}

// tried is the outcome of one call under the new limit.
type tried struct {
	allowed bool
	left    int64 // units left before the call
	wait    time.Duration
	err     error
}

// callAfter takes `used` units under the limit `from`, on an empty server. It then makes one call
// under the limit `to`, and returns the outcome. a describes the limit `from`, and b describes the
// limit `to`.
func (t *trial) callAfter(from, to string, a, b aboutLimit, used int64) tried {
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
