// Package words splits a line into words as Redis does (sdssplitargs).
package words

import (
	"strconv"
	"strings"
)

// Split splits a line at blanks. Words may contain quoted parts. Within "..." the escapes are \n,
// \r, \t, \b, \a, \xHH, and \ before any other byte. Within '...' the only escape is \'. Split
// returns false if a quote is not closed or if no blank follows a closing quote.
func Split(line string) ([]string, bool) {
	var words []string
	for i := 0; ; {
		for i < len(line) && isSpace(line[i]) {
			i++
		}
		if i == len(line) {
			return words, true
		}
		var word []byte
		for i < len(line) && strings.IndexByte(" \n\r\t", line[i]) < 0 {
			quote := line[i]
			i++
			if quote != '"' && quote != '\'' {
				word = append(word, quote)
				continue
			}
			part, n := quoted(line[i:], quote)
			i += n
			if n == 0 || i < len(line) && !isSpace(line[i]) {
				return nil, false
			}
			word = append(word, part...)
			break
		}
		words = append(words, string(word))
	}
}

// quoted reads up to the closing quote, and returns the number of bytes read, including the quote.
// It returns 0 if there is no closing quote.
func quoted(s string, quote byte) (part []byte, n int) {
	for i := 0; i < len(s); i++ {
		switch {
		case s[i] == quote:
			return part, i + 1
		case s[i] != '\\' || i+1 == len(s) || quote == '\'' && s[i+1] != quote:
			part = append(part, s[i])
		default:
			i++
			c := s[i]
			if at := strings.IndexByte("nrtba", c); at >= 0 && quote == '"' {
				c = "\n\r\t\b\a"[at]
			} else if c == 'x' && i+2 < len(s) {
				if code, err := strconv.ParseUint(s[i+1:i+3], 16, 8); err == nil {
					c = byte(code)
					i += 2
				}
			}
			part = append(part, c)
		}
	}
	return nil, 0
}

// isSpace reports whether c is white space, like C's isspace.
func isSpace(c byte) bool { return c == ' ' || c >= '\t' && c <= '\r' }
