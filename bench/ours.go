package main

import (
	"context"
	"fmt"
	"strconv"

	"github.com/ratelimit-functions/ratelimit/functions"
	"github.com/redis/go-redis/v9"
)

const libraryName = functions.Name

// take asks this project's library: one FCALL of ratelimit_take over as many keys as there are workloads. prefix has 3
// bytes, and algorithm may be "" for the default. The first workload's cost holds for all, the last one's prefill too.
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

// readTake reads { allowed, limit, remaining, retry_after_ms, reset_after_ms, index }.
func readTake(replies []redis.Cmder) (outcome, error) {
	fields, err := integers(replies[0], 6)
	if err != nil {
		return outcome{}, err
	}
	if fields[0] == 1 && fields[3] != 0 || fields[0] == 0 && fields[3] < 1 {
		return outcome{}, fmt.Errorf("allowed is %d and retry_after_ms %d", fields[0], fields[3])
	}
	return outcome{allowed: fields[0] == 1, used: fields[1] - fields[2]}, nil
}

// integers reads a reply that is an array of at least n integers.
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

// The floors: what a call costs before anything is decided.
const (
	floorLibraryName = "ratelimit_bench"
	floorLibrary     = `#!lua name=` + floorLibraryName + `
redis.register_function('ratelimit_bench_one', function() return 1 end)
local six = { 1, 100, 99, 0, 600, 1 }
redis.register_function('ratelimit_bench_six', function() return six end)
redis.register_function('ratelimit_bench_new', function() return { 1, 100, 99, 0, 600, 1 } end)
`
)

// floors answer a constant.
func floors(ctx context.Context, rdb *redis.Client) ([]contender, error) {
	if err := rdb.FunctionLoadReplace(ctx, floorLibrary).Err(); err != nil {
		return nil, fmt.Errorf("load the floors: %w", err)
	}
	sha, err := rdb.ScriptLoad(ctx, "return 1").Result()
	if err != nil {
		return nil, fmt.Errorf("load the floors: %w", err)
	}
	floor := func(name, command string, args ...any) contender {
		return contender{
			name:     name,
			commands: []string{command},
			call: func(int) ([]redis.Cmder, error) {
				return []redis.Cmder{redis.NewCmd(ctx, append([]any{command}, args...)...)}, nil
			},
			read: func(replies []redis.Cmder) (outcome, error) {
				return outcome{allowed: true, used: unknown}, replies[0].Err()
			},
		}
	}
	return []contender{
		floor("FCALL of a function that returns 1", "fcall", "ratelimit_bench_one", 0),
		floor("FCALL of one that returns six integers", "fcall", "ratelimit_bench_six", 0),
		floor("FCALL of one that returns six in a new table", "fcall", "ratelimit_bench_new", 0),
		floor("EVALSHA of 'return 1'", "evalsha", sha, 0),
		floor("PING", "ping"),
	}, nil
}
