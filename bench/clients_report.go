package main

import (
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/ratelimit-functions/ratelimit/functions"
	"github.com/ratelimit-functions/ratelimit/internal/figures"
)

type clientsReport struct {
	server  string
	began   time.Time
	took    time.Duration
	load    string
	rounds  int
	turn    time.Duration
	figures map[clientScene][]*clientFigures // in the order of clientContenders; a contender that does not take part has no rates
}

// clientAims lists the aims of this project's client. Each aim is a minimum ratio of two
// contenders' decisions per second.
var clientAims = []struct {
	says      string
	hot       bool
	at        int // number of goroutines
	ours, its string
	least     float64
}{
	// With one goroutine, the time of a call is the reciprocal of the decisions per second.
	{"one goroutine, distinct keys: a call takes at most 1.05 times a bare FCall", false, 1, oursName, bareName, 1 / 1.05},
	{"one goroutine: at least 0.98 times as many decisions as each call by itself", false, 1, oursName, aloneName, 0.98},
	{"8 goroutines: at least 0.98 times as many decisions as each call by itself", false, 8, oursName, aloneName, 0.98},
	{"16 goroutines: at least 0.98 times as many decisions as each call by itself", false, 16, oursName, aloneName, 0.98},
	{"64 goroutines, distinct keys: at least twice redis_rate", false, 64, oursName, redisRateName, 2},
	{"64 goroutines, distinct keys: at least 1.5 times ulule/limiter", false, 64, oursName, ululeName, 1.5},
	{"512 goroutines, distinct keys: at least twice redis_rate", false, 512, oursName, redisRateName, 2},
	{"512 goroutines, distinct keys: at least 1.5 times ulule/limiter", false, 512, oursName, ululeName, 1.5},
	{"64 goroutines, the hot key, batches: at least 50 times redis_rate", true, 64, batchesName, redisRateName, 50},
}

// loadAverage returns the machine's load average over the last minute, if known.
func loadAverage() string {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "not known"
	}
	load, _, _ := strings.Cut(string(text), " ")
	return load
}

// write writes the tables into README.md in folder, and the plots into the same folder.
func (r clientsReport) write(folder string) error {
	return figures.Write(folder, "README.md", []figures.Table{{Name: "clients", Text: r.markdown()}}, r.plots())
}

// ratio returns the median, over all rounds, of one contender's decisions per second divided by the
// other's.
func (r clientsReport) ratio(scene clientScene, one, other string) float64 {
	rates := func(name string) []float64 {
		i := slices.IndexFunc(clientContenders, func(c clientContender) bool { return c.name == name })
		return r.figures[scene][i].rates
	}
	a, b := rates(one), rates(other)
	ratios := make([]float64, len(a))
	for i := range a {
		ratios[i] = a[i] / b[i]
	}
	median, _, _ := spread(ratios)
	return median
}

func (r clientsReport) markdown() string {
	var out strings.Builder
	fmt.Fprintf(&out, "%s; build %s, %s, %s/%s, %d CPUs shared by the clients and the server, load %s before; %d rounds of %v each, %.0f s in all.\n",
		r.began.Format("2006-01-02 15:04 UTC"), functions.BuildID(), r.server, runtime.GOOS, runtime.GOARCH, runtime.NumCPU(), r.load,
		r.rounds, r.turn, r.took.Seconds())
	for _, hot := range []bool{false, true} {
		keys := clientScene{hot: hot}.keys()
		fmt.Fprintf(&out, "\nDecisions a second, %s. Bold numbers are multiples of redis_rate's:\n\n", keys)
		out.WriteString(r.table(hot, func(scene clientScene, i int) string {
			median, _, _ := spread(r.figures[scene][i].rates)
			return fmt.Sprintf("%s **%.2f**", figures.Count(median), r.ratio(scene, clientContenders[i].name, redisRateName))
		}))
		fmt.Fprintf(&out, "\nMicroseconds per call for %s (p50 / p99 / p99.9):\n\n", keys)
		out.WriteString(r.table(hot, func(scene clientScene, i int) string {
			var cells []string
			for _, q := range []float64{50, 99, 99.9} {
				cells = append(cells, microseconds(r.figures[scene][i].latency.ValueAtQuantile(q)))
			}
			return strings.Join(cells, " / ")
		}))
	}
	fmt.Fprintf(&out, "\n| aim | measured | |\n|---|---:|---|\n")
	for _, aim := range clientAims {
		got := r.ratio(clientScene{aim.hot, aim.at}, aim.ours, aim.its)
		met, shown := "met", got
		if got < aim.least {
			met = "missed"
		}
		if aim.its == bareName {
			shown = 1 / got
		}
		fmt.Fprintf(&out, "| %s | %.2f | %s |\n", aim.says, shown, met)
	}
	for i, c := range clientContenders {
		var parts []string
		for _, scene := range clientScenes() {
			if f := r.figures[scene][i]; f.undecided > 0 {
				parts = append(parts, fmt.Sprintf("%.1f %% at %s", 100*float64(f.undecided)/float64(f.calls), scene))
			}
		}
		if parts != nil {
			fmt.Fprintf(&out, "\n%s gives up on some calls without a decision. The figures exclude these calls: %s.\n", c.name, strings.Join(parts, ", "))
		}
	}
	return out.String()
}

