package dialing

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"syscall"
	"time"
)

// Limits of one reply. The largest replies that this project reads are far below them: CLUSTER
// SLOTS of a cluster whose slots are all separate ranges, and FUNCTION LIST with several megabytes
// of source code.
const (
	mostElements = 1 << 19  // elements of all arrays, maps and sets, nested ones included
	mostBytes    = 64 << 20 // bytes
	mostNested   = 32       // arrays, maps and sets inside each other
)

// ReplyError is the error of a connection whose server sends a reply that is too large or announces
// one.
type ReplyError struct{ problem string }

func (e *ReplyError) Error() string { return e.problem }

// Limited returns a function that dials like dial. Its connections fail with a [*ReplyError] if a
// reply exceeds the limits. Without this, a server that is not trusted can use up the memory of this
// process with a few bytes, because go-redis allocates as much as a reply announces.
func Limited(dial dialFunc) dialFunc {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return limit(conn), nil
	}
}

func limit(conn net.Conn) net.Conn {
	switch as := conn.(type) {
	case *limited, *limitedSocket:
		return conn
	case syscall.Conn:
		return &limitedSocket{limited{Conn: conn}, as}
	}
	return &limited{Conn: conn}
}

// limited is a connection that checks what it reads.
type limited struct {
	net.Conn
	replies  replies
	sentinel *sentinel // nil unless the connection belongs to a failover client
}

func (c *limited) from(s *sentinel) { c.sentinel = s }

func (c *limited) Read(p []byte) (int, error) {
	if c.replies.failed != nil { // go-redis may ignore the first error and read again
		return 0, c.replies.failed
	}
	n, err := c.Conn.Read(p)
	if err != nil && c.sentinel != nil {
		err = c.sentinel.read(err)
	}
	if wrong := c.replies.scan(p[:n]); wrong != nil {
		return 0, wrong
	}
	return n, err
}

func (c *limited) Write(p []byte) (int, error) {
	if c.sentinel != nil {
		c.sentinel.sees(p)
	}
	return c.Conn.Write(p)
}

func (c *limited) SetReadDeadline(t time.Time) error {
	if c.sentinel != nil {
		t = c.sentinel.deadline(t)
	}
	return c.Conn.SetReadDeadline(t)
}

// NetConn returns the connection that c reads from. go-redis looks for a socket there.
func (c *limited) NetConn() net.Conn { return c.Conn }

// limitedSocket is a limited connection without TLS. go-redis uses its socket to check, before each
// command, whether the server has closed the connection.
type limitedSocket struct {
	limited
	socket syscall.Conn
}

func (c *limitedSocket) SyscallConn() (syscall.RawConn, error) { return c.socket.SyscallConn() }

// replies checks a stream of replies in RESP2 or RESP3. It is at least as strict as
// go-redis about lengths: it rejects any that go-redis might read as a different number.
type replies struct {
	failed error

	state  state
	kind   byte // the type of the value whose length is being read
	n      int  // that length, or the bytes of a string that are still to come
	digits int
	minus  bool
	cr     bool

	elements int              // elements that the current reply has announced
	bytes    int              // bytes that the current reply has announced or sent
	open     int              // arrays, maps and sets that are not complete
	missing  [mostNested]uint // elements that each of them still needs
}

type state uint8

const (
	atStart  state = iota // at the type of a value
	inLine                // in a value that ends with its line, such as an integer
	inLength              // in the length of a string or of an array, a map or a set
	inString              // in the bytes of a string
)

func (r *replies) scan(b []byte) error {
	for len(b) > 0 && r.failed == nil {
		switch r.state {
		case atStart:
			r.kind, r.state = b[0], inLine
			switch r.kind {
			case '$', '=', '!', '*', '%', '~', '>', '|':
				r.state, r.n, r.digits, r.minus, r.cr = inLength, 0, 0, false, false
			}
			b = b[1:]
		case inLine:
			end := bytes.IndexByte(b, '\n') + 1
			if end == 0 {
				r.grow(len(b))
				return r.failed
			}
			r.grow(end)
			b = b[end:]
			r.complete()
		case inLength:
			r.length(b[0])
			b = b[1:]
		case inString:
			if len(b) < r.n {
				r.n -= len(b)
				return nil
			}
			b = b[r.n:]
			r.complete()
		}
	}
	return r.failed
}

// length reads the next byte of a length.
func (r *replies) length(c byte) {
	switch {
	case c >= '0' && c <= '9' && !r.cr:
		r.n, r.digits = r.n*10+int(c-'0'), r.digits+1
		if r.n > mostBytes {
			r.announced()
		}
	case c == '-' && r.digits == 0 && !r.minus && !r.cr:
		r.minus = true
	case c == '\r' && r.digits > 0 && !r.cr:
		r.cr = true
	case c == '\n' && r.cr:
		r.begin()
	default:
		r.fail("the server sends a length that is not a number")
	}
}

// begin starts the value whose length has been read.
func (r *replies) begin() {
	n := r.n
	if r.minus {
		n = 0 // a value that does not exist
	}
	switch r.kind {
	case '$', '=', '!':
		if r.minus {
			r.complete()
			return
		}
		r.n, r.state = n+2, inString // a line end follows the string
		r.grow(r.n)
		return
	case '%', '|':
		n *= 2
	}
	if r.kind != '|' { // attributes come before a value, and do not count as one
		r.count()
	}
	r.state = atStart
	if n > 0 {
		r.elements += n
		if r.elements > mostElements {
			r.announced()
			return
		}
		if r.open == mostNested {
			r.fail(fmt.Sprintf("the server sends more than %d arrays inside each other", mostNested))
			return
		}
		r.missing[r.open] = uint(n)
		r.open++
	}
	r.close()
}

// complete ends a value that is not an array, a map or a set.
func (r *replies) complete() {
	r.state = atStart
	r.count()
	r.close()
}

// count notes that one more value of the innermost open array, map or set is complete.
func (r *replies) count() {
	if r.open > 0 {
		r.missing[r.open-1]--
	}
}

// close ends the arrays, maps and sets that are complete, and then perhaps the reply.
func (r *replies) close() {
	for r.open > 0 && r.missing[r.open-1] == 0 {
		r.open--
	}
	if r.open == 0 {
		r.elements, r.bytes = 0, 0
	}
}

func (r *replies) grow(n int) {
	if r.bytes += n; r.bytes > mostBytes {
		r.fail(fmt.Sprintf("the server sends a reply of more than %d bytes", mostBytes))
	}
}

func (r *replies) announced() {
	r.fail(fmt.Sprintf("the server announces a reply of more than %d elements or %d bytes", mostElements, mostBytes))
}

func (r *replies) fail(problem string) { r.failed = &ReplyError{problem} }
