package cli

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ratelimit-functions/ratelimit/client"
	"github.com/ratelimit-functions/ratelimit/client/replyjson"
	"github.com/ratelimit-functions/ratelimit/cmd/ratelimit/internal/shell"
)

func (a *app) takeCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "take KEY LIMIT [KEY LIMIT ...] | take --policy NAME KEY [KEY ...]",
		Short: "Decide, and count the call if it is allowed",
		Long: `Decide for one key or several in one step, and count the call for every key if all allow it. With --dry-run, show what
would be decided now, and change nothing: if the call would be allowed, the numbers are those that it would leave. That
needs only the rights of "ratelimit acl peek", and works on replicas too.

A limit is [algorithm] n/period [option=value ...], for example 100/m or "gcra 10/s burst=20", or @name, a deployed
policy; "ratelimit help limits" explains limits. --policy takes a policy with its keys, in the order of policies.yaml.
In a cluster, all keys of a call need the same hash tag, such as {user:42}.

Exit codes: 0 allowed · 1 error · 2 denied.`,
		Example: `  ratelimit take user:42 100/m
  ratelimit take user:42 100/m --dry-run
  ratelimit take {acme}:ann 10/s {acme} 50/s --cost 1,5
  ratelimit take {acme}:ann 10/s {acme} 50/s --each
  ratelimit take mails 100/m --up-to 60
  ratelimit take team:7 1000/h --cost 1200 --force
  ratelimit take --policy calc calc:{a} consumer9:{a}
  ratelimit take {ann} 100/d --once-key {ann}:order7 --once-ttl 10m --usage-key {ann}:usage`,
	}
	var options client.Request
	d := decide{ask: (*client.Client).Take, words: taken, options: &options, upTo: true}
	cmd = onceFlags(a.decisionCommand(cmd, &d), &options)
	flags := cmd.Flags()
	flags.BoolVar(&options.Force, "force", false, "charge the cost even if it does not fit; the key denies until the debt is paid off")
	flags.StringVar(&options.UsageKey, "usage-key", "", "also count the decision under this `key`, for ratelimit usage")
	flags.BoolVar(&d.dry, "dry-run", false, "count nothing, and change nothing")
	flags.BoolVar(&options.Grow, "penalty", false, "with --dry-run: also show the last block with --max, until it is forgotten")
	cmd.MarkFlagsMutuallyExclusive("force", "up-to")
	cmd.MarkFlagsMutuallyExclusive("force", "dry-run")
	cmd.MarkFlagsMutuallyExclusive("once-key", "dry-run")
	return cmd
}

// onceFlags adds the flags that prevent a repeated call from being counted again.
func onceFlags(cmd *cobra.Command, options *client.Request) *cobra.Command {
	cmd.Flags().StringVar(&options.OnceKey, "once-key", "", "`key` of this piece of work: a repetition gets the same reply and is not counted")
	spanVar(cmd, &options.OnceTTL, "once-ttl", 0, "how long --once-key is remembered, such as 10m or 1d")
	cmd.MarkFlagsRequiredTogether("once-key", "once-ttl")
	return cmd
}

// policyLast reports whether args are keys without limits, followed by a policy.
func policyLast(args []string) bool {
	isLimit := func(arg string) bool { return strings.HasPrefix(arg, "@") || strings.Contains(arg, "/") }
	return slices.IndexFunc(args, isLimit) == len(args)-1 && strings.HasPrefix(args[len(args)-1], "@")
}

type decide struct {
	ask     func(*client.Client, context.Context, client.Request) (client.Result, error)
	words   words
	options *client.Request // the request whose options are set by flags
	upTo    bool            // whether the command has --up-to
	dry     bool            // whether --dry-run was given
}

type words struct {
	allowed, denied string // beginning of the sentence
	after           string // text after the number of units that an allowed call leaves
}

var (
	taken   = words{"allowed", "denied ", ""}
	peeked  = words{"would be allowed", "would be denied", " after it"} // with --dry-run
	charged = words{"charged", "blocked, not charged", ""}              // with --force
)

