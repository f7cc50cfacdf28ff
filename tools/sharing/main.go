// Command sharing prints the table of docs/sharing.md, and draws its picture: what ten tenants get from
// a pool, each with a guarantee, beside a tenant that sends ten times as much as the pool has. It makes
// the calls in the offline engine.
package main

import (
	"cmp"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/ratelimit-functions/ratelimit/embedded"
	"github.com/ratelimit-functions/ratelimit/functions"
	"github.com/ratelimit-functions/ratelimit/internal/replace"
)

const (
	pool    = 100 // units per second, and the pool's burst
	share   = 8   // units per second of a guarantee, and its burst: 8 % of the pool
	tenants = 10
	length  = 8 * time.Second
	steady  = 4 // the second from which on the table counts
)

func main() {
	write := flag.String("write", "docs", "`directory` for the picture")
	flag.Parse()
	table, err := run()
	var picture string
	if err == nil {
		picture, err = draw()
	}
	if err == nil {
		err = replace.File(filepath.Join(*write, file), []byte(picture))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "sharing:", err)
		os.Exit(1)
	}
	fmt.Print(table)
}

func run() (string, error) {
	var b strings.Builder
	b.WriteString("| the other nine | floor | guarantees met | pool used | the greedy tenant | most above the pool |\n|---|---|---|---|---|---|\n")
	for _, others := range []string{"send their guarantee", "want half as much again", "send their burst at once, every 2 s", "five are idle"} {
		for _, floor := range []int{0, 80} {
			r, err := simulate(others, floor)
			if err != nil {
				return "", err
			}
			fmt.Fprintf(&b, "| %s | %d | %.0f %% | %.1f %% | %d/s | %d |\n", others, floor, 100*r.met, 100*r.used, r.greedy, r.above)
		}
	}
	return b.String(), nil
}

// call is a call of a tenant. Tenant 0 is greedy.
type call struct {
	at     time.Duration
	tenant int
}

func traffic(others string) []call {
	var calls []call
	every := func(tenant int, first, gap time.Duration) {
		for at := first; at < length; at += gap {
			calls = append(calls, call{at, tenant})
		}
	}
	every(0, 0, time.Second/(10*pool))
	for tenant := 1; tenant < tenants; tenant++ {
		first := time.Duration(tenant) * time.Millisecond
		switch others {
		case "send their guarantee":
			every(tenant, first, time.Second/share)
		case "want half as much again":
			every(tenant, first, time.Second/(share+share/2))
		case "send their burst at once, every 2 s":
			for range share {
				every(tenant, 2*time.Second+first, 2*time.Second)
			}
		case "five are idle":
			if tenant < tenants/2 {
				every(tenant, first, time.Second/share)
			}
		case "come and go":
			for at := come + first; at < gone; at += time.Second / share {
				calls = append(calls, call{at, tenant})
			}
		}
	}
	slices.SortStableFunc(calls, func(a, b call) int { return cmp.Compare(a.at, b.at) })
	return calls
}

// decisions makes the calls, and calls decided for each.
func decisions(calls []call, floor int, decided func(c call, allowed bool)) error {
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	server, err := embedded.Start(embedded.WithLibrary(functions.Source()), embedded.WithTime(start))
	if err != nil {
		return err
	}
	defer server.Close()
	for _, c := range calls {
		server.SetTime(start.Add(c.at))
		reply, err := server.Do("FCALL", "ratelimit_take", 2, fmt.Sprintf("tenant:{p}:%d", c.tenant), "pool:{p}",
			fmt.Sprintf("%d/s", share), fmt.Sprintf("%d/s", pool), "BORROW", floor)
		if err != nil {
			return err
		}
		decided(c, reply.([]any)[0].(int64) == 1)
	}
	return nil
}

type result struct {
	met    float64 // the least that a tenant got in a second, as a part of what it asked for within its guarantee
	used   float64 // units allowed, as a part of those that the pool refills
	greedy int     // units of the greedy tenant per second
	above  int     // most units allowed in any time, above those of a limit of the pool alone
}

func simulate(others string, floor int) (result, error) {
	seconds := int(length / time.Second)
	asked, got := make([][tenants]int, seconds), make([][tenants]int, seconds)
	debt, last, r := 0.0, time.Duration(0), result{met: 1}
	err := decisions(traffic(others), floor, func(c call, allowed bool) {
		asked[c.at/time.Second][c.tenant]++
		debt = max(0, debt-pool*(c.at-last).Seconds()) // units that a limit of the pool alone would have to refill
		last = c.at
		if allowed {
			got[c.at/time.Second][c.tenant]++
			debt++
			r.above = max(r.above, int(debt+0.001)-pool)
		}
	})
	if err != nil {
		return result{}, err
	}
	all := 0
	for second := steady; second < seconds; second++ {
		r.greedy += got[second][0]
		for tenant := range tenants {
			all += got[second][tenant]
			if want := min(asked[second][tenant], share); want > 0 {
				r.met = min(r.met, float64(got[second][tenant])/float64(want))
			}
		}
	}
	r.greedy /= seconds - steady
	r.used = float64(all) / float64(pool*(seconds-steady))
	return r, nil
}
