package embedded

import (
	"bufio"
	"errors"
	"net"
	"strings"
	"sync"

	"github.com/alicebob/miniredis/v2/server"
	"github.com/ratelimit-functions/ratelimit/embedded/internal/engine"
)

// session is the state of one connection, or of in-process calls.
type session struct {
	id   int64
	db   int
	name string

	resp3    bool
	closing  bool
	watching bool
	lost     bool // whether the watched keys were lost; see reopen
	tx       *transaction

	peer *server.Peer
	conn net.Conn // nil for an in-process session
	in   *bufio.Reader
	out  output
}

func (s *Server) newSession(conn net.Conn) *session {
	s.nextID++
	c := &session{id: s.nextID, peer: server.NewPeer(s.capture.w), conn: conn}
	c.peer.Resp3 = conn == nil // in-process sessions use RESP3, which distinguishes scores from strings; see parseReply
	if conn != nil {
		c.out.conn = conn
		c.in = bufio.NewReaderSize(c, 4<<10)
	}
	return c
}

// Read sends the pending replies before it waits for more commands.
func (c *session) Read(p []byte) (int, error) {
	c.out.flush()
	return c.conn.Read(p)
}

func (s *Server) admit(conn net.Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.isClosed() {
		conn.Close()
		return
	}
	c := s.newSession(conn)
	s.sessions[c] = true
	s.wg.Go(func() { s.serve(c) })
}

func (s *Server) serve(c *session) {
	for !c.closing {
		words, err := readCommand(c.in)
		var bad protocolError
		switch {
		case errors.As(err, &bad):
			c.out.write(engine.Error(bad.Error()), false)
			c.closing = true
		case err != nil:
			c.closing = true
		case len(words) == 0:
		case strings.EqualFold(words[0], "POST") || strings.EqualFold(words[0], "HOST:"):
			c.closing = true // an HTTP request, perhaps sent by a browser for a malicious web page
		default:
			c.out.write(s.run(c, words), c.resp3)
		}
	}
	c.out.flush()
	c.out.sending.Wait()
	c.conn.Close()
	s.mu.Lock()
	defer s.mu.Unlock()
	c.peer.Close()
	delete(s.sessions, c)
}

// maxUnread is the maximum number of bytes of unread replies per client. Beyond it, the client's
// commands wait.
const maxUnread = 64 << 20

// output holds the replies that have not been sent. A goroutine sends them while the connection
// reads further commands, because a client may send a long pipeline before it reads replies.
type output struct {
	conn    net.Conn
	sending sync.WaitGroup

	mu       sync.Mutex
	replies  []byte
	inFlight int  // bytes that the goroutine is sending
	active   bool // whether the goroutine is running
	broken   bool // whether sending failed
}

func (o *output) write(r engine.Reply, resp3 bool) {
	o.mu.Lock()
	if !o.broken {
		o.replies = appendBounded(o.replies, r, resp3)
	}
	waiting := o.inFlight + len(o.replies)
	o.mu.Unlock()
	if waiting > 16<<10 {
		o.flush()
	}
	if waiting > maxUnread {
		o.sending.Wait()
	}
}

func (o *output) flush() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.replies) > 0 && !o.active {
		o.active = true
		o.sending.Go(o.send)
	}
}

func (o *output) send() {
	var sent []byte
	for {
		o.mu.Lock()
		sent, o.replies = o.replies, sent[:0]
		o.inFlight, o.active = len(sent), len(sent) > 0
		o.mu.Unlock()
		if len(sent) == 0 {
			return
		}
		if _, err := o.conn.Write(sent); err != nil {
			o.conn.Close()
			o.mu.Lock()
			o.replies, o.inFlight, o.active, o.broken = nil, 0, false, true
			o.mu.Unlock()
			return
		}
		if cap(sent) > 4<<10 {
			sent = nil
		}
	}
}
