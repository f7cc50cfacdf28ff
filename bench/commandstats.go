package main

import (
	"fmt"
	"strconv"
	"strings"
)

// counters is the entry of one command in INFO commandstats.
type counters struct {
	calls  int64
	usec   int64 // server time over all calls, in microseconds
	failed int64 // calls that failed or were rejected before they ran
}

// commandStats maps a command's name, in lower case, to its counters.
type commandStats map[string]counters

// parseCommandStats parses the reply to INFO commandstats. It ignores unknown fields, because newer
// servers add some.
func parseCommandStats(text string) (commandStats, error) {
	stats := commandStats{}
	for line := range strings.Lines(text) {
		rest, found := strings.CutPrefix(strings.TrimSpace(line), "cmdstat_")
		if !found {
			continue
		}
		name, fields, found := strings.Cut(rest, ":")
		if !found {
			return nil, fmt.Errorf("INFO commandstats: no ':' in the line %q", line)
		}
		var c counters
		for field := range strings.SplitSeq(fields, ",") {
			key, value, _ := strings.Cut(field, "=")
			switch key {
			case "calls", "usec", "rejected_calls", "failed_calls":
			default:
				continue
			}
			n, err := strconv.ParseInt(value, 10, 64)
			if err != nil {
				return nil, fmt.Errorf("INFO commandstats: %s of %s is %q, not a whole number", key, name, value)
			}
			switch key {
			case "calls":
				c.calls = n
			case "usec":
				c.usec = n
			default:
				c.failed += n
			}
		}
		stats[strings.ToLower(name)] = c
	}
	return stats, nil
}

// cost returns the server time in microseconds per decision, for n decisions between before and
// after. A decision is one call of each of the named commands. cost adds up only these: the time of
// a script already includes the commands that the script calls. It returns an error unless exactly
// n calls of each command were made and none failed; otherwise somebody else uses the server, or a
// contender does not do what it claims. If refuses is true, calls may fail.
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
