package figures

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
)

// Lines is a log-log plot of one or more lines. All values must be positive.
type Lines struct {
	Title      string   // for screen readers
	Above      []string // lines of text above the plot
	Across, Up Axis
	Lines      []Line
	Bounds     []Bound
	Marks      []Mark
}

// An Axis starts at its first mark and ends at its last.
type Axis struct {
	Label string    // used only for Across; the text above the plot describes the vertical axis
	Marks []float64 // ascending, two or more
	Text  func(float64) string
}

// Powers returns the powers of ten from 1 up to the first one that is not less than largest. The
// result always includes 10.
func Powers(largest float64) []float64 {
	marks := []float64{1, 10}
	for marks[len(marks)-1] < largest {
		marks = append(marks, 10*marks[len(marks)-1])
	}
	return marks
}

// A Line joins the points (Across[i], Up[i]); there is at least one. The plot shows the line's name
// at its end.
type Line struct {
	Name       string
	Across, Up []float64
}

// A Bound is a dashed horizontal line across the plot.
type Bound struct {
	Name string // may have several lines
	Up   float64
}

// A Mark is a dashed vertical line across the plot, with its name above.
type Mark struct {
	Name   string
	Across float64
}

const (
	linesLeft, linesRight = 92, 340
	linesHeight           = 250
	nameHeight            = 18 // minimum distance between names
)

// SVG draws the plot.
func (l Lines) SVG() string {
	p := NewPicture(l.Title)
	top := 20.0
	for _, text := range l.Above {
		p.Text(8, top, "", text)
		top += 20
	}
	if len(l.Marks) > 0 {
		top += 20
	}
	bottom := top + linesHeight
	x := func(v float64) float64 { return l.Across.place(v, linesLeft, linesRight) }
	y := func(v float64) float64 { return l.Up.place(v, bottom, top) }
	for _, v := range l.Up.Marks {
		p.Path(y(v), "grid", fmt.Sprintf("M%d %sH%d", linesLeft, Short(y(v)), linesRight))
		p.Text(linesLeft-8, y(v)+5, "right", l.Up.Text(v))
	}
	for _, v := range l.Across.Marks {
		p.Path(bottom, "grid", fmt.Sprintf("M%s %sV%s", Short(x(v)), Short(top), Short(bottom)))
		p.Text(x(v), bottom+21, "middle", l.Across.Text(v))
	}
	p.Text((linesLeft+linesRight)/2, bottom+43, "middle", l.Across.Label)
	var names []name
	for _, b := range l.Bounds {
		p.Path(y(b.Up), "bound", fmt.Sprintf("M%d %sH%d", linesLeft, Short(y(b.Up)), linesRight))
		for i, line := range strings.Split(b.Name, "\n") {
			names = append(names, name{y(b.Up) + float64(i*nameHeight), "", line})
		}
	}
	for _, m := range l.Marks {
		p.Path(bottom, "bound", fmt.Sprintf("M%s %sV%s", Short(x(m.Across)), Short(top-4), Short(bottom)))
		p.Text(x(m.Across), top-9, "bold middle", m.Name)
	}
	for i, line := range l.Lines {
		class, path, letter := fmt.Sprintf("c%d", i%len(colours)), "", "M"
		for j, v := range line.Across {
			path += fmt.Sprintf("%s%s %s", letter, Short(x(v)), Short(y(line.Up[j])))
			letter = "L"
			p.Dot(x(v), y(line.Up[j]), class)
		}
		p.Path(bottom, class, path)
		names = append(names, name{y(line.Up[len(line.Up)-1]), "f" + class, line.Name})
	}
	for _, n := range apart(names, bottom) {
		p.Text(linesRight+10, n.y+5, n.class, n.text)
	}
	return p.String()
}

// place returns the position of value on a logarithmic axis that extends from begin to end.
func (a Axis) place(value, begin, end float64) float64 {
	first, last := a.Marks[0], a.Marks[len(a.Marks)-1]
	return begin + (end-begin)*math.Log(value/first)/math.Log(last/first)
}

type name struct {
	y           float64
	class, text string
}

// apart separates names that are too close to each other, and moves up names that are below bottom.
// It returns the names from top to bottom.
func apart(names []name, bottom float64) []name {
	slices.SortStableFunc(names, func(a, b name) int { return cmp.Compare(a.y, b.y) })
	for i := 1; i < len(names); i++ {
		names[i].y = max(names[i].y, names[i-1].y+nameHeight)
	}
	for i, most := len(names)-1, bottom; i >= 0; i-- {
		names[i].y = min(names[i].y, most)
		most = names[i].y - nameHeight
	}
	return names
}
