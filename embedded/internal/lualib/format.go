package lualib

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	lua "github.com/yuin/gopher-lua"
)

// strFormat implements string.format like Lua, which uses C's printf.
func strFormat(L *lua.LState) int {
	f := Text(L, 1)
	arg := 1
	var b strings.Builder
	for {
		text, rest, found := strings.Cut(f, "%")
		b.WriteString(text)
		if !found {
			break
		}
		if f, found = strings.CutPrefix(rest, "%"); found {
			b.WriteByte('%')
			continue
		}
		var s spec
		s, f = parseSpec(L, rest)
		arg++
		if arg > L.GetTop() {
			L.ArgError(arg, "no value")
		}
		b.WriteString(s.format(L, arg))
		checkLength(L, b.Len())
	}
	L.Push(lua.LString(b.String()))
	return 1
}

// spec is one conversion: %[flags][width][.precision]verb.
type spec struct {
	flags       string
	width, prec int    // prec is -1 by default
	verb        string // "" at the end of the format
}

// parseSpec parses a conversion after its %. It returns the conversion and the rest of the format.
func parseSpec(L *lua.LState, f string) (s spec, rest string) {
	rest = strings.TrimLeft(f, "-+ #0")
	s.flags = f[:len(f)-len(rest)]
	if len(s.flags) >= 6 {
		L.RaiseError("invalid format (repeated flags)")
	}
	s.width, rest = twoDigits(rest)
	s.prec = -1
	if text, ok := strings.CutPrefix(rest, "."); ok {
		s.prec, rest = twoDigits(text)
	}
	if rest != "" && isDigit(rest[0]) {
		L.RaiseError("invalid format (width or precision too long)")
	}
	end := min(1, len(rest))
	s.verb = rest[:end]
	return s, rest[end:]
}

// twoDigits parses at most two digits. It returns their value and the rest of text.
func twoDigits(text string) (n int, rest string) {
	i := 0
	for i < min(2, len(text)) && isDigit(text[i]) {
		n = n*10 + int(text[i]-'0')
		i++
	}
	return n, text[i:]
}

func (s spec) has(flag string) bool { return strings.Contains(s.flags, flag) }

func (s spec) format(L *lua.LState, arg int) string {
	switch s.verb {
	case "c":
		return s.pad(string([]byte{byte(ToInt64(number(L, arg)))}))
	case "d", "i":
		s.verb = "d"
		v := ToInt64(number(L, arg))
		if v == 0 && s.prec == 0 {
			return s.pad(s.plus()) // fmt would leave out the sign
		}
		return s.printf(v)
	case "u", "o", "x", "X":
		v := toUnsigned(number(L, arg))
		s.flags = strings.NewReplacer("+", "", " ", "").Replace(s.flags)
		switch s.verb {
		case "u":
			s.verb = "d"
		case "x", "X":
			if v == 0 { // C writes no 0x before a zero
				s.flags = strings.ReplaceAll(s.flags, "#", "")
			} else if s.has("#") && s.has("0") && !s.has("-") && s.prec < 0 {
				s.prec = max(1, s.width-2) // in C, the width includes the 0x
			}
		}
		return s.printf(v)
	case "e", "E", "f", "g", "G":
		return s.float(number(L, arg))
	case "q":
		return `"` + quoter.Replace(Text(L, arg)) + `"`
	case "s":
		text := Text(L, arg)
		if s.prec < 0 && len(text) >= 100 {
			return text
		}
		text, _, _ = strings.Cut(text, "\x00") // C's strings end at a NUL byte
		if s.prec >= 0 && len(text) > s.prec {
			text = text[:s.prec]
		}
		return s.pad(text)
	}
	L.RaiseError("invalid option '%%%s' to 'format'", s.verb)
	return ""
}

// toUnsigned converts v like C's (unsigned long)v on x86-64.
func toUnsigned(v float64) uint64 {
	if v >= 9223372036854775808.0 {
		if v < 18446744073709551616.0 {
			return uint64(int64(v-9223372036854775808.0)) + 1<<63
		}
		return 0
	}
	return uint64(ToInt64(v))
}

// pad pads text with spaces. It counts bytes, while package fmt counts characters.
func (s spec) pad(text string) string {
	spaces := strings.Repeat(" ", max(0, s.width-len(text)))
	if s.has("-") {
		return text + spaces
	}
	return spaces + text
}

// plus returns the sign of a number that is not negative.
func (s spec) plus() string {
	switch {
	case s.has("+"):
		return "+"
	case s.has(" "):
		return " "
	}
	return ""
}

// printf formats a number with package fmt, which treats the remaining flags like C.
func (s spec) printf(v any) string {
	format := "%" + s.flags
	if s.width > 0 {
		format += strconv.Itoa(s.width)
	}
	if s.prec >= 0 {
		format += "." + strconv.Itoa(s.prec)
	}
	return fmt.Sprintf(format+s.verb, v)
}

func (s spec) float(v float64) string {
	text, special := formatSpecial(v)
	if !special {
		if s.prec < 0 {
			s.prec = 6
		}
		return s.printf(v)
	}
	if !math.Signbit(v) {
		text = s.plus() + text
	}
	if isUpper(s.verb[0]) {
		text = strings.ToUpper(text)
	}
	return s.pad(text)
}

// quoter escapes text for %q.
var quoter = strings.NewReplacer(`"`, `\"`, `\`, `\\`, "\n", "\\\n", "\r", `\r`, "\x00", `\000`)
