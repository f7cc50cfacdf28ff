package embedded

import "github.com/ratelimit-functions/ratelimit/embedded/internal/engine"

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
	return ok
}

func cmdExec(s *Server, c *session, args []string) engine.Reply {
	if c.tx == nil {
		return engine.Error("ERR EXEC without MULTI")
	}
	tx := c.tx
	c.tx = nil
	if tx.dirty {
		return engine.Error("EXECABORT Transaction discarded because of previous errors.")
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
