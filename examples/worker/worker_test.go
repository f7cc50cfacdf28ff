package worker_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/ratelimit-functions/ratelimit/client"
	"github.com/ratelimit-functions/ratelimit/examples/worker"
	"github.com/ratelimit-functions/ratelimit/functions"
	"github.com/ratelimit-functions/ratelimit/internal/redistest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func newQueue(t *testing.T, places client.Limit) *worker.Queue {
	t.Helper()
	server := redistest.Run(t) // the embedded server does not have BLMOVE
	limiter := redistest.Must[*client.Client](t)(client.Open("redis://"+server.Addr, client.WithTimeout(time.Minute)))
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr})
	redistest.Require(t, rdb.FunctionLoad(t.Context(), functions.Source()).Err())
	t.Cleanup(func() {
		_ = limiter.Close()
		_ = rdb.Close()
	})
	q := &worker.Queue{Redis: rdb, Limiter: limiter, Name: "mail", Places: places}
	redistest.Require(t, q.Check(t.Context()))
	return q
}

// work starts n workers, and returns a function that stops them.
func work(t *testing.T, q *worker.Queue, n int, do func(ctx context.Context, job string) error) (stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	var workers sync.WaitGroup
	for range n {
		workers.Go(func() { q.Work(ctx, do) })
	}
	return func() {
		cancel()
		workers.Wait()
	}
}

func push(t *testing.T, q *worker.Queue, job string) {
	t.Helper()
	redistest.Require(t, q.Push(t.Context(), job))
}

// left returns the number of unfinished jobs.
func left(t *testing.T, q *worker.Queue) int64 {
	t.Helper()
	waiting, err1 := q.Redis.LLen(context.Background(), "{mail}:waiting").Result()
	taken, err2 := q.Redis.LLen(context.Background(), "{mail}:taken").Result()
	redistest.Require(t, errors.Join(err1, err2))
	return waiting + taken
}

// leave adds a job to the list of taken jobs, as if its worker had crashed.
func leave(t *testing.T, q *worker.Queue, job string) {
	t.Helper()
	redistest.Require(t, q.Redis.RPush(t.Context(), "{mail}:taken", job).Err())
}

func TestEachJobOnceAndTwoAtOnce(t *testing.T) {
	q := newQueue(t, "concurrency 2 lease=30s")
	const jobs = 12
	for i := range jobs {
		push(t, q, fmt.Sprint("job ", i))
	}
	var running, most atomic.Int64
	meet, did := make(chan bool), make(chan string, jobs)
	stop := work(t, q, 4, func(ctx context.Context, job string) error {
		if n := running.Add(1); n > most.Load() {
			most.Store(n)
		}
		defer running.Add(-1)
		select { // waits until another job runs at the same time
		case meet <- true:
		case <-meet:
		case <-ctx.Done():
			return ctx.Err()
		}
		did <- job
		return nil
	})
	done := map[string]int{}
	for range jobs {
		done[<-did]++
	}
	stop()
	if len(done) != jobs || len(did) != 0 || left(t, q) != 0 {
		t.Errorf("%v were done, and %d more; %d are left; want each of %d once", done, len(did), left(t, q), jobs)
	}
	if most.Load() != 2 {
		t.Errorf("%d jobs ran at once, want 2", most.Load())
	}
}

func TestJobsOfAWorkerThatIsGone(t *testing.T) {
	q := newQueue(t, "concurrency 2 lease=30s")
	leave(t, q, "another's")
	leave(t, q, "left behind")
	running, giveUp, other := make(chan bool), make(chan bool), make(chan error, 1)
	go func() {
		other <- q.Limiter.Lease("{mail}:job:another's", "concurrency 1 lease=10s", "").Run(t.Context(), func(context.Context) error {
			close(running)
			<-giveUp
			return nil
		})
	}()
	<-running
	did := make(chan string, 10)
	stop := work(t, q, 1, func(_ context.Context, job string) error {
		did <- job
		return nil
	})
	defer stop()
	if job := <-did; job != "left behind" { // the last job in the list of taken jobs
		t.Errorf("%q was done, although another worker holds its lease", job)
	}
	close(giveUp)
	if err := <-other; err != nil {
		t.Fatal(err)
	}
	if job := <-did; job != "another's" {
		t.Errorf("%q was done, want the job that the other worker gave up", job)
	}
	stop()
	if n := left(t, q); n != 0 {
		t.Errorf("%d jobs are left", n)
	}
}

func TestAJobThatFailsIsTriedAgain(t *testing.T) {
	q := newQueue(t, "concurrency 1 lease=30s")
	push(t, q, "job")
	failed, did := false, make(chan bool, 10)
	stop := work(t, q, 1, func(context.Context, string) error {
		if !failed {
			failed = true
			return errors.New("no paper")
		}
		did <- true
		return nil
	})
	<-did
	stop()
	if n := left(t, q); n != 0 {
		t.Errorf("%d jobs are left", n)
	}
}
