package lualib

import (
	"errors"
	"math"
	"strconv"
	"strings"
)

const spaces = " \t\n\v\f\r" // like C's isspace

// ParseNumber parses a number like Lua 5.1 on glibc (strtod, then trailing white space): decimal
// and hexadecimal, with exponents, "inf" and "nan". It ignores everything after a NUL byte, because
// Lua passes a C string to strtod.
func ParseNumber(s string) (float64, bool) {
	s, _, _ = strings.Cut(s, "\x00")
	s = strings.Trim(s, spaces)
	sign := 1.0
	if s != "" && (s[0] == '-' || s[0] == '+') {
		if s[0] == '-' {
			sign = -1
		}
		s = s[1:]
	}
	switch {
	case s == "" || s[0] == '-' || s[0] == '+':
		return 0, false
	case len(s) > 4 && strings.EqualFold(s[:4], "nan(") && strings.TrimLeft(s[4:], alphanumeric+"_") == ")":
		s = "nan"
	case strings.Contains(s, "_"): // ParseFloat may accept underscores
		return 0, false
	case len(s) > 2 && s[0] == '0' && lower(s[1]) == 'x' && !strings.ContainsAny(s, "pP"):
		s += "p0"
	}
	v, err := strconv.ParseFloat(s, 64) // if the number is out of range, v is 0 or infinity, like strtod's result
	return math.Copysign(v, sign), err == nil || errors.Is(err, strconv.ErrRange)
}

const alphanumeric = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"

// parseBase parses s like tonumber with the given base. In Lua, tonumber uses C's strtoul.
func parseBase(s string, base int) (float64, bool) {
	s, _, _ = strings.Cut(s, "\x00")
	s = strings.Trim(s, spaces)
	digits := strings.TrimPrefix(s, "-")
	negative := digits != s
	if !negative {
		digits = strings.TrimPrefix(s, "+")
	}
	if base == 16 && len(digits) > 2 && strings.EqualFold(digits[:2], "0x") {
		digits = digits[2:]
	}
	v, err := strconv.ParseUint(digits, base, 64)
	if errors.Is(err, strconv.ErrRange) { // v is the largest number, and not all digits have been checked
		err, negative = nil, false
		for i := 0; i < len(digits) && err == nil; i++ {
			_, err = strconv.ParseUint(digits[i:i+1], base, 64)
		}
	}
	if negative {
		v = -v
	}
	return float64(v), err == nil
}

// FormatNumber formats a number like Lua's tostring, which uses C's "%.14g".
func FormatNumber(v float64) string {
	if v > -1e14 && v < 1e14 {
		if i := int64(v); float64(i) == v && (i != 0 || !math.Signbit(v)) {
			return strconv.FormatInt(i, 10)
		}
	}
	if s, ok := formatSpecial(v); ok {
		return s
	}
	return strconv.FormatFloat(v, 'g', 14, 64)
}

// formatSpecial formats infinities and NaN like C. C writes the sign of a NaN.
func formatSpecial(v float64) (text string, ok bool) {
	switch {
	case math.IsNaN(v):
		text = "nan"
	case math.IsInf(v, 0):
		text = "inf"
	default:
		return "", false
	}
	if math.Signbit(v) {
		text = "-" + text
	}
	return text, true
}

// ToInt64 truncates v like C on x86-64: NaN and numbers out of range become the smallest integer.
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
