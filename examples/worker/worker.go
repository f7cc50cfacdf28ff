// Package worker is a job queue on Redis. It limits how many jobs run at once across all processes,
// and does not lose the jobs of a process that crashes.
//
// A worker moves a job from the list of waiting jobs to the list of taken jobs. It runs the job
// while it holds two leases. One is for the job, so that no other worker runs it. The other is for
// a place, so that only as many jobs run at once as there are places. If a worker crashes, its
// leases expire, and another worker finds the job in the list of taken jobs and runs it. A job may
// therefore run partly and then again, so jobs must be idempotent.
package worker

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/ratelimit-functions/ratelimit/client"
)

// oneEach is the limit of a job: one worker at a time. If a worker crashes, its lease expires after
// 10 s.
const oneEach client.Limit = "concurrency 1 lease=10s"

// idle is how long a worker waits for a new job before it looks for the jobs of crashed workers.
const idle = time.Second

// Queue is a queue of jobs. A job is a string. No two waiting jobs may be equal.
type Queue struct {
	Redis   redis.UniversalClient
	Limiter *client.Client
	Name    string
	Places  client.Limit // how many jobs run at once, such as "concurrency 3 lease=10s"
}

func (q *Queue) key(what string) string { return "{" + q.Name + "}:" + what }

// Check returns nil if the servers are ready and accept the limits of the queue. Call it when the program starts.
func (q *Queue) Check(ctx context.Context) error { return q.Limiter.Check(ctx, oneEach, q.Places) }

// Push adds a job.
func (q *Queue) Push(ctx context.Context, job string) error {
	return q.Redis.RPush(ctx, q.key("waiting"), job).Err()
}

// Work runs jobs, one at a time, until ctx is canceled. Each call is one worker; call it in any
// number of goroutines and processes. If a lease is lost, Work cancels the context that it passed to
// do. Then do must return, because another worker may have taken the job. If do returns an error, the
// job is retried.
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

// takeOver runs the taken jobs for which no worker holds a lease.
func (q *Queue) takeOver(ctx context.Context, do func(ctx context.Context, job string) error) {
	jobs, err := q.Redis.LRange(ctx, q.key("taken"), 0, -1).Result()
	if err != nil && ctx.Err() == nil {
		slog.WarnContext(ctx, "the queue cannot be read", "queue", q.Name, "error", err)
	}
	for _, job := range jobs {
		q.try(ctx, job, do)
	}
}

// try runs a taken job, unless another worker holds its lease.
func (q *Queue) try(ctx context.Context, job string, do func(ctx context.Context, job string) error) {
	err := q.lease("job:"+job, oneEach).Run(ctx, func(ctx context.Context) error {
		// Another worker may have finished the job before this worker got the lease.
		if err := q.Redis.LPos(ctx, q.key("taken"), job, redis.LPosArgs{}).Err(); errors.Is(err, redis.Nil) {
			return nil
		} else if err != nil {
			return err
		}
		place := q.lease("places", q.Places)
		if err := place.Wait(ctx); err != nil {
			return err
		}
		if err := place.Run(ctx, func(ctx context.Context) error { return do(ctx, job) }); err != nil {
			return err
		}
		return q.Redis.LRem(context.WithoutCancel(ctx), q.key("taken"), 1, job).Err()
	})
	if err != nil && ctx.Err() == nil && !errors.Is(err, client.ErrLimited) {
		slog.WarnContext(ctx, "a job will be tried again", "queue", q.Name, "job", job, "error", err)
	}
}

func (q *Queue) lease(what string, limit client.Limit) *client.Lease {
	return q.Limiter.Lease(q.key(what), limit, "")
}

// pause waits for the duration idle, or until ctx is done.
func pause(ctx context.Context) {
	select {
	case <-ctx.Done():
	case <-time.After(idle):
	}
}
