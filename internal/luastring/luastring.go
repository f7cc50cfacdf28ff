// Package luastring encodes and decodes Lua strings in builds of the library and in deployment
// records.
package luastring

import (
	"strconv"
	"strings"
)

// Append appends text as a one-line Lua literal. It escapes all bytes except letters, digits and a
// few punctuation characters. Therefore no text can end the literal early, look like a placeholder
// that package functions replaces, or contain invisible characters.
func Append(b []byte, text string) []byte {
	b = append(b, '\'')
	for i := range len(text) {
		c := text[i]
		if c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.IndexByte(" /=,._+-", c) >= 0 {
			b = append(b, c)
		} else {
			b = append(b, '\\', '0'+c/100, '0'+c/10%10, '0'+c%10)
		}
	}
	return append(b, '\'')
}

// Cut decodes the literal at the beginning of text, as written by Append, and returns the text
// after it. ok is false if text does not begin with a literal.
func Cut(text string) (value, rest string, ok bool) {
	rest, ok = strings.CutPrefix(text, "'")
	var b strings.Builder
	for ok {
		i := strings.IndexAny(rest, `'\`)
		if i < 0 {
			break
		}
		b.WriteString(rest[:i])
		if rest[i] == '\'' {
			return b.String(), rest[i+1:], true
		}
		code := rest[i+1:]
		n, err := strconv.ParseUint(code[:min(3, len(code))], 10, 8)
		if err != nil || len(code) < 3 {
			break
		}
		b.WriteByte(byte(n))
		rest = code[3:]
	}
	return "", "", false
}
