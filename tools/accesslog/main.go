// Command accesslog prints a made-up access log of one day, for trying out `ratelimit backtest`. The
// log is in the Combined Log Format, as written by nginx. Many clients send few requests, and a few
// clients send many, more by day than by night. One client crawls pages all day, and another
// sometimes sends a burst. The same arguments always print the same log.
package main

import (
	"bufio"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"time"
)

func main() {
	lines := flag.Int("lines", 100_000, "how many `lines`")
	flag.Parse()
	out := bufio.NewWriter(os.Stdout)
	write(out, *lines)
	if err := out.Flush(); err != nil {
		fmt.Fprintln(os.Stderr, "accesslog:", err)
		os.Exit(1)
	}
}

const clients = 4000

var (
	paths  = []string{"/", "/api/items", "/api/items/17", "/api/search?q=lamp", "/api/cart", "/login", "/static/app.js", "/static/app.css", "/about"}
	agents = []string{"Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0", "Mozilla/5.0 (iPhone; CPU iPhone OS 18_5 like Mac OS X)", "curl/8.14.1"}
)

type request struct {
	at    float64 // second of the day
	who   int
	path  string
	agent string
}

func write(out *bufio.Writer, lines int) {
	dice := rand.New(rand.NewPCG(7, 42))
	zipf := rand.NewZipf(dice, 1.2, 20, clients-1)
	var all []request
	for len(all) < lines*85/100 { // visitors, who read several pages each
		at := byDay(dice)
		who := int(zipf.Uint64())
		agent := agents[who%len(agents)]
		for range 1 + dice.IntN(6) {
			all = append(all, request{at, who, paths[dice.IntN(len(paths))], agent})
			at += dice.ExpFloat64() * 4
		}
	}
	for i := range lines / 10 { // the crawler: a page every few seconds, all day
		all = append(all, request{float64(i) * 86_400 / float64(lines/10), clients, fmt.Sprintf("/api/items/%d", i), "collector/1.0"})
	}
	for len(all) < lines { // the bursts: hundreds of requests at once
		at := dice.Float64() * 86_000
		for range min(300, lines-len(all)) {
			all = append(all, request{at, clients + 1, "/api/search?q=lamp", "python-requests/2.32"})
			at += dice.ExpFloat64() / 20
		}
	}
	slices.SortStableFunc(all, func(a, b request) int { return int(math.Floor(a.at)) - int(math.Floor(b.at)) })
	day := time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)
	for _, r := range all[:lines] {
		user := "-"
		if r.who%7 == 0 {
			user = fmt.Sprintf("user%d", r.who)
		}
		_, _ = fmt.Fprintf(out, "%s - %s [%s] \"GET %s HTTP/1.1\" 200 %d \"-\" \"%s\"\n", address(r.who), user,
			day.Add(time.Duration(r.at)*time.Second).Format("02/Jan/2006:15:04:05 -0700"), r.path, 200+dice.IntN(20_000), r.agent)
	}
}

// byDay returns a random time of the day, in seconds since midnight. Times around four in the
// morning are rare; most are in the afternoon.
func byDay(dice *rand.Rand) float64 {
	for {
		at := dice.Float64() * 86_000
		if dice.Float64() < 0.55-0.45*math.Cos((at-4*3600)/86_400*2*math.Pi) {
			return at
		}
	}
}

// address returns an address from the ranges for documentation and tests; every tenth client has an
// IPv6 address.
func address(who int) string {
	if who%10 == 3 {
		return fmt.Sprintf("2001:db8:%x::%x", who/16, who%16+1)
	}
	return fmt.Sprintf("198.%d.%d.%d", 18+who%2, who/200, 1+who%200)
}
