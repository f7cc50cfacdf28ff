package main

import (
	"fmt"
	"strconv"
	"strings"
)

// counters holds the fields of one command in INFO commandstats.
type counters struct {
	calls  int64
	usec   int64 // server time over all calls, in microseconds
	failed int64 // calls that failed or were rejected before they ran
}

// commandStats maps a command's name, in lower case, to its counters.
type commandStats map[string]counters

// parseCommandStats parses the entries of INFO commandstats. It ignores unknown fields, because newer
// servers add some.
func parseCommandStats(entries map[string]string) (commandStats, error) {
	stats := commandStats{}
	for entry, text := range entries {
		name := strings.ToLower(strings.TrimPrefix(entry, "cmdstat_"))
		fields := map[string]string{}
		for field := range strings.SplitSeq(text, ",") {
			key, value, _ := strings.Cut(field, "=")
			fields[key] = value
		}
		var wrong error
		number := func(key string) int64 {
			n, err := strconv.ParseInt(fields[key], 10, 64)
			if err != nil && wrong == nil {
				wrong = fmt.Errorf("INFO commandstats: %s of %s is %q, not a whole number", key, name, fields[key])
			}
			return n
		}
		stats[name] = counters{number("calls"), number("usec"), number("rejected_calls") + number("failed_calls")}
		if wrong != nil {
			return nil, wrong
		}
	}
	return stats, nil
}

// cost returns the server time per decision, in microseconds. before and after are the counters
// before and after n decisions. A decision is one call to each of the named commands; the time of a
// script includes the commands that it calls.
//
// If the server did not count exactly n calls to each command, cost returns an error: another
// program uses the server, or a contender sends commands that it does not declare. A failed call is
// also an error, unless refuses is true.
func cost(before, after commandStats, commands []string, n int, refuses bool) (float64, error) {
	if n <= 0 {
		return 0, fmt.Errorf("the cost of %d decisions was asked for, want at least 1", n)
	}
	var usec int64
	for _, name := range commands {
		from, to := before[name], after[name]
		if calls := to.calls - from.calls; calls != int64(n) {
			return 0, fmt.Errorf("the server counted %d calls of %s and %d were sent; is somebody else using it?",
				calls, name, n)
		}
		if failed := to.failed - from.failed; failed != 0 && !refuses {
			return 0, fmt.Errorf("%d of %d calls of %s failed", failed, n, name)
		}
		usec += to.usec - from.usec
	}
	return float64(usec) / float64(n), nil
}
