package overrides

import (
	"context"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/ratelimit-functions/ratelimit/cmd/ratelimit/internal/scan"
)

const (
	head    = 128  // bytes to read from a string: enough for its override, unless the limit is long
	longest = 1200 // bytes to read from a string: enough for any override
)

var (
	inString = regexp.MustCompile(`^(?:blocked:(\d{1,16}):\d{1,16}:(?:\d{1,16}:\d{1,16}:)?)?limit:(\d{1,16}):\d{1,16}:(\d{1,4}):`)
	inBlock  = regexp.MustCompile(`^blocked:(\d{1,16}):\d{1,16}:`)
	inSet    = regexp.MustCompile(`^override:(\d{1,16}):(\d{1,16}):(\d{1,16})(?::\d{1,16}:\d{1,16}:\d{1,16})?$`)
)

// step reads the keys of one step of the scan, in at most three round trips. The first reads the
// types of all keys. The second reads the beginning of each string and the last member of each
// sorted set. The third reads more of the strings whose override is longer, and the blocks of the
// sorted sets of leases.
type step struct {
	ctx context.Context
	rdb *redis.Client
	now time.Time // the server's time

	found   []Override
	refused int64
	trips   int
}

func (s *step) read(keys []string) error {
	var some, rest []string
	sets := map[string]Override{} // the overrides of keys with leases, by key; zero if there is none
	isSet := map[string]bool{}
	err := s.ask(keys, func(key string) []any { return []any{"type", key} }, func(key string, reply any) error {
		name, isText := reply.(string)
		if !isText {
			return badReply("TYPE", reply)
		}
		if isSet[key] = name == "zset"; isSet[key] || name == "string" {
			some = append(some, key)
		}
		return nil
	})
	if err != nil {
		return err
	}
	err = s.ask(some, func(key string) []any {
		if isSet[key] {
			return []any{"zrange", key, -1, -1}
		}
		return []any{"getrange", key, 0, head - 1}
	}, func(key string, reply any) error {
		if !isSet[key] {
			return s.readString(key, reply, func() { rest = append(rest, key) })
		}
		members, isList := reply.([]any)
		if !isList || len(members) > 1 {
			return badReply("ZRANGE", reply)
		}
		for _, member := range members {
			text, isText := member.(string)
			if !isText {
				return badReply("ZRANGE", reply)
			}
			if o, ok := ofSet(text); ok || text == "blocked" || strings.HasPrefix(text, "lease:") {
				sets[key], rest = o, append(rest, key)
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	return s.ask(rest, func(key string) []any {
		if isSet[key] {
			return []any{"zscore", key, "blocked"}
		}
		return []any{"getrange", key, 0, longest - 1}
	}, func(key string, reply any) error {
		if !isSet[key] {
			return s.readString(key, reply, func() {}) // nothing is cut off, because longest is enough for any override
		}
		o := sets[key]
		switch score := reply.(type) {
		case nil:
		case float64:
			o.Blocked = time.UnixMilli(int64(score)).UTC()
		case string:
			o.Blocked = at(score)
		default:
			return badReply("ZSCORE", reply)
		}
		s.keep(key, o)
		return nil
	})
}

// ask calls scan.Ask, and counts the round trip and the keys that the user may not read.
func (s *step) ask(keys []string, command func(key string) []any, read func(key string, reply any) error) error {
	s.trips += min(1, len(keys))
	refused, err := scan.Ask(s.ctx, s.rdb, keys, command, read)
	s.refused += refused
	return err
}

// readString reads the first bytes of a string. It calls cut if they contain only part of an
// override.
func (s *step) readString(key string, reply any, cut func()) error {
	text, isText := reply.(string)
	if !isText {
		return badReply("GETRANGE", reply)
	}
	match := inString.FindStringSubmatch(text)
	if match == nil {
		if block := inBlock.FindStringSubmatch(text); block != nil {
			s.keep(key, Override{Blocked: at(block[1])})
		}
		return nil
	}
	rest := text[len(match[0]):]
	size, _ := strconv.Atoi(match[3]) // cannot fail, because there are few digits
	if len(rest) < size {
		cut()
		return nil
	}
	o := Override{Limit: strings.Join(strings.Fields(rest[:size]), " "), Ends: at(match[2])}
	if match[1] != "" {
		o.Blocked = at(match[1])
	}
	s.keep(key, o)
	return nil
}

// ofSet returns the override in the last member of a set of leases. ok is false if there is none.
func ofSet(member string) (o Override, ok bool) {
	match := inSet.FindStringSubmatch(member)
	if match == nil {
		return o, false
	}
	lease := match[3] + "ms"
	if seconds, whole := strings.CutSuffix(match[3], "000"); whole && seconds != "" {
		lease = seconds + "s"
	}
	return Override{Limit: "concurrency " + match[2] + " lease=" + lease, Ends: at(match[1])}, true
}

// keep adds o, the override and the block of key, to s.found. It leaves out what has ended.
func (s *step) keep(key string, o Override) {
	o.Key, o.Read = key, s.now
	if !o.Ends.After(s.now) {
		o.Limit, o.Ends = "", time.Time{}
	}
	if !o.Blocked.After(s.now) {
		o.Blocked = time.Time{}
	}
	if !o.Ends.IsZero() || !o.Blocked.IsZero() {
		s.found = append(s.found, o)
	}
}

func at(ms string) time.Time {
	n, _ := strconv.ParseInt(ms, 10, 64) // cannot fail, because there are few digits
	return time.UnixMilli(n).UTC()
}

func badReply(command string, reply any) error {
	return scan.BadReply("got %.60q from %s", fmt.Sprint(reply), command)
}
