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
	"github.com/ratelimit-functions/ratelimit/tools/tables"
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

// writeClients writes the tables into README.md in folder, and their plots into the same folder.
func writeClients(folder, text string) error {
	plots, err := clientPlots(text)
	if err != nil {
		return err
	}
	return tables.Write(folder, "README.md", []tables.Table{{Name: clientsTable, Text: text}}, plots)
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
			ratio, digits := r.ratio(scene, clientContenders[i].name, redisRateName), 2
			if ratio < 0.01 {
				digits = 4
			}
			return fmt.Sprintf("%s **%.*f**", figures.Count(median), digits, ratio)
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
	return tables.Markdown(1, columns, rows)
}

// microseconds formats a time in ns as microseconds, with two or three digits.
func microseconds(ns int64) string {
	if us := float64(ns) / 1000; us < 99.5 { // %.2g would format larger numbers as 1e+02
		return fmt.Sprintf("%.2g", us)
	}
	return figures.Count(float64(ns) / 1000)
}
