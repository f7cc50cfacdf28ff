package embedded

import (
	"fmt"
	"strings"

	"github.com/ratelimit-functions/ratelimit/embedded/internal/engine"
)

// handler runs one command. args are the command's arguments, without its name. The caller holds
// the server's lock.
type handler func(s *Server, c *session, args []string) engine.Reply

// run locks the server and runs one command.
func (s *Server) run(c *session, words []string) engine.Reply {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.isClosed() {
		return engine.Error("ERR the embedded server is closed")
	}
	s.clock.read()
	s.expire()
	return s.dispatch(c, words)
}

// dispatch checks a command as Redis does, and runs or queues it.
func (s *Server) dispatch(c *session, words []string) engine.Reply {
	cmd := s.lookup(words[0])
	args := words[1:]
	refuse := func(text string) engine.Reply {
		if c.tx != nil {
			c.tx.dirty = true
		}
		return engine.Error(text)
	}
	if cmd == nil {
		return refuse(unknownCommand(words))
	}
	if !cmd.arityOK(len(words)) {
		return refuse(fmt.Sprintf("ERR wrong number of arguments for '%s' command", strings.ToLower(cmd.name)))
	}
	if s.opts.cluster && !sameSlot(cmd.keys(args)) {
		return refuse(crossSlot)
	}
	if c.tx != nil && !runsInMulti[cmd.name] {
		c.tx.queue = append(c.tx.queue, words)
		return engine.Status("QUEUED")
	}
	return s.execute(c, cmd, words)
}

// runsInMulti lists the commands that are not queued after MULTI, but run immediately.
var runsInMulti = map[string]bool{
	"MULTI": true, "EXEC": true, "DISCARD": true, "WATCH": true, "QUIT": true, "RESET": true,
}

func (s *Server) lookup(name string) *command {
	if cmd, ok := s.commands[name]; ok {
		return cmd
	}
	return s.commands[strings.ToUpper(name)]
}

func (s *Server) execute(c *session, cmd *command, words []string) engine.Reply {
	if e := cmd.tooMuch(words); e != nil {
		return e
	}
	if cmd.run != nil {
		return cmd.run(s, c, words[1:])
	}
	return s.pass(c, words...)
}
