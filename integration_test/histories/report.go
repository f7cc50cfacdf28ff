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
	Pairs       map[string]map[string]int // calls by fault and verb

	// Impossible holds the histories with impossible replies, and errors that no call may return.
	Impossible []string
	Undecided  int

	// FailedOver counts the histories with a failover. Lossy counts those of them in which replies
	// show that the failover lost changes, LostChanges these changes, and Stale the histories in which
	// a former primary decided calls after the failover.
	FailedOver, Lossy, LostChanges, Stale int

	mu sync.Mutex
}

func newReport() *Report {
	return &Report{Faults: map[string]int{}, Pairs: map[string]map[string]int{}}
}

func (r *Report) ended(most int) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.Impossible) >= most
}

func (r *Report) happened(fault string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.Faults[fault]++
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
	if h.Stale || slices.ContainsFunc(h.Events, func(e *Event) bool { return e.What == TakenOver }) {
		r.FailedOver++
	}
	if v.LostChanges > 0 {
		r.Lossy++
		r.LostChanges += v.LostChanges
	}
	if v.Stale {
		r.Stale++
	}
	switch {
	case v.Undecided:
		r.Undecided++
		r.Impossible = append(r.Impossible, "the search did not end:\n"+h.String())
	case !v.Possible:
		r.Impossible = append(r.Impossible, h.String())
	}
}

// String returns the counts and the coverage.
func (r *Report) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d calls in %d histories, %.1f s; %d with an unknown outcome; %d attempts were not executed; %d impossible, %d undecided\n",
		r.Calls, r.Histories, r.Elapsed.Seconds(), r.Unknown, r.NotExecuted, len(r.Impossible)-r.Undecided, r.Undecided)
	if r.FailedOver > 0 {
		fmt.Fprintf(&b, "lost by asynchronous replication: %d of %d histories with a failover lost %d changes; a former primary decided calls in %d\n",
			r.Lossy, r.FailedOver, r.LostChanges, r.Stale)
	}
	verbs := map[string]bool{}
	for _, counts := range r.Pairs {
		for verb := range counts {
			verbs[verb] = true
		}
	}
	columns := slices.Sorted(maps.Keys(verbs))
	fmt.Fprintf(&b, "%-28s %6s", "calls during", "faults")
	for _, verb := range columns {
		fmt.Fprintf(&b, " %8s", strings.TrimSuffix(strings.Replace(verb, "override_end", "end_over", 1), "ride"))
	}
	b.WriteString("\n")
	for _, fault := range slices.Sorted(maps.Keys(r.Pairs)) {
		fmt.Fprintf(&b, "%-28s %6d", fault, r.Faults[fault])
		for _, verb := range columns {
			fmt.Fprintf(&b, " %8d", r.Pairs[fault][verb])
		}
		b.WriteString("\n")
	}
	return b.String()
}
