package lualib

import (
	"math"
	"strconv"
	"strings"
)

// ParseNumber parses a number like Lua 5.1 on glibc (strtod, then trailing white space): decimal
// and hexadecimal, with exponents, "inf" and "nan". It ignores everything after a NUL byte, because
// Lua passes a C string to strtod.
func ParseNumber(s string) (float64, bool) {
	if i := strings.IndexByte(s, 0); i >= 0 {
		s = s[:i]
	}
	v, n := strtod(s)
	if n == 0 {
		return 0, false
	}
	for n < len(s) && isSpace(s[n]) {
		n++
	}
	return v, n == len(s)
}

// strtod returns the number at the start of s and its length in bytes. The length is 0 if there is
// no number.
func strtod(s string) (float64, int) {
	i := 0
	for i < len(s) && isSpace(s[i]) {
		i++
	}
	start := i
	neg := false
	if i < len(s) && (s[i] == '+' || s[i] == '-') {
		neg = s[i] == '-'
		i++
	}
	rest := s[i:]
	if n := specialLen(rest); n > 0 {
		v := math.Inf(1)
		if lower(rest[0]) == 'n' {
			v = math.NaN()
		}
		if neg {
			v = math.Copysign(v, -1)
		}
		return v, i + n
	}
	if len(rest) > 2 && rest[0] == '0' && lower(rest[1]) == 'x' {
		if v, n := hexFloat(rest[2:]); n > 0 {
			if neg {
				v = -v
			}
			return v, i + 2 + n
		}
	}
	n := decimalLen(rest)
	if n == 0 {
		return 0, 0
	}
	// With a range error, ParseFloat also returns strtod's value: 0 or infinity.
	v, _ := strconv.ParseFloat(s[start:i+n], 64)
	return v, i + n
}

// specialLen returns the length of inf, infinity, nan or nan(chars) at the start of s, or 0.
func specialLen(s string) int {
	if len(s) >= 8 && strings.EqualFold(s[:8], "infinity") {
		return 8
	}
	if len(s) < 3 {
		return 0
	}
	switch {
	case strings.EqualFold(s[:3], "inf"):
		return 3
	case strings.EqualFold(s[:3], "nan"):
		if len(s) > 3 && s[3] == '(' {
			for j := 4; j < len(s); j++ {
				if s[j] == ')' {
					return j + 1
				}
				if !isAlnum(s[j]) && s[j] != '_' {
					break
				}
			}
		}
		return 3
	}
	return 0
}

func decimalLen(s string) int {
	i, digits := 0, 0
	for i < len(s) && isDigit(s[i]) {
		i++
		digits++
	}
	if i < len(s) && s[i] == '.' {
		i++
		for i < len(s) && isDigit(s[i]) {
			i++
			digits++
		}
	}
	if digits == 0 {
		return 0
	}
	if i < len(s) && lower(s[i]) == 'e' {
		j := i + 1
		if j < len(s) && (s[j] == '+' || s[j] == '-') {
			j++
		}
		if j < len(s) && isDigit(s[j]) {
			for j < len(s) && isDigit(s[j]) {
				j++
			}
			i = j
		}
	}
	return i
}

// hexFloat parses the digits after "0x".
func hexFloat(s string) (float64, int) {
	i, digits := 0, 0
	for i < len(s) && isHex(s[i]) {
		i++
		digits++
	}
	if i < len(s) && s[i] == '.' {
		i++
		for i < len(s) && isHex(s[i]) {
			i++
			digits++
		}
	}
	if digits == 0 {
		return 0, 0
	}
	text := "0x" + s[:i] + "p0"
	if i < len(s) && lower(s[i]) == 'p' {
		j := i + 1
		if j < len(s) && (s[j] == '+' || s[j] == '-') {
			j++
		}
		if j < len(s) && isDigit(s[j]) {
			for j < len(s) && isDigit(s[j]) {
				j++
			}
			text = "0x" + s[:j]
			i = j
		}
	}
	v, _ := strconv.ParseFloat(text, 64)
	return v, i
}

