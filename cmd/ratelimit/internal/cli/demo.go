package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"

	"github.com/ratelimit-functions/ratelimit/client"
	"github.com/ratelimit-functions/ratelimit/functions"
	"github.com/ratelimit-functions/ratelimit/loader"
	"github.com/ratelimit-functions/ratelimit/loader/nodes"
)

// These are the minimum, the default and the maximum of a demo's duration. The shortest demo has
// room for two bursts, and the longest ends within half a minute.
const (
	shortestDemo = 2 * time.Second
	usualDemo    = 8 * time.Second
	longestDemo  = 25 * time.Second
)

func (a *app) demoCommand() *cobra.Command {
	var duration time.Duration
	var replace bool
	cmd := a.serverFlags(&cobra.Command{
		Use:   "demo",
		Short: "See the library limit some traffic",
		Long: `Deploy the library, send traffic for some seconds, and show what was let through and what was not.

Without --redis it starts a server of its own, in memory, and ignores REDIS_URL. With --redis it runs on that server or
cluster: under keys with a prefix of their own, which it deletes at the end; the library stays deployed. A server that
runs another build of the library is not changed unless you add --replace; one with policies is never changed.`,
		Example: `  ratelimit demo
  ratelimit demo --redis redis://127.0.0.1:6379`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if duration < shortestDemo || duration > longestDemo {
				return fmt.Errorf("--duration %v is out of range; give one from %v to %v", duration, shortestDemo, longestDemo)
			}
			if a.servers.url == "" && replace {
				return errors.New("--replace is about a server, and none is named; add --redis URL")
			}
			return a.demo(cmd.Context(), duration, replace)
		},
	})
	spanVar(cmd, &duration, "duration", usualDemo, fmt.Sprintf("how long to send traffic, from %v to %v", shortestDemo, longestDemo))
	cmd.Flags().BoolVar(&replace, "replace", false, "replace another build of the library on the server")
	cmd.Flags().Lookup("redis").Usage = "`URL` of the server or cluster (default: a server of its own)"
	return cmd
}

type stage struct {
	servers
	rdb    redis.UniversalClient
	prefix string // prefix of every key
	where  string // for display
	own    bool   // whether the server is embedded
	close  func()
}

func (a *app) demo(ctx context.Context, duration time.Duration, replace bool) error {
	on, err := a.stage(ctx)
	if err != nil {
		return err
	}
	defer on.close()
	l := a.look()
	const title = "ratelimit demo"
	if err := a.write(strings.Replace(l.prose("", title+" on "+on.where), title, l.paint(bold, title), 1) + "\n"); err != nil {
		return err
	}
	deployed, err := a.demoDeploy(ctx, on, replace)
	if err != nil {
		return err
	}
	a.write(l.prose("", deployed) + "\n\n")
	c, err := client.New(on.rdb, client.WithTimeout(on.Options.ReadTimeout))
	if err != nil {
		return err
	}
	s := &show{scene: newScene(duration), total: duration, prefix: on.prefix, client: c}
	hello := on.prefix + "hello"
	keys := append(s.keys(), hello)
	if err := a.demoHello(ctx, on, c, l, hello); err != nil {
		return err
	}
	err = a.demoPlay(ctx, s, l)
	if !on.own {
		err = cmp.Or(err, a.demoForget(ctx, on, c, keys))
	}
	if err != nil {
		return err
	}
	return a.demoEnd(s, on, l, len(keys))
}

// stage connects to the server that --redis names, or starts an embedded one.
func (a *app) stage(ctx context.Context) (*stage, error) {
	if a.servers.url != "" {
		rdb, s, err := a.connect(ctx)
		if err != nil {
			return nil, err
		}
		return &stage{
			servers: s, rdb: rdb, where: s.Name, prefix: fmt.Sprintf("demo-%08x:", rand.Uint32()),
			close: func() { _ = rdb.Close() },
		}, nil
	}
	srv, err := a.startEmbedded()
	if err != nil {
		return nil, err
	}
	a.servers.url = "redis://" + srv.Addr()
	s, err := a.parseServers()
	if err != nil {
		_ = srv.Close()
		return nil, err
	}
	rdb := s.open()
	return &stage{
		servers: s, rdb: rdb, own: true, prefix: "demo:", where: "an embedded server, " + srv.Addr() + ": no Redis needed",
		close: func() {
			_ = rdb.Close()
			_ = srv.Close()
		},
	}, nil
}

// demoDeploy loads the library, and describes what it did. It replaces another build only if
// replace is true.
func (a *app) demoDeploy(ctx context.Context, on *stage, replace bool) (string, error) {
	build, err := functions.New()
	if err != nil {
		return "", err
	}
	l, err := loader.New(on.rdb, loader.Config{Timeout: on.Options.ReadTimeout})
	if err != nil {
		return "", err
	}
	report, err := l.Status(ctx, build)
	if err != nil {
		return "", err
	}
	if _, err := l.Plan(ctx, build, loader.Options{AllowDowngrade: true, ReplaceForeign: true}); errors.Is(err, loader.ErrRemovesPolicies) {
		node, _ := errors.AsType[*nodes.Error](err) // the demo's library has no policies, so loading it would remove those of the server
		return "", fmt.Errorf("%s; run the demo without --redis, or on another server", node.Problem)
	}
	nodes := plural(len(report.Nodes), "server")
	if report.InStep() {
		return fmt.Sprintf("%s is there already, on %s", about(build), nodes), nil
	}
	for _, n := range report.Nodes {
		if n.State == loader.Different && !replace {
			found := name(n.Running)
			if edited(n.Running, report.Wanted) {
				found += ", other text"
			}
			return "", fmt.Errorf("%s runs another build of the library (%s), which the demo leaves alone; run the demo without --redis, or replace that build with: %s",
				n.Addr, found, a.again("demo", "--replace"))
		}
	}
	if report, err = l.Deploy(ctx, build, loader.Options{AllowDowngrade: true, ReplaceForeign: true}); err != nil {
		return "", err
	}
	return fmt.Sprintf("deployed %s to %s and read it back", about(build), plural(report.Changed(), "server")), nil
}

