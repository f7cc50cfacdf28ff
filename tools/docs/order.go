//go:build unix

package docs

import (
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

var (
	link  = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	block = regexp.MustCompile("(?ms)^```.*?^```$")
)

// InOrder returns the documents of the checkout at root in the order of the links of docs/README.md, as somebody
// reads them who reads all of them. The second result has the documents to which it does not link.
func InOrder(root string) (ordered, rest []Document, err error) {
	rest, err = All(root)
	if err != nil {
		return nil, nil, err
	}
	index, err := os.ReadFile(filepath.Join(root, "docs", "README.md"))
	if err != nil {
		return nil, nil, err
	}
	for _, target := range links("docs/README.md", string(index)) {
		name, _, _ := strings.Cut(target, "#")
		if at := slices.IndexFunc(rest, func(d Document) bool { return d.Name == name }); at >= 0 {
			ordered = append(ordered, rest[at])
			rest = slices.Delete(rest, at, at+1)
		}
	}
	return ordered, rest, nil
}

// links returns the targets of a document's links, as paths relative to the root of the checkout.
// It includes links to the document's own anchors.
func links(name, text string) []string {
	var found []string
	for _, match := range link.FindAllStringSubmatch(block.ReplaceAllString(text, ""), -1) {
		file, anchor, hasAnchor := strings.Cut(match[1], "#")
		switch {
		case strings.Contains(match[1], "://"):
			continue
		case file == "":
			file = name
		default:
			file = path.Join(path.Dir(name), file)
		}
		if hasAnchor {
			file += "#" + anchor
		}
		found = append(found, file)
	}
	return found
}
