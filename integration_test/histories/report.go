package histories

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/ratelimit-functions/ratelimit/client"
	"github.com/ratelimit-functions/ratelimit/lua_test/model"
)

// Report is the result of a run. Do not read it before the run has ended.
type Report struct {
	Elapsed     time.Duration
	Calls       int // with a reply or an unknown outcome
	Unknown     int // of these, without a known outcome
	NotExecuted int // attempts that the client says were not executed
	Histories   int
	Faults      map[string]int
	Durations   map[string]time.Duration  // of all faults of a kind
	Pairs       map[string]map[string]int // calls by fault and verb

	// Impossible holds the histories with impossible replies, and errors that no call may return.
	Impossible []string

	// Undecided holds the histories for which the search took too many steps.
	Undecided []string
	// Steps is the largest number of steps of a search.
	Steps int

	// Restarts counts, for each fault, the allowed takes and acquires before a restart that lost keys:
	// what they have taken may not be there afterwards.
	Restarts map[string]int
	// Failovers holds, for each fault, what replies show about unplanned failovers.
	Failovers map[string]Failovers

	mu sync.Mutex
}

// Failovers counts the histories with a failover: all of them, those in which it lost changes, these
// changes, and the histories in which the former primary decided calls afterwards. Lost changes are
// the last ones of the keys before the failover: asynchronous replication loses these, as
// docs/operating.md says.
type Failovers struct{ Histories, Lossy, Changes, Stale int }

func newReport() *Report {
	return &Report{Faults: map[string]int{}, Durations: map[string]time.Duration{}, Pairs: map[string]map[string]int{}, Failovers: map[string]Failovers{}, Restarts: map[string]int{}}
}

func (r *Report) ended(most int) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.Impossible) >= most
}

func (r *Report) happened(fault string, took time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.Faults[fault]++
	r.Durations[fault] += took
}

// noFault names calls outside of faults in the coverage.
const noFault = "none"

// call counts a call. before and after are the faults in progress at its begin and its end.
func (r *Report) call(c model.Call, s sent, before, after *string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !s.executed && !s.unknown {
		r.NotExecuted++
		if !errors.Is(s.err, client.ErrUnavailable) && !errors.Is(s.err, client.ErrNotDeployed) {
			r.Impossible = append(r.Impossible, fmt.Sprintf("a call may not return this error: %v", s.err))
		}
		return
	}
	r.Calls++
	if s.unknown {
		r.Unknown++
		if !errors.Is(s.err, client.ErrUnavailable) {
			r.Impossible = append(r.Impossible, fmt.Sprintf("a call may not return this error: %v", s.err))
		}
	}
	faults := []string{noFault}
	if before != nil {
		faults = []string{*before}
	}
	if after != nil && *after != faults[0] {
		faults = append(faults, *after)
	}
	for _, fault := range faults {
		if r.Pairs[fault] == nil {
			r.Pairs[fault] = map[string]int{}
		}
		r.Pairs[fault][c.Verb]++
	}
}

func (r *Report) add(h *History, v Verdict) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.Histories++
	r.Steps = max(r.Steps, v.Steps)
	if i := slices.IndexFunc(h.Events, (*Event).unplanned); i >= 0 {
		all := r.Failovers[h.Events[i].Cause]
		all.Histories++
		all.Changes += v.LostChanges
		if v.LostChanges > 0 {
			all.Lossy++
		}
		if v.Stale {
			all.Stale++
		}
		r.Failovers[h.Events[i].Cause] = all
	}
	for _, e := range h.Events {
		if e.What != Lost && e.What != Restored {
			continue
		}
		for _, op := range h.Ops {
			takes := op.Call.Verb == model.Take || op.Call.Verb == model.Acquire
			if takes && op.Fate == Replied && op.To < e.From && strings.HasPrefix(op.Reply, "[") && !strings.HasPrefix(op.Reply, "[0") {
				r.Restarts[e.Cause]++
			}
		}
	}
	switch {
	case v.Undecided:
		r.Undecided = append(r.Undecided, h.String())
	case !v.Possible:
		r.Impossible = append(r.Impossible, h.String())
	}
}

// String returns the counts and the coverage.
func (r *Report) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d calls in %d histories, %.1f s; %d with an unknown outcome; %d attempts were not executed; %d impossible, %d undecided, at most %d steps of a search\n",
		r.Calls, r.Histories, r.Elapsed.Seconds(), r.Unknown, r.NotExecuted, len(r.Impossible), len(r.Undecided), r.Steps)
	for _, fault := range slices.Sorted(maps.Keys(r.Restarts)) {
		fmt.Fprintf(&b, "lost by a restart, %s: what %d allowed calls had taken, or a part of it\n", fault, r.Restarts[fault])
	}
	for _, fault := range slices.Sorted(maps.Keys(r.Failovers)) {
		all := r.Failovers[fault]
		fmt.Fprintf(&b, "lost by asynchronous replication, %s: %d changes, in %d of %d histories; the former primary decided calls in %d\n",
			fault, all.Changes, all.Lossy, all.Histories, all.Stale)
	}
	verbs := map[string]bool{}
	for _, counts := range r.Pairs {
		for verb := range counts {
			verbs[verb] = true
		}
	}
	columns := slices.Sorted(maps.Keys(verbs))
	fmt.Fprintf(&b, "%-26s %6s %6s", "calls during", "faults", "s")
	for _, verb := range columns {
		fmt.Fprintf(&b, " %8s", strings.TrimSuffix(strings.Replace(verb, "override_end", "end_over", 1), "ride"))
	}
	b.WriteString("\n")
	for _, fault := range slices.Sorted(maps.Keys(r.Pairs)) {
		fmt.Fprintf(&b, "%-26s %6d %6.1f", fault, r.Faults[fault], r.Durations[fault].Seconds())
		for _, verb := range columns {
			fmt.Fprintf(&b, " %8d", r.Pairs[fault][verb])
		}
		b.WriteString("\n")
	}
	return b.String()
}
