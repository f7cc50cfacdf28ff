// Command budgets draws the picture of docs/budgets.md, which shows a budget as estimates are
// charged and then settled. It makes the calls in the offline engine. It prints the picture, or
// with -write it updates the picture's file.
package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/ratelimit-functions/ratelimit/embedded"
	"github.com/ratelimit-functions/ratelimit/functions"
	"github.com/ratelimit-functions/ratelimit/internal/figures"
	"github.com/ratelimit-functions/ratelimit/internal/replace"
)

const file = "budgets.svg"

func main() {
	write := flag.String("write", "", "the `folder` to put "+file+" into")
	flag.Parse()
	picture, err := draw()
	if err == nil && *write != "" {
		err = replace.File(filepath.Join(*write, file), []byte(picture))
	} else if err == nil {
		fmt.Print(picture)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "budgets:", err)
		os.Exit(1)
	}
}

// The budget is n units per hour. Times are in minutes since the start.
const (
	n      = 1000
	length = 120
)

// An event is a call that uses the budget.
type event struct {
	at      int64
	verb    string
	cost    int
	option  string
	allowed int64 // the expected reply
	says    string
}

var events = []event{
	{5, "take", 800, "", 1, "a call takes its estimate, 800"},
	{15, "refund", 300, "", 1, "it used 500, so 300 are given back"},
	{30, "take", 800, "", 1, "the next call takes 800"},
	{45, "take", 800, "FORCE", 1, "it used 1,600, so 800 more are charged: debt"},
	{60, "take", 200, "", 0, "a call of 200 is denied, to pay off the debt"},
	{75, "take", 200, "", 0, "the debt is paid off, but 200 do not fit yet"},
	{90, "take", 200, "", 1, "the call is allowed"},
}

// draw makes the calls, and draws the units left in the budget at each minute.
func draw() (string, error) {
	midnight := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	server, err := embedded.Start(embedded.WithLibrary(functions.Source()), embedded.WithTime(midnight))
	if err != nil {
		return "", err
	}
	defer server.Close()
	var line []point
	call := func(e event) (allowed int64, err error) {
		server.SetTime(midnight.Add(time.Duration(e.at) * time.Minute))
		words := []any{"FCALL", "ratelimit_" + e.verb, 1, "budget", fmt.Sprintf("%d/h", n), "COST", e.cost}
		if e.option != "" {
			words = append(words, e.option)
		}
		reply, err := server.Do(words...)
		if err != nil {
			return 0, err
		}
		fields := reply.([]any)
		used := float64(fields[4].(int64)) / float64(time.Hour.Milliseconds()) * n // reset_after_ms also covers debt
		line = append(line, point{float64(e.at), n - used})
		return fields[0].(int64), nil
	}
	p := figures.NewPicture("What is left of a budget: estimates are taken and settled, and a debt is paid off.")
	p.Text(8, 22, "bold", fmt.Sprintf("What is left of a budget of %s an hour", figures.Grouped(n)))
	for _, left := range []float64{n, n / 2, 0, -n / 2} {
		class := "grid"
		if left == 0 {
			class = "bound"
		}
		p.Path(y(left), class, fmt.Sprintf("M%.0f %.1fH%.0f", x(0), y(left), x(length)))
		p.Text(x(0)-6, y(left)+5, "right", figures.Grouped(int64(left)))
	}
	for at := range length + 1 {
		if _, err := call(event{at: int64(at), verb: "peek"}); err != nil {
			return "", err
		}
		if at%30 == 0 {
			p.Text(min(x(float64(at)), figures.Width-32), y(-n/2)+22, "middle", fmt.Sprintf("%d min", at))
		}
		for i, e := range events {
			if e.at != int64(at) {
				continue
			}
			before := line[len(line)-1]
			allowed, err := call(e)
			if err != nil {
				return "", err
			}
			if allowed != e.allowed {
				return "", fmt.Errorf("event %d, %s %d at %d min: the reply begins with %d, want %d", i+1, e.verb, e.cost, at, allowed, e.allowed)
			}
			class := "fc2"
			if allowed == 0 {
				class = "fc1"
				p.Dot(x(before.at), y(before.left), "c1")
			}
			p.Text(x(before.at), min(y(before.left), y(line[len(line)-1].left))-8, "bold middle "+class, fmt.Sprint(i+1))
			row := y(-n/2) + 50 + 22*float64(i)
			p.Text(8, row, "bold "+class, fmt.Sprint(i+1))
			p.Text(28, row, "", e.says)
		}
	}
	p.Path(0, "c0 fc0 thin pale", area(line, func(left float64) float64 { return max(left, 0) }))
	p.Path(0, "c1 fc1 thin pale", area(line, func(left float64) float64 { return min(left, 0) }))
	return p.String(), nil
}

// A point is the number of units left at a given time. A negative number is debt.
type point struct{ at, left float64 }

func x(at float64) float64   { return 56 + at/length*(figures.Width-64) }
func y(left float64) float64 { return 50 + (n-left)/n*130 }

// area returns the path of the area between the line and 0. The function clip bounds the values of
// the line.
func area(line []point, clip func(float64) float64) string {
	var d strings.Builder
	fmt.Fprintf(&d, "M%.1f %.1f", x(0), y(0))
	for _, p := range line {
		fmt.Fprintf(&d, "L%.1f %.1f", x(p.at), y(clip(p.left)))
	}
	fmt.Fprintf(&d, "V%.1fz", y(0))
	return d.String()
}
