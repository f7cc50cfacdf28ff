package embedded

import (
	"math"
	"math/big"
	"strconv"
	"strings"

	"github.com/ratelimit-functions/ratelimit/embedded/internal/engine"
)

// cmdHIncrBy returns Redis's error for a field that is not a number.
func cmdHIncrBy(s *Server, c *session, args []string) engine.Reply {
	if _, err := parseInt(args[2]); err != nil {
		return errNotInteger
	}
	if v := s.keyspace.DB(c.db).HGet(args[0], args[1]); v != "" {
		if _, err := parseInt(v); err != nil && s.keyspace.DB(c.db).Type(args[0]) == "hash" {
			return engine.Error("ERR hash value is not an integer")
		}
	}
	return s.pass(c, append([]string{"HINCRBY"}, args...)...)
}

const (
	errNotFloat  = engine.Error("ERR value is not a valid float")
	errNotFinite = engine.Error("ERR increment would produce NaN or Infinity")
)

func cmdIncrByFloat(s *Server, c *session, args []string) engine.Reply {
	key, old := args[0], "0"
	switch stored := cmdGet(s, c, args[:1]).(type) {
	case engine.Error:
		return stored
	case string:
		old = stored
	}
	value, valid := longDouble(old)
	delta, validDelta := longDouble(args[1])
	if !valid || !validDelta {
		return errNotFloat
	}
	sum, finite := addLongDoubles(value, delta)
	if !finite {
		return errNotFinite
	}
	s.store(c.db, key, sum, s.expiresAt(c.db, key))
	return sum
}

func cmdHIncrByFloat(s *Server, c *session, args []string) engine.Reply {
	key, field, old := args[0], args[1], "0"
	delta, valid := longDouble(args[2])
	switch {
	case !valid:
		return errNotFloat
	case delta.IsInf():
		return engine.Error("ERR value is NaN or Infinity")
	}
	stored, _, err := parseReply(s.passRaw(c, []string{"HGET", key, field}))
	switch stored := stored.(type) {
	case engine.Error:
		return stored
	case string:
		old = stored
	}
	value, valid := longDouble(old)
	if err != nil || !valid {
		return engine.Error("ERR hash value is not a float")
	}
	sum, finite := addLongDoubles(value, delta)
	if !finite {
		return errNotFinite
	}
	s.keyspace.DB(c.db).HSet(key, field, sum)
	return sum
}

// Redis calculates with long doubles. On amd64, they have a mantissa of 64 bits, and exponents
// within these bounds, as returned by big.Float.MantExp. Redis parses numbers of fewer than
// maxFloatText bytes.
const (
	mantissaBits = 64
	minExponent  = -16445
	maxExponent  = 16384
	maxFloatText = 5 << 10
)

// longDouble parses a number and reports whether it is a long double. miniredis accepts larger
// ones, and needs hours to write 1e100000000.
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

// addLongDoubles returns the sum as Redis formats it, and reports whether a long double can
// represent it.
func addLongDoubles(a, b *big.Float) (sum string, finite bool) {
	if a.IsInf() || b.IsInf() {
		return "", false
	}
	v := new(big.Float).Add(a, b)
	if v.MantExp(nil) > maxExponent {
		return "", false
	}
	sum = strings.TrimRight(strings.TrimRight(v.Text('f', 17), "0"), ".")
	if sum == "-0" {
		sum = "0"
	}
	return sum, true
}

// cmdScores returns the handler of ZADD or ZINCRBY. It rejects NaN, which miniredis accepts as a
// score.
func cmdScores(name string) handler {
	return func(s *Server, c *session, args []string) engine.Reply {
		i := 1
		for name == "ZADD" && i < len(args) && zaddOptions[strings.ToUpper(args[i])] {
			i++
		}
		for ; i < len(args); i += 2 {
			if v, err := strconv.ParseFloat(args[i], 64); err == nil && math.IsNaN(v) {
				return engine.Error("ERR value is not a valid float")
			}
		}
		return s.passScores(c, name, args)
	}
}

var zaddOptions = map[string]bool{"NX": true, "XX": true, "GT": true, "LT": true, "CH": true, "INCR": true}

// cmdReadScores returns the handler of a command that returns scores.
func cmdReadScores(name string) handler {
	return func(s *Server, c *session, args []string) engine.Reply { return s.passScores(c, name, args) }
}

// passScores runs a command on a sorted set, and formats the scores in its reply as Redis does:
// whole numbers have no exponent. Replies to connections are not changed, because clients parse
// scores as numbers.
func (s *Server) passScores(c *session, name string, args []string) engine.Reply {
	r := s.pass(c, append([]string{name}, args...)...)
	switch r := r.(type) {
	case string:
		return score(r)
	case []engine.Reply:
		step := 2
		if name == "ZMSCORE" {
			step = 1
		} else if name != "ZPOPMIN" && name != "ZPOPMAX" && !contains(args, "WITHSCORES") {
			return r
		}
		for i := step - 1; i < len(r); i += step {
			if text, ok := r[i].(string); ok {
				r[i] = score(text)
			}
		}
	}
	return r
}

func score(text string) string {
	if v, err := strconv.ParseFloat(text, 64); err == nil {
		return engine.FormatDouble(v)
	}
	return text
}
