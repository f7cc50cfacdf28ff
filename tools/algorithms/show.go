package main

import (
	"fmt"
	"strings"

	"github.com/ratelimit-functions/ratelimit/internal/figures"
	"github.com/ratelimit-functions/ratelimit/tools/tables"
)

// tableOf returns the table of docs/algorithms.md, with a row for each algorithm.
func tableOf(results [][]outcome) string {
	columns := []string{"limit"}
	for _, t := range traffics {
		columns = append(columns, fmt.Sprintf("%s, of %d", t.name, len(t.calls)))
	}
	columns = append(columns, "most in a minute", "longest pause", "longest wait", "bytes")
	var rows [][]string
	for j, limit := range algorithms {
		cells := []string{"`" + limit + "`"}
		var most, bytes int
		var wait, pause int64
		for i, t := range traffics {
			o := results[i][j]
			cells = append(cells, fmt.Sprint(len(o.ahead)))
			most, bytes, wait = max(most, o.most()), max(bytes, o.bytes), max(wait, o.wait)
			if t.name == overload {
				pause = o.pause()
			}
		}
		rows = append(rows, append(cells, fmt.Sprint(most), seconds(pause), seconds(wait), fmt.Sprint(bytes)))
	}
	return tables.Markdown(1, columns, rows)
}

func seconds(ms int64) string { return fmt.Sprintf("%.1f s", float64(ms)/1000) }

const (
	left, right = 74, 470
	rowHeight   = 102
	areaTop     = 42 // distance from the top of the row
	areaHeight  = 36
	full        = 2 * n // number of calls at the full height of an area
)

// picture draws the results of all algorithms for one traffic pattern, one above another, over a
// common time axis.
func picture(t traffic, outcomes []outcome) string {
	p := figures.NewPicture("Calls that proceeded and calls that were denied, by algorithm: " + t.says)
	p.Text(8, 22, "bold", t.says)
	key(p, 8, 44, 12, "fc0 pale", "calls that proceeded in the last 60 s")
	key(p, 8, 66, 5, "fc2", "calls proceeded")
	key(p, 200, 66, 5, "fc1", "calls were denied")
	const first = 84
	bottom := float64(first + rowHeight*len(algorithms))
	for at := int64(0); at <= length; at += minute / 2 {
		p.Text(min(across(at), right-14), bottom+18, "middle", fmt.Sprintf("%d s", at/second))
	}
	for j, o := range outcomes {
		row(p, float64(first+rowHeight*j), algorithms[j], len(t.calls), o)
	}
	return p.String()
}

// key draws an entry in the legend.
func key(p *figures.Picture, x, y, height float64, class, text string) {
	p.Path(y, class, fmt.Sprintf("M%.1f %.1fh14v%.1fh-14z", x, y-5-height/2, height))
	p.Text(x+22, y, "", text)
}

func row(p *figures.Picture, y float64, limit string, calls int, o outcome) {
	base := y + areaTop + areaHeight
	p.Path(base, "grid", fmt.Sprintf("M%d %.1fH%d", left, base, right))
	for at := int64(0); at <= length; at += minute {
		p.Path(base, "grid", fmt.Sprintf("M%.1f %.1fv%d", across(at), base-areaHeight, areaHeight))
	}
	p.Path(base, "c0 fc0 thin pale", area(o, base))
	p.Path(base, "bound", fmt.Sprintf("M%d %.1fH%d", left, base-areaHeight*n/full, right))
	p.Text(left-6, base-areaHeight*n/full+5, "right", fmt.Sprintf("limit %d", n))
	p.Path(base, "fc2", marks(o.ahead, base+3))
	p.Path(base, "fc1", marks(o.denied, base+10))
	p.Text(8, y+14, "bold", limit)
	p.Text(8, y+33, "", fmt.Sprintf("%d of %d allowed; most in 60 s: %d", len(o.ahead), calls, o.most()))
}

func across(at int64) float64 { return left + float64(right-left)*float64(at)/float64(length) }

// area returns the path of a curve. For each pixel, the curve shows the maximum number of calls
// within a minute.
func area(o outcome, base float64) string {
	most := make([]int, right-left+1)
	pixel := func(at int64) int64 { return at * (right - left) / length }
	for x := range most {
		most[x] = o.within(length * int64(x) / (right - left))
	}
	for _, at := range o.ahead {
		if at < length {
			most[pixel(at)] = max(most[pixel(at)], o.within(at))
		}
	}
	d, before := fmt.Sprintf("M%d %.0f", left, base), 0
	for x, now := range most {
		if now != before {
			d += fmt.Sprintf("H%dV%.1f", left+x, base-areaHeight*float64(now)/full)
			before = now
		}
	}
	return d + fmt.Sprintf("H%dV%.0fz", right, base)
}

// marks returns a path with a mark for each second that has calls. Adjacent marks are joined.
func marks(calls []int64, y float64) string {
	var d strings.Builder
	end := int64(-1)
	var begin int64
	draw := func() {
		if end > begin {
			fmt.Fprintf(&d, "M%.1f %.1fH%.1fv5H%.1fz", across(begin*second), y, across(end*second), across(begin*second))
		}
	}
	for _, at := range calls {
		if at >= length {
			break
		}
		if s := at / second; s > end || end < 0 {
			draw()
			begin, end = s, s+1
		} else if s == end {
			end++
		}
	}
	draw()
	return d.String()
}
