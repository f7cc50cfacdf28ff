package embedded

import (
	"errors"
	"fmt"
	"net"
	"sync"

	"github.com/alicebob/miniredis/v2"
	"github.com/ratelimit-functions/ratelimit/embedded/internal/engine"
)

// Server is an in-process Redis server with Redis Functions. Use Start or Run to create one; the
// zero value is not usable. All methods are safe for concurrent use.
type Server struct {
	opts     options
	listener net.Listener
	commands map[string]*command
	closed   sync.Once
	closing  chan struct{} // closed by Close
	wg       sync.WaitGroup

	// mu is held while a command, an EXEC or a function call runs, so these are never interleaved
	// with the commands of another connection.
	mu       sync.Mutex
	keyspace *miniredis.Miniredis
	engine   *engine.Engine
	clock    clock
	expiry   expiry
	local    *session // for Do
	script   *session // for redis.call
	capture  *capture
	sessions map[*session]bool
	nextID   int64
}

// Start starts a server without keys. It has no libraries except those of WithLibrary. Call Close
// when done.
func Start(opts ...Option) (*Server, error) {
	o := options{addr: "127.0.0.1:0"}
	for _, opt := range opts {
		if opt == nil {
			return nil, errors.New("embedded: an option is nil; leave it out")
		}
		opt(&o)
	}
	s := &Server{
		opts:     o,
		closing:  make(chan struct{}),
		keyspace: miniredis.NewMiniRedis(),
		expiry:   expiry{planned: map[dbKey]int64{}},
		capture:  newCapture(),
		sessions: map[*session]bool{},
	}
	s.commands = s.commandHandlers()
	conn, err := s.keyspace.Dial() // starts miniredis without a listener
	if err != nil {
		return nil, fmt.Errorf("embedded: cannot start the keyspace: %w", err)
	}
	conn.Close()
	s.engine = engine.New(s.scriptCall)
	s.local = s.newSession(nil)
	s.script = s.newSession(nil)
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
	s.wg.Go(s.accept)
	return s, nil
}

// TB is the part of testing.TB that Run needs.
type TB interface {
	Helper()
	Fatalf(format string, args ...any)
	Cleanup(func())
}

// Run is like Start, but for tests. It fails the test if the server does not start, and closes the
// server at the end of the test.
func Run(tb TB, opts ...Option) *Server {
	tb.Helper()
	s, err := Start(opts...)
	if err != nil {
		tb.Fatalf("%v", err)
	}
	tb.Cleanup(func() { s.Close() })
	return s
}

// Addr returns the address that the server listens on, such as "127.0.0.1:12345".
func (s *Server) Addr() string { return s.listener.Addr().String() }

// Close stops the server, closes all connections, and waits until they and the running function
// have ended. Calls that are waiting, and later calls, return an error. A closed server cannot be
// used again. Further calls to Close do nothing.
func (s *Server) Close() error {
	var err error
	s.closed.Do(func() {
		close(s.closing)
		err = s.listener.Close()
		s.mu.Lock()
		for c := range s.sessions {
			c.conn.Close()
		}
		s.mu.Unlock()
		s.wg.Wait()
		s.shut()
	})
	return err
}

func (s *Server) isClosed() bool {
	select {
	case <-s.closing:
		return true
	default:
		return false
	}
}

// shut frees everything except the listener and the connections.
func (s *Server) shut() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.engine.Close()
	s.keyspace.Close()
}

func (s *Server) accept() {
	for {
		conn, err := s.listener.Accept()
		if err != nil {
			return
		}
		s.admit(conn)
	}
}

// Load loads a library, replacing a library with the same name, like FUNCTION LOAD REPLACE. If the
// server rejects the library, the error is an Error with the server's reply.
func (s *Server) Load(text string) error {
	_, err := s.Do("FUNCTION", "LOAD", "REPLACE", text)
	return err
}
