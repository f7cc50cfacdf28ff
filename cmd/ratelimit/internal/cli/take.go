package cli

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/ratelimit-functions/ratelimit/client"
	"github.com/ratelimit-functions/ratelimit/internal/shell"
)

const limitsHelp = `A limit is [algorithm] n/period [option=value ...], for example 100/m, "gcra 10/s burst=20",
"fixed_window 1000/h align=clock" or, for a month of the calendar, "fixed_window 9000/mo align=clock"; or @name, a
deployed policy. --policy takes a policy with its keys, in the order of policies.yaml. In a cluster, all keys of a call
need the same hash tag, such as {user:42}.

Exit codes: 0 allowed · 1 error · 2 denied.`

func (a *app) takeCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "take KEY LIMIT [KEY LIMIT ...] | take --policy NAME KEY [KEY ...]",
		Short: "Decide, and count the call if it is allowed",
		Long:  "Decide for one key or several in one step, and count the call for every key if all allow it.\n\n" + limitsHelp,
		Example: `  ratelimit take user:42 100/m
  ratelimit take {acme}:ann 10/s {acme} 50/s --cost 1,5
  ratelimit take mails 100/m --up-to 60
  ratelimit take --policy calc calc:{a} consumer9:{a}
  ratelimit take {ann} 100/d --once-key {ann}:order7 --once-ttl 10m --usage-key {ann}:usage`,
	}
	var options client.Request
	cmd = a.decisionCommand(cmd, decide{(*client.Client).Take, taken, &options})
	cmd.Flags().StringVar(&options.OnceKey, "once-key", "", "key of this piece of work: a repetition gets the same reply and is not counted")
	spanVar(cmd, &options.OnceTTL, "once-ttl", 0, "how long --once-key is remembered, such as 10m or 1d")
	cmd.MarkFlagsRequiredTogether("once-key", "once-ttl")
	cmd.Flags().StringVar(&options.UsageKey, "usage-key", "", "also count the decision under this key, for ratelimit usage")
	return cmd
}

func (a *app) peekCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "peek KEY LIMIT [KEY LIMIT ...] | peek --policy NAME KEY [KEY ...]",
		Short:   "Show what take would decide, and count nothing",
		Long:    "Show what take would decide now, and change nothing.\n\n" + limitsHelp,
		Example: `  ratelimit peek user:42 100/m`,
	}
	return a.decisionCommand(cmd, decide{(*client.Client).PeekRequest, taken, &client.Request{}})
}

// policyLast reports whether args are keys and then a policy.
func policyLast(args []string) bool {
	isLimit := func(arg string) bool { return strings.HasPrefix(arg, "@") || strings.Contains(arg, "/") }
	return slices.IndexFunc(args, isLimit) == len(args)-1 && strings.HasPrefix(args[len(args)-1], "@")
}

// decide is a command that makes a decision.
type decide struct {
	ask     func(*client.Client, context.Context, client.Request) (client.Result, error)
	words   words
	options *client.Request // the request whose options are set by flags; nil for a command without options and without --up-to
}

// words are the words that begin a sentence about a decision.
type words struct{ allowed, denied string }

var taken = words{"allowed", "denied "}

func (a *app) decisionCommand(cmd *cobra.Command, d decide) *cobra.Command {
	var costs []string
	var policy, upTo string
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		step := 2 // distance between keys
		if policy != "" {
			step = 1
		}
		for i := 0; i < len(args); i += step {
			if args[i] == "" {
				return emptyKey("ratelimit "+cmd.Name()+" user:42 100/m", i/step+1, (len(args)+step-1)/step)
			}
		}
		switch {
		case policy != "" && len(args) == 0:
			return wrongUse("ratelimit "+cmd.Name()+" --policy calc calc:{a} consumer9:{a}", "a policy needs its keys")
		case policy != "":
			return nil
		case len(args) < 2:
			return wrongUse("ratelimit "+cmd.Name()+" user:42 100/m", "%s needs a key and its limit, not %s",
				cmd.Name(), plural(int64(len(args)), "argument"))
		case len(args)%2 != 0 && policyLast(args):
			last := len(args) - 1
			return fmt.Errorf("%s is a policy; for several keys: %s", args[last],
				shell.Line(slices.Concat([]string{a.program, cmd.Name(), "--policy", args[last][1:]}, args[:last])...))
		case len(args)%2 != 0:
			return wrongUse("ratelimit "+cmd.Name()+" {acme}:ann 10/s {acme} 50/s", "the key %q has no limit: each key is followed by its limit",
				args[len(args)-1])
		}
		return nil
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		req := client.Request{}
		if d.options != nil {
			req = *d.options
		}
		if req.OnceKey != "" && req.OnceTTL <= 0 {
			return fmt.Errorf("--once-ttl %v is not above 0; give the time for which --once-key %q is remembered, such as 10m", req.OnceTTL, req.OnceKey)
		}
		if policy != "" {
			req.Keys, req.Limits = args, []client.Limit{client.Limit("@" + strings.TrimPrefix(policy, "@"))}
			args = nil
		}
		for i := 0; i < len(args); i += 2 {
			req.Keys = append(req.Keys, args[i])
			req.Limits = append(req.Limits, client.Limit(args[i+1]))
		}
		flag, form := "cost", "for all keys, or one for each, as in --cost 1,5"
		if req.UpTo = upTo != ""; req.UpTo {
			costs, flag, form = []string{upTo}, "up-to", "for all keys"
		}
		for _, text := range costs {
			cost, err := strconv.ParseInt(strings.TrimSpace(text), 10, 64)
			if err != nil {
				return fmt.Errorf("--%s %q is not a whole number; give one from 0 to 9007199254740992 %s", flag, text, form)
			}
			req.Costs = append(req.Costs, cost)
		}
		var res client.Result
		err := a.withClient(cmd.Context(), func(ctx context.Context, c *client.Client) (err error) {
			res, err = d.ask(c, ctx, req)
			return a.withArguments(err, req)
		})
		if err != nil {
			return err
		}
		if err := a.printDecision(d.words, req, res); err != nil {
			return err
		}
		if !res.Allowed {
			return exitCode(exitDiffers)
		}
		return nil
	}
	cmd.Flags().StringSliceVar(&costs, "cost", nil, "cost: one number for all keys, or one for each (default 1)")
	if d.options != nil {
		cmd.Flags().StringVar(&upTo, "up-to", "", "in place of --cost: take as many units as fit, up to this number, from all keys")
		cmd.MarkFlagsMutuallyExclusive("cost", "up-to")
	}
	cmd.Flags().StringVar(&policy, "policy", "", "a deployed policy; all arguments are its keys")
	a.jsonFlag(cmd)
	a.serverFlags(cmd)
	return cmd
}

