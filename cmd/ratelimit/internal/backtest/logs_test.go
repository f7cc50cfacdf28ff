package backtest

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ratelimit-functions/ratelimit/functions"
)

func line(at time.Time, client, user, path string) string {
	return fmt.Sprintf("%s - %s [%s] \"GET %s HTTP/1.1\" 200 1 \"-\" \"x\"\n", client, user, at.Format("02/Jan/2006:15:04:05 -0700"), path)
}

func TestKeys(t *testing.T) {
	for text, want := range map[string]string{
		"client": "203.0.113.7", "client/24": "203.0.113.0/24", "client/8/32": "203.0.0.0/8", "user": "ann", "path": "/a/b/c", "path/1": "/a", "path/2": "/a/b", "path/9": "/a/b/c",
		"user+path/1": "ann+/a", "method+client": "GET+203.0.113.7", "status": "200",
	} {
		report := replay(t, func() Options {
			opts := options(t)
			opts.Candidates = []Candidate{{"fixed_window 1/m", []Key{mustKey(t, text)}}}
			return opts
		}(), strings.Repeat(line(noon, "203.0.113.7", "ann", "/a/b/c?d=/e"), 2))
		if worst := report.Limits[0].Worst; len(worst) != 1 || worst[0].Key != want {
			t.Errorf("%s: %+v, want %s", text, worst, want)
		}
	}
	for client, want := range map[string]string{"2001:db8:0:1::5": "2001:db8:0:1::/64", "[2001:db8::1]:80": "2001:db8::/64", "::ffff:203.0.113.7": "203.0.113.0/24", "a.example": "a.example", "fe80::1%eth0": "fe80::/64"} {
		key := mustKey(t, "client/24")
		if got, _ := key.appendTo(nil, []string{"client"}, [][]byte{[]byte(client)}); string(got) != want {
			t.Errorf("%s: %s, want %s", client, got, want)
		}
	}
	for text, says := range map[string]string{
		"": "a field has no name", "client+": "a field has no name", "client/33": `"33" is not a number from 1 to 32`, "client/24/0": `"0" is not a number from 1 to 128`,
		"path/x": `"x" is not a number from 1 to 100`, "user/2": "the field user has no parts; client/24 and path/1 have",
	} {
		want := fmt.Sprintf("the key %q cannot be read: %s; write fields joined by +, as in client, client/24/64, user+path/1", text, says)
		if _, err := ParseKey(text); err == nil || err.Error() != want {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
}

// A policy with several keys makes one decision per request, even if different engines replay the
// keys.
func TestSeveralKeys(t *testing.T) {
	build := must[functions.Build](t)(functions.New(functions.WithPolicies(functions.Policy{Name: "calc", Limits: []functions.PolicyLimit{{Key: "resource", Limit: "fixed_window 5/h"}, {Key: "consumer", Limit: "fixed_window 2/h"}}})))
	opts := options(t, "fixed_window 1/h")
	opts.Library = build.Text()
	opts.Candidates = append(opts.Candidates, Candidate{"@calc", []Key{mustKey(t, "path/1"), mustKey(t, "client")}})
	log := ""
	for i := range 12 {
		log += line(noon.Add(time.Duration(i)*time.Second), fmt.Sprint("10.0.0.", i%4), "-", "/x")
	}
	log += "10.0.0.9 - - [01/Mar/2026:12:01:00 +0000] \"-\" 400 1\n"
	report := replay(t, opts, log)
	one, two := report.Limits[0], report.Limits[1]
	if one.Requests != 13 || one.Denied != 8 || one.Keys != 5 || one.KeysDenied != 4 || one.Keyless != 0 {
		t.Errorf("%+v", one)
	}
	// The requests of clients 0, 1, 2, 3 and 0 are allowed. Then /x has reached its limit of five.
	if two.Requests != 12 || two.Allowed != 5 || two.Keyless != 1 || two.KeysDenied != 1 || two.Worst[0].Key != "/x" || two.Worst[0].Denied != 7 || two.Key != "path/1, client" {
		t.Errorf("%+v", two)
	}
}

// The same key can serve as two keys of a policy.
func TestOneKeyTwice(t *testing.T) {
	build := must[functions.Build](t)(functions.New(functions.WithPolicies(functions.Policy{Name: "calc", Limits: []functions.PolicyLimit{{Key: "a", Limit: "fixed_window 5/h"}, {Key: "b", Limit: "fixed_window 2/h"}}})))
	opts := options(t)
	opts.Library, opts.Candidates = build.Text(), []Candidate{{"@calc", []Key{opts.Key, opts.Key}}}
	if r := replay(t, opts, strings.Repeat(line(noon, "a", "-", "/"), 3)).Limits[0]; r.Allowed != 2 || r.Denied != 1 || r.Keys != 1 || r.KeysDenied != 1 {
		t.Errorf("%+v", r)
	}
}

func TestLogs(t *testing.T) {
	at := func(s int, client string) string {
		return line(noon.Add(time.Duration(s)*time.Second), client, "-", "/")
	}
	t.Run("merged", func(t *testing.T) {
		report := replay(t, options(t, "fixed_window 1/20s"), at(20, "a")+at(40, "a"), at(0, "a")+at(30, "a"), at(10, "a"))
		if r := report.Limits[0]; r.Requests != 5 || r.Denied != 2 || report.Log.First != noon.UnixMilli() {
			t.Errorf("%+v", r)
		}
	})
	t.Run("late", func(t *testing.T) {
		report := replay(t, options(t, "1/s"), at(0, "a")+at(100, "a")+at(200, "b")+at(99, "c")+at(150, "d"))
		r := report.Limits[0]
		if r.Requests != 4 || r.LateLines != 1 || r.Keys != 3 || report.Log.Unsorted() != "101s" || !slices.Equal(r.Problems, []string{"log1:4: the line is 1m41s older than one before it"}) {
			t.Errorf("%+v", r)
		}
		opts := options(t, "1/s")
		opts.Unsorted = 101 * time.Second
		if r := replay(t, opts, at(0, "a")+at(100, "a")+at(200, "b")+at(99, "c")+at(150, "d")).Limits[0]; r.Requests != 5 || r.LateLines != 0 {
			t.Errorf("with what was suggested: %+v", r)
		}
	})
	t.Run("backwards", func(t *testing.T) {
		log := ""
		for s := 1000; s > 0; s-- {
			log += at(s, "a")
		}
		if report := replay(t, options(t, "1/s"), log); report.Log.Late == 0 || report.Log.Late+report.Log.Requests != 1000 || report.Log.Unsorted() != "999s" {
			t.Errorf("%+v", report.Log)
		}
	})
	t.Run("bad", func(t *testing.T) {
		opts := options(t, "1/s")
		opts.Share = 1
		opts.Candidates = append(opts.Candidates, Candidate{"1/h", []Key{mustKey(t, "path")}})
		report := replay(t, opts, at(0, "a")+"\x00\n"+strings.Repeat("x\n", 10)+at(1, "-"))
		if all := report.Limits; len(all) != 5 || all[1].Keyless != 0 || all[1].Requests != 2 || all[4].Keyless != 1 || all[4].Requests != 1 || all[4].Denied != 0 {
			t.Errorf("%+v", all)
		}
		if r := report.Limits[0]; r.Lines != 13 || r.BadLines != 11 || r.Keyless != 1 || r.Requests != 1 || len(r.Problems) != 5 || !strings.HasPrefix(r.Problems[0], `log1:2: no time in brackets`) {
			t.Errorf("%+v", r)
		}
	})
	t.Run("cut off", func(t *testing.T) {
		var zipped bytes.Buffer
		z := gzip.NewWriter(&zipped)
		for s := range 100 {
			must[int](t)(io.WriteString(z, at(s, fmt.Sprint("client", s*s))))
		}
		require(t, z.Close())
		report := replay(t, options(t, "1/s"), zipped.String()[:zipped.Len()/2], at(7, "b"))
		if r := report.Limits[0]; r.Requests < 20 || r.Requests > 80 || r.BadLines != 0 ||
			!slices.Equal(r.Problems, []string{fmt.Sprintf("log1 ends early, after line %d: unexpected EOF; the lines before it count", r.Requests-1)}) {
			t.Errorf("%+v", r)
		}
	})
	t.Run("nothing", func(t *testing.T) {
		for log, want := range map[string]string{
			"": "the logs are empty; give others", "x\ny\n": "none of 2 lines could be used: log1:1: not JSON, not CSV with a header line, and not in the Common Log Format: no time in brackets, as in 203.0.113.7 - - [01/Mar/2026:18:00:00 +0000]; the line begins \"x\"",
		} {
			if _, err := Run(t.Context(), opened(Input{"log1", strings.NewReader(log)}), options(t, "1/s")); err == nil || err.Error() != want {
				t.Errorf("%q: %v, want %s", log, err, want)
			}
		}
	})
	t.Run("a limit that is none", func(t *testing.T) {
		for limit, want := range map[string]string{"10/x": "10/x", "concurrency 2 lease=30s": "concurrency"} {
			if _, err := Run(t.Context(), func() ([]Input, error) { return nil, errors.New("the logs were opened") }, options(t, limit)); err == nil || !strings.HasPrefix(err.Error(), fmt.Sprintf("limit %q: ", limit)) || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v", limit, err)
			}
		}
	})
}

// endless is a log without an end. It cancels the run at line 5000.
type endless struct {
	after  int64
	cancel func()
}

func (e *endless) Read(p []byte) (int, error) {
	if e.after++; e.after == 5000 {
		e.cancel()
	}
	return copy(p, fmt.Sprintf("{\"time\":%d,\"client\":\"a\"}\n", noon.Unix()+e.after)), nil
}

func TestInterrupted(t *testing.T) {
	for _, share := range []float64{0, 0.99} {
		ctx, cancel := context.WithCancelCause(t.Context()) // as with a signal
		opts := options(t, "1/m")
		opts.Share = share
		report := must[*Report](t)(Run(ctx, opened(Input{"log", &endless{cancel: func() { cancel(errors.New("a signal")) }}}), opts))
		if share > 0 && report.Periods[2].N != 60 { // one per second
			t.Errorf("%+v", report.Periods)
		}
		if r := report.Limits[0]; !report.Interrupted || !r.Interrupted || len(report.Limits) != 1 || r.Requests < 4000 || r.Requests > 5000 || r.Requests != report.Log.Requests || r.Denied == 0 {
			t.Errorf("%+v", r)
		}
	}
}

// Keys from malicious clients do not exhaust memory or break the page.
func TestHostileKeys(t *testing.T) {
	long := strings.Repeat("x", 1<<20-200)
	log := ""
	for _, user := range []string{"<script>alert(1)</script>", "\\u001b[31mred", "\\u202egnp.exe", long + "1", long + "2"} {
		log += strings.Repeat(fmt.Sprintf("{\"time\":%d,\"user\":%q}\n", noon.Unix(), user), 3)
	}
	log = strings.ReplaceAll(log, `\\u`, `\u`)
	opts := options(t)
	opts.Key, opts.Share, opts.Curves = mustKey(t, "user"), 0.5, true
	opts.Candidates = []Candidate{{"1/h", []Key{opts.Key}}}
	report := replay(t, opts, log)
	if report.Limits[0].Keys != 5 {
		t.Errorf("%d keys", report.Limits[0].Keys)
	}
	var page bytes.Buffer
	require(t, report.WritePage(&page, "ratelimit backtest"))
	if page.Len() > 100_000 || strings.Contains(page.String(), "<script") || strings.ContainsAny(page.String(), "\x1b\u202e") || !strings.Contains(page.String(), "&lt;script&gt;alert(1)&lt;/script&gt;") {
		t.Errorf("%d bytes:\n%.5000s", page.Len(), page.String())
	}
}

func TestShown(t *testing.T) {
	for key, want := range map[string]string{
		"203.0.113.7": "203.0.113.7", "": `""`, "a b": `"a b"`, "\x1b[31m": `"\x1b[31m"`, "andr\xe9": `"andr\xe9"`, "\u202e": `"\u202e"`, "é": "é",
		strings.Repeat("ä", 41): strings.Repeat("ä", 37) + "...",
	} {
		if got := Shown(key); got != want {
			t.Errorf("%q: %s, want %s", key, got, want)
		}
	}
}

// A key that occurs only once takes little memory, regardless of the number of keys.
func TestMemory(t *testing.T) {
	const keys = 200_000
	w := newWindows(share{0, 1}, []time.Duration{time.Second, time.Minute, time.Hour}, false)
	table := &table{numbers: map[string]uint32{}}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for i := range keys {
		r := event{at: noon.UnixMilli(), cost: 1}
		r.keys[0] = table.number(fmt.Appendf(nil, "198.51.100.%d", i))
		require(t, w.see(&r))
	}
	runtime.ReadMemStats(&after)
	if perKey := (after.TotalAlloc - before.TotalAlloc) / keys; perKey > 500 { // including what tables discard as they grow
		t.Errorf("%d bytes a key", perKey)
	}
}

// A backtest works even if no line of the log has the key for suggestions.
func TestSuggestionsForAKeyThatDoesNotOccur(t *testing.T) {
	build := must[functions.Build](t)(functions.New(functions.WithPolicies(functions.Policy{Name: "calc", Limits: []functions.PolicyLimit{{Key: "a", Limit: "5/h"}, {Key: "b", Limit: "2/h"}}})))
	opts := options(t)
	opts.Library, opts.Key, opts.Share = build.Text(), mustKey(t, "user"), 0.99
	opts.Candidates = []Candidate{{"@calc", []Key{mustKey(t, "client"), mustKey(t, "path/1")}}}
	report := replay(t, opts, line(noon, "10.0.0.1", "-", "/x"))
	if len(report.Limits) != 1 || report.Limits[0].Requests != 1 {
		t.Errorf("%+v", report.Limits)
	}
}

// Suggestions do not need a list of the worst keys.
func TestSuggestionsWithoutTheWorstKeys(t *testing.T) {
	opts := options(t)
	opts.Share, opts.Worst = 0.99, 0
	report := replay(t, opts, line(noon, "10.0.0.1", "-", "/x"))
	if len(report.Limits) == 0 || report.Limits[0].Suggested.N != 1 {
		t.Errorf("%+v", report.Limits)
	}
}
