// Package printable makes text from servers, logs and files safe to print. Such text may contain
// escape sequences that change what a terminal shows or does, characters that change the direction
// of the surrounding text, and invalid UTF-8.
package printable

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// Line returns text in one line. It escapes all characters that [strconv.IsPrint] rejects,
// including line ends and tabs, as in a Go string.
func Line(text string) string { return escape(text, "", inGo) }

// Lines is like Line, but keeps line ends and tabs.
func Lines(text string) string { return escape(text, "\n\t", inGo) }

// JSON escapes the same characters as Line, except line ends, in JSON text. The escapes have the
// form \u009b. The text must come from package encoding/json.
func JSON(text string) string { return escape(text, "\n", inJSON) }

// Encode returns v as JSON, with <, > and & as they are, and a line end.
func Encode(v any, indent string) (string, error) {
	var text strings.Builder
	encoder := json.NewEncoder(&text)
	encoder.SetIndent("", indent)
	encoder.SetEscapeHTML(false)
	err := encoder.Encode(v)
	return text.String(), err
}

// Key returns a key as it is, or quoted if it is empty or contains spaces or unprintable
// characters.
func Key(key string) string {
	if key == "" || strings.Contains(key, " ") || Line(key) != key {
		return strconv.Quote(key)
	}
	return key
}

// Cut returns text, or its first bytes and "..." if it has more than most bytes.
func Cut(text string, most int) string {
	if len(text) > most {
		return strings.ToValidUTF8(text[:most], "") + "..."
	}
	return text
}

func escape(text, keep string, escaped func(r rune) string) string {
	var out strings.Builder
	for i := 0; i < len(text); {
		r, size := utf8.DecodeRuneInString(text[i:])
		switch {
		case r == utf8.RuneError && size == 1:
			fmt.Fprintf(&out, `\x%02x`, text[i])
		case strconv.IsPrint(r) || strings.ContainsRune(keep, r):
			out.WriteRune(r)
		default:
			out.WriteString(escaped(r))
		}
		i += size
	}
	return out.String()
}

func inGo(r rune) string {
	switch {
	case r < ' ' || r == 0x7f:
		return fmt.Sprintf(`\x%02x`, r)
	case r <= 0xffff:
		return fmt.Sprintf(`\u%04x`, r)
	}
	return fmt.Sprintf(`\U%08x`, r)
}

func inJSON(r rune) (text string) {
	for _, unit := range utf16.AppendRune(nil, r) {
		text += fmt.Sprintf(`\u%04x`, unit)
	}
	return text
}