// withClient makes one call on a new connection.
func (a *app) withClient(ctx context.Context, call func(context.Context, *client.Client) error) error {
	rdb, s, err := a.connect(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = rdb.Close() }()
	c, err := client.New(rdb, client.WithTimeout(s.Options.ReadTimeout))
	if err != nil {
		return err
	}
	ctx, cancel := s.deadline(ctx)
	defer cancel()
	return call(ctx, c)
}

// deadline limits the time of one call, including what a client does around it.
func (s servers) deadline(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, s.Options.ReadTimeout)
}

// decision is what --json prints: the fields of the reply under the contract's names.
type decision struct {
	Allowed      bool   `json:"allowed"`
	Taken        *int64 `json:"taken,omitempty"` // units, for a call with --up-to
	Limit        int64  `json:"limit"`
	Remaining    int64  `json:"remaining"`
	RetryAfterMS int64  `json:"retry_after_ms"` // -1: never
	ResetAfterMS int64  `json:"reset_after_ms"`
	Index        int    `json:"index"` // number of the binding key, from 1
	Key          string `json:"key"`   // the binding key

	Shadow *shadowDecision `json:"shadow,omitempty"` // if a shadow policy would decide otherwise
}

// shadowDecision is what the reply would be if none of the call's policies were a shadow policy.
type shadowDecision struct {
	Allowed      bool   `json:"allowed"`
	Taken        *int64 `json:"taken,omitempty"`
	RetryAfterMS int64  `json:"retry_after_ms"` // -1: never
	Index        int    `json:"index"`
}

// retryMS returns a wait as in the reply, with -1 for never.
func retryMS(wait time.Duration) int64 {
	if wait == client.Never {
		return -1
	}
	return wait.Milliseconds()
}

func newDecision(req client.Request, res client.Result) decision {
	d := decision{
		Allowed: res.Allowed, Limit: res.Limit, Remaining: res.Remaining, RetryAfterMS: retryMS(res.RetryAfter),
		ResetAfterMS: res.ResetAfter.Milliseconds(), Index: res.Index, Key: req.Keys[res.Index-1],
	}
	if s := res.Shadow; s != nil {
		d.Shadow = &shadowDecision{Allowed: s.Allowed, RetryAfterMS: retryMS(s.RetryAfter), Index: s.Index}
		if req.UpTo {
			d.Shadow.Taken = &s.Taken
		}
	}
	if req.UpTo {
		d.Taken = &res.Taken
	}
	return d
}

func (a *app) printDecision(w words, req client.Request, res client.Result) error {
	if a.json {
		return a.printJSON(newDecision(req, res))
	}
	return a.printf("%s\n", sentence(w, req, res))
}

// sentence describes a decision in one line.
func sentence(w words, req client.Request, res client.Result) string {
	var line strings.Builder
	word := w.denied
	if res.Allowed {
		word = w.allowed
	}
	if req.UpTo && res.Allowed {
		word = fmt.Sprintf("%s %s of %s", word, grouped(res.Taken), grouped(req.Costs[0]))
	}
	fmt.Fprintf(&line, "%s  %s of %s left", word, grouped(res.Remaining), grouped(res.Limit))
	if len(req.Keys) > 1 {
		limit := req.Limits[0] // of a single policy
		if len(req.Limits) == len(req.Keys) {
			limit = req.Limits[res.Index-1]
		}
		fmt.Fprintf(&line, " for %s (%s)", visible(req.Keys[res.Index-1]), limit)
	}
	switch {
	case res.RetryAfter == client.Never:
		line.WriteString(" · never: the cost is more than the limit ever holds")
	case !res.Allowed && res.RetryAfter > 0: // 0 is possible with --up-to 0
		fmt.Fprintf(&line, " · try again in %s", human(res.RetryAfter))
	case res.RetryAfter > 0:
		fmt.Fprintf(&line, " · go ahead in %s", human(res.RetryAfter))
	}
	if res.ResetAfter > 0 {
		fmt.Fprintf(&line, " · full again in %s", human(res.ResetAfter))
	} else if res.Remaining >= res.Limit {
		line.WriteString(" · full now")
	}
	s := res.Shadow
	switch {
	case s == nil:
	case s.Allowed && s.Taken < res.Taken:
		fmt.Fprintf(&line, " · a shadow policy would allow %s for %s", grouped(s.Taken), visible(req.Keys[s.Index-1]))
	case !s.Allowed:
		fmt.Fprintf(&line, " · a shadow policy would deny it for %s", visible(req.Keys[s.Index-1]))
		if s.RetryAfter != client.Never {
			fmt.Fprintf(&line, ", and allow it in %s", human(s.RetryAfter))
		}
	}
	return line.String()
}
