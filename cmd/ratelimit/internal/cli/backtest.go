package cli

import (
	"context"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/ratelimit-functions/ratelimit/cmd/ratelimit/internal/accesslog"
	"github.com/ratelimit-functions/ratelimit/cmd/ratelimit/internal/backtest"
	"github.com/ratelimit-functions/ratelimit/functions"
	"github.com/ratelimit-functions/ratelimit/internal/span"
	"github.com/ratelimit-functions/ratelimit/policies"
)

type backtestFlags struct {
	keys, limits, policies, fields, periods []string
	format, suggest, html, top              string
	cost, charge, classBy                   string
	unsorted                                time.Duration
}

// usualShare is the default of --suggest if no limit is given.
const usualShare = "99%"

func (a *app) backtestCommand() *cobra.Command {
	f := backtestFlags{}
	cmd := a.jsonFlag(&cobra.Command{
		Use:   "backtest FILE...",
		Short: "Replay access logs to see whom limits would have denied",
		Long: `Replay access logs through limits and policies, side by side and offline, and show whom each would have denied, when
and how often. The library itself decides, in the engine of this program, with the clock set to the time of each line.

FILE is a log in the Common or Combined Log Format, in JSON lines or CSV, plain or compressed with gzip or zstd; - is
standard input. Several logs are merged by time. Without --limit and --policy, it suggests a limit for each of several
periods (--suggest 99%).

--key says which requests are counted together: client (the address; client/24 is its network), user, path (path/1 is
its first part), method, or a field by its name in the log; + joins several. A policy of several keys takes each by
its name: --key consumer=user.

--cost names the field with the cost of each line, such as size (the bytes of a response) or usage.total_tokens. Limits
then count these units. With --charge after, a request passes if one unit fits. It is then charged its cost, and what
does not fit is debt, as with ratelimit take --force. Without --cost, each line costs 1.

--class-by names the field with the class of each line, for policies with classes, and shows what each class would have
got. A line without it is a call without a class.

docs/backtest.md has more. Exit codes: 0 fine, whatever was denied · 1 error, or interrupted.`,
		Example: `  ratelimit backtest access.log.gz --html report.html
  ratelimit backtest access.log* --limit 10/m --limit "sliding_log 20/5m" --key client/24
  ratelimit backtest calls.jsonl --key team --cost usage.total_tokens --charge after --limit 1000000/d
  ratelimit backtest - --policies policies.yaml --policy api --key user --json < access.log`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return wrongUse("ratelimit backtest access.log", "backtest needs a log; - is standard input")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error { return a.backtest(cmd.Context(), args, f) },
	})
	flags := cmd.Flags()
	flags.StringArrayVar(&f.limits, "limit", nil, "a limit to try, such as 10/m; may be repeated")
	flags.StringArrayVar(&f.policies, "policy", nil, "a policy of --policies to try; may be repeated")
	completePolicies(cmd, a.policiesInFiles)
	a.policiesFlag(cmd)
	flags.StringArrayVar(&f.keys, "key", nil, `what is counted together (default "client"); NAME=KEY for a policy of several keys`)
	flags.StringVar(&f.cost, "cost", "", "field with the cost of each line, such as size or usage.total_tokens (default: each line costs 1)")
	flags.StringVar(&f.charge, "charge", "before", "when a cost is charged: before the request, or after it, even if it does not fit")
	flags.StringVar(&f.classBy, "class-by", "", "field with the class of each line, for policies with classes")
	flags.StringVar(&f.suggest, "suggest", "", "suggest limits that leave this share of the keys untouched, such as 99%")
	flags.StringSliceVar(&f.periods, "period", []string{"1s", "10s", "1m", "10m", "1h"}, "the periods of suggestions")
	flags.StringVar(&f.html, "html", "", "also write the report to this file, as an HTML page with charts")
	flags.StringVar(&f.format, "format", "auto", "format of the logs: "+strings.Join(accesslog.Formats, ", "))
	flags.StringArrayVar(&f.fields, "field", nil, "name of a field in a JSON or CSV log, such as time=when; may be repeated")
	spanVar(cmd, &f.unsorted, "unsorted", time.Minute, "how far a line may be out of order")
	flags.StringVar(&f.top, "top", "10", "number of keys with the most denials to show")
	return cmd
}

