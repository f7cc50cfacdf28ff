// Package worker is a queue of jobs on Redis, of which only so many run at once over all processes, and whose jobs are not
// lost with the process that ran them.
//
// A worker moves a job from the list of those that wait to the list of those that were taken, and does it while it holds two
// leases: one of the job, so that nobody else does it, and one of the places that there are for all. Where the worker is gone, its
// leases lapse, and another that finds the job among those that were taken does it. A job may so be done in part, and then
// again: it has to bear that.
package worker

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/ratelimit-functions/ratelimit/client"
)

// oneEach is the limit of a job: one worker at a time, and another 10 s after that one was last heard of.
const oneEach client.Limit = "concurrency 1 lease=10s"

// idle is how long a worker waits for a job before it looks for those that others left behind.
const idle = time.Second

// Queue is a queue of jobs. A job is a text, and no two that wait at once are equal.
type Queue struct {
	Redis   redis.UniversalClient
	Limiter *client.Client
	Name    string
	Places  client.Limit // how many jobs run at once, such as "concurrency 3 lease=10s"
}

func (q *Queue) key(what string) string { return "{" + q.Name + "}:" + what }

// Push adds a job.
func (q *Queue) Push(ctx context.Context, job string) error {
	return q.Redis.RPush(ctx, q.key("waiting"), job).Err()
}

// Work does jobs, one after the other, until ctx ends; call it in as many goroutines and processes as there may be
// workers. The context of do ends when its lease is lost: then it stops, since another may have the job. A job for which
// do returns an error is tried again.
func (q *Queue) Work(ctx context.Context, do func(ctx context.Context, job string) error) {
	looked := time.Now()
	for ctx.Err() == nil {
		job, err := q.Redis.BLMove(ctx, q.key("waiting"), q.key("taken"), "LEFT", "RIGHT", idle).Result()
		switch {
		case err == nil:
			q.try(ctx, job, do)
		case !errors.Is(err, redis.Nil) && ctx.Err() == nil:
			slog.WarnContext(ctx, "the queue cannot be read", "queue", q.Name, "error", err)
			pause(ctx)
		}
		if time.Since(looked) >= idle {
			q.takeOver(ctx, do)
			looked = time.Now()
		}
	}
}

// takeOver does the jobs that nobody has a lease of any more.
func (q *Queue) takeOver(ctx context.Context, do func(ctx context.Context, job string) error) {
	jobs, err := q.Redis.LRange(ctx, q.key("taken"), 0, -1).Result()
	if err != nil && ctx.Err() == nil {
		slog.WarnContext(ctx, "the queue cannot be read", "queue", q.Name, "error", err)
	}
	for _, job := range jobs {
		q.try(ctx, job, do)
	}
}

// try does a job that was taken, unless another worker has it.
func (q *Queue) try(ctx context.Context, job string, do func(ctx context.Context, job string) error) {
	err := q.lease("job:"+job, oneEach).Hold(ctx, func(ctx context.Context) error {
		// Another may have done it between the two steps of taking it, the list and the lease.
		if err := q.Redis.LPos(ctx, q.key("taken"), job, redis.LPosArgs{}).Err(); errors.Is(err, redis.Nil) {
			return nil
		} else if err != nil {
			return err
		}
		place := q.lease("places", q.Places)
		if err := place.Wait(ctx); err != nil {
			return err
		}
		if err := place.Hold(ctx, func(ctx context.Context) error { return do(ctx, job) }); err != nil {
			return err
		}
		return q.Redis.LRem(context.WithoutCancel(ctx), q.key("taken"), 1, job).Err()
	})
	var limited *client.LimitedError
	if err != nil && ctx.Err() == nil && !errors.As(err, &limited) {
		slog.WarnContext(ctx, "a job will be tried again", "queue", q.Name, "job", job, "error", err)
	}
}

func (q *Queue) lease(what string, limit client.Limit) *client.Lease {
	return q.Limiter.Lease(q.key(what), limit, "")
}

// pause waits a little, or until ctx ends.
func pause(ctx context.Context) {
	select {
	case <-ctx.Done():
	case <-time.After(idle):
	}
}
