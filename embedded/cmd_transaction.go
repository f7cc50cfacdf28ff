package embedded

import (
	"strings"

	"github.com/ratelimit-functions/ratelimit/embedded/internal/engine"
)

// transaction holds the commands that are queued after MULTI.
type transaction struct {
	queue [][]string
	dirty bool
}

func cmdMulti(s *Server, c *session, args []string) engine.Reply {
	if c.tx != nil {
		return engine.Error("ERR MULTI calls can not be nested")
	}
	c.tx = &transaction{}
	return ok
}

func cmdDiscard(s *Server, c *session, args []string) engine.Reply {
	if c.tx == nil {
		return engine.Error("ERR DISCARD without MULTI")
	}
	c.tx = nil
	return cmdUnwatch(s, c, nil)
}

func cmdWatch(s *Server, c *session, args []string) engine.Reply {
	if c.tx != nil {
		return engine.Error("ERR WATCH inside MULTI is not allowed")
	}
	c.lost = c.lost && c.watching
	c.watching = true
	s.pass(c, append([]string{"WATCH"}, args...)...)
	return ok
}

func cmdUnwatch(s *Server, c *session, args []string) engine.Reply {
	if c.watching {
		c.watching = false
		s.pass(c, "UNWATCH")
	}
	return ok
}

func cmdExec(s *Server, c *session, args []string) engine.Reply {
	if c.tx == nil {
		return engine.Error("ERR EXEC without MULTI")
	}
	tx := c.tx
	c.tx = nil
	if tx.dirty {
		cmdUnwatch(s, c, nil)
		return engine.Error("EXECABORT Transaction discarded because of previous errors.")
	}
	if c.watching {
		// Run an empty transaction in miniredis. Its result shows whether a watched key has
		// changed.
		c.watching = false
		s.pass(c, "MULTI")
		if r, ok := s.pass(c, "EXEC").(raw); c.lost || ok && strings.HasPrefix(string(r), "*-1") {
			if c.resp3 || c.conn == nil {
				return nil
			}
			return raw("*-1\r\n")
		}
	}
	out := appendHead(nil, '*', int64(len(tx.queue)))
	for _, words := range tx.queue {
		r := s.execute(c, s.lookup(words[0]), words)
		if len(out) <= maxReply {
			out = appendReply(out, r, c.resp3, maxReply)
		}
	}
	return raw(out)
}
