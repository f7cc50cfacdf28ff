package dialing

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"sync"
	"time"
)

type dialFunc = func(ctx context.Context, network, addr string) (net.Conn, error)

// Sentinels returns a function that dials like dial, for a failover client of go-redis. addrs are
// the addresses of the Sentinels. If a Sentinel does not answer within patience, its connection
// fails, and for as long again so do new connections to it.
//
// Otherwise a Sentinel that hangs keeps the client from finding the new primary. go-redis asks the
// Sentinel that answered last, and only if that fails, all others. It waits for the reply until the
// timeout of the whole dial has passed, then ends the dial, and keeps the Sentinel.
func Sentinels(dial dialFunc, addrs []string, patience time.Duration) dialFunc {
	s := &sentinels{dial: dial, patience: patience, hungUntil: map[string]time.Time{}}
	for _, addr := range addrs {
		s.hungUntil[addr] = time.Time{}
	}
	return s.connect
}

type sentinels struct {
	dial     dialFunc
	patience time.Duration

	mu        sync.Mutex
	hungUntil map[string]time.Time // by address; go-redis also finds Sentinels that are not in the URL
}

// state reports whether addr is the address of a Sentinel, and whether it has just failed to answer.
func (s *sentinels) state(addr string) (known, hung bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	until, known := s.hungUntil[addr]
	return known, time.Now().Before(until)
}

func (s *sentinels) set(addr string, until time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hungUntil[addr] = until
}

// failed notes that a Sentinel did not answer in time.
func (s *sentinels) failed(addr string) error {
	s.set(addr, time.Now().Add(s.patience))
	return noAnswer{s.patience}
}

func (s *sentinels) connect(ctx context.Context, network, addr string) (net.Conn, error) {
	known, hung := s.state(addr)
	if hung {
		return nil, noAnswer{s.patience}
	}
	dial := s.dial
	if known {
		dial = s.within
	}
	conn, err := dial(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	conn = limit(conn)
	conn.(interface{ from(*sentinel) }).from(&sentinel{of: s, addr: addr, known: known})
	return conn, nil
}

// within dials a Sentinel, but waits only for s.patience. go-redis's dialer for TLS ignores the
// context.
func (s *sentinels) within(ctx context.Context, network, addr string) (net.Conn, error) {
	type result struct {
		conn net.Conn
		err  error
	}
	ctx, cancel := context.WithTimeout(ctx, s.patience)
	dialed := make(chan result)
	go func() {
		defer cancel()
		conn, err := s.dial(ctx, network, addr)
		select {
		case dialed <- result{conn, err}:
		case <-ctx.Done():
			if err == nil {
				_ = conn.Close()
			}
		}
	}()
	select {
	case r := <-dialed:
		return r.conn, r.err
	case <-ctx.Done():
		if errors.Is(ctx.Err(), context.Canceled) { // another Sentinel has answered
			return nil, ctx.Err()
		}
		return nil, s.failed(addr)
	}
}

// sentinel is what a connection of a failover client knows about its server.
type sentinel struct {
	of    *sentinels
	addr  string
	known bool // it is a Sentinel; otherwise it is a primary, or a Sentinel that was not asked yet
	cut   bool // the deadline of the next read was moved
}

// sees looks at what is sent to the server: only Sentinels get the command SENTINEL.
func (s *sentinel) sees(sent []byte) {
	if !s.known && bytes.HasPrefix(sent, []byte("*3\r\n$8\r\nsentinel\r\n")) {
		s.known = true
		s.of.set(s.addr, time.Time{})
	}
}

// deadline returns the deadline to use for a read. Reads without a deadline wait for messages.
func (s *sentinel) deadline(t time.Time) time.Time {
	s.cut = false
	if earlier := time.Now().Add(s.of.patience); s.known && t.After(earlier) {
		s.cut = true
		return earlier
	}
	return t
}

// read returns the error to report for the error of a read.
func (s *sentinel) read(err error) error {
	if s.cut && errors.Is(err, os.ErrDeadlineExceeded) {
		return s.of.failed(s.addr)
	}
	return err
}

// noAnswer is the error of a Sentinel that does not answer. It matches DeadlineExceeded, because
// go-redis repeats a command after any other timeout.
type noAnswer struct{ within time.Duration }

func (e noAnswer) Error() string { return fmt.Sprintf("no answer within %v", e.within) }

func (noAnswer) Is(target error) bool {
	return slices.Contains([]error{context.DeadlineExceeded, os.ErrDeadlineExceeded}, target)
}
