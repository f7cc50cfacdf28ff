package cli

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/ratelimit-functions/ratelimit/client"
	"github.com/ratelimit-functions/ratelimit/internal/sleep"
)

// columns is the number of columns of the chart. In a demo of the usual 8 s, a column is 200 ms. In
// that time, a caller sends at most eight requests, the most that a bar can show.
const columns = 40

// pace is the clock of the demo. It also sends the requests.
type pace interface {
	now() time.Time
	until(ctx context.Context, t time.Time) error // waits until t or until ctx is done; returns ctx.Err()
	send(f func())                                // calls f, which sends one request
}

// realPace runs in real time, and sends at most cap(slots) requests at once.
type realPace struct{ slots chan struct{} }

func (p realPace) now() time.Time { return time.Now() }

func (p realPace) until(ctx context.Context, t time.Time) error {
	return sleep.For(ctx, time.Until(t))
}

func (p realPace) send(f func()) {
	p.slots <- struct{}{}
	go func() {
		f()
		<-p.slots
	}()
}

type show struct {
	scene  []*caller
	total  time.Duration
	prefix string
	client *client.Client

	mu sync.Mutex // guards the counts of the callers
}

func (s *show) keys() []string {
	var all []string
	for _, c := range s.scene {
		for _, name := range c.keys {
			if !slices.Contains(all, s.prefix+name) {
				all = append(all, s.prefix+name)
			}
		}
	}
	return all
}

// play sends each request when it is due, and calls frame at the end of each column. It drops a
// request that is at least a second late: then the server is slow, or the program was stopped.
func (s *show) play(ctx context.Context, p pace, timeout time.Duration, frame func() error) error {
	type request struct {
		at time.Duration
		*caller
	}
	var requests []request
	for _, c := range s.scene {
		for _, at := range c.times {
			requests = append(requests, request{at, c})
		}
	}
	slices.SortStableFunc(requests, func(a, b request) int { return cmp.Compare(a.at, b.at) })

	playing, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	var running sync.WaitGroup
	start := p.now()
	for column := range time.Duration(columns) {
		end := (column + 1) * s.total / columns
		for ; len(requests) > 0 && requests[0].at <= end; requests = requests[1:] {
			r := requests[0]
			if p.until(playing, start.Add(r.at)) != nil {
				break
			}
			running.Add(1)
			p.send(func() {
				defer running.Done()
				if at := p.now().Sub(start); at-r.at < time.Second && at <= s.total {
					if err := s.ask(playing, r.caller, at, timeout); err != nil {
						stop(err)
					}
				}
			})
		}
		if p.until(playing, start.Add(end)) != nil {
			break
		}
		if err := frame(); err != nil {
			stop(err)
		}
	}
	running.Wait()
	if ctx.Err() != nil {
		return fmt.Errorf("interrupted after %s of %s", human(p.now().Sub(start)), human(s.total))
	}
	return context.Cause(playing)
}

func (s *show) column(at time.Duration) int { return min(int(at*columns/s.total), columns-1) }

func (s *show) ask(ctx context.Context, c *caller, at, timeout time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	req := client.Request{Limits: c.limits}
	for _, name := range c.keys {
		req.Keys = append(req.Keys, s.prefix+name)
	}
	res, err := s.client.Take(ctx, req)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if res.Allowed {
		c.allowed[s.column(at)]++
	} else {
		c.denied[s.column(at)]++
		c.by[res.Index-1]++
	}
	return nil
}

// labelWidth is the width of the text to the left of a caller's bars, and chartWidth is the width
// of a whole line.
const (
	labelWidth = 20
	chartWidth = labelWidth + columns + len("12345 turned away")
)

// full returns the number of requests that a full bar represents: the maximum that a caller plans
// for one column.
func (s *show) full() int {
	most := 1
	for _, c := range s.scene {
		var planned [columns]int
		for _, at := range c.times {
			planned[s.column(at)]++
		}
		most = max(most, slices.Max(planned[:]))
	}
	return most
}

func sum(counts [columns]int) int {
	total := 0
	for _, n := range counts {
		total += n
	}
	return total
}

// chart draws every caller's requests over time: one row for allowed requests, one for denied ones.
func (s *show) chart(l look) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var lines strings.Builder
	most := s.full()
	row := func(label, style string, counts [columns]int, what string) {
		bars := make([]rune, columns)
		for i, n := range counts {
			bars[i] = l.bar(n, most)
		}
		fmt.Fprintln(&lines, label+l.paint(style, string(bars))+l.paint(style, fmt.Sprintf("%5d ", sum(counts))+what))
	}
	for _, c := range s.scene {
		if c.title != "" {
			fmt.Fprintln(&lines, l.paint(bold, c.title))
		}
		row(fmt.Sprintf("  %-7s", c.name)+l.paint(faint, fmt.Sprintf("%-*s", labelWidth-9, c.plan)), green, c.allowed, "let through")
		row(strings.Repeat(" ", labelWidth), red, c.denied, "turned away")
	}
	axis := ""
	for at := time.Duration(0); at <= s.total; at += (s.total + 8*time.Second - 1) / (8 * time.Second) * time.Second { // at most nine labels
		axis = fmt.Sprintf("%-*s%ds", labelWidth+int(at*columns/s.total), axis, at/time.Second)
	}
	fmt.Fprintln(&lines, l.paint(faint, axis))
	return lines.String()
}

func (s *show) summary(l look) string {
	var table, notes strings.Builder
	const row = "%-8s%-30s%7v%9v%8v"
	fmt.Fprintln(&table, l.paint(bold, fmt.Sprintf(row, "CALLER", "LIMIT", "ASKED", "ALLOWED", "DENIED")))
	for _, c := range s.scene {
		limit := string(c.limits[0])
		if len(c.limits) > 1 {
			limit += " and " + string(c.limits[1])
			fmt.Fprintln(&notes, l.prose("", fmt.Sprintf("%s: %d denied by the user's own %s, %d by the company's %s", c.name,
				c.by[0], c.limits[0], c.by[1], c.limits[1])))
		}
		let, turned := sum(c.allowed), sum(c.denied)
		fmt.Fprintf(&table, row+"\n", c.name, limit, let+turned, let, turned)
	}
	return table.String() + notes.String()
}
