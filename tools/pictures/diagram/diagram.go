// Package diagram draws boxes and arrows. Their sizes follow from estimates of the width of text: a page
// chooses the font, so nothing can measure it.
package diagram

import (
	"fmt"
	"math"
	"strings"
	"unicode/utf8"

	"github.com/ratelimit-functions/ratelimit/internal/figures"
)

const (
	lineHeight  = 20
	arrowLength = 9
)

// styles has the classes of boxes, arrows and their texts, and the rules that differ between light and
// dark pages. A halo keeps a text readable that crosses a line.
var styles = [3]string{
	`.box, .frame, .arrow { stroke: #8b949e; stroke-width: 1.5 } .frame { fill: none; stroke-dasharray: 2 4 }
.late { stroke-dasharray: 6 4 } .head { fill: #8b949e } .halo { paint-order: stroke; stroke-width: 6; stroke-linejoin: round }
.small { font-size: 13px } .code { font: 13px monospace }
`,
	".box { fill: #f3f4f6 } .halo { stroke: #ffffff }\n",
	".box { fill: #1c2128 } .halo { stroke: #0d1117 }\n",
}

// A Picture is an SVG image of boxes and arrows.
type Picture struct{ *figures.Picture }

// New returns an empty picture of the given width. The title is for screen readers.
func New(title string, width float64) Picture {
	p := Picture{figures.NewPicture(title)}
	p.Width, p.Styles = width, styles
	return p
}

// A Label is one line of text in a box. Class is a class of Text, or "small" or "code".
type Label struct{ Class, Text string }

// Box draws a rectangle with rounded corners, and lines of text in it, from its top. The class is
// "box" or "frame", which has a dotted line and is not filled. Box returns an error if a line is
// wider than the box, or if the lines are higher than it.
func (p Picture) Box(x, y, width, height float64, class string, labels ...Label) error {
	const margin = 10
	p.Draw(y+height, fmt.Sprintf(`<rect class="%s" x="%s" y="%s" width="%s" height="%s" rx="6"/>`,
		class, figures.Short(x), figures.Short(y), figures.Short(width), figures.Short(height)))
	for i, label := range labels {
		if got := textWidth(label); got > width-2*margin+0.1 {
			return fmt.Errorf("%q is about %.0f wide; its box has room for %.0f", label.Text, got, width-2*margin)
		}
		p.Text(x+margin, y+lineHeight*float64(i+1)+1, label.Class, label.Text)
	}
	if needed := lineHeight*float64(len(labels)) + margin; needed > height {
		return fmt.Errorf("the lines in the box of %q are %.0f high; the box is %.0f", labels[0].Text, needed, height)
	}
	return nil
}

// textWidth estimates the width of a line of text in a wide font, in pixels.
func textWidth(l Label) float64 {
	perLetter := 8.4
	for _, class := range strings.Fields(l.Class) {
		switch class {
		case "code":
			perLetter = 7.9
		case "small":
			perLetter = 7
		case "bold":
			perLetter = 9.2
		}
	}
	return perLetter * float64(utf8.RuneCountInString(l.Text))
}

// Arrow draws a straight arrow. With the class "late", its line is dashed.
func (p Picture) Arrow(x1, y1, x2, y2 float64, class string) {
	length := math.Hypot(x2-x1, y2-y1)
	dx, dy := (x2-x1)/length*arrowLength, (y2-y1)/length*arrowLength
	bottom := max(y1, y2)
	p.Path(bottom, "arrow "+class, fmt.Sprintf("M%s %sL%s %s", figures.Short(x1), figures.Short(y1), figures.Short(x2-dx), figures.Short(y2-dy)))
	p.Path(bottom, "head "+class, fmt.Sprintf("M%s %sL%s %sL%s %sz", figures.Short(x2), figures.Short(y2),
		figures.Short(x2-dx-dy/2), figures.Short(y2-dy+dx/2), figures.Short(x2-dx+dy/2), figures.Short(y2-dy-dx/2)))
}
