package client_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ratelimit-functions/ratelimit/client"
	"github.com/ratelimit-functions/ratelimit/client/limits"
)

// A worker proceeds as fast as the limit allows. If its deadline comes before its turn, Wait
// returns an error immediately.
func ExampleClient_Wait() {
	limiter, stop := newLimiter()
	defer stop()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	for range 3 {
		err := limiter.Wait(ctx, client.For("mails", "2/m"))
		var limited *client.Error
		switch {
		case err == nil:
			fmt.Println("sent")
		case errors.As(err, &limited) && limited.RetryAfter != client.Never:
			fmt.Println("the next can be sent in", limited.RetryAfter)
		default:
			fmt.Println(err)
		}
	}
	// Output:
	// sent
	// sent
	// the next can be sent in 30s
}

// Each caller of a leaky bucket gets a turn.
func ExampleClient_Allow_leakyBucket() {
	limiter, stop := newLimiter()
	defer stop()
	for range 3 {
		res, err := limiter.Allow(context.Background(), "printer", "leaky_bucket 1/m burst=10")
		fmt.Println(res.Allowed, res.RetryAfter.Round(time.Minute), err)
	}
	// Output:
	// true 0s <nil>
	// true 1m0s <nil>
	// true 2m0s <nil>
}

// One export of this account runs at a time, across all processes. Wait waits up to ten seconds for
// the lease, and Run keeps it for the duration of the export.
func ExampleLease_Run() {
	limiter, stop := newLimiter()
	defer stop()
	ctx := context.Background()

	lease := limiter.Lease("export:42", limits.Concurrency(1, 30*time.Second), "")
	limited, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	if err := lease.Wait(limited); err != nil {
		fmt.Println(err)
		return
	}
	err := lease.Run(ctx, func(ctx context.Context) error {
		fmt.Println("exporting")
		return ctx.Err() // ctx is canceled if the lease is lost
	})
	fmt.Println(err)
	// Output:
	// exporting
	// <nil>
}

// While the server is unreachable, each of ten processes allows a tenth of the limit.
func ExampleLocalFallback() {
	addr, stop := server()
	limiter, err := client.Open("redis://"+addr, client.WithFallback(client.LocalFallback(0.1)), client.WithTimeout(time.Minute))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = limiter.Close() }()
	for i := range 4 {
		res, err := limiter.Allow(context.Background(), "user:42", "20/d")
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(res.Allowed, "by", res.Source)
		if i == 0 {
			learned(limiter, "20/d") // wait until the client knows the limit
			stop()
		}
	}
	// Output:
	// true by server
	// true by local
	// true by local
	// false by local
}

func learned(limiter *client.Client, limit client.Limit) {
	for !client.Knows(limiter, limit) {
		time.Sleep(time.Millisecond)
	}
}
