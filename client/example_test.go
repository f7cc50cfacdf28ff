package client_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/ratelimit-functions/ratelimit/client"
	"github.com/ratelimit-functions/ratelimit/client/limits"
	"github.com/ratelimit-functions/ratelimit/embedded"
	"github.com/ratelimit-functions/ratelimit/functions"
)

// server starts an embedded server with the library. The server's clock is stopped.
func server(policies ...functions.Policy) (addr string, stop func()) {
	build, err := functions.New(functions.WithPolicies(policies...))
	if err != nil {
		panic(err)
	}
	s, err := embedded.Start(embedded.WithLibrary(build.Text()), embedded.WithTime(time.UnixMilli(1_700_000_000_000)))
	if err != nil {
		panic(err)
	}
	return s.Addr(), func() { _ = s.Close() }
}

// newLimiter starts a server and returns a client for it, as in the first example.
func newLimiter(policies ...functions.Policy) (limiter *client.Client, stop func()) {
	addr, stopServer := server(policies...)
	limiter, err := client.Open("redis://"+addr, client.WithTimeout(time.Minute))
	if err != nil {
		panic(err)
	}
	return limiter, func() {
		_ = limiter.Close()
		stopServer()
	}
}

func Example() {
	addr, stop := server()
	defer stop()

	limiter, err := client.Open("redis://"+addr, client.WithTimeout(time.Minute))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = limiter.Close() }()
	for range 3 {
		res, err := limiter.Allow(context.Background(), "user:42", "2/m")
		switch {
		case err != nil:
			fmt.Println(err)
		case res.Allowed:
			fmt.Println("allowed,", res.Remaining, "left")
		default:
			fmt.Println("denied, come back in", res.RetryAfter)
		}
	}
	// Output:
	// allowed, 1 left
	// allowed, 0 left
	// denied, come back in 30s
}

// New uses an existing go-redis client of the application.
func ExampleNew() {
	addr, stop := server()
	defer stop()
	rdb := redis.NewClient(&redis.Options{Addr: addr, ContextTimeoutEnabled: true})
	defer func() { _ = rdb.Close() }()

	limiter, err := client.New(rdb, client.WithPrefix("limits:"))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = limiter.Close() }()
	res, err := limiter.Allow(context.Background(), "user:42", "2/m")
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(res.Allowed, rdb.Keys(context.Background(), "*").Val())
	// Output:
	// true [limits:user:42]
}

// While no server can decide, all calls are allowed, and Result.Err says why.
func ExampleWithFallback() {
	limiter, err := client.Open("redis://127.0.0.1:1", client.WithFallback(client.FailOpen), client.WithTimeout(time.Minute))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = limiter.Close() }()
	res, err := limiter.Allow(context.Background(), "user:42", "2/m")
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(res.Allowed, "by", res.Source)
	fmt.Println(res.Err)
	// Output:
	// true by fallback
	// ratelimit: take "user:42": no connection, nothing was counted (dial tcp 127.0.0.1:1: connect: connection refused)
}

// With a busy key, only a few of a thousand calls need a request. Every unit is charged before it
// is spent.
func ExampleWithBatches() {
	addr, stop := server()
	defer stop()
	limiter, err := client.Open("redis://"+addr, client.WithBatches(100, 10*time.Second), client.WithTimeout(time.Minute))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = limiter.Close() }() // gives back the unspent units
	decided := map[string]int{}
	for range 1000 {
		res, err := limiter.Allow(context.Background(), "search", "10000/m")
		if err != nil {
			fmt.Println(err)
			return
		}
		decided[res.Source]++
	}
	fmt.Println(decided["server"], "by the server,", decided["batch"], "from batches")
	// Output:
	// 16 by the server, 984 from batches
}

// If a denied key is requested again and again, the server gets one request a second.
func ExampleWithDenialMemory() {
	addr, stop := server()
	defer stop()
	limiter, err := client.Open("redis://"+addr, client.WithDenialMemory(time.Second), client.WithTimeout(time.Minute))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = limiter.Close() }()
	allowed, remembered := 0, 0
	for range 1000 {
		res, err := limiter.Allow(context.Background(), "user:42", "2/h")
		if err != nil {
			fmt.Println(err)
			return
		}
		if res.Allowed {
			allowed++
		}
		if res.Source == "memory" {
			remembered++
		}
	}
	fmt.Println(allowed, "allowed, most denials from memory:", remembered > 900)
	// Output:
	// 2 allowed, most denials from memory: true
}