// parseBase parses s like tonumber with the given base, which uses C's strtoul.
func parseBase(s string, base int) (float64, bool) {
	if i := strings.IndexByte(s, 0); i >= 0 {
		s = s[:i]
	}
	i := 0
	for i < len(s) && isSpace(s[i]) {
		i++
	}
	neg := false
	if i < len(s) && (s[i] == '+' || s[i] == '-') {
		neg = s[i] == '-'
		i++
	}
	if base == 16 && i+2 < len(s) && s[i] == '0' && lower(s[i+1]) == 'x' && isHex(s[i+2]) {
		i += 2
	}
	var v uint64
	digits, overflow := 0, false
	for ; i < len(s); i++ {
		d := digitValue(s[i])
		if d >= base {
			break
		}
		digits++
		hi := v > (math.MaxUint64-uint64(d))/uint64(base)
		if hi {
			overflow = true
		}
		v = v*uint64(base) + uint64(d)
	}
	if digits == 0 {
		return 0, false
	}
	for i < len(s) && isSpace(s[i]) {
		i++
	}
	if i != len(s) {
		return 0, false
	}
	switch {
	case overflow:
		v = math.MaxUint64
	case neg:
		v = -v
	}
	return float64(v), true
}

func digitValue(c byte) int {
	switch {
	case isDigit(c):
		return int(c - '0')
	case lower(c) >= 'a' && lower(c) <= 'z':
		return int(lower(c)-'a') + 10
	}
	return math.MaxInt
}

// FormatNumber formats a number like Lua's tostring, with C's "%.14g".
func FormatNumber(v float64) string {
	if v > -1e14 && v < 1e14 {
		if i := int64(v); float64(i) == v && (i != 0 || !math.Signbit(v)) {
			return strconv.FormatInt(i, 10)
		}
	}
	return formatG(v, 14)
}

// formatG formats a number like C's "%.<prec>g".
func formatG(v float64, prec int) string {
	if s, ok := formatSpecial(v); ok {
		return s
	}
	return strconv.FormatFloat(v, 'g', prec, 64)
}

// formatSpecial formats infinities and NaN like C, which writes the sign of a NaN.
func formatSpecial(v float64) (string, bool) {
	switch {
	case math.IsNaN(v):
		if math.Signbit(v) {
			return "-nan", true
		}
		return "nan", true
	case math.IsInf(v, 1):
		return "inf", true
	case math.IsInf(v, -1):
		return "-inf", true
	}
	return "", false
}

// ToInt64 truncates like C on x86-64: NaN and numbers out of range become the smallest integer.
func ToInt64(v float64) int64 {
	if v >= -9223372036854775808.0 && v < 9223372036854775808.0 {
		return int64(v)
	}
	return math.MinInt64
}

func isSpace(c byte) bool { return c == ' ' || c >= '\t' && c <= '\r' }
func isDigit(c byte) bool { return c >= '0' && c <= '9' }
func isUpper(c byte) bool { return c >= 'A' && c <= 'Z' }
func isLower(c byte) bool { return c >= 'a' && c <= 'z' }
func isAlpha(c byte) bool { return isUpper(c) || isLower(c) }
func isAlnum(c byte) bool { return isAlpha(c) || isDigit(c) }
func isHex(c byte) bool   { return isDigit(c) || lower(c) >= 'a' && lower(c) <= 'f' }
func isCntrl(c byte) bool { return c < 32 || c == 127 }
func isPunct(c byte) bool { return c > 32 && c < 127 && !isAlnum(c) }

func lower(c byte) byte {
	if isUpper(c) {
		return c + 32
	}
	return c
}

func upper(c byte) byte {
	if isLower(c) {
		return c - 32
	}
	return c
}
