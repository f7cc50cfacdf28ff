// Package yamlfile decodes YAML files that people write. It reports each problem with its line and
// column.
package yamlfile

import "fmt"

// Mistake is one error in a file, with its position. Line and Column count from 1. Both are 0 if
// the problem concerns the whole file.
type Mistake struct {
	File   string `json:"file"`
	Line   int    `json:"line"`
	Column int    `json:"column"`
	Text   string `json:"problem"` // says what is wrong, quotes the value, and says what to do
}

// Error returns "file:line:column: text".
func (p Mistake) Error() string {
	if p.Line == 0 {
		return p.File + ": " + p.Text
	}
	return fmt.Sprintf("%s:%d:%d: %s", p.File, p.Line, p.Column, p.Text)
}

// Mistakes lists the errors in a file, in order. It is never empty. If there are too many, the last
// one says that more follow. The error message shows only the first.
type Mistakes []Mistake

func (p Mistakes) Error() string {
	switch more := len(p) - 1; {
	case more < 0:
		return "no problem"
	case more == 0:
		return p[0].Error()
	case more == 1:
		return p[0].Error() + " (and 1 more problem)"
	case more == MostMistakes:
		return fmt.Sprintf("%s (and at least %d more problems)", p[0].Error(), more)
	default:
		return fmt.Sprintf("%s (and %d more problems)", p[0].Error(), more)
	}
}

// Count returns the number of problems as text, such as "2 problems".
func (p Mistakes) Count() string {
	switch {
	case len(p) == 1:
		return "1 problem"
	case len(p) > MostMistakes:
		return fmt.Sprintf("more than %d problems", MostMistakes)
	}
	return fmt.Sprintf("%d problems", len(p))
}

// Unwrap returns the problems as errors.
func (p Mistakes) Unwrap() []error {
	list := make([]error, len(p))
	for i := range p {
		list[i] = p[i]
	}
	return list
}
