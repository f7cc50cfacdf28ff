package luastring

import (
	"strings"
	"testing"
)

func TestThereAndBack(t *testing.T) {
	var every strings.Builder
	for c := range 256 {
		every.WriteByte(byte(c))
	}
	for _, text := range []string{"", "100/m", "'", `\`, `\039`, "a\nb\r\n]]", "@VERSION@", every.String() + every.String()} {
		literal := string(Append(nil, text))
		if strings.ContainsAny(literal, "\n\r\x00@\"{}") || strings.Count(literal, "'") != 2 {
			t.Errorf("%q is written as %s", text, literal)
		}
		if got, rest, ok := Cut(literal + ", 'more'"); got != text || rest != ", 'more'" || !ok {
			t.Errorf("%s is read as %q, before %q, %v", literal, got, rest, ok)
		}
	}
	if got := string(Append([]byte("x = "), "5/s ü")); got != `x = '5/s \195\188'` {
		t.Error(got)
	}
}

func TestWhatIsNoLiteral(t *testing.T) {
	for _, text := range []string{"", "x", `"x"`, "'", "'x", `'\`, `'\0`, `'\03'`, `'\256'`, `'\-12'`, `'\+12'`, `'\n'`} {
		if got, rest, ok := Cut(text); ok || got != "" || rest != "" {
			t.Errorf("%s is read as %q, before %q", text, got, rest)
		}
	}
}
