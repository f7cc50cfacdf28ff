package cli

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ratelimit-functions/ratelimit/cmd/ratelimit/internal/scan"
	"github.com/ratelimit-functions/ratelimit/cmd/ratelimit/internal/usage"
)

// topColumn is a column of numbers after the key.
type topColumn struct {
	head  string
	spare int // if not all columns fit, the column with the highest spare is dropped first
	cell  func(p pass, r usage.Record) string
}

var topColumns = []topColumn{
	{"ALLOWED", 0, func(_ pass, r usage.Record) string { return grouped(r.Allowed) }},
	{"DENIED", 0, func(_ pass, r usage.Record) string { return grouped(r.Denied) }},
	{"ALLOWED/S", 2, func(p pass, r usage.Record) string { return perSecond(p.rateOf(r).Allowed) }},
	{"DENIED/S", 3, func(p pass, r usage.Record) string { return perSecond(p.rateOf(r).Denied) }},
	{"LAST USE", 1, func(p pass, r usage.Record) string { return ago(p.found.At.Sub(r.Last)) }},
	{"FIRST USE", 4, func(p pass, r usage.Record) string { return ago(p.found.At.Sub(r.First)) }},
}

const (
	shortestKey = 14  // minimum width of the key column; other columns are dropped to keep it
	widestKey   = 200 // maximum width of the key column if stdout is not a terminal; longer keys exceed it
)

// topLines formats a pass as lines that fit into width; 0 means no limit.
func topLines(p pass, l look, width int) []string {
	var lines []string
	if l.width = width; width == 0 {
		l.width = 1 << 20
	}
	lines = append(lines, l.wrap("", topSummary(p.found, p.rate()))...)
	if len(p.records()) == 0 {
		return lines
	}
	columns, total := topCells(p), 0
	for _, c := range columns {
		total += c.width + 2
	}
	for width > 0 && total+shortestKey > width && len(columns) > 1 {
		out := 0
		for i, c := range columns {
			if c.spare >= columns[out].spare {
				out = i
			}
		}
		total -= columns[out].width + 2
		columns = slices.Delete(columns, out, out+1)
	}
	keys := []string{"KEY"}
	for _, r := range p.records() {
		keys = append(keys, visible(r.Key))
	}
	longest := widest(keys)
	if width > 0 {
		longest = max(1, min(longest, width-total))
	} else {
		longest = min(longest, widestKey)
	}
	lines = append(lines, "")
	for n, key := range keys {
		if width > 0 {
			key = truncate(key, longest)
		}
		line := key + strings.Repeat(" ", max(0, longest-textWidth(key)))
		for _, c := range columns {
			line += fmt.Sprintf("  %*s", c.width, c.cells[n])
		}
		if n == 0 {
			line = l.paint(bold, line)
		}
		lines = append(lines, line)
	}
	return lines
}

// topCell is a column with its cells, the header first.
type topCell struct {
	spare, width int
	cells        []string
}

func topCells(p pass) []topCell {
	var columns []topCell
	for _, c := range topColumns {
		cells := []string{c.head}
		for _, r := range p.records() {
			cells = append(cells, c.cell(p, r))
		}
		columns = append(columns, topCell{c.spare, widest(cells), cells})
	}
	return columns
}

func widest(cells []string) int {
	most := 0
	for _, cell := range cells {
		most = max(most, textWidth(cell))
	}
	return most
}

func topSummary(found usage.Snapshot, rate usage.Rate) string {
	var text string
	switch {
	case found.Tracked > 0:
		text = fmt.Sprintf("%s · %s allowed, %s denied · %s/s allowed, %s/s denied", plural(found.Tracked, "key"),
			grouped(found.Sum.Allowed), grouped(found.Sum.Denied), perSecond(rate.Allowed), perSecond(rate.Denied))
	case found.Complete:
		text = "no key counts usage, or none for a day; take with TRACK (take --usage-key), or give a policy track: true"
	default:
		text = "no key that counts usage"
	}
	if !found.Complete && (found.Looked < found.Keys || found.Keys == 0) { // otherwise a server failed, and an error says so
		text += " · of " + looked(found.Progress)
	}
	if found.Refused > 0 {
		text += fmt.Sprintf(" · %s may not be read by this user", plural(found.Refused, "key"))
	}
	return text
}

func looked(p scan.Progress) string {
	if p.Keys == 0 {
		return plural(p.Looked, "key") + " looked at"
	}
	return fmt.Sprintf("%s looked at, %d %%", plural(p.Looked, "key"), 100*p.Looked/p.Keys)
}

func perSecond(rate float64) string {
	switch {
	case rate == 0:
		return "0"
	case rate < 0.01:
		return "<0.01"
	case rate < 9.995:
		return strconv.FormatFloat(rate, 'f', 2, 64)
	case rate < 99.95:
		return strconv.FormatFloat(rate, 'f', 1, 64)
	}
	return grouped(int64(rate + 0.5))
}

func ago(d time.Duration) string {
	switch {
	case d < time.Second:
		return "now"
	case d < time.Minute:
		return fmt.Sprintf("%d s", d/time.Second)
	case d < time.Hour:
		return fmt.Sprintf("%d min", d/time.Minute)
	case d < 48*time.Hour:
		return fmt.Sprintf("%d h", d/time.Hour)
	}
	return fmt.Sprintf("%d d", d/(24*time.Hour))
}