// When a program starts, it checks whether its servers are ready.
func ExampleClient_Check() {
	limiter, stop := newLimiter()
	defer stop()
	fmt.Println(limiter.Check(context.Background()))
	fmt.Println(limiter.Check(context.Background(), "100/m", "concurrency 3 lease=30s"))
	fmt.Println(limiter.Check(context.Background(), "3/min", "@login"))
	// Output:
	// <nil>
	// <nil>
	// ratelimit: check: BADLIMIT "3/min": the unit of the period "min" is none of ms, s, m, h, d; and the library has no policy @login, it has none; deploy a build that has it
}

// The process starts while no server is reachable, and decides with half of each limit.
func ExampleLocalFallback_policies() {
	build, err := functions.New(functions.WithPolicies( // or call functions.ReadPolicies with the text of a build
		functions.Policy{Name: "free", Limits: []functions.PolicyLimit{{Limit: "4/h"}}},
	))
	if err != nil {
		fmt.Println(err)
		return
	}
	limiter, err := client.Open("redis://127.0.0.1:1", client.WithFallback(client.LocalFallback(0.5, build.Policies()...)))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer limiter.Close()
	for range 3 {
		res, err := limiter.Allow(context.Background(), "user:42", "@free")
		fmt.Println(res.Allowed, res.Remaining, res.Source, err)
	}
	// Output:
	// true 1 local <nil>
	// true 0 local <nil>
	// false 0 local <nil>
}

// A leaky bucket spreads a burst over time: an allowed caller waits for its turn.
func ExampleResult_leakyBucket() {
	limiter, stop := newLimiter()
	defer stop()
	for range 4 {
		res, err := limiter.Allow(context.Background(), "printer", "leaky_bucket 1/s burst=3")
		switch {
		case err != nil:
			fmt.Println(err)
		case res.Allowed:
			fmt.Println("allowed, go ahead in", res.RetryAfter)
		default:
			fmt.Println("denied, the queue is full for", res.RetryAfter)
		}
	}
	// Output:
	// allowed, go ahead in 0s
	// allowed, go ahead in 1s
	// allowed, go ahead in 2s
	// denied, the queue is full for 1s
}

// Take decides on several limits in one atomic step: if one of them denies, nothing is taken from
// any.
func ExampleClient_Take() {
	limiter, stop := newLimiter()
	defer stop()
	request := client.Request{
		Keys:   []string{"{user:42}:requests", "{user:42}:bytes"},
		Limits: []client.Limit{limits.PerMinute(100), limits.PerHour(1_000_000)},
		Costs:  []int64{1, 600_000},
	}
	for range 2 {
		res, err := limiter.Take(context.Background(), request)
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(res.Allowed, "by", request.Keys[res.Index-1], "after", res.RetryAfter)
	}
	// Output:
	// true by {user:42}:requests after 0s
	// false by {user:42}:bytes after 12m0s
}

// A worker takes as much work as its limit allows, and retries the rest later.
func ExampleClient_Take_upTo() {
	limiter, stop := newLimiter()
	defer stop()
	for range 3 {
		req := client.For("mails", limits.PerMinute(100), 60)
		req.UpTo = true
		res, err := limiter.Take(context.Background(), req)
		switch {
		case err != nil:
			fmt.Println(err)
		case res.Allowed:
			fmt.Println("send", res.Taken, "mails")
		default:
			fmt.Println("come back in", res.RetryAfter)
		}
	}
	// Output:
	// send 60 mails
	// send 40 mails
	// come back in 600ms
}

// The number of tokens that a language model uses is known only after the call. If it exceeds the
// units left, later calls are denied until the debt is paid off.
func ExampleClient_TakeEstimate() {
	limiter, stop := newLimiter()
	defer stop()
	ctx := context.Background()
	budget := limits.PerHour(1000)
	for _, used := range []int64{150, 1100, 50} {
		hold, err := limiter.TakeEstimate(ctx, client.For("team:7", budget, 200))
		if err != nil {
			fmt.Println(err)
			return
		}
		if !hold.Result.Allowed {
			fmt.Println("come back in", hold.Result.RetryAfter)
			return
		}
		res, err := hold.Settle(ctx, used)
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(used, "used,", res.Remaining, "left")
	}
	// Output:
	// 150 used, 850 left
	// 1100 used, 0 left
	// come back in 27m0s
}

