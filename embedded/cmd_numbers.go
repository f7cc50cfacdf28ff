package embedded

import (
	"math"
	"strconv"
	"strings"

	"github.com/ratelimit-functions/ratelimit/embedded/internal/engine"
)

// cmdHIncrBy words the error about a field that is no number as Redis does.
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

// cmdScores makes ZADD and ZINCRBY: miniredis takes NaN for a score.
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

// cmdReadScores makes a command that gives scores.
func cmdReadScores(name string) handler {
	return func(s *Server, c *session, args []string) engine.Reply { return s.passScores(c, name, args) }
}

// passScores has miniredis run a command on a sorted set, and writes the scores
// in its reply as Redis does: a whole number has no exponent. Replies to
// connections are left as they are: a client reads a score as a number.
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
