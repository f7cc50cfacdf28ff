package main

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ratelimit-functions/ratelimit/functions"
	"github.com/redis/go-redis/v9"
)

const libraryName = functions.Name

// fcall returns a call to the function ratelimit_VERB. For each prefix, the call contains the n-th
// key.
func fcall(verb string, n int, prefixes []string, args ...any) []redis.Cmder {
	words := []any{"fcall", "ratelimit_" + verb, len(prefixes)}
	for _, prefix := range prefixes {
		words = append(words, key(prefix, n))
	}
	return []redis.Cmder{redis.NewCmd(context.Background(), append(words, args...)...)}
}

// numbered returns count prefixes of 4 bytes: the given 3 bytes, followed by 0, 1 and so on.
func numbered(prefix string, count int) []string {
	var prefixes []string
	for i := range count {
		prefixes = append(prefixes, prefix+strconv.Itoa(i))
	}
	return prefixes
}

// take returns a contender that calls ratelimit_take with one key for each workload. prefix has 3
// bytes, and algorithm may be "" for the default. The first workload's cost and the last workload's
// prefill apply to all keys.
func take(lib *library, prefix, algorithm string, works ...workload) contender {
	var limits []any
	name := "ratelimit_take"
	for _, w := range works {
		limit := strings.TrimSpace(algorithm + " " + w.rate())
		limits = append(limits, limit)
		name += " " + strconv.Quote(limit)
	}
	cost := works[0].cost
	if cost != 1 {
		name += fmt.Sprintf(" COST %d", cost)
	}
	prefixes := numbered(prefix, len(works))
	c := contender{name: name, library: lib, prefix: prefixes[0], commands: []string{"fcall"}, read: readTake}
	return c.taking(workload{cost: cost, prefill: works[len(works)-1].prefill}, func(n int, units int64) []redis.Cmder {
		if units == 1 {
			return fcall("take", n, prefixes, limits...)
		}
		return fcall("take", n, prefixes, append(slices.Clone(limits), "COST", units)...)
	})
}

// readTake parses { allowed, limit, remaining, retry_after_ms, reset_after_ms, index }.
func readTake(replies []redis.Cmder) (outcome, error) {
	fields, err := integers(replies[0], 6)
	if err != nil {
		return outcome{}, err
	}
	if fields[0] == 1 && fields[3] < 0 || fields[0] == 0 && fields[3] == 0 { // an allowed leaky_bucket call may have a retry_after_ms above 0
		return outcome{}, fmt.Errorf("allowed is %d and retry_after_ms %d", fields[0], fields[3])
	}
	return outcome{allowed: fields[0] == 1, used: fields[1] - fields[2]}, nil
}

// integers parses a reply that is an array. It returns the first n elements, which must be
// integers.
func integers(reply redis.Cmder, n int) ([]int64, error) {
	cmd, ok := reply.(*redis.Cmd)
	if !ok {
		return nil, fmt.Errorf("%T is not the command that was sent", reply)
	}
	fields, err := cmd.Slice()
	if err != nil {
		return nil, err
	}
	if len(fields) < n {
		return nil, fmt.Errorf("the reply %v has fewer than %d fields", fields, n)
	}
	values := make([]int64, n)
	for i := range values {
		if values[i], ok = fields[i].(int64); !ok {
			return nil, fmt.Errorf("field %d of the reply %v is not an integer", i+1, fields)
		}
	}
	return values, nil
}

// takeWith is like take, but adds an option such as "TRACK" to the call. extra returns the key that
// the option needs; extra is nil if the option needs no key.
func takeWith(lib *library, prefix, option string, extra func(n int) string, works ...workload) contender {
	c := take(lib, prefix, "", works...)
	c.name += " " + option
	prefixes := numbered(prefix, len(works))
	c.call = func(n int) []redis.Cmder {
		words := []any{"fcall", "ratelimit_take", len(works)}
		for _, prefix := range prefixes {
			words = append(words, key(prefix, n))
		}
		if extra != nil {
			words[2] = len(works) + 1
			words = append(words, extra(n))
		}
		for _, w := range works {
			words = append(words, w.rate())
		}
		for _, word := range strings.Fields(option) {
			words = append(words, word)
		}
		return []redis.Cmder{redis.NewCmd(context.Background(), words...)}
	}
	return c
}

