package embedded

import (
	"fmt"
	"strings"

	"github.com/ratelimit-functions/ratelimit/embedded/internal/engine"
)

// handler runs one command; args are its words without the name. The server is
// locked.
type handler func(s *Server, c *session, args []string) engine.Reply

// answer runs a command of a connection and writes its reply. It reports
// whether the connection goes on.
func (s *Server) answer(c *session, words []string) bool {
	r := s.run(c, words)
	if w, ok := r.(wait); ok {
		r = s.waitFor(c, w)
	}
	if _, silent := r.(noReply); !silent {
		c.write(r)
	}
	return !c.closing
}

// noReply is the reply of a command that has written for itself.
type noReply struct{}

// run locks the server and runs one command.
func (s *Server) run(c *session, words []string) engine.Reply {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return engine.Error("ERR the embedded server is closed")
	}
	s.clock.read()
	s.expire()
	return s.dispatch(c, words)
}

// dispatch checks a command as Redis does before it runs it.
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
	if s.opts.cluster && cmd.keys != nil && !sameSlot(cmd.keys(args)) {
		return refuse(crossSlot)
	}
	if c.tx != nil && !runsInMulti[cmd.name] {
		c.tx.queue = append(c.tx.queue, words)
		return engine.Status("QUEUED")
	}
	return s.execute(c, cmd, words)
}

// runsInMulti are the commands that MULTI does not queue.
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
	if cmd.write && s.changed != nil {
		close(s.changed)
		s.changed = nil
	}
	if cmd.run != nil {
		return cmd.run(s, c, words[1:])
	}
	return s.pass(c, words...)
}

func unknownCommand(words []string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "ERR unknown command '%.128s', with args beginning with: ", words[0])
	for _, w := range words[1:] {
		if b.Len() > 160 {
			break
		}
		fmt.Fprintf(&b, "'%.128s' ", w)
	}
	return b.String()
}

// Error is an error reply: its code, a space, and the text, as in "ERR
// Function not found".
type Error string

// Error gives the reply's text.
func (e Error) Error() string { return string(e) }

// Do runs one command in the process, without the network: the same dispatch
// and the same locking as for a connection. Arguments may be strings, []byte,
// integers, floats and bools. The result is an int64, a string (bulk and
// simple strings alike), nil, or a []any of these; an error within an array is
// an Error value. An error reply is returned as an Error.
//
// Commands that belong to a connection (MULTI, WATCH, SUBSCRIBE, SELECT and
// those that block) are refused: use a client on Addr.
func (s *Server) Do(args ...any) (any, error) {
	if len(args) == 0 {
		return nil, Error("ERR Do needs a command")
	}
	words := make([]string, len(args))
	for i, a := range args {
		w, err := word(a)
		if err != nil {
			return nil, err
		}
		words[i] = w
	}
	if cmd := s.lookup(words[0]); cmd != nil && (onlyConnections[cmd.name] || cmd.blocking) {
		return nil, Error(fmt.Sprintf("ERR %s belongs to a connection: use a client on the server's address, not Do", cmd.name))
	}
	r := s.run(s.local, words)
	if err, ok := r.(engine.Error); ok {
		return nil, Error(err)
	}
	return plain(r), nil
}

var onlyConnections = map[string]bool{
	"MULTI": true, "EXEC": true, "DISCARD": true, "WATCH": true, "UNWATCH": true, "SELECT": true, "HELLO": true,
	"SUBSCRIBE": true, "UNSUBSCRIBE": true, "PSUBSCRIBE": true, "PUNSUBSCRIBE": true, "QUIT": true, "RESET": true,
}

func word(a any) (string, error) {
	switch a := a.(type) {
	case string:
		return a, nil
	case []byte:
		return string(a), nil
	case bool:
		if a {
			return "1", nil
		}
		return "0", nil
	case int, int8, int16, int32, int64, uint, uint8, uint16, uint32, uint64, float32, float64:
		return fmt.Sprint(a), nil
	}
	return "", Error(fmt.Sprintf("ERR Do cannot send an argument of type %T: give a string, []byte, number or bool", a))
}

func plain(r engine.Reply) any {
	switch r := r.(type) {
	case engine.Status:
		return string(r)
	case engine.Error:
		return Error(r)
	case []engine.Reply:
		return plainList(r)
	case engine.Map:
		return plainList(r)
	case engine.Set:
		return plainList(r)
	}
	return r
}

func plainList(list []engine.Reply) []any {
	out := make([]any, len(list))
	for i, x := range list {
		out[i] = plain(x)
	}
	return out
}
