package embedded

import (
	"bufio"
	"bytes"
	"io"
	"net"

	"github.com/alicebob/miniredis/v2/server"
	"github.com/ratelimit-functions/ratelimit/embedded/internal/engine"
)

// session is what the server knows of one connection. Its peer is miniredis's
// view of it.
type session struct {
	id   int64
	db   int
	name string

	resp3      bool
	subscribed bool
	closing    bool
	watching   bool
	tx         *transaction

	peer *server.Peer
	sink *sink
	conn net.Conn // nil for the sessions within the process
	out  []byte   // replies not yet sent
}

// sink is where miniredis writes. What it writes is captured; once a
// connection subscribes, miniredis sends messages of its own accord, and
// everything goes straight to the connection.
type sink struct {
	captured bytes.Buffer
	direct   io.Writer
}

func (s *sink) Write(p []byte) (int, error) {
	if s.direct != nil {
		return s.direct.Write(p)
	}
	return s.captured.Write(p)
}

func (s *Server) newSession() *session {
	s.nextID++
	sk := &sink{}
	return &session{id: s.nextID, sink: sk, peer: server.NewPeer(bufio.NewWriter(sk))}
}

// endSession ends what miniredis keeps for a connection.
func (s *Server) endSession(c *session) {
	if c.subscribed {
		ms := s.keyspace.Server()
		ms.Dispatch(c.peer, []string{"UNSUBSCRIBE"})
		ms.Dispatch(c.peer, []string{"PUNSUBSCRIBE"})
	}
	c.peer.Close()
}

// subscribe lets miniredis write to the connection directly.
func (c *session) subscribe() {
	if c.subscribed {
		return
	}
	c.flush()
	c.subscribed = true
	c.sink.direct = c.conn
}

// raw is a reply that is already in the form of the protocol.
type raw []byte

// write puts a reply behind those not yet sent.
func (c *session) write(r engine.Reply) {
	if b, ok := r.(raw); ok {
		c.out = append(c.out, b...)
	} else {
		c.out = appendReply(c.out, r, c.resp3)
	}
}

// flush sends the replies.
func (c *session) flush() error {
	if len(c.out) == 0 {
		return nil
	}
	var err error
	if c.subscribed {
		c.peer.WriteRaw(string(c.out))
		c.peer.Flush()
	} else {
		_, err = c.conn.Write(c.out)
	}
	c.out = c.out[:0]
	if cap(c.out) > 1<<20 {
		c.out = nil
	}
	return err
}

// pass has miniredis run a command, and gives what it writes.
func (s *Server) pass(c *session, words ...string) engine.Reply {
	c.sink.captured.Reset()
	s.keyspace.Server().Dispatch(c.peer, words)
	c.peer.Flush()
	b := c.sink.captured.Bytes()
	if c.conn != nil {
		return raw(bytes.Clone(b))
	}
	r, _, err := parseReply(b)
	if err != nil {
		return engine.Error("ERR the embedded server cannot read a reply of its keyspace to " + words[0] + ": " + err.Error())
	}
	return r
}
