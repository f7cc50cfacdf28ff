package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/ratelimit-functions/ratelimit/client"
	"github.com/ratelimit-functions/ratelimit/cmd/ratelimit/internal/load"
)

type loadFlags struct {
	limit, policy        string
	keys                 []string
	usageKey             string
	concurrency, numbers int
	iterations, cost     int64
	duration             time.Duration
	rate                 float64
	ramp                 string
	over                 time.Duration
	ramped               *load.Ramp // ramp, parsed
	expect               []string
	expected             []load.Expectation // expect, parsed
	draw, html           string
	zipf                 float64 // exponent, if draw begins with "zipf"; else 0
	given                func(flag string) bool
}

const (
	usualLoad    = 10 * time.Second
	usualZipf    = 1.1
	mostWorkers  = 10_000
	mostRate     = 10_000_000
	number       = "%" // placeholder in --key for the random number
	usualLoadKey = "load:" + number
)

func (a *app) loadCommand() *cobra.Command {
	f := loadFlags{}
	cmd := a.jsonFlag(a.serverFlags(&cobra.Command{
		Use:   "load",
		Short: "Measure how fast a server decides, under load",
		Long: `Make many decisions on a server at the same time, and show how many were allowed and denied, the latency, and the
number of decisions a second. The server needs the library (ratelimit deploy); "ratelimit dev" starts one without
Redis.

Without --rate, each of the --concurrency workers makes its next decision when it has the reply. With --rate,
decisions begin at set times, even if the server is slow; a latency counts from the time at which its decision was to
begin, even if no worker was free then. --ramp 10..10000 --over 1m raises the rate evenly, and shows each tenth of the
time by itself, to find the rate from which replies become slow.

--expect 'p99<5ms' makes the command fail if the run does not meet it; may be repeated. Metrics: p50 to p99, p999 and
max, the latency; per_second; decisions, allowed, denied, errors and not_begun, as numbers or as shares (errors<1%).
Comparisons: < <= > >= == !=. Without an expectation of errors, any error makes the command fail.

Each decision draws a number from 0 to --numbers less 1, which replaces % in --key; a policy of several keys takes one
--key for each. The counts under these keys are real, and last until the limits have refilled.

Exit codes: 0 no errors, whatever was denied · 1 an error, errors among the replies, an expectation that is not met, or
interrupted.`,
		Example: `  ratelimit load --limit 100/m
  ratelimit load --limit "token_bucket 50/s" --numbers 100000 --draw zipf --concurrency 64 --duration 30s --html load.html
  ratelimit load --policy api --rate 2000 --duration 1m --json
  ratelimit load --limit 100/m --rate 500 --expect 'p99<5ms' --expect 'errors==0'
  ratelimit load --limit 100/m --ramp 10..10000 --over 1m --concurrency 64
  ratelimit load --limit "fixed_window 100/m" --concurrency 3 --iterations 1000`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			f.given = func(name string) bool { return cmd.Flags().Changed(name) }
			return a.runLoad(cmd.Context(), f)
		},
	}))
	flags := cmd.Flags()
	flags.StringVar(&f.limit, "limit", "", "limit of each decision, such as 100/m")
	flags.StringVar(&f.policy, "policy", "", "or a deployed policy")
	wholeVar(cmd, &f.concurrency, "concurrency", 8, "number of workers")
	flags.Float64Var(&f.rate, "rate", 0, "decisions that begin each second (default: as many as the workers can make)")
	flags.StringVar(&f.ramp, "ramp", "", "begin with this many decisions each second, and end with that many, as in 10..10000")
	spanVar(cmd, &f.over, "over", 0, "duration of --ramp")
	flags.StringArrayVar(&f.expect, "expect", nil, "fail if the run does not meet this, such as 'p99<5ms'; may be repeated")
	wholeVar(cmd, &f.iterations, "iterations", 0, "total number of decisions")
	spanVar(cmd, &f.duration, "duration", 0, "duration of the run (default 10s, or until --iterations are done)")
	flags.StringArrayVar(&f.keys, "key", []string{usualLoadKey}, "key, with % for the random number; repeat it for the keys of a policy")
	flags.StringVar(&f.usageKey, "usage-key", "", "also count under this key, for ratelimit usage and top; % as in --key")
	wholeVar(cmd, &f.numbers, "numbers", 1000, "how many numbers, and so keys, to draw from")
	flags.StringVar(&f.draw, "draw", "uniform", "distribution of the numbers: uniform, zipf, or zipf:EXPONENT")
	wholeVar(cmd, &f.cost, "cost", 1, "cost of each decision")
	flags.StringVar(&f.html, "html", "", "also write the report to this file, as an HTML page with charts")
	cmd.MarkFlagsMutuallyExclusive("limit", "policy")
	cmd.MarkFlagsMutuallyExclusive("ramp", "rate")
	cmd.MarkFlagsMutuallyExclusive("ramp", "duration")
	cmd.MarkFlagsMutuallyExclusive("ramp", "iterations")
	cmd.MarkFlagsRequiredTogether("ramp", "over")
	return cmd
}

