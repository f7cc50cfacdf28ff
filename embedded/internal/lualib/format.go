package lualib

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	lua "github.com/yuin/gopher-lua"
)

// strFormat implements string.format, which uses C's printf.
func strFormat(L *lua.LState) int {
	f := Text(L, 1)
	arg := 1
	var b strings.Builder
	for i := 0; i < len(f); i++ {
		if f[i] != '%' {
			b.WriteByte(f[i])
			continue
		}
		i++
		if i < len(f) && f[i] == '%' {
			b.WriteByte('%')
			continue
		}
		spec, next := parseSpec(L, f, i)
		i = next
		arg++
		if arg > L.GetTop() {
			L.ArgError(arg, "no value")
		}
		formatOne(L, &b, spec, arg)
		checkLength(L, b.Len())
	}
	L.Push(lua.LString(b.String()))
	return 1
}

// spec is one conversion: %[flags][width][.precision]verb.
type spec struct {
	flags       string
	width, prec int // prec is -1 by default
	verb        byte
}

func parseSpec(L *lua.LState, f string, i int) (spec, int) {
	s := spec{prec: -1}
	start := i
	for i < len(f) && strings.IndexByte("-+ #0", f[i]) >= 0 {
		i++
	}
	if s.flags = f[start:i]; len(s.flags) >= 6 {
		L.RaiseError("invalid format (repeated flags)")
	}
	two := func() (n int) {
		for k := 0; k < 2 && i < len(f) && isDigit(f[i]); k++ {
			n = n*10 + int(f[i]-'0')
			i++
		}
		return n
	}
	s.width = two()
	if i < len(f) && f[i] == '.' {
		i++
		s.prec = two()
	}
	if i < len(f) && isDigit(f[i]) {
		L.RaiseError("invalid format (width or precision too long)")
	}
	if i < len(f) {
		s.verb = f[i]
	}
	return s, i
}

func (s spec) has(flag string) bool { return strings.Contains(s.flags, flag) }

func formatOne(L *lua.LState, b *strings.Builder, s spec, arg int) {
	switch s.verb {
	case 'c':
		b.WriteString(s.pad(string([]byte{byte(ToInt64(number(L, arg)))})))
	case 'd', 'i':
		s.verb = 'd'
		if v := ToInt64(number(L, arg)); v == 0 && s.prec == 0 {
			b.WriteString(s.pad(s.plus())) // fmt would leave out the sign
		} else {
			b.WriteString(s.printf(v))
		}
	case 'u', 'o', 'x', 'X':
		v := toUnsigned(number(L, arg))
		s.flags = strings.NewReplacer("+", "", " ", "").Replace(s.flags)
		switch s.verb {
		case 'u':
			s.verb = 'd'
		case 'x', 'X':
			if v == 0 { // C writes no 0x before a zero, and counts it as part of the width
				s.flags = strings.ReplaceAll(s.flags, "#", "")
			} else if s.has("#") && s.has("0") && !s.has("-") && s.prec < 0 {
				s.prec = max(1, s.width-2)
			}
		}
		b.WriteString(s.printf(v))
	case 'e', 'E', 'f', 'g', 'G':
		b.WriteString(s.float(number(L, arg)))
	case 'q':
		quote(b, Text(L, arg))
	case 's':
		text := Text(L, arg)
		if s.prec < 0 && len(text) >= 100 {
			b.WriteString(text)
			return
		}
		text, _, _ = strings.Cut(text, "\x00") // printf takes a C string
		if s.prec >= 0 && len(text) > s.prec {
			text = text[:s.prec]
		}
		b.WriteString(s.pad(text))
	default:
		verb := ""
		if s.verb != 0 {
			verb = string([]byte{s.verb})
		}
		L.RaiseError("invalid option '%%%s' to 'format'", verb)
	}
}

// toUnsigned converts like C's (unsigned long)v on x86-64.
func toUnsigned(v float64) uint64 {
	if v >= 9223372036854775808.0 {
		if v < 18446744073709551616.0 {
			return uint64(int64(v-9223372036854775808.0)) + 1<<63
		}
		return 0
	}
	return uint64(ToInt64(v))
}

// pad pads with spaces. fmt would count characters instead of bytes.
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

// printf formats a number with package fmt, which does what C does with the remaining flags.
func (s spec) printf(v any) string {
	format := "%" + s.flags
	if s.width > 0 {
		format += strconv.Itoa(s.width)
	}
	if s.prec >= 0 {
		format += "." + strconv.Itoa(s.prec)
	}
	return fmt.Sprintf(format+string(rune(s.verb)), v)
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
	if isUpper(s.verb) {
		text = strings.ToUpper(text)
	}
	return s.pad(text)
}

// quote implements %q.
func quote(b *strings.Builder, s string) {
	b.WriteByte('"')
	for i := 0; i < len(s); i++ {
		switch c := s[i]; c {
		case '"', '\\', '\n':
			b.WriteByte('\\')
			b.WriteByte(c)
		case '\r':
			b.WriteString(`\r`)
		case 0:
			b.WriteString(`\000`)
		default:
			b.WriteByte(c)
		}
	}
	b.WriteByte('"')
}
