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

// PageStyle is the style of an HTML page with tables and pictures, light or dark as its reader has chosen.
var PageStyle = template.CSS(pageStyle)

// Inline is a picture to stand in a page, with an id for its title that is there once on it.
func Inline(svg, id string) template.HTML {
	return template.HTML(strings.ReplaceAll(svg, `"title"`, strconv.Quote(id)))
}

// Percent is a part of a whole: never 0% or 100% of what is more than nothing, or less than all.
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
