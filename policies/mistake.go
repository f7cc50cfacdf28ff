package policies

import "github.com/ratelimit-functions/ratelimit/internal/yamlfile"

// Mistake is one error in a file, with its position. Line and Column count from 1; both are 0 if
// the problem concerns the file as a whole.
type Mistake = yamlfile.Mistake

// Mistakes is an error that lists the problems in a file, in order. If there are very many, the
// last one says that more follow. The error message shows only the first one.
type Mistakes = yamlfile.Mistakes

// maxBytes is the size limit of a file. A file of ten thousand policies has about half this size.
const maxBytes = 2 << 20

type source struct{ yamlfile.Source }

func newSource(name string) *source {
	return &source{yamlfile.Source{Name: name, MostBytes: maxBytes}}
}
