package client_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/ratelimit-functions/ratelimit/client"
)

// perTenant is a layer that counts the denials of each tenant. The key of a request begins with its
// tenant, as in "acme:user:42".
type perTenant struct {
	client.Limiter

	mu     sync.Mutex
	denied map[string]int
}

func (l *perTenant) Take(ctx context.Context, req client.Request) (client.Result, error) {
	res, err := l.Limiter.Take(ctx, req)
	if err == nil && !res.Allowed {
		tenant, _, _ := strings.Cut(req.Keys[0], ":")
		l.mu.Lock()
		defer l.mu.Unlock()
		l.denied[tenant]++
	}
	return res, err
}

// Unwrap lets httplimit, httpcall, grpclimit and WaitFunc use what the Client beneath can do besides Take.
func (l *perTenant) Unwrap() client.Limiter { return l.Limiter }

// A layer adds to what a Client does. The packages httplimit, httpcall, grpclimit and grpccall accept it in place
// of the Client.
func ExampleLimiter_layer() {
	limiter, stop := newLimiter()
	defer stop()
	layer := &perTenant{Limiter: limiter, denied: map[string]int{}}
	for range 3 {
		if _, err := layer.Take(context.Background(), client.For("acme:user:42", "1/m")); err != nil {
			fmt.Println(err)
			return
		}
	}
	fmt.Println(layer.denied)
	// Output:
	// map[acme:2]
}

// refusing stands for a Client in the test of an application.
type refusing struct{}

func (refusing) Take(context.Context, client.Request) (client.Result, error) {
	return client.Result{RetryAfter: time.Minute}, nil
}

// download is a function of an application that limits itself.
func download(ctx context.Context, limiter client.Limiter, user string) error {
	if err := client.AsError(limiter.Take(ctx, client.For("download:"+user, "5/h"))); err != nil {
		return err
	}
	return nil
}

// A test of an application needs no server: it gives the application a Limiter of three lines.
func ExampleLimiter_mock() {
	fmt.Println(download(context.Background(), refusing{}, "42"))
	// Output:
	// ratelimit: take: over its limit; try again in 1m0s
}

// Several decisions need one round trip.
func ExampleClient_TakeAll() {
	limiter, stop := newLimiter()
	defer stop()
	results, err := limiter.TakeAll(context.Background(),
		client.For("user:1", "5/m"), client.For("user:2", "5/m", 6), client.For("user:3", "5/m"))
	for _, res := range results {
		fmt.Println(res.Allowed, res.Remaining)
	}
	fmt.Println(err)
	// Output:
	// true 4
	// false 5
	// true 4
	// <nil>
}

// A limit from a configuration file is checked without a server.
func ExampleParseLimit() {
	fmt.Println(client.ParseLimit("100/m burst=20"))
	_, err := client.ParseLimit("100/min")
	fmt.Println(err)
	// Output:
	// 100/m burst=20 <nil>
	// ratelimit: check: BADLIMIT "100/min": "min" is not a period such as 1s, 5m or 30d, of at most 36500d
}
