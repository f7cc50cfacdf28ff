package loader

import (
	"strings"

	"github.com/rogpeppe/go-internal/diff"
)

// unified returns the difference between two texts as `diff -u` shows it, with three lines around
// each change, or "" if they are equal. It takes nearly linear time for any texts.
func unified(oldName, newName, oldText, newText string) string {
	text := diff.Diff(oldName, []byte(oldText), newName, []byte(newText))
	return strings.TrimPrefix(string(text), "diff "+oldName+" "+newName+"\n")
}