// One estimate is held for a policy and for a quota of the calendar month. What was not used is given
// back to both.
func ExampleClient_TakeEstimate_severalKeys() {
	limiter, stop := newLimiter(functions.Policy{Name: "tokens", Limits: []functions.PolicyLimit{{Limit: "1000/m"}}})
	defer stop()
	ctx := context.Background()
	const quota = "fixed_window 50000/mo align=clock"
	hold, err := limiter.TakeEstimate(ctx, client.Request{
		Keys:   []string{"{acme}:ann", "{acme}:quota"},
		Limits: []client.Limit{"@tokens", quota},
		Costs:  []int64{800},
	})
	if err != nil || !hold.Result.Allowed {
		fmt.Println("not now", err)
		return
	}
	minute, err := hold.Settle(ctx, 650)
	if err != nil {
		fmt.Println(err)
		return
	}
	month, err := limiter.Peek(ctx, client.For("{acme}:quota", quota, 0))
	fmt.Println(minute.Remaining, "left this minute,", month.Remaining, "this month", err)
	// Output:
	// 350 left this minute, 49350 this month <nil>
}

// If no server decides, the application chooses what to do. The error says whether the call may
// have been counted.
func ExampleError() {
	limiter, stop := newLimiter()
	defer stop()
	_, err := limiter.Allow(context.Background(), "user:42", "100/x")
	switch {
	case errors.Is(err, client.ErrOutcomeUnknown):
		fmt.Println("counted once, or not at all:", err)
	case errors.Is(err, client.ErrUnavailable):
		fmt.Println("not counted, try later:", err)
	default:
		fmt.Println(err)
	}
	// Output:
	// ratelimit: take "user:42": BADLIMIT "100/x": the unit of the period "x" is none of ms, s, m, h, d
}

// Each order has its own OnceKey. If a reply or a message is lost, the order's call can be repeated
// without being charged again.
func ExampleRequest_onceKey() {
	limiter, stop := newLimiter()
	defer stop()
	for _, order := range []string{"order-1", "order-1", "order-2"} {
		res, err := limiter.Take(context.Background(), client.Request{
			Keys:     []string{"{user:42}:orders"},
			Limits:   []client.Limit{limits.PerDay(10)},
			OnceKey:  "{user:42}:once:" + order,
			OnceTTL:  10 * time.Minute,
			UsageKey: "{user:42}:usage",
		})
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(order, res.Allowed, res.Remaining)
	}
	usage, err := limiter.Usage(context.Background(), "{user:42}:usage")
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(usage.Allowed, "allowed,", usage.Denied, "denied, last at", usage.Last.Format(time.TimeOnly))
	// Output:
	// order-1 true 9
	// order-1 true 9
	// order-2 true 8
	// 2 allowed, 0 denied, last at 22:13:20
}

// Units for work that was not done are given back.
func ExampleClient_Refund() {
	limiter, stop := newLimiter()
	defer stop()
	ctx := context.Background()
	request := client.Request{Keys: []string{"mail:42"}, Limits: []client.Limit{"100/d"}, Costs: []int64{30}}
	taken, err := limiter.Take(ctx, request)
	if err != nil {
		fmt.Println(err)
		return
	}
	given, err := limiter.Refund(ctx, request) // because the mail server is down
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(taken.Remaining, given.Remaining)
	// Output:
	// 70 100
}

// At most two exports run at the same time, across all processes.
func ExampleLease() {
	limiter, stop := newLimiter()
	defer stop()
	ctx := context.Background()
	atMostTwo := limits.Concurrency(2, 30*time.Second)
	for i := range 3 {
		lease := limiter.Lease("exports", atMostTwo, "")
		res, err := lease.Acquire(ctx)
		if err != nil {
			fmt.Println(err)
			return
		}
		defer func() { _, _ = lease.Release(ctx) }()
		fmt.Println("export", i+1, res.Allowed, res.RetryAfter)
	}
	// Output:
	// export 1 true 0s
	// export 2 true 0s
	// export 3 false 30s
}

// An operator blocks a key for some time.
func ExampleClient_Block() {
	limiter, stop := newLimiter()
	defer stop()
	ctx := context.Background()
	if err := limiter.Block(ctx, client.Block{For: time.Hour}, "user:42"); err != nil {
		fmt.Println(err)
		return
	}
	res, err := limiter.Allow(ctx, "user:42", "100/m")
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(res.Allowed, res.RetryAfter)
	// Output:
	// false 1h0m0s
}
