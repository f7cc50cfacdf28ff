package embedded

import (
	"errors"
	"math"
	"strings"

	"github.com/alicebob/miniredis/v2"
	"github.com/ratelimit-functions/ratelimit/embedded/internal/engine"
)

const (
	errNotInteger = engine.Error("ERR value is not an integer or out of range")
	errSyntax     = engine.Error("ERR syntax error")
	errWrongType  = engine.Error("WRONGTYPE Operation against a key holding the wrong kind of value")
	ok            = engine.Status("OK")
)

// setOptions contains the options of SET and GETEX.
type setOptions struct {
	nx, xx, get, keepTTL, persist bool
	unit                          string // EX, PX, EXAT, PXAT or none
	amount                        string
}

func parseSetOptions(args []string, getex bool) (setOptions, bool) {
	var o setOptions
	for i := 0; i < len(args); i++ {
		expires := o.unit != "" || o.keepTTL || o.persist
		switch opt := strings.ToUpper(args[i]); {
		case opt == "NX" && !getex && !o.xx:
			o.nx = true
		case opt == "XX" && !getex && !o.nx:
			o.xx = true
		case opt == "GET" && !getex:
			o.get = true
		case opt == "KEEPTTL" && !getex && !expires:
			o.keepTTL = true
		case opt == "PERSIST" && getex && !expires:
			o.persist = true
		case (opt == "EX" || opt == "PX" || opt == "EXAT" || opt == "PXAT") && !expires && i+1 < len(args):
			i++
			o.unit, o.amount = opt, args[i]
		default:
			return o, false
		}
	}
	return o, true
}

// moment converts the expiry in a command to milliseconds since 1970.
func (s *Server) moment(unit, amount, command string) (int64, engine.Reply) {
	n, err := parseInt(amount)
	if err != nil {
		return 0, errNotInteger
	}
	invalid := engine.Error("ERR invalid expire time in '" + command + "' command")
	if n <= 0 {
		return 0, invalid
	}
	if unit[0] == 'E' {
		if n > math.MaxInt64/1000 {
			return 0, invalid
		}
		n *= 1000
	}
	if len(unit) == 2 {
		if n > math.MaxInt64-s.clock.ms() {
			return 0, invalid
		}
		n += s.clock.ms()
	}
	return n, nil
}

func cmdSet(s *Server, c *session, args []string) engine.Reply {
	key, value := args[0], args[1]
	o, valid := parseSetOptions(args[2:], false)
	if !valid {
		return errSyntax
	}
	var at int64
	if o.unit != "" {
		var e engine.Reply
		if at, e = s.moment(o.unit, o.amount, "set"); e != nil {
			return e
		}
	}
	db := s.keyspace.DB(c.db)
	kind := db.Type(key)
	var old engine.Reply
	if o.get {
		if kind != "" && kind != "string" {
			return errWrongType
		}
		if kind != "" {
			v, _ := db.Get(key)
			old = v
		}
	}
	if o.nx && kind != "" || o.xx && kind == "" {
		return old
	}
	if o.keepTTL {
		at = s.expiresAt(c.db, key)
	}
	s.store(c.db, key, value, at)
	if o.get {
		return old
	}
	return ok
}

// store stores a string with an expiry, or without one if at is 0.
func (s *Server) store(n int, key, value string, at int64) {
	db := s.keyspace.DB(n)
	if errors.Is(db.Set(key, value), miniredis.ErrWrongType) {
		db.Del(key)
		db.Set(key, value)
	}
	if at != 0 {
		s.setExpiry(n, key, at)
		if at < s.clock.ms() {
			db.Del(key)
		}
	}
}

func cmdSetEx(s *Server, c *session, args []string) engine.Reply {
	return s.setEx(c, args, "EX", "setex")
}

func cmdPSetEx(s *Server, c *session, args []string) engine.Reply {
	return s.setEx(c, args, "PX", "psetex")
}

func (s *Server) setEx(c *session, args []string, unit, name string) engine.Reply {
	at, e := s.moment(unit, args[1], name)
	if e != nil {
		return e
	}
	s.store(c.db, args[0], args[2], at)
	return ok
}

func cmdGet(s *Server, c *session, args []string) engine.Reply {
	v, err := s.keyspace.DB(c.db).Get(args[0])
	switch {
	case err == nil:
		return v
	case errors.Is(err, miniredis.ErrWrongType):
		return errWrongType
	}
	return nil
}

func cmdGetEx(s *Server, c *session, args []string) engine.Reply {
	key := args[0]
	o, valid := parseSetOptions(args[1:], true)
	if !valid {
		return errSyntax
	}
	v := cmdGet(s, c, args[:1])
	if _, found := v.(string); !found {
		return v
	}
	var at int64
	if o.unit != "" {
		var e engine.Reply
		if at, e = s.moment(o.unit, o.amount, "getex"); e != nil {
			return e
		}
	}
	db := s.keyspace.DB(c.db)
	switch {
	case o.persist:
		s.pass(c, "PERSIST", key)
	case at != 0 && at <= s.clock.ms():
		db.Del(key)
	case at != 0:
		s.setExpiry(c.db, key, at)
	}
	return v
}
