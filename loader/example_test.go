package loader_test

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/ratelimit-functions/ratelimit/client"
	"github.com/ratelimit-functions/ratelimit/embedded"
	"github.com/ratelimit-functions/ratelimit/functions"
	"github.com/ratelimit-functions/ratelimit/loader"
)

func Example() {
	server, err := embedded.Start() // any Redis or Valkey server will do
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = server.Close() }()
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer func() { _ = rdb.Close() }()

	l, err := loader.New(rdb, loader.Config{})
	if err != nil {
		fmt.Println(err)
		return
	}
	build, err := functions.New()
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx := context.Background()
	for _, deploy := range []bool{false, true, true} {
		var report loader.Report
		if deploy {
			report, err = l.Deploy(ctx, build, loader.Options{})
		} else {
			report, err = l.Status(ctx, build)
		}
		if err != nil {
			fmt.Println(err)
			return
		}
		for _, node := range report.Nodes {
			fmt.Println(node.Role, node.State, "changed:", node.Changed)
		}
	}
	// Output:
	// primary absent changed: false
	// primary same changed: true
	// primary same changed: false
}

// This client restores the library on a server that lost it, for example after a restart without
// persistence.
func ExampleHealer() {
	server, err := embedded.Start() // a server without the library
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = server.Close() }()

	build, err := functions.New()
	if err != nil {
		fmt.Println(err)
		return
	}
	limiter, err := client.Open("redis://"+server.Addr(), client.WithHealer(loader.Healer(build, loader.Config{})), client.WithTimeout(time.Minute))
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
	fmt.Println(res.Allowed, res.Remaining)
	// Output:
	// true 1
}

// This function prints the libraries that a deployment loads on each server. Config.Trace also calls
// it for the inspections and the lease.
func ExampleConfig_trace() {
	server, err := embedded.Start()
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = server.Close() }()
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer func() { _ = rdb.Close() }()

	l, err := loader.New(rdb, loader.Config{Trace: func(_, command string) {
		if strings.HasPrefix(command, "FUNCTION LOAD REPLACE ") {
			fmt.Println(command)
		}
	}})
	if err != nil {
		fmt.Println(err)
		return
	}
	build, err := functions.New()
	if err != nil {
		fmt.Println(err)
		return
	}
	if _, err := l.Deploy(context.Background(), build, loader.Options{}); err != nil {
		fmt.Println(err)
	}
	// Output:
	// FUNCTION LOAD REPLACE ratelimit
}
