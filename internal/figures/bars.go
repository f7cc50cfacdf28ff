package figures

import (
	"fmt"
	"strings"
)

// Bars is a chart of counts over time. It has a stacked bar for each interval, and each bar has a
// segment for each kind.
type Bars struct {
	Title       string   // for screen readers
	Each        string   // the length of an interval, such as "an hour"
	What        string   // what is counted, such as "requests"
	Kinds       []string // names of the kinds; each kind has its own color
	Counts      [][]int64
	First, Last string // labels of the two ends of the time axis
}

const (
	barsLeft, barsRight = 8, Width - 8
	barsTop, barsBottom = 34, 134
	kindWide            = 63
)

// SVG draws the chart. It returns "" if there are no counts.
func (b Bars) SVG() string {
	if len(b.Counts) == 0 {
		return ""
	}
	most := int64(1)
	for _, counts := range b.Counts {
		sum := int64(0)
		for _, n := range counts {
			sum += n
		}
		most = max(most, sum)
	}
	p := NewPicture(b.Title)
	p.Text(barsLeft, 18, "", fmt.Sprintf("up to %s %s in %s:", Grouped(most), b.What, b.Each))
	paths := make([]strings.Builder, len(b.Kinds))
	width := float64(barsRight-barsLeft) / float64(len(b.Counts))
	y := func(n int64) float64 { return barsBottom - float64(n)/float64(most)*(barsBottom-barsTop) }
	for i, counts := range b.Counts {
		from := int64(0)
		for kind, n := range counts {
			if n > 0 {
				fmt.Fprintf(&paths[kind], "M%.2f %.2fV%.2fh%.2fV%.2fz", barsLeft+float64(i)*width, y(from), min(y(from+n), y(from)-1), width, y(from))
			}
			from += n
		}
	}
	for kind, name := range b.Kinds {
		class := fmt.Sprintf("fc%d", kind)
		p.Text(float64(barsRight-(len(b.Kinds)-1-kind)*kindWide), 18, "bold right "+class, name)
		p.Path(barsBottom, class, paths[kind].String())
	}
	p.Path(barsBottom, "grid", fmt.Sprintf("M%d %dH%d", barsLeft, barsBottom, barsRight))
	p.Text(barsLeft, barsBottom+20, "", b.First)
	p.Text(barsRight, barsBottom+20, "right", b.Last)
	return p.String()
}
