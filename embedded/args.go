package embedded

import (
	"slices"
	"strconv"
	"strings"
)

// parseInt parses an integer as strictly as Redis does: no plus sign, no leading zeros, no spaces.
func parseInt(text string) (int64, error) {
	n, err := strconv.ParseInt(text, 10, 64)
	if err == nil && strconv.FormatInt(n, 10) != text {
		err = strconv.ErrSyntax
	}
	return n, err
}

// indexFold returns the index of a word among the arguments, ignoring case, or -1.
func indexFold(args []string, word string) int {
	return slices.IndexFunc(args, func(arg string) bool { return strings.EqualFold(arg, word) })
}

// contains reports whether a word is among the arguments, ignoring case.
func contains(args []string, word string) bool { return indexFold(args, word) >= 0 }
