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

// cost returns the server time in microseconds per decision, for n decisions. before and after are
// the counters before and after these decisions. A decision is one call to each of the named
// commands. The time of a script already includes the commands that the script calls. cost returns
// an error unless the server has counted exactly n calls to each command and no failures. Other
// counts mean that another program uses the server, or that a contender sends commands that it does
// not declare. If refuses is true, calls may fail.
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
