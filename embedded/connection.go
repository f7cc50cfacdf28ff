package embedded

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/ratelimit-functions/ratelimit/embedded/internal/engine"
)

func itoa(n int64) string { return strconv.FormatInt(n, 10) }

// commandHandlers is the command table with what is not left to miniredis.
func (s *Server) commandHandlers() map[string]*command {
	table := parseCommandTable()
	for name, run := range map[string]handler{
		"FUNCTION": cmdFunction, "FCALL": cmdFCall, "FCALL_RO": cmdFCallRO,
		"SET": cmdSet, "SETEX": cmdSetEx, "PSETEX": cmdPSetEx, "GET": cmdGet, "GETEX": cmdGetEx,
		"EXPIRE": cmdExpire("expire", 1000, false), "PEXPIRE": cmdExpire("pexpire", 1, false),
		"EXPIREAT": cmdExpire("expireat", 1000, true), "PEXPIREAT": cmdExpire("pexpireat", 1, true),
		"TTL": cmdTTL(true, false), "PTTL": cmdTTL(false, false),
		"EXPIRETIME": cmdTTL(true, true), "PEXPIRETIME": cmdTTL(false, true),
		"TIME":   cmdTime,
		"RENAME": movesKeys("RENAME", 2), "RENAMENX": movesKeys("RENAMENX", 2),
		"COPY": cmdCopy, "MOVE": movesDatabases("MOVE"), "SWAPDB": movesDatabases("SWAPDB"),
		"FLUSHALL": cmdFlush("FLUSHALL"), "FLUSHDB": cmdFlush("FLUSHDB"),
		"HINCRBY": cmdHIncrBy, "ZADD": cmdScores("ZADD"), "ZINCRBY": cmdScores("ZINCRBY"),
		"HELLO": cmdHello, "SELECT": cmdSelect, "CLIENT": cmdClient, "QUIT": cmdQuit, "RESET": cmdReset,
		"MULTI": cmdMulti, "EXEC": cmdExec, "DISCARD": cmdDiscard, "WATCH": cmdWatch, "UNWATCH": cmdUnwatch,
		"SUBSCRIBE": cmdSubscribe("SUBSCRIBE"), "PSUBSCRIBE": cmdSubscribe("PSUBSCRIBE"),
		"UNSUBSCRIBE": cmdSubscribe("UNSUBSCRIBE"), "PUNSUBSCRIBE": cmdSubscribe("PUNSUBSCRIBE"),
		"INFO": cmdInfo, "COMMAND": cmdCommand, "CLUSTER": cmdCluster, "CONFIG": cmdConfig,
		"OBJECT": cmdObject, "MEMORY": cmdMemory,
		"READONLY": cmdCluster, "READWRITE": cmdCluster,
		"DUMP":    refused("its payloads would not be those of Redis"),
		"RESTORE": refused("its payloads would not be those of Redis"),
		"EVAL":    refused(onlyFunctions), "EVALSHA": refused(onlyFunctions), "EVAL_RO": refused(onlyFunctions),
		"EVALSHA_RO": refused(onlyFunctions), "SCRIPT": refused(onlyFunctions),
	} {
		cmd := table[name]
		if cmd == nil {
			panic("embedded: no command " + name)
		}
		cmd.run = run
	}
	for _, name := range []string{
		"ZSCORE", "ZMSCORE", "ZPOPMIN", "ZPOPMAX", "ZRANGE", "ZREVRANGE", "ZRANGEBYSCORE", "ZREVRANGEBYSCORE",
	} {
		table[name].run = cmdReadScores(name)
	}
	for name, cmd := range table {
		if cmd.blocking {
			cmd.run = cmdBlocking(name)
		}
	}
	return table
}

const onlyFunctions = "it runs Redis Functions: use FUNCTION LOAD and FCALL"

func refused(why string) handler {
	return func(s *Server, c *session, args []string) engine.Reply {
		return engine.Error("ERR this command is not supported by the embedded server: " + why)
	}
}

func cmdHello(s *Server, c *session, args []string) engine.Reply {
	resp3 := c.resp3
	if len(args) > 0 {
		switch n, err := strconv.Atoi(args[0]); {
		case err != nil:
			return engine.Error("ERR Protocol version is not an integer or out of range")
		case n != 2 && n != 3:
			return engine.Error("NOPROTO unsupported protocol version")
		default:
			resp3 = n == 3
		}
		for rest := args[1:]; len(rest) > 0; {
			switch {
			case strings.EqualFold(rest[0], "SETNAME") && len(rest) > 1:
				c.name = rest[1]
				rest = rest[2:]
			case strings.EqualFold(rest[0], "AUTH") && len(rest) > 2:
				// As a server without passwords: the default user is always let in.
				if rest[1] != "default" {
					return engine.Error("WRONGPASS invalid username-password pair or user is disabled.")
				}
				rest = rest[3:]
			default:
				return engine.Error(fmt.Sprintf("ERR Syntax error in HELLO option '%s'", rest[0]))
			}
		}
	}
	c.resp3 = resp3
	c.peer.Resp3 = resp3
	proto := int64(2)
	if resp3 {
		proto = 3
	}
	return engine.Map{
		"server", "redis", "version", engine.Version, "proto", proto, "id", c.id,
		"mode", "standalone", "role", s.role(), "modules", []engine.Reply{},
	}
}

