package text

import (
	"errors"
	"strconv"
	"strings"
)

// difference describes target by the lines of base: "=5,3" stands for three lines from line 5 on,
// and "+x" for the line x. The replaced value of a part is stored like this, because it usually
// differs in a few lines. For target "", it returns "".
func difference(base, target string) string {
	if target == "" {
		return ""
	}
	from := map[string]int{}
	lines := strings.Split(base, "\n")
	for i, line := range lines {
		if _, has := from[line]; !has {
			from[line] = i
		}
	}
	var b strings.Builder
	at, count := 0, 0 // the lines of base that are to be copied next
	flush := func() {
		if count > 0 {
			b.WriteString("=" + strconv.Itoa(at) + "," + strconv.Itoa(count) + "\n")
		}
		count = 0
	}
	for _, line := range strings.Split(target, "\n") {
		if next := at + count; count > 0 && next < len(lines) && lines[next] == line {
			count++
			continue
		}
		flush()
		if i, has := from[line]; has {
			at, count = i, 1
		} else {
			b.WriteString("+" + line + "\n")
		}
	}
	flush()
	return b.String()
}

const mostReplaced = 4 << 20 // bytes

var errDifference = errors.New("it does not fit the value")

// apply is the inverse of difference.
func apply(base, difference string) (string, error) {
	if difference == "" {
		return "", nil
	}
	lines := strings.Split(base, "\n")
	var b strings.Builder
	separator := ""
	add := func(line string) bool {
		b.WriteString(separator)
		b.WriteString(line)
		separator = "\n"
		return b.Len() <= mostReplaced
	}
	for _, line := range strings.Split(strings.TrimSuffix(difference, "\n"), "\n") {
		if literal, ok := strings.CutPrefix(line, "+"); ok {
			if !add(literal) {
				return "", errDifference
			}
			continue
		}
		from, count, _ := strings.Cut(strings.TrimPrefix(line, "="), ",")
		i, err := strconv.Atoi(from)
		n, err2 := strconv.Atoi(count)
		if line[:min(1, len(line))] != "=" || err != nil || err2 != nil || i < 0 || n < 1 || n > len(lines) || i > len(lines)-n {
			return "", errDifference
		}
		for _, line := range lines[i : i+n] {
			if !add(line) {
				return "", errDifference
			}
		}
	}
	return b.String(), nil
}
