package embedded

import (
	"math"
	"math/big"
	"strconv"
	"strings"

	"github.com/ratelimit-functions/ratelimit/embedded/internal/engine"
)

// cmdHIncrBy handles HINCRBY. If the increment or the field is not an integer, it returns Redis's
// error, which differs from miniredis's.
func cmdHIncrBy(s *Server, c *session, args []string) engine.Reply {
	if _, err := parseInt(args[2]); err != nil {
		return errNotInteger
	}
	stored := s.keyspace.DB(c.db).HGet(args[0], args[1])
	if _, err := parseInt(stored); stored != "" && err != nil {
		return engine.Error("ERR hash value is not an integer")
	}
	return s.pass(c, append([]string{"HINCRBY"}, args...)...)
}

const (
	errNotFloat  = engine.Error("ERR value is not a valid float")
	errNotFinite = engine.Error("ERR increment would produce NaN or Infinity")
)

func cmdIncrByFloat(s *Server, c *session, args []string) engine.Reply {
	stored := cmdGet(s, c, args[:1])
	if stored == errWrongType {
		return stored
	}
	value, valid := storedNumber(stored)
	delta, validDelta := longDouble(args[1])
	if !valid || !validDelta {
		return errNotFloat
	}
	sum, e := addLongDoubles(value, delta)
	if e != nil {
		return e
	}
	s.store(c.db, args[0], sum, s.expiresAt(c.db, args[0]))
	return sum
}

func cmdHIncrByFloat(s *Server, c *session, args []string) engine.Reply {
	delta, valid := longDouble(args[2])
	switch {
	case !valid:
		return errNotFloat
	case delta.IsInf():
		return engine.Error("ERR value is NaN or Infinity")
	}
	stored, _, err := parseReply(s.passRaw(c, []string{"HGET", args[0], args[1]}))
	if e, failed := stored.(engine.Error); failed {
		return e
	}
	value, valid := storedNumber(stored)
	if err != nil || !valid {
		return engine.Error("ERR hash value is not a float")
	}
	sum, e := addLongDoubles(value, delta)
	if e != nil {
		return e
	}
	s.keyspace.DB(c.db).HSet(args[0], args[1], sum)
	return sum
}

// storedNumber parses the reply to GET or HGET as a number. If there is no value, the number is
// zero.
func storedNumber(reply engine.Reply) (v *big.Float, valid bool) {
	if text, ok := reply.(string); ok {
		return longDouble(text)
	}
	return new(big.Float), true
}

// Redis calculates with long doubles. On amd64, a long double has a mantissa of 64 bits, and
// exponents within these bounds, as returned by big.Float.MantExp. Redis parses only numbers of
// fewer than maxFloatText bytes.
const (
	mantissaBits = 64
	minExponent  = -16445
	maxExponent  = 16384
	maxFloatText = 5 << 10
)

// longDouble parses a number and reports whether a long double can represent it. miniredis accepts
// larger numbers, and would need hours to write 1e100000000.
func longDouble(text string) (v *big.Float, valid bool) {
	if len(text) >= maxFloatText || strings.ContainsAny(text, "pP") {
		return nil, false
	}
	if f, err := strconv.ParseFloat(text, 64); err == nil && math.IsInf(f, 0) {
		return new(big.Float).SetInf(f < 0), true
	}
	v, _, err := big.ParseFloat(text, 10, mantissaBits, big.ToNearestEven)
	switch {
	case err != nil || v.IsInf():
		return nil, false
	case v.Sign() == 0: // zero, or too small for big.Float
		mantissa, _, _ := strings.Cut(strings.ToLower(text), "e")
		return v, !strings.ContainsAny(mantissa, "123456789")
	}
	exponent := v.MantExp(nil)
	return v, minExponent <= exponent && exponent <= maxExponent
}

// addLongDoubles returns a + b in Redis's format, or an error if no long double can represent the
// sum.
func addLongDoubles(a, b *big.Float) (sum string, e engine.Reply) {
	if a.IsInf() || b.IsInf() {
		return "", errNotFinite
	}
	v := new(big.Float).Add(a, b)
	if v.MantExp(nil) > maxExponent {
		return "", errNotFinite
	}
	sum = strings.TrimRight(strings.TrimRight(v.Text('f', 17), "0"), ".")
	if sum == "-0" {
		sum = "0"
	}
	return sum, nil
}

// cmdScores returns the handler for ZADD or ZINCRBY. It rejects NaN, which miniredis accepts as a
// score. The last arguments are pairs of a score and a member.
func cmdScores(name string) handler {
	return func(s *Server, c *session, args []string) engine.Reply {
		for i := len(args) - 2; i > 0; i -= 2 {
			if v, err := strconv.ParseFloat(args[i], 64); err == nil && math.IsNaN(v) {
				return errNotFloat
			}
		}
		return s.pass(c, append([]string{name}, args...)...)
	}
}
