package embedded

import (
	"fmt"
	"time"
)

// clock is the server's time. A command reads it once, so that time stands
// still during a command, an EXEC or a function call.
type clock struct {
	frozen bool
	at     time.Time // while frozen
	now    time.Time // of the running command
}

func (c *clock) read() {
	if c.frozen {
		c.now = c.at
	} else {
		c.now = time.Now()
	}
}

// ms is the running command's time in whole milliseconds: Redis expires keys
// by the millisecond, rounding the clock down.
func (c *clock) ms() int64 { return c.now.UnixMilli() }

// SetTime stops the server's clock at t: TIME returns it, and keys expire by
// it. Moving it forward expires keys as if the time had passed. A key whose
// expiry is the clock's millisecond is still there, with a PTTL of 0, and is
// gone one millisecond later, as on Redis. Times before 1970 are refused, by a
// panic, as a mistake in a test.
func (s *Server) SetTime(t time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.setTime(t); err != nil {
		panic(err)
	}
}

// Advance moves a clock that stands still by d; a clock that runs is first
// stopped at the present time.
func (s *Server) Advance(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.clock.read()
	if err := s.setTime(s.clock.now.Add(d)); err != nil {
		panic(err)
	}
}

// Time is the server's time.
func (s *Server) Time() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.clock.read()
	return s.clock.now
}

func (s *Server) setTime(t time.Time) error {
	if t.UnixMicro() <= 0 {
		return fmt.Errorf("embedded: the clock cannot be set to %s: give a time after 1970-01-01 UTC", t.Format(time.RFC3339Nano))
	}
	s.clock.frozen = true
	s.clock.at = t
	s.keyspace.SetTime(t) // for what miniredis dates itself, such as stream IDs
	return nil
}