func (a *app) backtest(ctx context.Context, names []string, f backtestFlags) error {
	opts, err := a.backtestOptions(f)
	if err != nil {
		return err
	}
	html := page(f.html)
	if err := html.check(); err != nil {
		return err
	}
	var size int64
	closeAll := func() {}
	defer func() { closeAll() }()
	bar := a.newBar()
	garbage := &collector{}
	defer garbage.back()
	opts.Progress = func(p backtest.Progress) {
		garbage.tune()
		bar.draw(func(took time.Duration) (float64, string) { return backtestProgress(p, size, took) })
	}
	report, err := backtest.Run(ctx, func() (inputs []backtest.Input, err error) {
		inputs, size, closeAll, err = a.backtestInputs(ctx, names)
		return inputs, err
	}, opts)
	bar.clear()
	if err != nil {
		return err
	}
	if a.json {
		a.printJSON(report.Limits)
	} else {
		a.write(a.look().backtest(report))
	}
	if err := a.writePage(html, func(w io.Writer) error { return report.WritePage(w, a.commandLine()) }); err != nil {
		return err
	}
	if report.Interrupted {
		return fmt.Errorf("interrupted after %s; the report has only these", plural(report.Log.Requests, "request"))
	}
	return nil
}

func (a *app) backtestOptions(f backtestFlags) (backtest.Options, error) {
	opts := backtest.Options{Format: f.format, Unsorted: f.unsorted, Called: map[string]string{}, Workers: runtime.GOMAXPROCS(0), Curves: f.html != "", Cost: f.cost, ClassBy: f.classBy, After: f.charge == "after"}
	if !slices.Contains(accesslog.Formats, f.format) {
		return opts, fmt.Errorf("--format %q is not a known format; give one of %s", f.format, strings.Join(accesslog.Formats, ", "))
	}
	if f.charge != "before" && !opts.After {
		return opts, fmt.Errorf("--charge %q is not before or after; give one of these", f.charge)
	}
	if opts.After && f.cost == "" {
		return opts, fmt.Errorf("--charge after needs costs; add the field that has them, as in --cost usage.total_tokens")
	}
	var err error
	if opts.Worst, err = strconv.Atoi(f.top); err != nil || opts.Worst < 0 || opts.Worst > 1000 {
		return opts, fmt.Errorf("--top %q is not a number from 0 to 1000", f.top)
	}
	for _, field := range f.fields {
		name, called, ok := strings.Cut(field, "=")
		if !ok || name == "" || called == "" {
			return opts, fmt.Errorf("--field %q is not name=column; write one such as time=when or client=peer", field)
		}
		if other := opts.Called[name]; other != "" {
			return opts, fmt.Errorf("--field gives %s twice, as %s and as %s; give it once", name, other, called)
		}
		opts.Called[name] = called
	}
	if f.suggest == "" && len(f.limits)+len(f.policies) == 0 {
		f.suggest = usualShare
	}
	if f.suggest != "" {
		percent, err := strconv.ParseFloat(strings.TrimSuffix(f.suggest, "%"), 64)
		if err != nil || !(percent > 0 && percent <= 100) {
			return opts, fmt.Errorf("--suggest %q is not a share of the keys; give one above 0%% and up to 100%%, such as 99%%", f.suggest)
		}
		opts.Share = percent / 100
	}
	for _, text := range f.periods {
		d, err := span.Parse(text)
		if err != nil || d <= 0 {
			return opts, fmt.Errorf("--period %q is not a period; write one such as 10s or 1h", text)
		}
		opts.Periods = append(opts.Periods, d)
	}
	return opts, a.candidates(f, &opts)
}

// candidates parses limits, policies and their keys, and makes a library with the policies.
func (a *app) candidates(f backtestFlags, opts *backtest.Options) error {
	usual, named := "client", map[string]string{}
	for i, key := range f.keys {
		name, of, ok := strings.Cut(key, "=")
		switch {
		case ok && named[name] != "":
			return fmt.Errorf("--key gives %s twice, as %s and as %s; give it once, with fields joined by +", name, named[name], of)
		case ok:
			named[name] = of
		case slices.ContainsFunc(f.keys[:i], func(other string) bool { return !strings.Contains(other, "=") }):
			return fmt.Errorf("--key %s is a second key for the same limits; join them with +, or write NAME=%s for one of a policy's keys", key, key)
		default:
			usual = key
		}
	}
	var err error
	if opts.Key, err = backtest.ParseKey(usual); err != nil {
		return fmt.Errorf("--key: %w", err)
	}
	for _, limit := range f.limits {
		if strings.HasPrefix(strings.TrimSpace(limit), "@") {
			return fmt.Errorf("--limit %s is a policy; give it as --policy %s", limit, strings.TrimPrefix(strings.TrimSpace(limit), "@"))
		}
		opts.Candidates = append(opts.Candidates, backtest.Candidate{Limit: limit, Keys: []backtest.Key{opts.Key}})
	}
	if len(a.policies) == 0 {
		if len(f.policies) > 0 {
			return fmt.Errorf("--policy %s needs the file that has it; add --policies policies.yaml", f.policies[0])
		}
		opts.Library = functions.Source()
		return nil
	}
	file, err := a.readPolicies()
	if err != nil {
		return err
	}
	used := map[string]bool{} // policies may have keys of the same name
	for _, name := range f.policies {
		name = strings.TrimPrefix(name, "@")
		at := slices.IndexFunc(file.Policies, func(p policies.Policy) bool { return p.Name == name })
		if at < 0 {
			return fmt.Errorf("--policy %q is not in %s", name, file.Name)
		}
		keys, err := policyKeys(file.Policies[at], opts.Key, named, used)
		if err != nil {
			return err
		}
		opts.Candidates = append(opts.Candidates, backtest.Candidate{Limit: "@" + name, Keys: keys})
	}
	for name := range named {
		if used[name] {
			continue
		}
		return fmt.Errorf("--key %s=%s: no policy has a key %s; leave it out", name, named[name], name)
	}
	for i := range file.Policies { // enforce shadow policies, and do not count usage
		file.Policies[i].Shadow, file.Policies[i].Track = false, false
		if canary := file.Policies[i].Canary; canary != nil {
			canary.Shadow = false
		}
	}
	build, err := file.Build()
	opts.Library = build.Text()
	return err
}

