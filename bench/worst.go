package main

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/ratelimit-functions/ratelimit/lua_test/worst"
)

// worstMicroseconds is the maximum server time of a valid call, measured in its fastest round.
// Slower rounds may include other work on the machine.
const worstMicroseconds = 10000

// refusable is a command that the library may reject.
type refusable struct{ *redis.Cmd }

// SetErr ignores errors returned by the library.
func (c refusable) SetErr(err error) {
	if err == nil || !strings.HasPrefix(err.Error(), "RATELIMIT ") {
		c.Cmd.SetErr(err)
	}
}

// worst adds a case for the most expensive known valid calls of each verb. It measures each call a
// few times, each time with a new state.
func (b *caseBuilder) worst() {
	ctx := context.Background()
	command := func(words []string) *redis.Cmd {
		args := make([]any, len(words))
		for i, word := range words {
			args[i] = word
		}
		return redis.NewCmd(ctx, args...)
	}
	c := benchCase{name: "worst legal calls", note: "the state is created again before each call", work: workload{keys: none, allow: true, cost: 1}, few: true}
	for _, w := range worst.Calls() {
		c.contenders = append(c.contenders, contender{
			name: w.Name, library: b.libraries[0], commands: []string{"fcall"}, most: worstMicroseconds, refuses: w.Beyond, read: readAnything,
			prepare: func() []redis.Cmder {
				all := []redis.Cmder{redis.NewStatusCmd(ctx, "flushdb")}
				var first []string // the first SET
				for _, words := range w.Prepare(time.Now()) {
					switch {
					case words[0] != "SET":
					case first == nil:
						first = words
					case slices.Equal(words[2:], first[2:]): // a copy is faster than sending up to 2.4 MB again
						words = []string{"COPY", first[1], words[1]}
					}
					all = append(all, command(words))
				}
				return all
			},
			call: func(int) []redis.Cmder {
				if w.Beyond {
					return []redis.Cmder{refusable{command(w.Words())}}
				}
				return []redis.Cmder{command(w.Words())}
			},
		})
	}
	b.list = append(b.list, c)
}