// check validates the flags, and sets the fields that are derived from them.
func (f *loadFlags) check() error {
	switch {
	case !f.given("limit") && !f.given("policy"):
		return wrongUse("ratelimit load --limit 100/m", "load needs a limit: give --limit or --policy")
	case f.concurrency < 1 || f.concurrency > mostWorkers:
		return fmt.Errorf("--concurrency %d is not from 1 to %d", f.concurrency, mostWorkers)
	case f.given("rate") && !(f.rate > 0 && f.rate <= mostRate):
		return fmt.Errorf("--rate %v is not above 0 and at most %d", f.rate, mostRate)
	case f.given("iterations") && f.iterations < 1:
		return fmt.Errorf("--iterations %d is not above 0", f.iterations)
	case f.duration < 0 || f.given("duration") && f.duration == 0:
		return fmt.Errorf("--duration %v is not above 0; give one such as 30s", f.duration)
	case f.numbers < 1:
		return fmt.Errorf("--numbers %d is not above 0", f.numbers)
	case f.cost < 0:
		return fmt.Errorf("--cost %d is below 0", f.cost)
	}
	if err := f.parseRamp(); err != nil {
		return err
	}
	for _, text := range f.expect {
		e, err := load.ParseExpectation(text)
		if err != nil {
			return fmt.Errorf("--expect %w", err)
		}
		f.expected = append(f.expected, e)
	}
	if f.given("policy") {
		f.limit = "@" + strings.TrimPrefix(f.policy, "@")
	}
	if f.duration == 0 && f.iterations == 0 {
		f.duration = usualLoad
	}
	if exponent, ok := strings.CutPrefix(f.draw, "zipf"); ok {
		f.zipf = usualZipf
		if exponent != "" {
			var err error
			if f.zipf, err = strconv.ParseFloat(strings.TrimPrefix(exponent, ":"), 64); err != nil || exponent[0] != ':' || !(f.zipf > 1 && f.zipf <= 10) {
				return fmt.Errorf("--draw %s needs an exponent above 1 and up to 10; write one such as zipf:1.5", f.draw)
			}
		}
	} else if f.draw != "uniform" {
		return fmt.Errorf("--draw %q is not uniform or zipf", f.draw)
	}
	return nil
}

// parseRamp parses --ramp, and sets the duration to the value of --over.
func (f *loadFlags) parseRamp() error {
	if f.ramp == "" {
		return nil
	}
	from, to, ok := strings.Cut(f.ramp, "..")
	a, errA := strconv.ParseFloat(from, 64)
	b, errB := strconv.ParseFloat(to, 64)
	switch {
	case !ok || errA != nil || errB != nil:
		return fmt.Errorf("--ramp %q is not two rates; write the decisions a second at the start and at the end, such as 10..10000", f.ramp)
	case !(a >= 0 && a <= mostRate && b >= 0 && b <= mostRate && a+b > 0):
		return fmt.Errorf("--ramp %q is not from 0 to %d, with a rate above 0", f.ramp, mostRate)
	case f.over < time.Second:
		return fmt.Errorf("--over %v is below 1s; give the duration of --ramp, such as 1m", f.over)
	}
	f.ramped, f.duration = &load.Ramp{From: a, To: b}, f.over
	return nil
}

// request returns the request whose keys contain the number n.
func (f loadFlags) request(n int) client.Request {
	drawn := strconv.Itoa(n)
	req := client.Request{Limits: []client.Limit{client.Limit(f.limit)}, Costs: []int64{f.cost}, UsageKey: strings.ReplaceAll(f.usageKey, number, drawn)}
	for _, key := range f.keys {
		req.Keys = append(req.Keys, strings.ReplaceAll(key, number, drawn))
	}
	return req
}

