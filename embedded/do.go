package embedded

import (
	"fmt"

	"github.com/ratelimit-functions/ratelimit/embedded/internal/engine"
)

// Error is an error reply: its code, a space, and the message, such as "ERR Function not found".
type Error string

// Error returns the reply.
func (e Error) Error() string { return string(e) }

// Do runs one command without the network. The command is checked like a command from a connection,
// and is never interleaved with other commands. Arguments may be strings, []byte, integers, floats
// and bools. The result is an int64, a string (for bulk and simple strings), nil, or a []any of
// these. An error within an array is an Error value. An error reply is returned as an Error.
//
// Do rejects commands that belong to a connection: MULTI, WATCH and SELECT. To run them, connect a client to Addr.
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
	if cmd := s.lookup(words[0]); cmd != nil && onlyConnections[cmd.name] {
		return nil, Error(fmt.Sprintf("ERR %s belongs to a connection: use a client on the server's address, not Do", cmd.name))
	}
	r := s.run(s.local, words)
	if err, ok := r.(engine.Error); ok {
		return nil, Error(err)
	}
	return plain(r), nil
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
