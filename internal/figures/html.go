package figures

import (
	_ "embed"
	"fmt"
	"html/template"
	"strconv"
	"strings"
)

//go:embed page.css
var pageStyle string

// PageStyle is the style of an HTML page with tables and pictures. It follows the reader's choice
// of light or dark mode.
var PageStyle = template.CSS(pageStyle)

// Inline returns a picture for embedding in a page. id becomes the id attribute of the picture's
// title. It must be unique on the page.
func Inline(svg, id string) template.HTML {
	return template.HTML(strings.ReplaceAll(svg, `"title"`, strconv.Quote(id)))
}

// Percent formats part as a percentage of whole. It returns 0% only for 0, and 100% only for the
// whole.
func Percent(part, whole int64) string {
	if whole == 0 {
		return "0%"
	}
	p := 100 * float64(part) / float64(whole)
	switch {
	case part > 0 && p < 0.01:
		return "<0.01%"
	case part < whole && p > 99.99:
		return ">99.99%"
	}
	return fmt.Sprintf("%.4g%%", p)
}
