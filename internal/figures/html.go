package figures

import (
	_ "embed"
	"html/template"
)

//go:embed page.css
var pageStyle string

// PageStyle is the style of an HTML page with tables and pictures, light or dark as its reader has chosen.
var PageStyle = template.CSS(pageStyle)
