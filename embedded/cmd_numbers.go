package embedded

import (
	"math"
	"strconv"

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

// cmdScores returns the handler for ZADD or ZINCRBY. It rejects NaN, which miniredis accepts as a
// score. The last arguments are pairs of a score and a member.
func cmdScores(name string) handler {
	return func(s *Server, c *session, args []string) engine.Reply {
		for i := len(args) - 2; i > 0; i -= 2 {
			if v, err := strconv.ParseFloat(args[i], 64); err == nil && math.IsNaN(v) {
				return engine.Error("ERR value is not a valid float")
			}
		}
		return s.pass(c, append([]string{name}, args...)...)
	}
}
