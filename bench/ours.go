package main

import (
	"context"
	"fmt"
	"strconv"

	"github.com/ratelimit-functions/ratelimit/functions"
	"github.com/redis/go-redis/v9"
)

const libraryName = functions.Name

// take returns a contender that calls ratelimit_take over as many keys as there are workloads, in
// one FCALL. prefix has 3 bytes, and algorithm may be "" for the default. The cost of the first
// workload applies to all, and so does the prefill of the last.
func take(lib *library, prefix, algorithm string, works ...workload) contender {
	limits := make([]string, len(works))
	name := "ratelimit_take"
	for i, w := range works {
		limits[i] = w.rate()
		if algorithm != "" {
			limits[i] = algorithm + " " + w.rate()
		}
		name += " " + strconv.Quote(limits[i])
	}
	if works[0].cost != 1 {
		name += fmt.Sprintf(" COST %d", works[0].cost)
	}
	build := func(n int, cost int64) ([]redis.Cmder, error) {
		args := make([]any, 0, 5+2*len(limits))
		args = append(args, "fcall", "ratelimit_take", len(limits))
		for i := range limits {
			args = append(args, key(prefix+strconv.Itoa(i), n))
		}
		for _, limit := range limits {
			args = append(args, limit)
		}
		if cost != 1 {
			args = append(args, "COST", cost)
		}
		return []redis.Cmder{redis.NewCmd(context.Background(), args...)}, nil
	}
	c := contender{
		name:     name,
		library:  lib,
		prefix:   prefix + "0",
		commands: []string{"fcall"},
		call:     func(n int) ([]redis.Cmder, error) { return build(n, works[0].cost) },
		read:     readTake,
	}
	if prefill := works[len(works)-1].prefill; prefill > 0 {
		c.fill = func(n int) ([]redis.Cmder, error) { return build(n, prefill) }
	}
	return c
}

// readTake parses { allowed, limit, remaining, retry_after_ms, reset_after_ms, index }.
func readTake(replies []redis.Cmder) (outcome, error) {
	fields, err := integers(replies[0], 6)
	if err != nil {
		return outcome{}, err
	}
	if fields[0] == 1 && fields[3] < 0 || fields[0] == 0 && fields[3] < 1 { // leaky_bucket returns a wait for allowed calls
		return outcome{}, fmt.Errorf("allowed is %d and retry_after_ms %d", fields[0], fields[3])
	}
	return outcome{allowed: fields[0] == 1, used: fields[1] - fields[2]}, nil
}

// integers parses a reply that is an array of at least n integers.
func integers(reply redis.Cmder, n int) ([]int64, error) {
	cmd, ok := reply.(*redis.Cmd)
	if !ok {
		return nil, fmt.Errorf("%T is not the command that was sent", reply)
	}
	values, err := cmd.Int64Slice()
	if err != nil {
		return nil, err
	}
	if len(values) < n {
		return nil, fmt.Errorf("the reply %v has fewer than %d fields", values, n)
	}
	return values, nil
}

// takeWith is like take for one key, with additional arguments such as "TRACK" and the keys that
// they require.
func takeWith(lib *library, prefix string, w workload, name string, words []any, extra func(n int) []string) contender {
	c := take(lib, prefix, "", w)
	c.name = fmt.Sprintf("ratelimit_take %q %s", w.rate(), name)
	c.call = func(n int) ([]redis.Cmder, error) {
		keys := append([]string{key(prefix+"0", n)}, extra(n)...)
		args := []any{"fcall", "ratelimit_take", len(keys)}
		for _, k := range keys {
			args = append(args, k)
		}
		return []redis.Cmder{redis.NewCmd(context.Background(), append(append(args, w.rate()), words...)...)}, nil
	}
	return c
}

// lease returns a contender for a lease verb. held lists the lease IDs that each key holds
// beforehand; id returns the lease ID for the call on key number n.
func lease(lib *library, prefix, verb string, held []string, id func(n int) string) contender {
	const limit = "concurrency 5000 lease=1d"
	call := func(verb string, n int, id string) redis.Cmder {
		return redis.NewCmd(context.Background(), "fcall", "ratelimit_"+verb, 1, key(prefix+"0", n), limit, id)
	}
	return contender{
		name:     "ratelimit_" + verb,
		library:  lib,
		prefix:   prefix + "0",
		commands: []string{"fcall"},
		call:     func(n int) ([]redis.Cmder, error) { return []redis.Cmder{call(verb, n, id(n))}, nil },
		read: func(replies []redis.Cmder) (outcome, error) {
			if verb == "release" {
				released, err := replies[0].(*redis.Cmd).Int64()
				return outcome{allowed: released == 1, used: unknown}, err
			}
			decided, err := readTake(replies)
			return outcome{allowed: decided.allowed, used: unknown}, err
		},
		fill: func(n int) ([]redis.Cmder, error) {
			var all []redis.Cmder
			for _, id := range held {
				all = append(all, call("acquire", n, id))
			}
			return all, nil
		},
	}
}
