package printable

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

func TestEscapes(t *testing.T) {
	for _, tt := range []struct{ text, line, lines, key string }{
		{"", "", "", `""`},
		{"user:42 \\x1b", `user:42 \x1b`, `user:42 \x1b`, `"user:42 \\x1b"`},
		{"grüße→█ 日本", "grüße→█ 日本", "grüße→█ 日本", `"grüße→█ 日本"`},
		{"\x1b]0;pwned\x07", `\x1b]0;pwned\x07`, `\x1b]0;pwned\x07`, `"\x1b]0;pwned\a"`},
		{"a\r\n\tb", `a\x0d\x0a\x09b`, "a\\x0d\n\tb", `"a\r\n\tb"`},
		{"\x7f\u0080\u009b31m\u009f", `\x7f\u0080\u009b31m\u009f`, `\x7f\u0080\u009b31m\u009f`, `"\x7f\u0080\u009b31m\u009f"`},
		{"\u202eabc\u2066\u2069\u200f\u061c", `\u202eabc\u2066\u2069\u200f\u061c`, `\u202eabc\u2066\u2069\u200f\u061c`, `"\u202eabc\u2066\u2069\u200f\u061c"`},
		{"\u2028\u2029\u200b\ufeff\U000e0001", `\u2028\u2029\u200b\ufeff\U000e0001`, `\u2028\u2029\u200b\ufeff\U000e0001`, `"\u2028\u2029\u200b\ufeff\U000e0001"`},
		{"\x9b31m\xff\xc3", `\x9b31m\xff\xc3`, `\x9b31m\xff\xc3`, `"\x9b31m\xff\xc3"`},
		{"\ufffd", "\ufffd", "\ufffd", "\ufffd"},
	} {
		if line, lines, key := Line(tt.text), Lines(tt.text), Key(tt.text); line != tt.line || lines != tt.lines || key != tt.key {
			t.Errorf("%q: line %s, lines %s, key %s", tt.text, line, lines, key)
		}
	}
}

// TestJSON checks that the escaped JSON decodes to the same value.
func TestJSON(t *testing.T) {
	var all strings.Builder
	for r := rune(0); r <= unicode.MaxRune; r += 7 {
		if utf8.ValidRune(r) {
			all.WriteRune(r)
		}
	}
	for _, text := range []string{all.String(), "\x1b\x07\x7f\u009b\u202e\U000e0001"} {
		given, err := json.MarshalIndent([]string{text}, "", "  ")
		if err != nil {
			t.Fatal(err)
		}
		out := JSON(string(given))
		var got []string
		if err := json.Unmarshal([]byte(out), &got); err != nil || got[0] != text {
			t.Errorf("%v: %.200q", err, out)
		}
		if i := strings.IndexFunc(out, func(r rune) bool { return r != '\n' && !unicode.IsPrint(r) }); i >= 0 {
			t.Errorf("%q is left", out[i:min(len(out), i+20)])
		}
	}
}

func FuzzLine(f *testing.F) {
	f.Add("\x1b[31m\u202e\xff")
	f.Fuzz(func(t *testing.T, text string) {
		for _, r := range Line(text) {
			if !unicode.IsPrint(r) {
				t.Fatalf("%q leaves %q", text, r)
			}
		}
	})
}
