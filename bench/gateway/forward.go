package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"time"
)

// forward measures forward auth and, for comparison, an empty net/http handler in a separate
// process.
func forward(ctx context.Context, gateway *process, length time.Duration, rounds int) error {
	program, err := os.Executable()
	if err != nil {
		return err
	}
	ports, err := freePorts(1)
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, program, "--empty", "127.0.0.1:"+ports[0])
	if err := cmd.Start(); err != nil {
		return err
	}
	empty := &process{name: "the empty handler", cmd: cmd, redis: gateway.redis, ask: askHTTP(ports[0])}
	defer empty.stop()
	check := &process{name: "forward auth", cmd: gateway.cmd, redis: gateway.redis, ask: askHTTP(gateway.http)}
	fmt.Println("\n| callers | empty handler, requests a second | forward auth | ratio | p50 ms | p99 ms | CPU us | ratio | Redis us |")
	fmt.Println("|---|---|---|---|---|---|---|---|---|")
	for _, callers := range []int{1, 64, 512} {
		if err := errors.Join(empty.answers(ctx), check.answers(ctx)); err != nil {
			return err
		}
		a, b, err := turns(ctx, empty, check, load{callers: callers, length: length}, rounds)
		if err != nil {
			return err
		}
		fmt.Printf("| %d | %.0f | %.0f | %.2f | %.1f, %.1f | %.1f, %.1f | %.0f, %.0f | %.2f | %.0f |\n", callers, a.rate(), b.rate(), b.rate()/a.rate(),
			a.quantile(50), b.quantile(50), a.quantile(99), b.quantile(99), a.each(a.own), b.each(b.own), b.each(b.own)/a.each(a.own), b.each(b.redis))
	}
	return nil
}

// askHTTP returns a function that makes the server at port check a request from one of many
// addresses.
func askHTTP(port string) func(context.Context, load) error {
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 1000}}
	return func(ctx context.Context, _ load) error {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://127.0.0.1:"+port+"/check/bench/address", nil)
		if err != nil {
			return err
		}
		request.Header.Set("X-Forwarded-For", fmt.Sprintf("10.0.%d.%d", rand.IntN(keys/256), rand.IntN(256)))
		response, err := client.Do(request)
		if err != nil {
			return err
		}
		_, _ = io.Copy(io.Discard, response.Body)
		_ = response.Body.Close()
		if response.StatusCode != http.StatusOK {
			return fmt.Errorf("the answer was %s", response.Status)
		}
		return nil
	}
}
