package embedded

import (
	"fmt"
	"strings"
	"time"

	"github.com/ratelimit-functions/ratelimit/embedded/internal/engine"
)

// clock is the server's clock. It is read once per command, so the time does not change during a
// command, an EXEC or a function call.
type clock struct {
	stopped time.Time // zero if the clock is running
	now     time.Time // the time of the current command
}

func (c *clock) read() {
	c.now = c.stopped
	if c.now.IsZero() {
		c.now = time.Now()
	}
}

// ms returns the current command's time in whole milliseconds, rounded down. Redis also rounds down
// for expiries.
func (c *clock) ms() int64 { return c.now.UnixMilli() }

// SetTime stops the server's clock at t. TIME returns t, and keys expire according to t. A key
// whose expiry equals the clock's millisecond still exists, with a PTTL of 0. It is gone one
// millisecond later, as on Redis. SetTime panics if t is before 1970.
func (s *Server) SetTime(t time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.setTime(t); err != nil {
		panic(err)
	}
}

// Advance moves the clock forward by d. It first stops a running clock at the current time.
func (s *Server) Advance(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.clock.read()
	if err := s.setTime(s.clock.now.Add(d)); err != nil {
		panic(err)
	}
}

// Time returns the server's time.
func (s *Server) Time() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.clock.read()
	return s.clock.now
}

// cmdDebug handles DEBUG SET-TIME, which only this server has: it is SetTime for clients in any
// language. The time is in microseconds since the epoch. cmdDebug rejects other subcommands.
func cmdDebug(s *Server, c *session, args []string) engine.Reply {
	if !strings.EqualFold(args[0], "SET-TIME") {
		return notSupported("DEBUG "+strings.ToUpper(args[0]), "only DEBUG SET-TIME is")
	}
	if len(args) != 2 {
		return engine.Error("ERR wrong number of arguments for 'debug|set-time' command")
	}
	us, err := parseInt(args[1])
	if err != nil {
		return errNotInteger
	}
	if err := s.setTime(time.UnixMicro(us)); err != nil {
		return engine.Error("ERR " + err.Error())
	}
	return ok
}

func (s *Server) setTime(t time.Time) error {
	if t.UnixMicro() <= 0 {
		return fmt.Errorf("embedded: the clock cannot be set to %s: give a time after 1970-01-01 UTC", t.Format(time.RFC3339Nano))
	}
	s.clock.stopped = t
	s.keyspace.SetTime(t) // for times that miniredis generates, such as stream IDs
	return nil
}
