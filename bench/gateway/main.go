// Command bench measures the gateway and envoyproxy/ratelimit alternately, on one Redis server and
// with the same requests. It prints a table for bench/README.md.
//
//	cd bench/gateway && go run . --redis 127.0.0.1:6379
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"time"
)

const config = `domain: bench
descriptors:
  - key: one
    rate_limit: {unit: hour, requests_per_unit: 4000000000}
  - key: two
    rate_limit: {unit: hour, requests_per_unit: 4000000000}
  - key: three
    rate_limit: {unit: hour, requests_per_unit: 4000000000}
`

func main() {
	redis := flag.String("redis", "127.0.0.1:6379", "host:port of a Redis server for both; the library is put there, and its snapshots are turned off")
	seconds := flag.Duration("time", 4*time.Second, "length of a turn")
	rounds := flag.Int("rounds", 3, "turns of each process in each row")
	empty := flag.String("empty", "", "only serve an empty handler of net/http at this address; the bench starts itself so")
	flag.Parse()
	if *empty != "" {
		fmt.Fprintln(os.Stderr, "bench:", http.ListenAndServe(*empty, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})))
		os.Exit(1)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, *redis, *seconds, *rounds); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, redis string, length time.Duration, rounds int) error {
	dir, err := os.MkdirTemp("", "gateway-bench")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	files := filepath.Join(dir, "config")
	if err := errors.Join(os.Mkdir(files, 0o700), os.WriteFile(filepath.Join(files, "bench.yaml"), []byte(config), 0o600)); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, "policies.yaml"), []byte("policies:\n  bench:\n    limit: 1000000/s\n  denied:\n    limit: 1/d\n"), 0o600); err != nil {
		return err
	}
	if err := server(redis).withoutSnapshots(); err != nil {
		return err
	}
	peer, err := startPeer(ctx, dir, redis)
	if err != nil {
		return err
	}
	defer peer.stop()
	ours, err := startOurs(ctx, dir, redis)
	if err != nil {
		return err
	}
	defer ours.stop()
	fmt.Println("| descriptors | callers | peer, decisions a second | gateway | ratio | p50 ms | p99 ms | p99.9 ms | CPU us | Redis us |")
	fmt.Println("|---|---|---|---|---|---|---|---|---|---|")
	capacity := map[int]float64{}
	for _, descriptors := range []int{1, 3} {
		for _, callers := range []int{1, 64, 512} {
			a, b, err := turns(ctx, peer, ours, load{descriptors: descriptors, callers: callers, length: length}, rounds)
			if err != nil {
				return err
			}
			if callers == 64 {
				capacity[descriptors] = a.rate()
			}
			row(fmt.Sprint(callers), descriptors, a, b)
		}
		half := capacity[descriptors] / 2
		a, b, err := turns(ctx, peer, ours, load{descriptors: descriptors, callers: 64, length: length, perSecond: half}, rounds)
		if err != nil {
			return err
		}
		row(fmt.Sprintf("%.0f a second", half), descriptors, a, b)
	}
	fmt.Printf("\nLargest resident memory: peer %d MB, gateway %d MB.\n", peer.memory(), ours.memory())
	batched, err := startOurs(ctx, dir, redis, "--batches", "1000,100ms")
	if err != nil {
		return err
	}
	defer batched.stop()
	return forward(ctx, ours, batched, length, rounds)
}

// turns runs the same load against the two processes alternately, for the given number of rounds.
func turns(ctx context.Context, peer, ours *process, l load, rounds int) (a, b *result, err error) {
	a, b = newResult(), newResult()
	for range rounds {
		if err := errors.Join(l.run(ctx, peer, a), l.run(ctx, ours, b)); err != nil {
			return nil, nil, err
		}
	}
	return a, b, nil
}

func row(callers string, descriptors int, a, b *result) {
	// pair formats the peer's figure and the gateway's, and how many times the peer's the gateway's is.
	pair := func(digits int, a, b float64) string {
		return fmt.Sprintf("%.*f, %.*f **%.2f**", digits, a, digits, b, b/a)
	}
	fmt.Printf("| %d | %s | %.0f | %.0f | **%.2f** | %s | %s | %s | %s | %s |\n", descriptors, callers, a.rate(), b.rate(), b.rate()/a.rate(),
		pair(1, a.quantile(50), b.quantile(50)), pair(1, a.quantile(99), b.quantile(99)), pair(1, a.quantile(99.9), b.quantile(99.9)),
		pair(0, a.each(a.own), b.each(b.own)), pair(0, a.each(a.redis), b.each(b.redis)))
}
