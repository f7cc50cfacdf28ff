package embedded

import (
	"bufio"
	"bytes"
	"fmt"
	"strconv"
	"strings"

	"github.com/alicebob/miniredis/v2/server"
	"github.com/ratelimit-functions/ratelimit/embedded/internal/engine"
)

// maxReply is the maximum length of a reply in bytes. A longer reply becomes an error.
const maxReply = 64 << 20

var errReplyTooLong = engine.Error(fmt.Sprintf("ERR the reply is longer than %d MiB, which the embedded server does not send: ask for less at once", maxReply>>20))

type capture struct {
	reply bytes.Buffer
	w     *bufio.Writer // buffers writes to this capture
}

func newCapture() *capture {
	c := &capture{}
	c.w = bufio.NewWriter(c)
	return c
}

// Write panics if the reply gets too long, because otherwise miniredis would continue to write it
// for minutes.
func (c *capture) Write(p []byte) (int, error) {
	if c.reply.Len()+len(p) > maxReply {
		panic(errReplyTooLong)
	}
	return c.reply.Write(p)
}

// reset prepares for the next reply. If the last reply was long, reset frees its memory.
func (c *capture) reset() {
	c.w.Reset(c)
	c.reply.Reset()
	if c.reply.Cap() > 1<<20 {
		c.reply = bytes.Buffer{}
	}
}

// raw is a reply that is already encoded for its connection.
type raw []byte

// pass runs a command on miniredis and returns its reply: a raw reply for a connection, and a
// parsed reply for an in-process session.
func (s *Server) pass(c *session, words ...string) engine.Reply {
	return c.reply(s.passRaw(c, words))
}

// passRaw is like pass, but returns the reply as miniredis writes it. The reply is valid until the
// next command.
func (s *Server) passRaw(c *session, words []string) (reply []byte) {
	defer func() {
		if fault := recover(); fault != nil {
			s.reopen(c)
			if fault == errReplyTooLong {
				reply = appendReply(nil, errReplyTooLong, false, maxReply)
				return
			}
			reply = fmt.Appendf(nil, "-ERR the embedded server cannot run this: miniredis, which holds its keys, fails: %v\r\n", fault)
		}
	}()
	s.capture.reset()
	if hasScores := strings.EqualFold(words[0][:1], "z"); hasScores && !c.peer.Resp3 {
		// In RESP2, miniredis writes scores as strings, in another form than Redis.
		c.peer.Resp3 = true
		defer func() {
			c.peer.Resp3 = false
			reply, _ = appendResp2(nil, reply)
		}()
	}
	s.keyspace.Server().Dispatch(c.peer, words)
	c.peer.Flush()
	return s.capture.reply.Bytes()
}

// reopen gives a session a new peer after a panic, because miniredis may be in the middle of a
// MULTI and may still hold its lock. The watched keys of the session are lost with the old peer,
// and count as changed.
func (s *Server) reopen(c *session) {
	c.lost = true
	s.keyspace.TryLock()
	s.keyspace.Unlock()
	resp3 := c.peer.Resp3
	c.peer = server.NewPeer(s.capture.w)
	c.peer.Resp3 = resp3
	s.passRaw(c, []string{"SELECT", strconv.Itoa(c.db)})
}

// reply converts a reply from miniredis. It copies the bytes for a connection, and parses them for
// an in-process session.
func (c *session) reply(b []byte) engine.Reply {
	if c.conn != nil {
		return raw(bytes.Clone(b))
	}
	r, _, err := parseReply(b)
	if err != nil {
		return engine.Error("ERR the embedded server cannot read a reply of its keyspace: " + err.Error())
	}
	return r
}
