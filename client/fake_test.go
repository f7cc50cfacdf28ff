package client_test

import (
	"context"

	"github.com/redis/go-redis/v9"
)

// fake is a redis.UniversalClient that answers what the test says.
type fake struct {
	redis.UniversalClient
	reply any
	err   error
	sent  bool    // whether the command was written before it failed
	lines [][]any // the commands that were asked for
}

func (f *fake) Process(_ context.Context, cmd redis.Cmder) error {
	if f.sent || f.err == nil {
		f.lines = append(f.lines, cmd.Args())
	}
	if f.err != nil {
		cmd.SetErr(f.err)
		return f.err
	}
	cmd.(interface{ SetVal(any) }).SetVal(f.reply)
	return nil
}

// answered is an error reply of a server.
type answered string

func (a answered) Error() string { return string(a) }
func (answered) RedisError()     {}

func integers(n ...int64) []any {
	reply := make([]any, len(n))
	for i := range n {
		reply[i] = n[i]
	}
	return reply
}
