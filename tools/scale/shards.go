package main

import (
	"fmt"
	"hash/fnv"
	"math"
	"slices"

	"github.com/ratelimit-functions/ratelimit/internal/figures"
	"github.com/ratelimit-functions/ratelimit/tools/tables"
)

const (
	shards    = 1000
	keys      = 1_000_000
	decisions = 10_000_000 // per second

	// oneShard is the number of decisions per second that one server can make. docs/scale.md
	// describes the measurement.
	oneShard = 69_000
)

// spent returns the average number of units spent of a batch of at most n units. The number of a
// process's calls per ttl has a Poisson distribution with the mean perTTL. The call that requests
// the batch spends one unit, and so does each call within ttl.
func spent(perTTL float64, n int64) float64 {
	if perTTL < 1e-6 || n == 1 {
		return 1
	}
	sum, chance, below := 1.0, math.Exp(-perTTL), 0.0 // chance is the probability of exactly i calls; below is the probability of fewer
	if chance == 0 {
		return float64(n) // math.Exp underflows if there are more than 700 calls per ttl
	}
	for i := int64(0); i < n-1; i++ {
		below += chance
		if below > 1-1e-12 {
			break
		}
		sum += 1 - below
		chance *= perTTL / float64(i+1)
	}
	return sum
}

// shardsTable returns a table of how the messages of many keys are distributed over the shards. The
// key of rank r is used in proportion to 1/r, equally by all processes, and no key is over its
// limit.
func shardsTable() string {
	total := 0.0
	for rank := 1; rank <= keys; rank++ {
		total += 1 / float64(rank)
	}
	places := make([]int, keys+1)
	for rank := range places {
		h := fnv.New64a()
		fmt.Fprintf(h, "key:%d", rank)
		places[rank] = int(h.Sum64() % shards)
	}
	var rows [][]string
	for _, b := range []struct {
		n   int64
		ttl float64
	}{{1, 0}, {10, 0.1}, {100, 0.1}, {10, 1}, {100, 1}, {1000, 1}} {
		load, busiest := make([]float64, shards), make([]float64, shards)
		sum := 0.0
		for rank := 1; rank <= keys; rank++ {
			rate := decisions / float64(rank) / total
			messages := rate / spent(rate/hotProcesses*b.ttl, b.n)
			sum += messages
			load[places[rank]] += messages
			busiest[places[rank]] = max(busiest[places[rank]], messages)
		}
		most := slices.Max(load)
		n, ttl := fmt.Sprint(b.n), fmt.Sprintf("%g s", b.ttl)
		if b.n == 1 {
			n, ttl = "none", ""
		}
		rest := most - busiest[slices.Index(load, most)]
		rows = append(rows, []string{n, ttl, figures.Count(sum), figures.Count(sum / shards), figures.Count(most), figures.Count(rest)})
	}
	return tables.Markdown(0, []string{"n", "ttl", "messages/s", "a shard on average", "the busiest shard", "without its busiest key"}, rows)
}

// serversTable returns a table of how many shards are needed if each is used at half of its
// capacity.
func serversTable() string {
	var rows [][]string
	for _, total := range []float64{1e6, 1e7, 1e8} {
		cells := []string{figures.Count(total)}
		for _, n := range []float64{1, 2, 10, 100} {
			cells = append(cells, fmt.Sprintf("%.0f", math.Ceil(total/n/(oneShard/2))))
		}
		rows = append(rows, cells)
	}
	return tables.Markdown(0, []string{"decisions/s", "no batches", "2 a message", "10 a message", "100 a message"}, rows)
}
