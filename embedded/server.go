package embedded

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"sync"

	"github.com/alicebob/miniredis/v2"
	"github.com/ratelimit-functions/ratelimit/embedded/internal/engine"
)

// Server is an in-process Redis server with Redis Functions. Make one with
// Start or Run; the zero value is not usable. All methods are safe for
// concurrent use.
type Server struct {
	opts     options
	listener net.Listener
	commands map[string]*command
	closing  chan struct{}
	wg       sync.WaitGroup

	// mu is held while a command runs: a command, an EXEC or a function call
	// is never interleaved with another connection's.
	mu       sync.Mutex
	closed   bool
	keyspace *miniredis.Miniredis
	engine   *engine.Engine
	clock    clock
	expiry   expiry
	local    *session // of Do
	script   *session // of redis.call
	sessions map[*session]net.Conn
	nextID   int64
	changed  chan struct{} // closed by the next write, if anyone waits
}

// Start starts a server. It is empty: no keys, and no library unless
// WithLibrary names one. Close it when done.
func Start(opts ...Option) (*Server, error) {
	o := options{addr: "127.0.0.1:0"}
	for _, opt := range opts {
		opt(&o)
	}
	s := &Server{
		opts:     o,
		closing:  make(chan struct{}),
		keyspace: miniredis.NewMiniRedis(),
		sessions: map[*session]net.Conn{},
	}
	s.commands = s.commandHandlers()
	if err := s.openKeyspace(); err != nil {
		return nil, err
	}
	s.engine = engine.New(keyspace{s})
	s.local = s.newSession()
	s.script = s.newSession()
	if !o.start.IsZero() {
		if err := s.setTime(o.start); err != nil {
			s.shut()
			return nil, err
		}
	}
	for _, text := range o.libraries {
		if err := s.Load(text); err != nil {
			s.shut()
			return nil, fmt.Errorf("embedded: the library given to WithLibrary does not load: %w", err)
		}
	}
	l, err := net.Listen("tcp", o.addr)
	if err != nil {
		s.shut()
		return nil, fmt.Errorf("embedded: cannot listen on %s: %w", o.addr, err)
	}
	s.listener = l
	s.wg.Add(1)
	go s.accept()
	return s, nil
}

// TB is the part of testing.TB that Run needs.
type TB interface {
	Helper()
	Fatalf(format string, args ...any)
	Cleanup(func())
}

// Run is Start for tests: it stops the test if the server does not start, and
// closes the server when the test is over.
func Run(tb TB, opts ...Option) *Server {
	tb.Helper()
	s, err := Start(opts...)
	if err != nil {
		tb.Fatalf("%v", err)
	}
	tb.Cleanup(func() { s.Close() })
	return s
}

// openKeyspace starts miniredis without a listener of its own.
func (s *Server) openKeyspace() error {
	conn, err := s.keyspace.Dial()
	if err != nil {
		return fmt.Errorf("embedded: cannot start the keyspace: %w", err)
	}
	return conn.Close()
}

// Addr is the address that the server listens on, as "127.0.0.1:12345".
func (s *Server) Addr() string { return s.listener.Addr().String() }

// Close stops the server, cuts all connections, and waits for them to end. A
// closed server cannot be used again; closing it twice does nothing.
func (s *Server) Close() error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return nil
	}
	s.closed = true
	close(s.closing)
	err := s.listener.Close()
	for _, c := range s.sessions {
		c.Close()
	}
	s.mu.Unlock()
	s.wg.Wait()
	s.shut()
	return err
}

// shut frees what does not need the network.
func (s *Server) shut() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	s.engine.Close()
	s.keyspace.Close()
}

func (s *Server) accept() {
	defer s.wg.Done()
	for {
		conn, err := s.listener.Accept()
		if err != nil {
			return
		}
		s.mu.Lock()
		if s.closed {
			s.mu.Unlock()
			conn.Close()
			return
		}
		c := s.newSession()
		s.sessions[c] = conn
		s.wg.Add(1)
		s.mu.Unlock()
		go s.serve(c, conn)
	}
}

// serve answers one connection until it ends.
func (s *Server) serve(c *session, conn net.Conn) {
	defer s.wg.Done()
	defer func() {
		conn.Close()
		s.mu.Lock()
		s.endSession(c)
		delete(s.sessions, c)
		s.mu.Unlock()
	}()
	in := bufio.NewReaderSize(conn, 16<<10)
	c.conn = conn
	for {
		words, err := readCommand(in)
		if err != nil {
			var bad protocolError
			if errors.As(err, &bad) {
				c.write(engine.Error(bad.Error()))
				c.flush()
			}
			return
		}
		if len(words) == 0 {
			continue
		}
		if !s.answer(c, words) {
			c.flush()
			return
		}
		if in.Buffered() == 0 && c.flush() != nil {
			return
		}
	}
}

// Load loads a library, replacing one of the same name: FUNCTION LOAD REPLACE.
// The error is an Error with the server's text.
func (s *Server) Load(text string) error {
	_, err := s.Do("FUNCTION", "LOAD", "REPLACE", text)
	return err
}
