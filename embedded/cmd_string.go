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

type setOptions struct {
	nx, xx, get bool
	expiry      string // one of expiryUnits, KEEPTTL, PERSIST, or "" if there is none
	amount      string // the argument after expiry, if expiry is one of expiryUnits
}

var expiryUnits = map[string]struct {
	ms       int64
	absolute bool
}{
	"EX": {ms: 1000}, "PX": {ms: 1}, "EXAT": {ms: 1000, absolute: true}, "PXAT": {ms: 1, absolute: true},
}

func parseSetOptions(args []string, getex bool) (setOptions, bool) {
	var o setOptions
	for i := 0; i < len(args); i++ {
		opt := strings.ToUpper(args[i])
		_, isUnit := expiryUnits[opt]
		switch {
		case opt == "NX" && !getex && !o.xx:
			o.nx = true
		case opt == "XX" && !getex && !o.nx:
			o.xx = true
		case opt == "GET" && !getex:
			o.get = true
		case o.expiry != "":
			return o, false
		case opt == "KEEPTTL" && !getex, opt == "PERSIST" && getex:
			o.expiry = opt
		case isUnit && i+1 < len(args):
			i++
			o.expiry, o.amount = opt, args[i]
		default:
			return o, false
		}
	}
	return o, true
}

// moment returns the expiry that an option such as EX 10 sets, in ms since 1970. It returns 0 if
// option is not one of expiryUnits. If amount is invalid, it returns an error reply for command.
func (s *Server) moment(option, amount, command string) (int64, engine.Reply) {
	unit, ok := expiryUnits[option]
	if !ok {
		return 0, nil
	}
	n, err := parseInt(amount)
	if err != nil {
		return 0, errNotInteger
	}
	var base int64
	if !unit.absolute {
		base = s.clock.ms()
	}
	if n <= 0 || n > (math.MaxInt64-base)/unit.ms {
		return 0, engine.Error("ERR invalid expire time in '" + command + "' command")
	}
	return base + n*unit.ms, nil
}

func cmdSet(s *Server, c *session, args []string) engine.Reply {
	key, value := args[0], args[1]
	o, valid := parseSetOptions(args[2:], false)
	if !valid {
		return errSyntax
	}
	at, e := s.moment(o.expiry, o.amount, "set")
	if e != nil {
		return e
	}
	var old engine.Reply
	if o.get {
		old = cmdGet(s, c, args[:1])
		if old == errWrongType {
			return old
		}
	}
	if exists := s.keyspace.DB(c.db).Exists(key); o.nx && exists || o.xx && !exists {
		return old
	}
	if o.expiry == "KEEPTTL" {
		at = s.expiresAt(c.db, key)
	}
	s.store(c.db, key, value, at)
	if o.get {
		return old
	}
	return ok
}

// store sets key in database n to a string. at is the time when the key expires, in ms since 1970;
// 0 means never.
func (s *Server) store(n int, key, value string, at int64) {
	db := s.keyspace.DB(n)
	if db.Set(key, value) != nil { // the key holds another type
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

func cmdSetEx(unit, name string) handler {
	return func(s *Server, c *session, args []string) engine.Reply {
		at, e := s.moment(unit, args[1], name)
		if e != nil {
			return e
		}
		s.store(c.db, args[0], args[2], at)
		return ok
	}
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
	at, e := s.moment(o.expiry, o.amount, "getex")
	if e != nil {
		return e
	}
	if at != 0 {
		s.expireAt(c.db, key, at)
	} else if o.expiry == "PERSIST" {
		s.pass(c, "PERSIST", key)
	}
	return v
}
