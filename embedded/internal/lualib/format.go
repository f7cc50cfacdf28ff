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
	minus, plus, space, sharp, zero bool
	width, prec                     int // prec is -1 by default
	verb                            byte
}

func parseSpec(L *lua.LState, f string, i int) (spec, int) {
	s := spec{prec: -1}
	start := i
	for ; i < len(f) && strings.IndexByte("-+ #0", f[i]) >= 0; i++ {
		switch f[i] {
		case '-':
			s.minus = true
		case '+':
			s.plus = true
		case ' ':
			s.space = true
		case '#':
			s.sharp = true
		case '0':
			s.zero = true
		}
	}
	if i-start >= 6 {
		L.RaiseError("invalid format (repeated flags)")
	}
	two := func() (int, bool) {
		n, got := 0, false
		for k := 0; k < 2 && i < len(f) && isDigit(f[i]); k++ {
			n, got = n*10+int(f[i]-'0'), true
			i++
		}
		return n, got
	}
	s.width, _ = two()
	if i < len(f) && f[i] == '.' {
		i++
		s.prec, _ = two()
	}
	if i < len(f) && isDigit(f[i]) {
		L.RaiseError("invalid format (width or precision too long)")
	}
	if i < len(f) {
		s.verb = f[i]
	}
	return s, i
}

func formatOne(L *lua.LState, b *strings.Builder, s spec, arg int) {
	switch s.verb {
	case 'c':
		b.WriteString(s.pad(string([]byte{byte(ToInt64(number(L, arg)))}), false))
	case 'd', 'i':
		v := ToInt64(number(L, arg))
		mag := uint64(v)
		if v < 0 {
			mag = -mag
		}
		b.WriteString(s.integer(v < 0, strconv.FormatUint(mag, 10), ""))
	case 'u', 'o', 'x', 'X':
		v := toUnsigned(number(L, arg))
		s.plus, s.space = false, false
		switch s.verb {
		case 'u':
			b.WriteString(s.integer(false, strconv.FormatUint(v, 10), ""))
		case 'o':
			digits := strconv.FormatUint(v, 8)
			if s.sharp && digits[0] != '0' {
				digits = "0" + digits
			}
			b.WriteString(s.integer(false, digits, ""))
		default:
			digits, prefix := strconv.FormatUint(v, 16), ""
			if s.sharp && v != 0 {
				prefix = "0x"
			}
			out := s.integer(false, digits, prefix)
			if s.verb == 'X' {
				out = strings.ToUpper(out)
			}
			b.WriteString(out)
		}
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
		// printf ends a C string at the first NUL.
		if i := strings.IndexByte(text, 0); i >= 0 {
			text = text[:i]
		}
		if s.prec >= 0 && len(text) > s.prec {
			text = text[:s.prec]
		}
		b.WriteString(s.pad(text, false))
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

func (s spec) pad(text string, zeros bool) string {
	n := s.width - len(text)
	switch {
	case n <= 0:
		return text
	case s.minus:
		return text + strings.Repeat(" ", n)
	case zeros:
		i := 0
		if i < len(text) && strings.IndexByte("+- ", text[i]) >= 0 {
			i++
		}
		if strings.HasPrefix(text[i:], "0x") || strings.HasPrefix(text[i:], "0X") {
			i += 2
		}
		return text[:i] + strings.Repeat("0", n) + text[i:]
	}
	return strings.Repeat(" ", n) + text
}

func (s spec) sign(negative bool) string {
	switch {
	case negative:
		return "-"
	case s.plus:
		return "+"
	case s.space:
		return " "
	}
	return ""
}

func (s spec) integer(negative bool, digits, prefix string) string {
	if s.prec == 0 && digits == "0" {
		digits = ""
	}
	if n := s.prec - len(digits); n > 0 {
		digits = strings.Repeat("0", n) + digits
	}
	return s.pad(s.sign(negative)+prefix+digits, s.zero && s.prec < 0)
}

func (s spec) float(v float64) string {
	negative := math.Signbit(v)
	upper := s.verb == 'E' || s.verb == 'G'
	text, special := formatSpecial(math.Abs(v))
	if special {
		if upper {
			text = strings.ToUpper(text)
		}
		return s.pad(s.sign(negative)+text, false)
	}
	prec := s.prec
	if prec < 0 {
		prec = 6
	}
	switch s.verb {
	case 'f':
		text = strconv.FormatFloat(math.Abs(v), 'f', prec, 64)
	case 'e', 'E':
		text = strconv.FormatFloat(math.Abs(v), 'e', prec, 64)
	default:
		if prec == 0 {
			prec = 1
		}
		text = strconv.FormatFloat(math.Abs(v), 'g', prec, 64)
	}
	if s.sharp {
		// The # flag works as in C.
		text = fmt.Sprintf("%#."+strconv.Itoa(prec)+string([]byte{lower(s.verb)}), math.Abs(v))
	}
	if upper {
		text = strings.ToUpper(text)
	}
	return s.pad(s.sign(negative)+text, s.zero)
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
