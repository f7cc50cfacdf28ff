package environ

import (
	_ "embed"
	"slices"
	"strings"

	"github.com/ratelimit-functions/ratelimit/gateway/internal/spelling"
)

// names has the variables in settings.go of envoyproxy/ratelimit of 2026-01.
//
//go:embed variables.txt
var names string

// Misspelled returns a note for each variable in environment that has almost the name of one that Read
// reads. Beside a deployment's, that is each variable of envoyproxy/ratelimit.
func Misspelled(environment []string) (notes []Note) {
	const shortest = 8 // letters; shorter names, such as PATH, resemble others by chance
	all := strings.Fields(names)
	known := all
	if !newReader(environment).deployment() {
		known = append([]string{"REDIS_URL"}, marks...)
	}
	for _, text := range environment {
		name, value, _ := strings.Cut(text, "=")
		if len(name) < shortest || value == "" || slices.Contains(all, name) {
			continue
		}
		if near := spelling.Nearest(name, known); near != "" {
			notes = append(notes, Note{name, "nobody reads this name; was " + near + " meant?"})
		}
	}
	return notes
}
