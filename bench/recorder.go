package main

import (
	"cmp"
	"context"
	"errors"
	"net"

	"github.com/redis/go-redis/v9"
)

// recorder takes the place of a connection to Redis in another limiter's Go package. It records the
// command that the package sends for a decision, so that the bench can send the same command in a
// pipeline. All other commands go to the real server. A recorder is not safe for concurrent use.
type recorder struct {
	client  *redis.Client // the client that the peer uses
	real    *redis.Client
	caught  redis.Cmder
	passing bool // whether to send commands instead of capturing them
}

var errCaught = errors.New("caught by the bench, not sent")

func newRecorder(rdb *redis.Client) *recorder {
	r := &recorder{client: redis.NewClient(&redis.Options{Dialer: func(context.Context, string, string) (net.Conn, error) {
		return nil, errors.New("the recording client was used to reach a server")
	}}), real: rdb}
	r.client.AddHook(r)
	return r
}

// catch calls ask and returns the command that the peer has built. If the peer has built none,
// catch returns a command that contains an error.
func (r *recorder) catch(ask func() error) []redis.Cmder {
	r.caught = nil
	err := ask()
	if r.caught != nil {
		r.caught.SetErr(nil)
		return []redis.Cmder{r.caught}
	}
	failed := redis.NewCmd(context.Background())
	failed.SetErr(cmp.Or(err, errors.New("the peer asked the server nothing")))
	return []redis.Cmder{failed}
}

func (r *recorder) DialHook(next redis.DialHook) redis.DialHook { return next }

func (r *recorder) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (r *recorder) ProcessHook(redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if r.passing || cmd.Name() != "evalsha" {
			return r.real.Process(ctx, cmd)
		}
		r.caught = cmd
		cmd.SetErr(errCaught)
		return errCaught
	}
}