func (s *Server) role() string {
	if s.readOnly {
		return "replica"
	}
	return "master"
}

func cmdSelect(s *Server, c *session, args []string) engine.Reply {
	n, err := parseInt(args[0])
	if err != nil {
		return errNotInteger
	}
	if n < 0 || n >= databases {
		return engine.Error("ERR DB index is out of range")
	}
	c.db = int(n)
	s.pass(c, "SELECT", args[0])
	return ok
}

func cmdClient(s *Server, c *session, args []string) engine.Reply {
	switch sub := strings.ToUpper(args[0]); {
	case sub == "SETNAME" && len(args) == 2:
		c.name = args[1]
		return ok
	case sub == "GETNAME" && len(args) == 1:
		if c.name == "" {
			return nil
		}
		return c.name
	case sub == "ID" && len(args) == 1:
		return c.id
	case (sub == "SETINFO" && len(args) == 3) || (sub == "NO-EVICT" || sub == "NO-TOUCH") && len(args) == 2:
		return ok
	case sub == "INFO" && len(args) == 1:
		return fmt.Sprintf("id=%d name=%s db=%d resp=%d\n", c.id, c.name, c.db, map[bool]int{false: 2, true: 3}[c.resp3])
	}
	return engine.Error(fmt.Sprintf("ERR unknown subcommand or wrong number of arguments for '%.128s'. Try CLIENT HELP.", args[0]))
}

func cmdQuit(s *Server, c *session, args []string) engine.Reply {
	c.closing = true
	return ok
}

func cmdReset(s *Server, c *session, args []string) engine.Reply {
	c.tx = nil
	c.watching = false
	c.name = ""
	c.resp3, c.peer.Resp3 = false, false
	s.pass(c, "UNWATCH")
	cmdSelect(s, c, []string{"0"})
	return engine.Status("RESET")
}

func cmdMulti(s *Server, c *session, args []string) engine.Reply {
	if c.tx != nil {
		return engine.Error("ERR MULTI calls can not be nested")
	}
	c.tx = &transaction{}
	return ok
}

func cmdDiscard(s *Server, c *session, args []string) engine.Reply {
	if c.tx == nil {
		return engine.Error("ERR DISCARD without MULTI")
	}
	c.tx = nil
	return cmdUnwatch(s, c, nil)
}

func cmdWatch(s *Server, c *session, args []string) engine.Reply {
	if c.tx != nil {
		return engine.Error("ERR WATCH inside MULTI is not allowed")
	}
	c.watching = true
	s.pass(c, append([]string{"WATCH"}, args...)...)
	return ok
}

func cmdUnwatch(s *Server, c *session, args []string) engine.Reply {
	if c.watching {
		c.watching = false
		s.pass(c, "UNWATCH")
	}
	return ok
}

func cmdExec(s *Server, c *session, args []string) engine.Reply {
	if c.tx == nil {
		return engine.Error("ERR EXEC without MULTI")
	}
	tx := c.tx
	c.tx = nil
	if tx.dirty {
		cmdUnwatch(s, c, nil)
		return engine.Error("EXECABORT Transaction discarded because of previous errors.")
	}
	if c.watching {
		// An empty transaction of miniredis tells whether a watched key changed.
		c.watching = false
		s.pass(c, "MULTI")
		if r, ok := s.pass(c, "EXEC").(raw); ok && strings.HasPrefix(string(r), "*-1") {
			if c.resp3 {
				return nil
			}
			return raw("*-1\r\n")
		}
	}
	out := fmt.Appendf(nil, "*%d\r\n", len(tx.queue))
	for _, words := range tx.queue {
		r := s.execute(c, s.lookup(words[0]), words)
		if w, ok := r.(wait); ok {
			r = w.timedOut()
		}
		if b, ok := r.(raw); ok {
			out = append(out, b...)
		} else {
			out = appendReply(out, r, c.resp3)
		}
	}
	return raw(out)
}

// cmdSubscribe makes SUBSCRIBE and its kin: miniredis answers them itself.
func cmdSubscribe(name string) handler {
	return func(s *Server, c *session, args []string) engine.Reply {
		if c.conn == nil {
			return engine.Error("ERR " + name + " needs a connection")
		}
		c.subscribe()
		s.keyspace.Server().Dispatch(c.peer, append([]string{name}, args...))
		c.peer.Flush()
		return noReply{}
	}
}

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