func (a *app) runLoad(ctx context.Context, f loadFlags) error {
	if err := f.check(); err != nil {
		return err
	}
	s, err := a.parseServers()
	if err != nil {
		return err
	}
	if err := a.find(ctx, &s); err != nil {
		return err
	}
	s.Options.PoolSize = f.concurrency
	rdb := s.open()
	defer func() { _ = rdb.Close() }()
	c, err := client.New(rdb, client.WithTimeout(s.Options.ReadTimeout))
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }()
	probe := f.request(0)
	probe.UsageKey = "" // peek does not count usage
	if _, err := c.Peek(ctx, probe); err != nil {
		return a.withArguments(err, "load", probe) // the library would refuse every call
	}
	html := page(f.html)
	if err := html.check(); err != nil {
		return err
	}
	bar := a.newBar()
	report := load.Run(ctx, func(ctx context.Context, n int) (bool, error) {
		req := f.request(n)
		res, err := c.Take(ctx, req)
		return res.Allowed, a.withArguments(err, "load", req)
	}, load.Options{
		Workers: f.concurrency, Rate: f.rate, Ramp: f.ramped, Count: f.iterations, For: f.duration, Keys: f.numbers, Zipf: f.zipf, Kind: a.loadKind,
		Progress: func(p load.Progress) {
			bar.draw(func(time.Duration) (float64, string) { return f.share(p), loadProgress(p) })
		},
	})
	bar.clear()
	for i, m := range report.Messages {
		report.Messages[i].Text = strings.TrimPrefix(m.Text, "ratelimit: ")
	}
	var expected []loadExpected
	for _, e := range f.expected {
		measured, met := e.Met(report)
		expected = append(expected, loadExpected{e.Text, measured, met})
	}
	if a.json {
		a.printJSON(loadJSON(f, report, expected))
	} else {
		a.printLoad(f, s, report, expected)
	}
	if err := a.writePage(html, func(w io.Writer) error { return report.WritePage(w, f.title()) }); err != nil {
		return err
	}
	var failed []string
	for _, e := range expected {
		if !e.Met {
			failed = append(failed, fmt.Sprintf("%s, but measured %s", e.Expectation, e.Measured))
		}
	}
	ofErrors := slices.ContainsFunc(f.expected, func(e load.Expectation) bool { return e.Metric == "errors" })
	switch {
	case report.Interrupted:
		return fmt.Errorf("interrupted after %s; the report has only these", plural(report.Decisions(), "decision"))
	case len(failed) > 0:
		return fmt.Errorf("%d of %s not met: %s", len(failed), plural(len(f.expected), "expectation"), strings.Join(failed, "; "))
	case report.Errors > 0 && !ofErrors:
		return fmt.Errorf("%s of %s failed; the first: %s", grouped(report.Errors), plural(report.Decisions(), "decision"), report.Messages[0].Text)
	}
	return nil
}

// loadKind returns the text of an error without the keys, so that errors that differ only in the
// keys are counted together.
func (a *app) loadKind(err error) string {
	call, ok := errors.AsType[*client.Error](err)
	if !ok {
		return a.explained(err)
	}
	nameless := *call
	nameless.Keys = nil
	return a.explained(&nameless)
}

// share returns the completed share of the run, from 0 to 1.
func (f loadFlags) share(p load.Progress) (share float64) {
	if f.duration > 0 {
		share = p.Took.Seconds() / f.duration.Seconds()
	}
	if f.iterations > 0 {
		share = max(share, float64(p.Decisions)/float64(f.iterations))
	}
	return min(share, 1)
}

func loadProgress(p load.Progress) string {
	text := plural(p.Decisions, "decision")
	if seconds := p.Took.Seconds(); seconds > 0 {
		text += fmt.Sprintf(", %s/s", grouped(int64(float64(p.Decisions)/seconds)))
	}
	return text
}

func (f loadFlags) title() string {
	loop := "as many decisions as they can"
	switch {
	case f.ramped != nil:
		loop = fmt.Sprintf("from %s to %s decisions a second", perSecondText(f.ramped.From), perSecondText(f.ramped.To))
	case f.rate == 1:
		loop = "1 decision a second"
	case f.rate > 0:
		loop = perSecondText(f.rate) + " decisions a second"
	}
	text := fmt.Sprintf("%s, %s: %s, over %s", f.limit, plural(f.concurrency, "worker"), loop, plural(f.numbers, "number"))
	if f.zipf > 0 {
		text += fmt.Sprintf(" (zipf %v)", f.zipf)
	}
	return text
}
