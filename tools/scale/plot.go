package main

import (
	"fmt"

	"github.com/ratelimit-functions/ratelimit/internal/figures"
)

// plotted draws the messages per second for the hot key at 90 % of its limit, as a function of ttl,
// with a line for each n.
func plotted() string {
	ttls := []float64{10_000, 20_000, 50_000, 100_000, 200_000, 500_000, 1_000_000}
	sizes := []int64{10, 100}
	const offered = hotRate * 9 / 10
	messages := make([]float64, len(sizes)*len(ttls))
	concurrently(len(messages), func(i int) {
		h := hotKey{hotProcesses, hotRate, hotBurst, offered, sizes[i/len(ttls)], int64(ttls[i%len(ttls)])}
		messages[i] = float64(h.run().messages)
	})
	var lines []figures.Line
	for i, n := range sizes {
		lines = append(lines, figures.Line{Name: fmt.Sprintf("n = %d", n), Across: ttls, Up: messages[i*len(ttls) : (i+1)*len(ttls)]})
	}
	return figures.Lines{
		Title:  "Messages a second to the shard of a hot key, by ttl and n",
		Above:  []string{"messages a second to the server;", "10,000 processes make 900,000 calls a second on one key"},
		Across: figures.Axis{Label: "ttl of a batch", Marks: []float64{10_000, 100_000, 1_000_000}, Text: func(us float64) string { return seconds(int64(us)) }},
		Up:     figures.Axis{Marks: []float64{10_000, 100_000, 1_000_000}, Text: figures.Count},
		Lines:  lines,
		Bounds: []figures.Bound{{Name: "no batches", Up: offered}, {Name: "one primary\nat half load", Up: oneShard / 2}},
	}.SVG()
}
