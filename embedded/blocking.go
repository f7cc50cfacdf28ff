package embedded

import (
	"strconv"
	"strings"
	"time"

	"github.com/ratelimit-functions/ratelimit/embedded/internal/engine"
)

// wait is the reply of a blocking command that has nothing to give yet.
type wait struct {
	words    []string
	deadline time.Time // zero: for ever
	null     engine.Reply
}

func (w wait) timedOut() engine.Reply { return w.null }

// cmdBlocking makes a command that may block. Within a transaction of
// miniredis it does not.
func cmdBlocking(name string) handler {
	return func(s *Server, c *session, args []string) engine.Reply {
		if c.conn == nil {
			return s.pass(c, append([]string{name}, args...)...)
		}
		timeout, blocks, e := blockTimeout(name, args)
		if e != nil {
			return e
		}
		words := append([]string{name}, args...)
		w := wait{words: words, null: raw("*-1\r\n")}
		if c.resp3 {
			w.null = nil
		}
		if timeout > 0 {
			w.deadline = time.Now().Add(timeout)
		}
		r, done := s.tryBlocking(c, words)
		if done || !blocks {
			return r
		}
		return w
	}
}

// tryBlocking runs a blocking command once, and reports whether it is done.
func (s *Server) tryBlocking(c *session, words []string) (engine.Reply, bool) {
	s.pass(c, "MULTI")
	queued, _ := s.pass(c, words...).(raw)
	if !strings.HasPrefix(string(queued), "+QUEUED") {
		s.pass(c, "DISCARD")
		return queued, true
	}
	r, _ := s.pass(c, "EXEC").(raw)
	r = r[len("*1\r\n"):]
	null := strings.HasPrefix(string(r), "$-1") || strings.HasPrefix(string(r), "*-1") || strings.HasPrefix(string(r), "_")
	return r, !null
}

func blockTimeout(name string, args []string) (d time.Duration, blocks bool, e engine.Reply) {
	text, unit := args[len(args)-1], time.Second
	switch name {
	case "XREAD", "XREADGROUP":
		text, unit = "", time.Millisecond
		for i, a := range args[:len(args)-1] {
			if strings.EqualFold(a, "BLOCK") {
				text = args[i+1]
			}
			if strings.EqualFold(a, "STREAMS") {
				break
			}
		}
		if text == "" {
			return 0, false, nil
		}
	case "BZMPOP":
		text = args[0]
	}
	v, err := strconv.ParseFloat(text, 64)
	switch {
	case err != nil:
		return 0, false, engine.Error("ERR timeout is not a float or out of range")
	case v < 0:
		return 0, false, engine.Error("ERR timeout is negative")
	}
	return time.Duration(v * float64(unit)), true, nil
}

// waitFor tries a blocking command again after each write, without the lock in
// between.
func (s *Server) waitFor(c *session, w wait) engine.Reply {
	var timer <-chan time.Time
	if !w.deadline.IsZero() {
		t := time.NewTimer(time.Until(w.deadline))
		defer t.Stop()
		timer = t.C
	}
	for {
		s.mu.Lock()
		s.clock.read()
		s.expire()
		r, done := s.tryBlocking(c, w.words)
		if s.changed == nil {
			s.changed = make(chan struct{})
		}
		changed := s.changed
		s.mu.Unlock()
		if done {
			return r
		}
		select {
		case <-changed:
		case <-timer:
			return w.timedOut()
		case <-s.closing:
			c.closing = true
			return w.timedOut()
		}
	}
}