func (a *app) decisionCommand(cmd *cobra.Command, d *decide) *cobra.Command {
	var costs []string
	var policy, upTo string
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		step := 2 // distance between keys
		if policy != "" {
			step = 1
		}
		for i := 0; i < len(args); i += step {
			if args[i] == "" {
				return emptyKey(example(cmd), i/step+1, (len(args)+step-1)/step)
			}
		}
		switch {
		case policy != "" && len(args) == 0:
			return wrongUse("ratelimit "+cmd.Name()+" --policy calc calc:{a} consumer9:{a}", "a policy needs its keys")
		case policy != "":
			return nil
		case len(args) < 2:
			return wrongUse(example(cmd), "%s needs a key and its limit, not %s",
				cmd.Name(), plural(len(args), "argument"))
		case len(args) > 2 && policyLast(args):
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
		req, words, question, command := *d.options, d.words, d.ask, cmd.Name()
		if req.Force {
			words = charged
		}
		if d.dry {
			words, question, command = peeked, (*client.Client).Peek, command+" --dry-run"
		}
		if req.Grow && !d.dry {
			return wrongUse("ratelimit take user:42 100/m --dry-run --penalty", "--penalty is for --dry-run")
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
		res, err := ask(cmd.Context(), a, func(ctx context.Context, c *client.Client) (client.Result, error) { return question(c, ctx, req) })
		if err != nil {
			return a.withArguments(err, command, req)
		}
		if a.json {
			a.printJSON(remembered(req, res))
		} else {
			a.printf("%s\n", sentence(words, req, res))
			if !res.Allowed {
				words.after = "" // a denied call charges no key
			}
			for i, each := range res.Each {
				one := client.Result{
					Allowed: each.Allowed, Limit: each.Limit, Remaining: each.Remaining, RetryAfter: each.RetryAfter, ResetAfter: each.ResetAfter,
				}
				a.printf("%s: %s\n", visible(req.Keys[i]), sentence(words, client.Request{Force: req.Force, Costs: []int64{costOf(req, i)}}, one))
			}
		}
		for i, grown := range res.Grown {
			if !a.json && grown.Length > 0 {
				a.printf("%s: the last penalty was %s long, forgotten in %s\n", visible(req.Keys[i]), human(grown.Length), human(grown.Forgotten))
			}
		}
		return differs(!res.Allowed)
	}
	cmd.Flags().StringSliceVar(&costs, "cost", nil, "cost: one `number` for all keys, or one for each (default 1)")
	cmd.Flags().BoolVar(&d.options.Each, "each", false, "also show what the limit of each key says by itself")
	if d.upTo {
		cmd.Flags().StringVar(&upTo, "up-to", "", "in place of --cost: take as many units as fit, up to this `number`, from all keys")
		cmd.MarkFlagsMutuallyExclusive("cost", "up-to")
	}
	cmd.Flags().StringVar(&policy, "policy", "", "`name` of a deployed policy; all arguments are its keys")
	completePolicies(cmd, a.deployedPolicies)
	return a.jsonFlag(a.serverFlags(cmd))
}

// ask makes one call on a new connection.
func ask[T any](ctx context.Context, a *app, call func(context.Context, *client.Client) (T, error)) (result T, err error) {
	rdb, s, err := a.connect(ctx)
	if err != nil {
		return result, err
	}
	defer func() { _ = rdb.Close() }()
	c, err := client.New(rdb, client.WithTimeout(s.Options.ReadTimeout))
	if err != nil {
		return result, err
	}
	ctx, cancel := s.deadline(ctx)
	defer cancel()
	return call(ctx, c)
}

// deadline returns a context that limits the whole call, including connecting, to the read timeout.
func (s servers) deadline(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, s.Options.ReadTimeout)
}

// costOf returns the cost of a key, by its index.
func costOf(req client.Request, index int) int64 {
	switch len(req.Costs) {
	case 0:
		return 1
	case 1:
		return req.Costs[0]
	}
	return req.Costs[index]
}

func sentence(w words, req client.Request, res client.Result) string {
	var line strings.Builder
	word := w.denied
	if res.Allowed {
		word = w.allowed
	}
	if req.UpTo && res.Allowed {
		word = fmt.Sprintf("%s %s of %s", word, grouped(res.Taken), grouped(req.Costs[0]))
	}
	of := " of " + grouped(res.Limit)
	if res.Remaining > res.Limit { // of a guarantee and a pool, more may be left than the guarantee holds
		of = ""
	}
	fmt.Fprintf(&line, "%s  %s%s left", word, grouped(res.Remaining), of)
	if len(req.Keys) > 1 {
		limit := req.Limits[0] // one policy for all keys
		if len(req.Limits) == len(req.Keys) {
			limit = req.Limits[res.Index-1]
		}
		fmt.Fprintf(&line, " for %s (%s)", visible(req.Keys[res.Index-1]), limit)
	}
	if res.Allowed {
		line.WriteString(w.after)
	}
	switch {
	case res.RetryAfter == client.Never && costOf(req, res.Index-1) <= res.Limit:
		line.WriteString(" · never: the cost is more than the limit ever leaves to this class of calls")
	case res.RetryAfter == client.Never:
		line.WriteString(" · never: the cost is more than the limit ever holds")
	case !res.Allowed && res.RetryAfter > 0: // 0 is possible with --up-to 0
		fmt.Fprintf(&line, " · try again in %s", human(res.RetryAfter))
	case res.RetryAfter > 0 && req.Force:
		fmt.Fprintf(&line, " · room for one in %s", human(res.RetryAfter))
	case res.RetryAfter > 0:
		fmt.Fprintf(&line, " · go ahead in %s", human(res.RetryAfter))
	}
	if res.ResetAfter > 0 {
		fmt.Fprintf(&line, " · full again in %s", human(res.ResetAfter))
	} else if res.Limit > 0 && res.Remaining >= res.Limit {
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

// rememberedReply is a decision that also says what is remembered of each key's last block that grows. The
// gateway has no such call.
type rememberedReply struct {
	replyjson.Decision
	Grown []grownReply `json:"grown,omitempty"`
}

// grownReply is what is remembered of a key; 0 and 0 if nothing is.
type grownReply struct {
	Key              string `json:"key"`
	LengthMS         int64  `json:"length_ms"`
	ForgottenAfterMS int64  `json:"forgotten_after_ms"`
}

// remembered returns the JSON of res, the result of a take or a peek.
func remembered(req client.Request, res client.Result) rememberedReply {
	r := rememberedReply{Decision: replyjson.Of(req, res)}
	for i, grown := range res.Grown {
		r.Grown = append(r.Grown, grownReply{Key: req.Keys[i], LengthMS: grown.Length.Milliseconds(), ForgottenAfterMS: grown.Forgotten.Milliseconds()})
	}
	return r
}