// demoHello shows one call as a user would type it, and its reply.
func (a *app) demoHello(ctx context.Context, on *stage, c *client.Client, l look, key string) error {
	const limit = "10/s burst=20"
	ctx, cancel := on.deadline(ctx)
	defer cancel()
	reply, err := on.rdb.FCall(ctx, "ratelimit_take", []string{key}, limit).Int64Slice()
	if err != nil {
		if _, explained := c.Peek(ctx, key, limit); explained != nil {
			return explained // the client's errors say what to do
		}
		return fmt.Errorf("the first call on %s failed: %w", on.Name, err)
	}
	if len(reply) < 6 {
		return fmt.Errorf("ratelimit_take returns %v, not six integers; is another library of this name on %s? see what runs with: %s", reply, on.Name, a.again("status"))
	}
	shown := make([]string, len(reply))
	for i, n := range reply {
		shown[i] = fmt.Sprint(n)
	}
	meaning := fmt.Sprintf("  allowed, of %d, %d left, retry after %d ms, full again in %d ms, by key %d", reply[1], reply[2], reply[3], reply[4], reply[5])
	return a.write(fmt.Sprintf("%s\n  %s\n  → %s\n%s\n\n", l.prose("", "One call is one decision, from any language:"),
		l.paint(bold, fmt.Sprintf(`FCALL ratelimit_take 1 %s "%s"`, key, limit)), strings.Join(shown, " "), l.prose("", meaning)))
}

// demoPlay sends the traffic and draws it. It does not change the mode of the terminal, so there is
// nothing to restore when the program ends.
func (a *app) demoPlay(ctx context.Context, s *show, l look) error {
	legend := fmt.Sprintf("%s of traffic; a column is %s, a full bar %s", human(s.total), human(s.total/columns), plural(s.full(), "request"))
	if l.width < chartWidth {
		legend = fmt.Sprintf("%s of traffic; for a chart, the terminal needs %d columns", human(s.total), chartWidth)
	}
	if err := a.write(l.prose(faint, legend) + "\n\n"); err != nil {
		return err
	}
	up := "" // moves the cursor up to the first line of the chart
	var drawn time.Time
	draw := func(last bool) error {
		size, now := a.look(), a.pace.now()
		if now.Sub(drawn) > time.Second || size.width != l.width { // after Ctrl-Z or a resize, draw below the current output
			up, l.width = "", size.width
		}
		chart := s.chart(l)
		lines := strings.Count(chart, "\n")
		if size.width < chartWidth || !last && (!l.moving || size.height > 0 && size.height <= lines) {
			return nil
		}
		if last {
			chart += "\n"
		}
		chart, up, drawn = up+chart, fmt.Sprintf("\x1b[%dA\x1b[J", lines), now
		return a.write(chart)
	}
	err := s.play(ctx, a.pace, a.servers.timeout, func() error { return draw(false) })
	if err == nil {
		err = draw(true)
	}
	if ctx.Err() != nil && l.moving {
		_ = a.printf("\n") // after the terminal's ^C
	}
	return err
}

// demoForget deletes the demo's keys, even after an interruption.
func (a *app) demoForget(ctx context.Context, on *stage, c *client.Client, keys []string) error {
	ctx, cancel := on.deadline(context.WithoutCancel(ctx))
	defer cancel()
	for _, key := range keys { // one by one, because the keys are in different slots
		if _, err := c.Reset(ctx, key); err != nil {
			return fmt.Errorf("the demo's keys, %s*, could not be deleted (%w); they expire within seconds", on.prefix, err)
		}
	}
	return nil
}

func (a *app) demoEnd(s *show, on *stage, l look, keys int) error {
	var text strings.Builder
	text.WriteString(s.summary(l))
	next := [][2]string{
		{a.program + " dev", "a server to try it on"},
		{"redis-cli FCALL ratelimit_take 1 user:42 5/10s", "ask it, in another terminal"},
		{a.program + " deploy --redis redis://HOST:6379", "onto Redis 7+ or Valkey"},
	}
	if !on.own {
		at := on.again
		fmt.Fprintf(&text, "\n%s\n", l.prose("", fmt.Sprintf("deleted the demo's %d keys; the library stays on %s", keys, on.Name)))
		next = [][2]string{
			{a.program + " take user:42 5/10s" + at, "ask for a decision"},
			{a.program + " status" + at, "see what each server runs"},
			{a.program + " delete" + at, "take it away again"},
		}
	}
	fmt.Fprintf(&text, "\n%s\n", l.paint(bold, "What next:"))
	for _, n := range next { // on separate lines, because interactive zsh would pass a comment after the command as arguments
		fmt.Fprintf(&text, "%s\n  %s\n", l.prose(faint, n[1]+":"), n[0])
	}
	return a.write(text.String())
}
