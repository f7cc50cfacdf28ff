package main

import (
	"fmt"
	"math/rand/v2"

	"github.com/ratelimit-functions/ratelimit/internal/figures"
	"github.com/ratelimit-functions/ratelimit/tools/tables"
)

// A hotKey is one key that many processes use, each with its own batches, as with
// client.WithBatches. Calls arrive at random (a Poisson process), and each process is equally likely
// to receive a call. Replies are immediate.
type hotKey struct {
	processes   int
	rate, burst int64 // rate and burst of the limit
	offered     int64 // calls per second over all processes
	n           int64 // maximum units in a batch; 1 for no batches
	ttl         int64 // in microseconds
}

// A tally holds the counts of one part of a simulation.
type tally struct{ offered, admitted, charged, messages int64 }

// unused returns the fraction of the charged units that were never spent.
func (t tally) unused() float64 { return max(0, 1-float64(t.admitted)/float64(t.charged)) }

// A batch holds a process's units of the key, and what the process knows from its last request.
type batch struct {
	left, taken int64
	sent        int64 // time of the last request; negative before the first
	size        int64
	remaining   int64 // remaining units of the limit, from the last reply
}

// ask returns how many units a process requests: 1 at first, or if the last request was more than
// twice ttl ago. If the last batch expired, ask returns how many of its units were spent. If the
// last batch was spent within half of ttl, ask doubles its size, up to n. The result is at most an
// eighth of the remaining units, but at least 1.
func (h hotKey) ask(b *batch, now int64) int64 {
	switch gap := now - b.sent; {
	case b.sent < 0 || gap > 2*h.ttl:
		b.size = 1
	case gap > h.ttl:
		b.size = max(1, b.taken-b.left)
	case gap <= h.ttl/2:
		b.size = min(h.n, 2*b.size)
	}
	return max(1, min(b.size, b.remaining/8))
}

// run counts the calls during one second, after a warm-up of one second and six times ttl. The
// bucket begins empty, and the batches begin small and reach their usual sizes in the warm-up.
func (h hotKey) run() (t tally) {
	const second = 1e6 // in microseconds
	begin := second + 6*float64(h.ttl)
	end := begin + second
	random := rand.New(rand.NewPCG(uint64(h.n), uint64(h.ttl)))
	limit := newLimiter(h.rate, h.burst)
	limit.take(0, h.burst) // begin with an empty bucket
	batches := make([]batch, h.processes)
	for i := range batches {
		batches[i].sent = -1
	}
	var before tally
	for at := 0.0; at < end; at += random.ExpFloat64() * second / float64(h.offered) {
		if at < begin {
			before = t
		}
		now, b := int64(at), &batches[random.IntN(h.processes)]
		t.offered++
		if b.left == 0 || now >= b.sent+h.ttl {
			want := h.ask(b, now)
			b.sent = now
			b.taken, b.remaining = limit.take(now, want)
			b.left = b.taken
			b.size = max(1, min(b.size, b.taken))
			t.messages++
			t.charged += b.taken
		}
		if b.left > 0 {
			b.left--
			t.admitted++
		}
	}
	return tally{t.offered - before.offered, t.admitted - before.admitted, t.charged - before.charged, t.messages - before.messages}
}

const (
	hotProcesses = 10_000
	hotRate      = 1_000_000
	hotBurst     = 100_000
)

// hotLoads lists the numbers of calls per second, in percent of the limit.
var hotLoads = []int64{50, 90, 150}

// hotTable returns a table with one row without batches, and one row for each combination of n and
// ttl. For each load, it shows the share of admitted calls, the share of unused units, and the
// messages per second.
func hotTable() string {
	columns := []string{"n", "ttl"}
	for _, load := range hotLoads {
		columns = append(columns, fmt.Sprintf("%d %%: admitted", load), "unused", "messages/s")
	}
	type batches struct{ n, ttl int64 }
	all := []batches{{1, 1000}}
	rows := [][]string{{"none", ""}}
	for _, ttl := range []int64{100_000, 1_000_000} {
		for _, n := range []int64{10, 100, 1000} {
			all = append(all, batches{n, ttl})
			rows = append(rows, []string{fmt.Sprint(n), seconds(ttl)})
		}
	}
	concurrently(len(rows), func(i int) {
		for _, load := range hotLoads {
			t := hotKey{hotProcesses, hotRate, hotBurst, hotRate * load / 100, all[i].n, all[i].ttl}.run()
			rows[i] = append(rows[i],
				percent(t.admitted, min(t.offered, hotRate)), fmt.Sprintf("%.0f %%", 100*t.unused()), figures.Count(float64(t.messages)))
		}
	})
	return tables.Markdown(0, columns, rows)
}
