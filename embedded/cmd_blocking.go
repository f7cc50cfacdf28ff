package embedded

import (
	"bufio"
	"bytes"
	"errors"
	"math"
	"os"
	"slices"
	"strconv"
	"time"

	"github.com/ratelimit-functions/ratelimit/embedded/internal/engine"
)

// waiter is a connection that waits in a blocking command. A handler returns a waiter instead of a
// reply if the command has to wait.
type waiter struct {
	c       *session
	words   []string
	timeout time.Duration // 0 for no timeout
	reply   chan engine.Reply
}

// nullArray returns the reply to a blocking command that timed out, or to EXEC if a watched key
// changed.
func (c *session) nullArray() engine.Reply {
	if c.resp3 || c.conn == nil {
		return nil
	}
	return raw("*-1\r\n")
}

// cmdBlocking returns the handler for a command that may block. The command never blocks in a
// function or in EXEC.
func cmdBlocking(name string) handler {
	return func(s *Server, c *session, args []string) engine.Reply {
		text := args[len(args)-1]
		if name == "BZMPOP" {
			text = args[0]
		}
		seconds, _ := strconv.ParseFloat(text, 64) // miniredis rejects other invalid timeouts
		if math.IsNaN(seconds) {
			return engine.Error("ERR timeout is not a float or out of range")
		}
		words := append([]string{name}, args...)
		r, done := s.tryBlocking(c, words)
		if done {
			return r
		}
		if c.conn == nil {
			return c.nullArray()
		}
		timeout := time.Duration(min(seconds*float64(time.Second), math.MaxInt64/2))
		return &waiter{c, words, timeout, make(chan engine.Reply, 1)}
	}
}

// tryBlocking runs a blocking command in a miniredis transaction, where it does not block. It
// reports whether the command got a reply.
func (s *Server) tryBlocking(c *session, words []string) (engine.Reply, bool) {
	s.pass(c, "MULTI")
	if queued := s.passRaw(c, words); !bytes.HasPrefix(queued, []byte("+QUEUED")) {
		r := c.reply(queued)
		s.pass(c, "DISCARD")
		return r, true
	}
	b := bytes.TrimPrefix(s.passRaw(c, []string{"EXEC"}), []byte("*1\r\n"))
	for _, null := range []string{"$-1", "*-1", "_"} {
		if bytes.HasPrefix(b, []byte(null)) {
			return nil, false
		}
	}
	return c.reply(b), true
}

// serveWaiters runs the waiting commands again after a write, starting with the one that has waited
// longest. As on Redis, this happens before any other command runs, and a command keeps waiting if
// its key has the wrong type.
func (s *Server) serveWaiters() {
	for i := 0; i < len(s.waiters); i++ {
		w := s.waiters[i]
		r, done := s.tryBlocking(w.c, w.words)
		if b, ok := r.(raw); !done || ok && bytes.HasPrefix(b, []byte("-WRONGTYPE")) {
			continue
		}
		s.waiters = slices.Delete(s.waiters, i, i+1)
		w.reply <- r
		i = -1 // this command may have written a key that an earlier waiter needs
	}
}

// wait waits until a waiting command is served or times out, the client disconnects, or the server
// closes. It returns the command's reply.
func (s *Server) wait(w *waiter) engine.Reply {
	var timeout <-chan time.Time
	if w.timeout > 0 {
		timer := time.NewTimer(w.timeout)
		defer timer.Stop()
		timeout = timer.C
	}
	disconnected, stop := w.c.watchForEnd()
	defer stop()
	select {
	case r := <-w.reply:
		return r
	case <-timeout:
	case <-disconnected:
	case <-s.closing:
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waiters = slices.DeleteFunc(s.waiters, func(x *waiter) bool { return x == w })
	select {
	case r := <-w.reply: // the reply arrived after the first select
		return r
	default:
		return w.c.nullArray()
	}
}

// watchForEnd reads ahead until stop is called, so that it notices when the client disconnects.
func (c *session) watchForEnd() (disconnected chan struct{}, stop func()) {
	disconnected, over := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(over)
		var err error
		for err == nil {
			_, err = c.in.Peek(c.in.Buffered() + 1)
		}
		if !errors.Is(err, os.ErrDeadlineExceeded) && !errors.Is(err, bufio.ErrBufferFull) {
			close(disconnected)
		}
	}()
	return disconnected, func() {
		c.conn.SetReadDeadline(time.Unix(1, 0))
		<-over
		c.conn.SetReadDeadline(time.Time{})
	}
}

// cmdXRead returns the handler for XREAD or XREADGROUP, which rejects the option BLOCK.
func cmdXRead(name string) handler {
	return func(s *Server, c *session, args []string) engine.Reply {
		options := args[:max(indexFold(args, "STREAMS"), 0)]
		if contains(options, "BLOCK") {
			return notSupported(name+" with BLOCK", "ask again instead")
		}
		return s.pass(c, append([]string{name}, args...)...)
	}
}
