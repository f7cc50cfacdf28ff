package embedded

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/ratelimit-functions/ratelimit/embedded/internal/engine"
)

func cmdHello(s *Server, c *session, args []string) engine.Reply {
	proto := int64(2)
	if c.resp3 {
		proto = 3
	}
	if len(args) > 0 {
		var err error
		if proto, err = strconv.ParseInt(args[0], 10, 64); err != nil {
			return engine.Error("ERR Protocol version is not an integer or out of range")
		}
		if proto != 2 && proto != 3 {
			return engine.Error("NOPROTO unsupported protocol version")
		}
		args = args[1:]
	}
	for len(args) > 0 {
		switch {
		case strings.EqualFold(args[0], "SETNAME") && len(args) > 1:
			c.name = args[1]
			args = args[2:]
		case strings.EqualFold(args[0], "AUTH") && len(args) > 2:
			// On a server without passwords, the default user is always accepted, as in Redis.
			if args[1] != "default" {
				return engine.Error("WRONGPASS invalid username-password pair or user is disabled.")
			}
			args = args[3:]
		default:
			return engine.Error(fmt.Sprintf("ERR Syntax error in HELLO option '%s'", args[0]))
		}
	}
	c.resp3 = proto == 3
	c.peer.Resp3 = c.resp3
	return engine.Map{
		"server", "redis", "version", engine.Version, "proto", proto, "id", c.id,
		"mode", "standalone", "role", "master", "modules", []engine.Reply{},
	}
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
	case sub == "SETINFO" && len(args) == 3:
		return ok
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
