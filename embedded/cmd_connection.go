package embedded

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/ratelimit-functions/ratelimit/embedded/internal/engine"
)

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
				// As on a server without passwords, the default user is always accepted.
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
