package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/ratelimit-functions/ratelimit/internal/figures"
)

const (
	file = "sharing.svg" // in docs
	come = 2 * time.Second
	gone = 5 * time.Second
	step = 250 * time.Millisecond // the picture counts calls in steps of this length
)

// draw draws what the greedy tenant and the others get, if the others send their guarantees from come
// to gone.
func draw() (string, error) {
	var got [length / step][2]float64 // calls per second of the greedy tenant, and of the others
	err := decisions(traffic("come and go"), 80, func(c call, allowed bool) {
		if allowed {
			got[c.at/step][min(c.tenant, 1)] += float64(time.Second / step)
		}
	})
	if err != nil {
		return "", err
	}
	const top = 200
	x := func(at time.Duration) float64 { return 56 + float64(at)/float64(length)*(figures.Width-64) }
	y := func(rate float64) float64 { return 50 + (top-min(rate, top))/top*180 }
	p := figures.NewPicture("A tenant borrows what others leave of a pool, and they get their guarantees back at once.")
	p.Text(8, 22, "bold", fmt.Sprintf("Who gets a pool of %d/s, and its burst", pool))
	for _, rate := range []float64{0, pool, top} {
		p.Path(y(rate), "grid", fmt.Sprintf("M%.0f %.1fH%.0f", x(0), y(rate), x(length)))
		p.Text(x(0)-6, y(rate)+5, "right", fmt.Sprintf("%.0f/s", rate))
	}
	area := func(from, to func(i int) float64) string {
		var there, back strings.Builder
		for i := range got {
			left, right := x(time.Duration(i)*step), x(time.Duration(i+1)*step)
			fmt.Fprintf(&there, "L%.1f %.1fH%.1f", left, y(to(i)), right)
			j := len(got) - 1 - i
			fmt.Fprintf(&back, "L%.1f %.1fH%.1f", x(time.Duration(j+1)*step), y(from(j)), x(time.Duration(j)*step))
		}
		return "M" + there.String()[1:] + back.String() + "z"
	}
	none := func(int) float64 { return 0 }
	others := func(i int) float64 { return got[i][1] }
	all := func(i int) float64 { return got[i][0] + got[i][1] }
	p.Path(0, "c0 fc0 thin pale", area(none, others))
	p.Path(0, "c1 fc1 thin pale", area(others, all))
	p.Path(0, "bound", fmt.Sprintf("M%.0f %.1fH%.0f", x(0), y(pool), x(length)))
	for at := time.Duration(0); at <= length; at += 2 * time.Second {
		p.Text(min(x(at), figures.Width-16), y(0)+22, "middle", fmt.Sprintf("%.0f s", at.Seconds()))
	}
	p.Text(8, y(0)+46, "bold fc1", "one tenant: 1,000 calls a second, all the time")
	p.Text(8, y(0)+68, "bold fc0", fmt.Sprintf("nine others: their guarantees, %d/s each, from %.0f s to %.0f s", share, come.Seconds(), gone.Seconds()))
	return p.String(), nil
}
