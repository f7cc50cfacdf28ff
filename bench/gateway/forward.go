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

// A target is what a table of forward auth measures.
type target struct {
	title     string
	process   *process
	path      string
	addresses int
	status    int // of the answers; the first answers of a run may have another
}

// forward measures forward auth and, for comparison, an empty net/http handler in a separate
// process. gateway asks Redis for each request, but remembers denials; batched has --batches.
func forward(ctx context.Context, gateway, batched *process, length time.Duration, rounds int) error {
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
	empty := &process{name: "the empty handler", cmd: cmd, redis: gateway.redis}
	defer empty.stop()
	fmt.Println("\n| requests | callers | empty handler, requests a second | forward auth | ratio | p50 ms | p99 ms | CPU us | ratio | Redis us |")
	fmt.Println("|---|---|---|---|---|---|---|---|---|---|")
	// One client for all targets: a gateway closes further connections above --max-connections.
	client := &http.Client{Transport: &http.Transport{MaxConnsPerHost: 512, MaxIdleConnsPerHost: 512}}
	for _, of := range []target{
		{"allowed, 10,000 addresses", gateway, "bench/address", keys, http.StatusOK},
		{"denied, one address", gateway, "denied/address", 1, http.StatusTooManyRequests},
		{"allowed, one address, with --batches", batched, "bench/address", 1, http.StatusOK},
	} {
		check := &process{name: "forward auth", cmd: of.process.cmd, redis: gateway.redis, ask: askHTTP(client, of.process.http, of, of.status)}
		empty.ask = askHTTP(client, ports[0], of, http.StatusOK)
		if err := errors.Join(empty.answers(ctx), check.answers(ctx)); err != nil {
			return err
		}
		for _, callers := range []int{1, 64, 512} {
			a, b, err := turns(ctx, empty, check, load{callers: callers, length: length}, rounds)
			if err != nil {
				return err
			}
			fmt.Printf("| %s | %d | %.0f | %.0f | %.2f | %.1f, %.1f | %.1f, %.1f | %.0f, %.0f | %.2f | %.0f |\n", of.title, callers, a.rate(), b.rate(), b.rate()/a.rate(),
				a.quantile(50), b.quantile(50), a.quantile(99), b.quantile(99), a.each(a.own), b.each(b.own), b.each(b.own)/a.each(a.own), b.each(b.redis))
		}
	}
	return nil
}

// askHTTP returns a function that makes the server at port check a request from one of the target's
// addresses. An answer with another status than the given one is an error.
func askHTTP(client *http.Client, port string, of target, status int) func(context.Context, load) error {
	return func(ctx context.Context, _ load) error {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://127.0.0.1:"+port+"/check/"+of.path, nil)
		if err != nil {
			return err
		}
		address := rand.IntN(of.addresses)
		request.Header.Set("X-Forwarded-For", fmt.Sprintf("10.0.%d.%d", address/256, address%256))
		response, err := client.Do(request)
		if err != nil {
			return err
		}
		_, _ = io.Copy(io.Discard, response.Body)
		_ = response.Body.Close()
		if response.StatusCode != status {
			return fmt.Errorf("the answer was %s", response.Status)
		}
		return nil
	}
}
