package main

import (
	"fmt"
	"math/rand/v2"
	"strings"

	"github.com/ratelimit-functions/ratelimit/internal/figures"
)

// A hotKey is one key with one limit that many processes ask, each with batches of its own, as client.WithBatches does
// it. Calls come at random (a Poisson process), as likely to one process as to another, and a reply comes at once.
type hotKey struct {
	processes   int
	rate, burst int64 // of the limit
	offered     int64 // calls a second, of all processes
	n           int64 // units in a batch at most; 1: no batches
	ttl         int64 // in µs
}

// A tally is what came of the calls of one second.
type tally struct{ offered, admitted, charged, messages int64 }

// unused is the part of the charged units that nobody spent.
func (t tally) unused() float64 { return max(0, 1-float64(t.admitted)/float64(t.charged)) }

// A batch is what a process holds of the key.
type batch struct {
	left, taken int64
	sent        int64 // when it was asked for; below 0: never
	size        int64
	remaining   int64 // of the limit, as the last reply said
}

// ask is how many units a process asks for: more the sooner its last batch was spent, what it spent if that was not spent
// in time, and an eighth at most of what remains.
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

// run counts the calls of one second, after a time in which the batches find their sizes: some ttl, since the limit
// begins empty, and processes that get little ask for little.
func (h hotKey) run(made maker) (t tally) {
	const second = 1e6 // in µs
	begin := second + 6*float64(h.ttl)
	end := begin + second
	random := rand.New(rand.NewPCG(uint64(h.n), uint64(h.ttl)))
	limit := made(h.rate, h.burst)
	limit.take(0, h.burst) // so that a full bucket does not count
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

// A hotRow is one line of the table: a batch's n and ttl, and what comes of three loads.
type hotRow struct {
	n, ttl int64
	at     []tally
}

const (
	hotProcesses = 10_000
	hotRate      = 1_000_000
	hotBurst     = 100_000
)

// hotLoads are the calls a second, as parts of the limit in percent.
var hotLoads = []int64{50, 90, 150}

// hotRows are what the table shows.
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
