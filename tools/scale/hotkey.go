package main

import (
	"fmt"
	"math/rand/v2"
	"strings"

	"github.com/ratelimit-functions/ratelimit/internal/figures"
)

// A hotKey is one key with one limit that many processes use, each with its own batches, as
// client.WithBatches does. Calls arrive at random (a Poisson process), with the same probability at
// each process, and replies are immediate.
type hotKey struct {
	processes   int
	rate, burst int64 // rate and burst of the limit
	offered     int64 // calls per second of all processes
	n           int64 // most units in a batch; 1: no batches
	ttl         int64 // in microseconds
}

// A tally counts the calls of one second.
type tally struct{ offered, admitted, charged, messages int64 }

// unused returns the share of the charged units that were never spent.
func (t tally) unused() float64 { return max(0, 1-float64(t.admitted)/float64(t.charged)) }

// A batch is a process's batch of the key.
type batch struct {
	left, taken int64
	sent        int64 // time of the request; below 0: never
	size        int64
	remaining   int64 // remaining units of the limit in the last reply
}

// ask returns how many units a process requests. It requests more if the last batch was spent
// quickly, and only what was spent if the last batch expired first, but at most an eighth of what
// remains.
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

// run counts the calls of one second, after a warm-up of several ttl in which the batches find
// their sizes: the limit begins empty, and processes that get little request little.
func (h hotKey) run(made maker) (t tally) {
	const second = 1e6 // in microseconds
	begin := second + 6*float64(h.ttl)
	end := begin + second
	random := rand.New(rand.NewPCG(uint64(h.n), uint64(h.ttl)))
	limit := made(h.rate, h.burst)
	limit.take(0, h.burst) // the initial full bucket must not count
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

// A hotRow is one line of the table: a batch's n and ttl, and the results for three loads.
type hotRow struct {
	n, ttl int64
	at     []tally
}

const (
	hotProcesses = 10_000
	hotRate      = 1_000_000
	hotBurst     = 100_000
)

// hotLoads are the calls per second, in percent of the limit.
var hotLoads = []int64{50, 90, 150}

// hotRows returns the rows of the table.
func hotRows(made maker) []hotRow {
	rows := []hotRow{{n: 1, ttl: 1000}}
	for _, ttl := range []int64{100_000, 1_000_000} {
		for _, n := range []int64{10, 100, 1000} {
			rows = append(rows, hotRow{n: n, ttl: ttl})
		}
	}
	inTurns(len(rows), func(i int) {
		for _, load := range hotLoads {
			h := hotKey{hotProcesses, hotRate, hotBurst, hotRate * load / 100, rows[i].n, rows[i].ttl}
			rows[i].at = append(rows[i].at, h.run(made))
		}
	})
	return rows
}

func hotTable(rows []hotRow) string {
	var out strings.Builder
	out.WriteString("| n | ttl |")
	for _, load := range hotLoads {
		fmt.Fprintf(&out, " %d %%: admitted | unused | messages/s |", load)
	}
	out.WriteString("\n|---:|---:|" + strings.Repeat("---:|---:|---:|", len(hotLoads)) + "\n")
	for _, row := range rows {
		if row.n == 1 {
			out.WriteString("| none | |")
		} else {
			fmt.Fprintf(&out, "| %d | %s |", row.n, seconds(row.ttl))
		}
		for _, t := range row.at {
			fmt.Fprintf(&out, " %s | %.0f %% | %s |", percent(t.admitted, min(t.offered, hotRate)), 100*t.unused(), figures.Count(float64(t.messages)))
		}
		out.WriteString("\n")
	}
	return out.String()
}