func (s clientScene) keys() string {
	if s.hot {
		return "the hot key"
	}
	return "distinct keys"
}

func (s clientScene) String() string {
	return fmt.Sprintf("%d goroutines on %s", s.goroutines, s.keys())
}

// table returns a table with a row per contender that takes part, and a column per number of
// goroutines. cell returns the text of one cell. Its second argument is the contender's index in
// clientContenders.
func (r clientsReport) table(hot bool, cell func(clientScene, int) string) string {
	columns := []string{"goroutines"}
	for _, n := range clientGoroutines {
		columns = append(columns, fmt.Sprint(n))
	}
	var rows [][]string
	for i, c := range clientContenders {
		if c.hotOnly && !hot {
			continue
		}
		cells := []string{c.name}
		for _, n := range clientGoroutines {
			cells = append(cells, cell(clientScene{hot, n}, i))
		}
		rows = append(rows, cells)
	}
	return figures.Markdown(1, columns, rows)
}

// microseconds formats a time in ns as microseconds, with two or three digits.
func microseconds(ns int64) string {
	if us := float64(ns) / 1000; us < 99.5 { // %.2g would format larger numbers as 1e+02
		return fmt.Sprintf("%.2g", us)
	}
	return figures.Count(float64(ns) / 1000)
}

// plots returns the plots by file name. They show the decisions per second and the 99th percentile
// of the latency.
func (r clientsReport) plots() map[string]string {
	plots := map[string]string{}
	for _, hot := range []bool{false, true} {
		file, keys := "clients-distinct", "distinct keys"
		if hot {
			file, keys = "clients-hot", "one hot key"
		}
		plots[file+".svg"] = r.plot(hot, "decisions a second, "+keys, figures.Brief, func(f *clientFigures) float64 {
			median, _, _ := spread(f.rates)
			return median
		})
		plots[file+"-p99.svg"] = r.plot(hot, "p99 of a call, "+keys, func(ns float64) string {
			return time.Duration(ns).String()
		}, func(f *clientFigures) float64 { return float64(f.latency.ValueAtQuantile(99)) })
	}
	return plots
}

// plot draws a line for each contender that takes part, with a value for each number of goroutines.
func (r clientsReport) plot(hot bool, says string, text func(float64) string, value func(*clientFigures) float64) string {
	var goroutines, all []float64
	for _, n := range clientGoroutines {
		goroutines = append(goroutines, float64(n))
	}
	var lines []figures.Line
	for i, c := range clientContenders {
		if c.hotOnly && !hot {
			continue
		}
		line := figures.Line{Name: c.inPlots, Across: goroutines}
		for _, n := range clientGoroutines {
			line.Up = append(line.Up, max(1, value(r.figures[clientScene{hot, n}][i]))) // a logarithmic axis has no 0
		}
		lines, all = append(lines, line), append(all, line.Up...)
	}
	return figures.Lines{
		Title:  says + ", by goroutines",
		Above:  []string{says},
		Across: figures.Axis{Label: "goroutines", Marks: goroutines, Text: func(n float64) string { return fmt.Sprint(n) }},
		Up:     figures.Axis{Marks: marksOf(all), Text: text},
		Lines:  lines,
	}.SVG()
}

// marksOf returns the tick marks of a logarithmic axis that covers all values, which must be at
// least 1. The marks are 1, 2, 5, 10, 20 and so on, or only powers of ten if the range is wide.
func marksOf(values []float64) []float64 {
	_, least, most := spread(values)
	steps := []float64{1, 2, 5}
	if most/least > 200 {
		steps = steps[:1]
	}
	var marks []float64
	for ten := 1.0; ; ten *= 10 {
		for _, step := range steps {
			mark := ten * step
			if mark <= least {
				marks = marks[:0]
			}
			if marks = append(marks, mark); mark > least && mark >= most {
				return marks
			}
		}
	}
}
