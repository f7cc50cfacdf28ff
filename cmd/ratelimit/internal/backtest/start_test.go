package backtest

import (
	"bytes"
	"strings"
	"testing"
	"time"
)

// suggestions returns a report with one suggested limit per period: n[period] requests, each of cost
// 1.
func suggestions(n map[time.Duration]int64) *Report {
	r := &Report{key: "client"}
	r.Log.Last = (1000 * time.Hour).Milliseconds()
	for _, period := range []time.Duration{time.Second, 10 * time.Second, time.Minute, 10 * time.Minute, time.Hour} {
		if n[period] > 0 {
			r.Limits = append(r.Limits, Result{Key: "client", Requests: 10, Units: Units{Allowed: 10}, Suggested: &Suggested{N: n[period], Burst: n[period], period: period}})
		}
	}
	return r
}

// Start returns the suggestion with the longest period under which a denied key waits at most 10 s.
// If there is none, it returns the suggestion with the shortest wait.
func TestStart(t *testing.T) {
	const s, m, h = time.Second, time.Minute, time.Hour
	for _, tt := range []struct {
		n    map[time.Duration]int64
		want time.Duration
		wait string
		why  string
	}{
		{map[time.Duration]int64{s: 3, 10 * s: 7, m: 12, 10 * m: 24, h: 58}, m, "5 s", "longest period with a wait of at most 10 s"},
		{map[time.Duration]int64{s: 3, 10 * s: 7, m: 6, 10 * m: 60, h: 58}, 10 * m, "10 s", "longest period"},
		{map[time.Duration]int64{s: 1, h: 3600}, h, "1 s", "longest period"},
		{map[time.Duration]int64{m: 1, 10 * m: 20, h: 1}, 10 * m, "30 s", "The other suggestions make it wait longer, or"},
		{map[time.Duration]int64{h: 1}, h, "1 h", ""},
		{map[time.Duration]int64{s: 1000, h: 1}, s, "1 ms", "longest period"},
	} {
		r := suggestions(tt.n)
		start := r.Start()
		if start.Suggested.period != tt.want || start.WaitText() != tt.wait || !strings.Contains(start.Why(len(r.Limits)), tt.why) || (tt.why == "") != (start.Why(len(r.Limits)) == "") {
			t.Errorf("%v: %+v, %s, %s", tt.n, start.Suggested, start.WaitText(), start.Why(len(r.Limits)))
		}
	}
	// A log of two hours recommends no limit per hour.
	r := suggestions(map[time.Duration]int64{s: 3, m: 12, 10 * m: 200, h: 3600})
	for covers, want := range map[time.Duration]time.Duration{2 * h: 10 * m, 100 * m: 10 * m, 99 * m: m, 10 * h: h, 9 * s: s, 0: s} {
		if r.Log.Last = covers.Milliseconds(); r.Start().Suggested.period != want {
			t.Errorf("a log of %v: %+v, want %v", covers, r.Start().Suggested, want)
		}
	}
	if start := (&Report{Limits: []Result{{Limit: "5/m"}}}).Start(); start != nil {
		t.Errorf("without suggestions: %+v", start)
	}
	whole := Result{Limit: "fixed_window 9/h", Requests: 1, Units: Units{Allowed: 1}, Suggested: &Suggested{N: 9, period: h}}
	if whole.Wait() != h || whole.WaitText() != "1 h" {
		t.Errorf("a window: %v", whole.Wait())
	}
	costly := Result{Limit: "100/m", Requests: 10, Units: Units{Allowed: 50, Denied: 450}, Suggested: &Suggested{N: 100, period: m}}
	if costly.Wait() != 30*s { // 50 units per request
		t.Errorf("with costs: %v", costly.Wait())
	}
}

func TestMeaning(t *testing.T) {
	for want, r := range map[string]Result{
		"12 requests per minute for each client, refilled evenly, and at most 7 at once":   {Limit: "12/m burst=7", Key: "client", Suggested: &Suggested{N: 12, Burst: 7, period: time.Minute}},
		"1 request per 10 seconds for each key, one at a time":                             {Limit: "1/10s", Key: "client/24", Suggested: &Suggested{N: 1, Burst: 1, period: 10 * time.Second}},
		"1,200 units per 90 seconds for each user, refilled evenly, and at most 3 at once": {Limit: "1200/90s burst=3", Cost: "size", Key: "user", Suggested: &Suggested{N: 1200, Burst: 3, period: 90 * time.Second}},
		"5 requests per 500ms for each key, in windows that begin with the first request":  {Limit: "fixed_window 5/500ms", Key: "team", Suggested: &Suggested{N: 5, Burst: 5, period: 500 * time.Millisecond}},
	} {
		if got := r.Meaning(); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}

// The page names its log and the command that made it, recommends a limit with the reason, and
// explains its charts.
func TestPageExplainsItself(t *testing.T) {
	opts := options(t)
	opts.Share, opts.Curves, opts.Periods = 0.5, true, []time.Duration{time.Minute, time.Hour}
	lines := ""
	for i := range 20 {
		lines += line(noon.Add(time.Duration(i)*time.Second), "203.0.113.7", "-", "/")
	}
	report := replay(t, opts, lines+line(noon, "198.51.100.1", "-", "/"))
	report.Files = []string{"a.log", "b.log", "c.log", "<d>", "e"}
	var page bytes.Buffer
	require(t, report.WritePage(&page, "ratelimit backtest 'a b.log' \x1b"))
	for _, want := range []string{
		"<title>Backtest of a.log, b.log, c.log and 2 more</title>", `<code>ratelimit backtest &#39;a b.log&#39; \x1b</code>`,
		"Start with <code>1/m</code>", "The other suggestions make it wait longer, or", "<tr><td><code>203.0.113.7</code></td>", "<code>1/m</code><br><strong>start here</strong>",
		"Requests over the limit, and clients affected,", "if the limit were n per minute (log scales)", ">suggested: 1<", "the smallest that affects at most 50% of the clients",
	} {
		if !strings.Contains(page.String(), want) {
			t.Errorf("no %s in\n%s", want, page.String())
		}
	}
}
