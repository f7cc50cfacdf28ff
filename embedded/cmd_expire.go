package embedded

import (
	"math"
	"strconv"

	"github.com/ratelimit-functions/ratelimit/embedded/internal/engine"
)

// cmdExpire returns the handler for EXPIRE, PEXPIRE, EXPIREAT or PEXPIREAT. unit is the command's
// unit of time in ms. If absolute is true, the command's time is since 1970, otherwise from now.
func cmdExpire(name string, unit int64, absolute bool) handler {
	return func(s *Server, c *session, args []string) engine.Reply {
		key, options := args[0], args[2:]
		for _, o := range options {
			if !contains([]string{"NX", "XX", "GT", "LT"}, o) {
				return engine.Error("ERR Unsupported option " + o)
			}
		}
		nx, xx, gt, lt := contains(options, "NX"), contains(options, "XX"), contains(options, "GT"), contains(options, "LT")
		switch {
		case nx && (xx || gt || lt):
			return engine.Error("ERR NX and XX, GT or LT options at the same time are not compatible")
		case gt && lt:
			return engine.Error("ERR GT and LT options at the same time are not compatible")
		}
		n, err := parseInt(args[1])
		if err != nil {
			return errNotInteger
		}
		var base int64
		if !absolute {
			base = s.clock.ms()
		}
		if n > (math.MaxInt64-base)/unit || n < math.MinInt64/unit {
			return engine.Error("ERR invalid expire time in '" + name + "' command")
		}
		at := base + n*unit
		if !s.keyspace.DB(c.db).Exists(key) {
			return int64(0)
		}
		old := s.expiresAt(c.db, key)
		if nx && old != 0 || xx && old == 0 || gt && (old == 0 || at <= old) || lt && old != 0 && at >= old {
			return int64(0)
		}
		s.expireAt(c.db, key, at)
		return int64(1)
	}
}

// cmdTTL returns the handler for TTL, PTTL, EXPIRETIME or PEXPIRETIME. The reply is in seconds if
// seconds is true, otherwise in ms. If absolute is true, it is a time since 1970, otherwise a time
// from now.
func cmdTTL(seconds, absolute bool) handler {
	return func(s *Server, c *session, args []string) engine.Reply {
		if !s.keyspace.DB(c.db).Exists(args[0]) {
			return int64(-2)
		}
		at := s.expiresAt(c.db, args[0])
		if at == 0 {
			return int64(-1)
		}
		if !absolute {
			at = max(at-s.clock.ms(), 0)
		}
		if seconds {
			at = (at + 500) / 1000
		}
		return at
	}
}

func cmdTime(s *Server, c *session, args []string) engine.Reply {
	us := s.clock.now.UnixMicro()
	return []engine.Reply{strconv.FormatInt(us/1e6, 10), strconv.FormatInt(us%1e6, 10)}
}

// cmdRename returns the handler for RENAME or RENAMENX. The key keeps its expiry, so the handler
// queues the expiry under the new name.
func cmdRename(name string) handler {
	return func(s *Server, c *session, args []string) engine.Reply {
		r := s.pass(c, name, args[0], args[1])
		s.planExpiry(c.db, args[1])
		return r
	}
}

func cmdCopy(s *Server, c *session, args []string) engine.Reply {
	if contains(args[2:], "DB") {
		return notSupported("COPY with DB", oneDatabase)
	}
	if contains(args[2:], "REPLACE") && args[0] != args[1] && s.keyspace.DB(c.db).Exists(args[0]) {
		// Delete the target first, because the copy would otherwise keep the target's expiry.
		s.keyspace.DB(c.db).Del(args[1])
	}
	r := s.pass(c, append([]string{"COPY"}, args...)...)
	s.planExpiry(c.db, args[1])
	return r
}
