package main

import (
	"fmt"
	"math"
	"strings"
)

// The plot is written here rather than by a library: it is one picture of two lines, and has to follow the reader's choice of
// light or dark, which gonum/plot, the best kept of them, cannot (its colours are attributes of each element, not classes).

const (
	plotWidth, plotHeight = 720, 400
	plotLeft, plotRight   = 90, 590
	plotTop, plotBottom   = 50, 340
)

// across and up are the ends of the axes, which are logarithmic: ttl in µs, messages a second.
var (
	across = [2]float64{10_000, 1_000_000}
	up     = [2]float64{10_000, 1_000_000}
)

// place is where between two ends on the page a value between two others is.
func place(value float64, of [2]float64, from, to float64) float64 {
	return from + (to-from)*math.Log(value/of[0])/math.Log(of[1]/of[0])
}

func plotX(ttl int64) float64        { return place(float64(ttl), across, plotLeft, plotRight) }
func plotY(messages float64) float64 { return place(messages, up, plotBottom, plotTop) }
func label(x, y float64, anchor, text string) string {
	return fmt.Sprintf("<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\">%s</text>\n", x, y, anchor, text)
}

// plotted is a picture of the messages a second on the hot key at 90 % of its limit, by ttl, for each n.
func plotted(decide maker) string {
	ttls := []int64{10_000, 20_000, 50_000, 100_000, 200_000, 500_000, 1_000_000}
	sizes := []int64{10, 100}
	const offered = hotRate * 9 / 10
	messages := make([]float64, len(sizes)*len(ttls))
	inTurns(len(messages), func(i int) {
		h := hotKey{hotProcesses, hotRate, hotBurst, offered, sizes[i/len(ttls)], ttls[i%len(ttls)]}
		messages[i] = float64(h.run(decide).messages)
	})
	var out strings.Builder
	fmt.Fprintf(&out, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" role="img" aria-labelledby="title">
<title id="title">Messages a second to the shard of a hot key, by ttl and n</title>
<style>
svg { background: #ffffff; font: 14px sans-serif }
text { fill: #24292f }
path { fill: none; stroke-width: 2.5 }
.grid { stroke: #d0d7de; stroke-width: 1 }
.none { stroke: #6e7781; stroke-dasharray: 6 4 }
.n10 { stroke: #0969da } .n100 { stroke: #bc4c00 }
circle.n10 { fill: #0969da } circle.n100 { fill: #bc4c00 }
@media (prefers-color-scheme: dark) {
svg { background: #0d1117 }
text { fill: #e6edf3 }
.grid { stroke: #30363d }
.none { stroke: #8b949e }
.n10 { stroke: #58a6ff } .n100 { stroke: #f0883e }
circle.n10 { fill: #58a6ff } circle.n100 { fill: #f0883e }
}
</style>
`, plotWidth, plotHeight)
	out.WriteString(label(10, 24, "start", "messages a second to the server; 10,000 processes make 900,000 calls a second on one key"))
	for _, y := range []float64{10_000, 100_000, 1_000_000} {
		fmt.Fprintf(&out, "<path class=\"grid\" d=\"M%d %.1fH%d\"/>\n", plotLeft, plotY(y), plotRight)
		out.WriteString(label(plotLeft-8, plotY(y)+5, "end", count(y)))
	}
	for _, ttl := range []int64{10_000, 100_000, 1_000_000} {
		fmt.Fprintf(&out, "<path class=\"grid\" d=\"M%.1f %dV%d\"/>\n", plotX(ttl), plotTop, plotBottom)
		out.WriteString(label(plotX(ttl), plotBottom+22, "middle", seconds(ttl)))
	}
	out.WriteString(label((plotLeft+plotRight)/2, plotBottom+46, "middle", "ttl of a batch"))
	fmt.Fprintf(&out, "<path class=\"none\" d=\"M%d %.1fH%d\"/>\n", plotLeft, plotY(offered), plotRight)
	out.WriteString(label(plotRight+10, plotY(offered)+5, "start", "no batches"))
	for i, n := range sizes {
		line := "M"
		for j, ttl := range ttls {
			x, y := plotX(ttl), plotY(messages[i*len(ttls)+j])
			line += fmt.Sprintf(" %.1f %.1f", x, y)
			fmt.Fprintf(&out, "<circle class=\"n%d\" cx=\"%.1f\" cy=\"%.1f\" r=\"4\"/>\n", n, x, y)
		}
		fmt.Fprintf(&out, "<path class=\"n%d\" d=\"%s\"/>\n", n, line)
		out.WriteString(label(plotRight+10, plotY(messages[(i+1)*len(ttls)-1])+5, "start", fmt.Sprintf("n = %d", n)))
	}
	out.WriteString("</svg>\n")
	return out.String()
}
