package embedded

import (
	"fmt"
	"strconv"

	"github.com/ratelimit-functions/ratelimit/embedded/internal/engine"
)

func cmdFCall(readOnly bool) handler {
	return func(s *Server, c *session, args []string) engine.Reply {
		f := s.engine.Lookup(args[0])
		if f == nil {
			return engine.Error("ERR Function not found")
		}
		n, err := parseInt(args[1])
		switch {
		case err != nil:
			return engine.Error("ERR Bad number of keys provided")
		case n > int64(len(args)-2):
			return engine.Error("ERR Number of keys can't be greater than number of args")
		case n < 0:
			return engine.Error("ERR Number of keys can't be negative")
		}
		if s.script.db != c.db {
			cmdSelect(s, s.script, []string{strconv.Itoa(c.db)})
		}
		return s.engine.Call(f, args[2:2+n], args[2+n:], readOnly)
	}
}

// scriptCall runs a command for a function. It makes the same checks as Redis's scriptCall, in the
// same order.
func (s *Server) scriptCall(run *engine.Run, words []string) engine.Reply {
	cmd := s.lookup(words[0])
	switch {
	case cmd == nil:
		return engine.Error("ERR Unknown Redis command called from script")
	case !cmd.arityOK(len(words)):
		return engine.Error("ERR Wrong number of args calling Redis command from script")
	case cmd.noScript:
		return engine.Error("ERR This Redis command is not allowed from script")
	case cmd.write && run.ReadOnly:
		return engine.Error("ERR Write commands are not allowed from read-only scripts.")
	}
	if reason, ok := touchesOthers[cmd.name]; ok {
		return engine.Error(fmt.Sprintf("ERR the embedded server refuses %s in a function: it %s, and a function may only touch the keys it is given", cmd.name, reason))
	}
	for _, key := range cmd.keys(words[1:]) {
		if !run.Declared(key) {
			return engine.Error(fmt.Sprintf("ERR Script attempted to access a key that it was not given: %s on '%.128s', which is not among the keys of this call. "+
				"Pass every key in KEYS: Redis Cluster and ACLs rely on it", cmd.name, key))
		}
	}
	return s.execute(s.script, cmd, words)
}
