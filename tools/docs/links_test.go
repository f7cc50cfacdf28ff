//go:build unix

package docs

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var (
	heading = regexp.MustCompile(`(?m)^#+ (.+)$`)
	// notInAnchor matches the characters that GitHub removes from a heading's anchor.
	notInAnchor = regexp.MustCompile(`[^\p{L}\p{N}_ -]`)
)

func hasAnchor(text, anchor string) bool {
	return slices.ContainsFunc(heading.FindAllStringSubmatch(block.ReplaceAllString(text, ""), -1), func(match []string) bool {
		words := notInAnchor.ReplaceAllString(strings.ToLower(link.ReplaceAllString(match[1], "")), "")
		return strings.ReplaceAll(words, " ", "-") == anchor
	})
}

// TestLinks checks that every link within the project leads to an existing file and, if it has an
// anchor, to an existing heading. It also checks that docs/README.md links to every page in its
// directory.
func TestLinks(t *testing.T) {
	const root, index = "../..", "docs/README.md"
	read := func(name string) string {
		text := must[[]byte](t)(os.ReadFile(filepath.Join(root, name)))
		return string(text)
	}
	var documents []string
	for _, pattern := range []string{"*.md", "*/*.md", "*/*/*.md"} {
		files := must[[]string](t)(filepath.Glob(filepath.Join(root, pattern)))
		for _, file := range files {
			name := must[string](t)(filepath.Rel(root, file))
			documents = append(documents, filepath.ToSlash(name))
		}
	}
	fromIndex := map[string]bool{index: true}
	for _, name := range documents {
		for _, target := range links(name, read(name)) {
			file, anchor, _ := strings.Cut(target, "#")
			if name == index {
				fromIndex[file] = true
			}
			if _, err := os.Stat(filepath.Join(root, file)); err != nil {
				t.Errorf("%s: a link leads to %s, which is not there", name, file)
			} else if anchor != "" && !hasAnchor(read(file), anchor) {
				t.Errorf("%s: a link leads to %s, which has no such heading", name, target)
			}
		}
	}
	for _, name := range documents {
		if strings.HasPrefix(name, "docs/") && !fromIndex[name] {
			t.Errorf("%s has no link to %s", index, name)
		}
	}
}

func TestLinksAreFound(t *testing.T) {
	text := "# How to `get` it, now\n[a](b.md) [c](../d/#e-f) [g](https://h/i) [j](#how-to-get-it-now)\n```text\n# no heading\n[k](l)\n```\n"
	if got, want := links("docs/x.md", text), []string{"docs/b.md", "d#e-f", "docs/x.md#how-to-get-it-now"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	if !hasAnchor(text, "how-to-get-it-now") || hasAnchor(text, "no-heading") {
		t.Error("the headings are not the document's")
	}
}
