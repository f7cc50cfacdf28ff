package loader

import (
	"fmt"
	"os"
	"os/user"
	"strconv"
	"strings"
	"time"

	"github.com/ratelimit-functions/ratelimit/functions"
	"github.com/ratelimit-functions/ratelimit/internal/luastring"
)

// A lease prevents two calls from changing a node at the same time. It is a library that says who
// deploys and until when. Each lease has its own library name, but all register the same function
// name. Function names are unique on a server, so only one lease can be loaded. A call renews and
// deletes its lease by the library name, so it never deletes the lease of a call that has taken
// over. Because a lease is a library, it needs no key.
const (
	leasePrefix   = leaseFunction + "_"
	leaseFunction = functions.Name + "_lease"
)

type lease struct {
	name    string // name of the library: leasePrefix and the token of the call
	who     string // who deploys, for display
	fromMS  int64  // start by the node's clock, in ms since the epoch
	untilMS int64
}

func (l lease) token() string { return strings.TrimPrefix(l.name, leasePrefix) }

func (l lease) text() string {
	return fmt.Sprintf(`#!lua name=%s
-- A deployment of the library %s is under way. If it died, the next one takes over when the time is up.
local WHO = %s
local FROM_MS = %d
local UNTIL_MS = %d
redis.register_function{
  function_name = '%s',
  description = 'Returns who is deploying the library %s, and until when at most, in ms since the epoch.',
  flags = { 'no-writes', 'allow-stale' },
  callback = function() return { WHO, UNTIL_MS } end,
}
`, l.name, functions.Name, luastring.Append(nil, l.who), l.fromMS, l.untilMS, leaseFunction, functions.Name)
}

func readLease(name, code string) lease {
	number := func(name string) int64 {
		n, _ := strconv.ParseInt(value(code, name), 10, 64)
		return n
	}
	return lease{name: name, who: value(code, "WHO"), fromMS: number("FROM_MS"), untilMS: number("UNTIL_MS")}
}

// isOver reports whether the lease may be taken over: it has expired, or it starts more than a
// minute in the future. Such a start means that the clock was set back; the lease would block all
// deployments until the clock catches up.
func (l lease) isOver(nowMS int64) bool {
	return nowMS > l.untilMS || nowMS < l.fromMS-time.Minute.Milliseconds()
}

// leaseLife is how long a lease lasts after it was taken or renewed.
func (s *session) leaseLife() time.Duration { return max(6*s.Timeout, 10*time.Second) }

// whoAmI describes this process for display.
func whoAmI() string {
	name, host := "somebody", "an unknown host"
	if u, err := user.Current(); err == nil {
		name = u.Username
	}
	if h, err := os.Hostname(); err == nil {
		host = h
	}
	clean := func(r rune) rune {
		if r < ' ' {
			return -1
		}
		return r
	}
	return strings.ToValidUTF8(strings.Map(clean, fmt.Sprintf("%s@%s (process %d)", name, host, os.Getpid())), "?")
}