// policyKeys returns the definitions of a policy's keys. named maps the names of keys to
// definitions; policyKeys adds the names that it uses to used. If a policy has only one key and named
// does not define it, its definition is usual.
func policyKeys(p policies.Policy, usual backtest.Key, named map[string]string, used map[string]bool) ([]backtest.Key, error) {
	if len(p.Limits) == 1 && named[p.Limits[0].Key] == "" {
		return []backtest.Key{usual}, nil
	}
	var keys []backtest.Key
	for _, limit := range p.Limits {
		text, ok := named[limit.Key]
		if !ok {
			return nil, fmt.Errorf("policy %s has a key %s; add what it is made of, for example --key %s=client", p.Name, limit.Key, limit.Key)
		}
		key, err := backtest.ParseKey(text)
		if err != nil {
			return nil, fmt.Errorf("--key %s: %w", limit.Key, err)
		}
		keys = append(keys, key)
		used[limit.Key] = true
	}
	return keys, nil
}

// backtestInputs opens the logs. size is their total size in bytes, or 0 if unknown. closeAll is
// never nil.
func (a *app) backtestInputs(ctx context.Context, names []string) (inputs []backtest.Input, size int64, closeAll func(), err error) {
	var files []*os.File
	var abouts []os.FileInfo
	closeAll = func() {
		for _, file := range files {
			_ = file.Close()
		}
	}
	known := true
	for i, name := range names {
		if slices.Contains(names[:i], name) {
			return nil, 0, closeAll, fmt.Errorf("the log %s is given twice, so each of its lines would count twice; give it once", name)
		}
		if name == "-" {
			inputs, known = append(inputs, backtest.Input{Name: "standard input", Reader: &endable{ctx: ctx, from: a.stdin}}), false
			continue
		}
		// Opening a named pipe blocks until a writer opens it, so stop waiting when ctx is done.
		file, err := interruptible(ctx, func() (*os.File, error) { return os.Open(name) })
		if file == nil && ctx.Err() != nil {
			err = fmt.Errorf("interrupted before anything was written to %s", name)
		}
		var about os.FileInfo
		if err == nil {
			files = append(files, file)
			about, err = file.Stat()
		}
		if err == nil && about.IsDir() {
			err = fmt.Errorf("%s is a folder; give the files in it", name)
		}
		if same := func(other os.FileInfo) bool { return os.SameFile(about, other) }; err == nil && slices.ContainsFunc(abouts, same) {
			err = fmt.Errorf("%s is the same file as another one, so each of its lines would count twice; give it once", name)
		}
		if err != nil {
			return nil, 0, closeAll, fmt.Errorf("cannot read the log: %w", err)
		}
		abouts = append(abouts, about)
		size, known = size+about.Size(), known && about.Mode().IsRegular()
		inputs = append(inputs, backtest.Input{Name: name, Reader: &endable{ctx: ctx, from: file}})
	}
	if !known {
		size = 0
	}
	return inputs, size, closeAll, nil
}

// endable is a reader whose Read returns an error as soon as ctx is done, even while it waits for
// data from a pipe.
type endable struct {
	ctx  context.Context
	from io.Reader
	rest []byte
	err  error
}

func (e *endable) Read(p []byte) (int, error) {
	for len(e.rest) == 0 {
		if e.err != nil {
			return 0, e.err
		}
		e.rest, e.err = interruptible(e.ctx, func() ([]byte, error) {
			buffer := make([]byte, 256<<10)
			n, err := e.from.Read(buffer)
			return buffer[:n], err
		})
	}
	n := copy(p, e.rest)
	e.rest = e.rest[n:]
	return n, nil
}
