package main

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/ratelimit-functions/ratelimit/internal/figures"
	"github.com/ratelimit-functions/ratelimit/tools/tables"
)

const clientsTable = "clients" // the name of the tables' place in README.md

// drawClients draws the plots of the tables that README.md in folder has.
func drawClients(folder string) error {
	page, err := os.ReadFile(filepath.Join(folder, "README.md"))
	if err != nil {
		return err
	}
	text, err := tables.Read(string(page), clientsTable)
	if err != nil {
		return err
	}
	return writeClients(folder, text)
}

// A cell of the tables is `27,800 **1.06**` or, for percentiles, `28 / 100 / 2,720`.
var (
	rateCell    = regexp.MustCompile(`^([\d,.]+) \*\*([\d.]+)\*\*$`)
	latencyCell = regexp.MustCompile(`^[\d,.]+ / ([\d,.]+) / [\d,.]+$`)
)

// clientPlots returns the plots of the tables by file name. They show the decisions per second, on
// the hot key as multiples of redis_rate's, and the 99th percentile of the latency.
func clientPlots(tables string) (map[string]string, error) {
	plots := map[string]string{}
	for _, p := range []struct {
		file, title, says string
		hot               bool
		cell              *regexp.Regexp
		group             int // of cell
		text              func(float64) string
	}{
		{"clients-distinct", "Decisions a second, distinct keys", "decisions a second, distinct keys", false, rateCell, 1, figures.Brief},
		{"clients-hot", "Decisions a second, the hot key", "decisions a second, one hot key, redis_rate = 1", true, rateCell, 2,
			func(ratio float64) string { return fmt.Sprint(ratio) }},
		{"clients-distinct-p99", "Microseconds per call for distinct keys", "p99 of a call, distinct keys", false, latencyCell, 1, microsecondsText},
		{"clients-hot-p99", "Microseconds per call for the hot key", "p99 of a call, one hot key", true, latencyCell, 1, microsecondsText},
	} {
		_, table, _ := strings.Cut(tables, "\n"+p.title)
		_, table, _ = strings.Cut(table, "---:|\n")
		table, _, _ = strings.Cut(table, "\n\n")
		rows := strings.Split(table, "\n")
		var lines []figures.Line
		var goroutines, all []float64
		for _, n := range clientGoroutines {
			goroutines = append(goroutines, float64(n))
		}
		for _, c := range clientContenders {
			if c.hotOnly && !p.hot {
				continue
			}
			line := figures.Line{Name: c.inPlots, Across: goroutines}
			if len(rows) > len(lines) {
				for _, cell := range strings.Split(strings.Trim(rows[len(lines)], "| "), " | ")[1:] {
					if m := p.cell.FindStringSubmatch(cell); m != nil {
						n, _ := strconv.ParseFloat(strings.ReplaceAll(m[p.group], ",", ""), 64)
						line.Up = append(line.Up, max(1e-4, n)) // a logarithmic axis has no 0
					}
				}
			}
			if len(line.Up) != len(goroutines) {
				return nil, fmt.Errorf("the table %q has %d figures of %s, want %d", p.title, len(line.Up), c.name, len(goroutines))
			}
			lines, all = append(lines, line), append(all, line.Up...)
		}
		plots[p.file+".svg"] = figures.Lines{
			Title:  p.says + ", by goroutines",
			Above:  []string{p.says},
			Across: figures.Axis{Label: "goroutines", Marks: goroutines, Text: func(n float64) string { return fmt.Sprint(n) }},
			Up:     figures.Axis{Marks: marksOf(all), Text: p.text},
			Lines:  lines,
		}.SVG()
	}
	return plots, nil
}

func microsecondsText(us float64) string { return (time.Duration(us*1000) * time.Nanosecond).String() }

// marksOf returns the tick marks of a logarithmic axis that covers all values, which must be above 0.
// The marks are 1, 2, 5, 10, 20 and so on, or only powers of ten if the range is wide.
func marksOf(values []float64) []float64 {
	_, least, most := spread(values)
	steps := []float64{1, 2, 5}
	if most/least > 200 {
		steps = steps[:1]
	}
	var marks []float64
	for exponent := min(0, int(math.Floor(math.Log10(least)))); ; exponent++ {
		for _, step := range steps {
			mark := math.Pow10(exponent) * step
			if mark <= least {
				marks = marks[:0]
			}
			if marks = append(marks, mark); mark > least && mark >= most {
				return marks
			}
		}
	}
}