// policy returns a function for caseBuilder.add. That function returns a contender that takes one
// unit with the policy called name.
func policy(name string) func(*library, string) contender {
	return func(lib *library, prefix string) contender {
		c := take(lib, prefix, "", wholeInUse).named("ratelimit_take " + strconv.Quote(name))
		c.call = func(n int) []redis.Cmder { return fcall("take", n, numbered(prefix, 1), name) }
		return c
	}
}

// refunds returns a function for caseBuilder.add. That function returns a contender that gives one
// unit back to keys in use.
func refunds(algorithm string, w workload) func(*library, string) contender {
	return func(lib *library, prefix string) contender {
		c := take(lib, prefix, algorithm, w).named("ratelimit_refund")
		limit := strings.TrimSpace(algorithm + " " + w.rate())
		c.call = func(n int) []redis.Cmder { return fcall("refund", n, numbered(prefix, 1), limit) }
		c.read = func(replies []redis.Cmder) (outcome, error) {
			decided, err := readTake(replies)
			return outcome{allowed: decided.allowed, used: unknown}, err
		}
		return c
	}
}

// overridden returns a contender that takes one unit from keys that have an override.
func overridden(lib *library, prefix string) contender {
	c := take(lib, prefix, "", wholeInUse).named("ratelimit_take " + strconv.Quote("1/h") + ", overridden")
	c.call = func(n int) []redis.Cmder { return fcall("take", n, numbered(prefix, 1), "1/h") }
	fill := c.fill
	c.fill = func(n int) []redis.Cmder {
		return append(fcall("override", n, numbered(prefix, 1), wholeInUse.rate(), day.Milliseconds()), fill(n)...)
	}
	return c
}

// grown returns a contender that takes one unit from keys whose block has ended, and is remembered.
func grown(lib *library, prefix string) contender {
	c := take(lib, prefix, "", wholeInUse).named("ratelimit_take after GROW")
	c.fill = func(n int) []redis.Cmder { // written as the library does, because the first calls would meet a block of even 1 ms
		now := time.Now()
		full, forgotten := now.Add(time.Duration(wholeInUse.prefill)*wholeInUse.period/time.Duration(wholeInUse.count)), now.Add(day)
		value := fmt.Sprintf("blocked:%d:%d:1:%d:gcra", now.UnixMilli()-1000, full.UnixMilli(), forgotten.UnixMilli())
		return []redis.Cmder{redis.NewStatusCmd(context.Background(), "set", key(numbered(prefix, 1)[0], n), value, "pxat", forgotten.UnixMilli())}
	}
	return c
}

// borrows returns a function for caseBuilder.add. That function returns a contender that takes one unit with BORROW from
// a guarantee and a pool in use.
func borrows(guarantee string) func(*library, string) contender {
	return func(lib *library, prefix string) contender {
		c := take(lib, prefix, "", wholeInUse, wholeInUse).named("ratelimit_take " + strconv.Quote(guarantee) + " " + strconv.Quote(wholeInUse.rate()) + " BORROW 20")
		c.call = func(n int) []redis.Cmder {
			return fcall("take", n, numbered(prefix, 2), guarantee, wholeInUse.rate(), "BORROW", 20)
		}
		c.read = func(replies []redis.Cmder) (outcome, error) {
			decided, err := readTake(replies)
			return outcome{allowed: decided.allowed, used: unknown}, err
		}
		return c
	}
}

// lease returns a contender for acquire, renew or release. held lists the lease IDs that each key
// holds beforehand. id returns the lease ID for a call on key number n.
func lease(lib *library, prefix, verb string, held []string, id func(n int) string) contender {
	const limit = "concurrency 5000 lease=1d"
	prefixes := numbered(prefix, 1)
	return contender{
		name:     "ratelimit_" + verb,
		library:  lib,
		prefix:   prefixes[0],
		commands: []string{"fcall"},
		call:     func(n int) []redis.Cmder { return fcall(verb, n, prefixes, limit, id(n)) },
		read: func(replies []redis.Cmder) (outcome, error) {
			if verb == "release" {
				released, err := replies[0].(*redis.Cmd).Int64()
				return outcome{allowed: released == 1, used: unknown}, err
			}
			decided, err := readTake(replies)
			return outcome{allowed: decided.allowed, used: unknown}, err
		},
		fill: func(n int) (all []redis.Cmder) {
			for _, id := range held {
				all = append(all, fcall("acquire", n, prefixes, limit, id)...)
			}
			return all
		},
	}
}
