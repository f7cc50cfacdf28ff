package figures

import (
	"fmt"
	"html"
	"strings"
)

// This package writes SVG without a library, because the pictures have only a few lines and labels,
// and must follow the reader's choice of a light or dark page. gonum/plot, the best maintained
// library, cannot do that: it writes colors as attributes of each element, not as classes.

// Width is the width of every chart, in pixels. On a phone that is 360 pixels wide, the text is
// still 11 pixels high.
const Width = 480

// A Picture is an SVG image under construction. The classes are grid; bound (a dashed line); c0 to
// c7 (colors of lines); fc0 to fc7 (the same colors, for areas and text); thin; pale; and, for
// text, bold, right and middle.
type Picture struct {
	Width  float64   // of the picture, in pixels
	Styles [3]string // more CSS: for every page, for light pages, and for dark ones

	title  string
	height float64
	body   strings.Builder
}

// NewPicture returns an empty picture. The title is for screen readers.
func NewPicture(title string) *Picture { return &Picture{Width: Width, title: title} }

// Draw adds an SVG element that reaches down to y.
func (p *Picture) Draw(y float64, element string) {
	p.height = max(p.height, y+10)
	p.body.WriteString(element + "\n")
}

// Text writes a line of text that starts at x. With the class "right", the text ends at x; with
// "middle", it is centered on x.
func (p *Picture) Text(x, y float64, class, text string) {
	p.Draw(y, fmt.Sprintf(`<text class="%s" x="%s" y="%s">%s</text>`, class, Short(x), Short(y), html.EscapeString(text)))
}

// Path draws d, an SVG path that reaches down to y.
func (p *Picture) Path(y float64, class, d string) {
	p.Draw(y, fmt.Sprintf(`<path class="%s" d="%s"/>`, class, d))
}

// Dot draws a point.
func (p *Picture) Dot(x, y float64, class string) {
	fmt.Fprintf(&p.body, "<circle class=\"f%s\" cx=\"%s\" cy=\"%s\" r=\"3.5\"/>\n", class, Short(x), Short(y))
}

// Short formats a coordinate with at most one decimal.
func Short(f float64) string { return strings.TrimSuffix(fmt.Sprintf("%.1f", f), ".0") }

// colours holds the colors of lines and areas, for light pages and for dark ones. Neighboring
// colors also differ in brightness.
var colours = [][2]string{
	{"#0969da", "#58a6ff"}, {"#bc4c00", "#f0883e"}, {"#1a7f37", "#56d364"}, {"#8250df", "#d2a8ff"},
	{"#a40e26", "#ff9492"}, {"#0f6c72", "#39c5cf"}, {"#6e5600", "#e3b341"}, {"#57606a", "#8b949e"},
}

// String returns the picture as SVG.
func (p *Picture) String() string {
	var out strings.Builder
	fmt.Fprintf(&out, "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%s\" height=\"%s\" viewBox=\"0 0 %[1]s %[2]s\" role=\"img\" aria-labelledby=\"title\">\n",
		Short(p.Width), Short(p.height))
	fmt.Fprintf(&out, "<title id=\"title\">%s</title>\n", html.EscapeString(p.title))
	out.WriteString(`<style>
svg { font: 15px sans-serif }
path { fill: none; stroke-width: 2.5 }
.bold { font-weight: bold } .right { text-anchor: end } .middle { text-anchor: middle }
.pale { opacity: 0.5 } .thin, .grid { stroke-width: 1 } .bound { stroke-width: 1.5; stroke-dasharray: 6 4 }
`)
	out.WriteString(p.Styles[0] + style(0, "#ffffff", "#24292f", "#d0d7de", "#6e7781") + p.Styles[1])
	out.WriteString("@media (prefers-color-scheme: dark) {\n" + style(1, "#0d1117", "#e6edf3", "#30363d", "#8b949e") + p.Styles[2] + "}\n</style>\n")
	out.WriteString(p.body.String())
	out.WriteString("</svg>\n")
	return out.String()
}

func style(scheme int, background, text, grid, bound string) string {
	s := fmt.Sprintf("svg { background: %s }\ntext { fill: %s }\n.grid { stroke: %s }\n.bound { stroke: %s }\n", background, text, grid, bound)
	for i, c := range colours {
		s += fmt.Sprintf(".c%d { stroke: %s } .fc%[1]d { fill: %[2]s }\n", i, c[scheme])
	}
	return s
}
