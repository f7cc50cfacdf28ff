package client_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/ratelimit-functions/ratelimit/client"
)

var classes = []error{
	typed("bad_limit"), typed("bad_cost"), typed("bad_keys"), typed("bad_args"), typed("bad_state"), typed("no_policy"),
	typed("cross_slot"), client.ErrNotDeployed, typed("no_permission"), client.ErrUnavailable, client.ErrOutcomeUnknown,
	typed("bad_reply"),
}

// wantClasses checks that err matches the classes in want and no other class. It also checks that
// err matches ErrMisconfigured if, and only if, want contains one of the first seven classes.
func wantClasses(t *testing.T, name string, err error, want ...error) {
	t.Helper()
	misconfigured := slices.ContainsFunc(want, func(w error) bool { return slices.Contains(classes[:7], w) })
	if errors.Is(err, client.ErrMisconfigured) != misconfigured {
		t.Errorf("%s: errors.Is(%v) is %v\n%v", name, client.ErrMisconfigured, !misconfigured, err)
	}
	for _, class := range classes {
		matches := is(err, class)
		should := false
		for _, w := range want {
			should = should || w == class
		}
		if matches != should {
			t.Errorf("%s: errors.Is(%v) is %v, want %v\n%v", name, class, matches, should, err)
		}
	}
}

// In a bubble, because a call repeats TRYAGAIN until its timeout.
func TestErrorReplies(t *testing.T) { synctest.Test(t, testErrorReplies) }

func testErrorReplies(t *testing.T) {
	for _, tt := range []struct {
		reply   string
		class   error
		code    string
		unknown bool // the error is also ErrOutcomeUnknown
	}{
		{`RATELIMIT BADLIMIT "100/x": the unit of the period "x" is none of ms, s, m, h, d`, typed("bad_limit"), "BADLIMIT", false},
		{`RATELIMIT BADCOST "-1": no`, typed("bad_cost"), "BADCOST", false},
		{`RATELIMIT BADKEYS no`, typed("bad_keys"), "BADKEYS", false},
		{`RATELIMIT BADARGS no`, typed("bad_args"), "BADARGS", false},
		{`RATELIMIT BADSTATE no`, typed("bad_state"), "BADSTATE", false},
		{`RATELIMIT NOPOLICY no`, typed("no_policy"), "NOPOLICY", false},
		{`RATELIMIT FUTURE reason`, nil, "FUTURE", false},
		{`ERR Function not found`, client.ErrNotDeployed, "ERR", false},
		{"ERR unknown command `fcall`, with args beginning with: `ratelimit_take`", client.ErrNotDeployed, "ERR", false},
		{`CROSSSLOT Keys in request don't hash to the same slot`, typed("cross_slot"), "CROSSSLOT", false},
		{`NOPERM this user has no permissions to run the 'fcall' command`, typed("no_permission"), "NOPERM", false},
		{`ERR The user executing the script can't run this command or subcommand script: ratelimit_take, on @user_function:9.`, typed("no_permission"), "ERR", true},
		{`ERR ACL failure in script: User bob has no permissions to run the 'get' command`, typed("no_permission"), "ERR", true},
		{`NOAUTH Authentication required.`, typed("no_permission"), "NOAUTH", false},
		{`WRONGPASS invalid username-password pair or user is disabled.`, typed("no_permission"), "WRONGPASS", false},
		{`READONLY You can't write against a read only replica.`, client.ErrUnavailable, "READONLY", false},
		{`OOM command not allowed when used memory > 'maxmemory'.`, client.ErrUnavailable, "OOM", false},
		{`BUSY Redis is busy running a script. You can only call FUNCTION KILL or SHUTDOWN NOSAVE.`, client.ErrUnavailable, "BUSY", false},
		{`LOADING Redis is loading the dataset in memory`, client.ErrUnavailable, "LOADING", false},
		{`MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.`, client.ErrUnavailable, "MASTERDOWN", false},
		{`NOREPLICAS Not enough good replicas to write.`, client.ErrUnavailable, "NOREPLICAS", false},
		{`CLUSTERDOWN Hash slot not served`, client.ErrUnavailable, "CLUSTERDOWN", false},
		{`TRYAGAIN Multiple keys request during rehashing of slot`, client.ErrUnavailable, "TRYAGAIN", false},
		{`MOVED 3300 127.0.0.1:7001`, client.ErrUnavailable, "MOVED", false},
		{`ASK 3300 127.0.0.1:7001`, client.ErrUnavailable, "ASK", false},
		{`MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist to disk.`, client.ErrUnavailable, "MISCONF", false},
		{`ERR max number of clients reached`, client.ErrUnavailable, "ERR", false},
		{`ERR wrong number of arguments for 'fcall' command`, typed("bad_args"), "ERR", false},
		{`ERR Bad number of keys provided`, typed("bad_args"), "ERR", false},
		{`ERR Number of keys can't be greater than number of args`, typed("bad_args"), "ERR", false},
		{`ERR Number of keys can't be negative`, typed("bad_args"), "ERR", false},
		{`ERR Can not execute a script with write flag using *_ro command.`, client.ErrNotDeployed, "ERR", false},
		{`ERR something new`, nil, "ERR", true},
		{`BUSYKEY of a command in the function`, nil, "BUSYKEY", true},
	} {
		_, err := newClient(t, &fake{err: answered(tt.reply), sent: true}).Allow(t.Context(), "user:42", "100/x")
		var e *client.Error
		if !errors.As(err, &e) {
			t.Errorf("%s: not an *Error: %v", tt.reply, err)
			continue
		}
		if e.Code != tt.code || e.Op != "take" || len(e.Keys) != 1 || e.Keys[0] != "user:42" || e.Err != answered(tt.reply) {
			t.Errorf("%s: fields %q %q %q %v", tt.reply, e.Code, e.Op, e.Keys, e.Err)
		}
		if !strings.HasPrefix(err.Error(), `ratelimit: take "user:42": `) || !strings.Contains(err.Error(), strings.TrimPrefix(tt.reply, "RATELIMIT ")) || !strings.HasSuffix(err.Error(), e.Remedy) {
			t.Errorf("%s gives %s", tt.reply, err)
		}
		var want []error
		if tt.class != nil {
			want = append(want, tt.class)
		}
		if tt.unknown {
			want = append(want, client.ErrOutcomeUnknown)
		}
		wantClasses(t, tt.reply, err, want...)
		_, err = newClient(t, &fake{err: answered(tt.reply), sent: true}).Peek(t.Context(), client.For("user:42", "100/x"))
		if errors.Is(err, client.ErrOutcomeUnknown) {
			t.Errorf("of a peek: %v", err)
		}
	}
}

func TestConnectionErrors(t *testing.T) {
	dial := &net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}
	for _, tt := range []struct {
		name  string
		ends  bool // whether the context is canceled during the call
		err   error
		sent  bool
		class []error
		is    error
	}{
		{"refused", false, dial, false, []error{client.ErrUnavailable}, syscall.ECONNREFUSED},
		{"refused after a redirection", false, dial, true, []error{client.ErrUnavailable}, syscall.ECONNREFUSED},
		{"pool", false, redis.ErrPoolTimeout, true, []error{client.ErrUnavailable}, redis.ErrPoolTimeout},
		{"closed", false, redis.ErrClosed, false, []error{client.ErrUnavailable}, redis.ErrClosed},
		{"lost", false, io.EOF, true, []error{client.ErrUnavailable, client.ErrOutcomeUnknown}, io.EOF},
		{"failed before it was sent", false, io.EOF, false, []error{client.ErrUnavailable}, io.EOF},
		{"context done before it was sent", true, context.Canceled, false, []error{client.ErrUnavailable}, context.Canceled},
		{"context done meanwhile", true, os.ErrDeadlineExceeded, true, []error{client.ErrUnavailable, client.ErrOutcomeUnknown}, context.Canceled},
	} {
		ctx, cancel := context.WithCancel(t.Context())
		_, err := newClient(t, &fake{err: tt.err, sent: tt.sent, after: func(int) {
			if tt.ends {
				cancel()
			}
		}}).Allow(ctx, "k", "100/m")
		cancel()
		wantClasses(t, tt.name, err, tt.class...)
		if !is(err, tt.is) {
			t.Errorf("%s: errors.Is does not reach %v", tt.name, tt.is)
		}
		var e *client.Error
		if !errors.As(err, &e) || e.Code != "" {
			t.Errorf("%s: code %q, want none", tt.name, e.Code)
		}
	}
}

// An empty key is rejected before anything is sent, even if there is a prefix.
func TestEmptyKeys(t *testing.T) {
	ctx := t.Context()
	for _, prefix := range []string{"", "rl:"} {
		f := &fake{reply: integers(1, 5, 4, 0, 6000, 1)}
		c := newClient(t, f, client.WithPrefix(prefix))
		lease := c.Lease("", "concurrency 1 lease=1s", "id")
		for _, tt := range []struct {
			verb, keys string
			n          int // position of the empty key, from 1; the error contains it
			call       func() error
		}{
			{"take", `"` + prefix + `"`, 1, func() error { _, err := c.Allow(ctx, "", "5/m"); return err }},
			{"take", `"` + prefix + `a" "` + prefix + `" "` + prefix + `b"`, 2, func() error {
				_, err := c.Take(ctx, client.Request{Keys: []string{"a", ""}, Limits: []client.Limit{"5/m", "5/m"}, OnceKey: "b", OnceTTL: time.Second})
				return err
			}},
			{"peek", `"` + prefix + `"`, 1, func() error { _, err := c.Peek(ctx, client.For("", "5/m")); return err }},
			{"refund", `"` + prefix + `"`, 1, func() error { _, err := c.Refund(ctx, client.For("", "5/m", 1)); return err }},
			{"reset", `"` + prefix + `a" "` + prefix + `"`, 2, func() error { _, err := c.Reset(ctx, "a", ""); return err }},
			{"block", `"` + prefix + `"`, 1, func() error { return c.Block(ctx, client.Block{For: time.Second}, "") }},
			{"unblock", `"` + prefix + `"`, 1, func() error { _, err := c.Unblock(ctx, ""); return err }},
			{"override", `"` + prefix + `a" "` + prefix + `"`, 2, func() error { return c.Override(ctx, "5/m", time.Second, "a", "") }},
			{"override_end", `"` + prefix + `"`, 1, func() error { _, err := c.EndOverride(ctx, ""); return err }},
			{"usage", `"` + prefix + `"`, 1, func() error { _, err := c.Usage(ctx, ""); return err }},
			{"acquire", `"` + prefix + `"`, 1, func() error { _, err := lease.Acquire(ctx); return err }},
			{"renew", `"` + prefix + `"`, 1, func() error { _, err := lease.Renew(ctx); return err }},
			{"release", `"` + prefix + `"`, 1, func() error { _, err := lease.Release(ctx); return err }},
		} {
			err := tt.call()
			if want := fmt.Sprintf("ratelimit: %s %s: BADKEYS key %d is empty", tt.verb, tt.keys, tt.n); err == nil || !strings.HasPrefix(err.Error(), want) {
				t.Errorf("%v\nwant %s", err, want)
			}
			wantClasses(t, tt.verb, err, typed("bad_keys"))
		}
		if len(f.lines) != 0 {
			t.Errorf("sent %v", f.lines)
		}
	}
}

func TestBadReplies(t *testing.T) {
	for _, tt := range []struct {
		reply any
		shown string
	}{
		{nil, "nothing"},
		{"OK", `the text "OK"`},
		{int64(1), "1"},
		{3.5, "3.5"},
		{integers(1, 5, 4, 0, 6000), "[1 5 4 0 6000]"},
		{[]any{int64(1), int64(5), "4", int64(0), int64(6000), int64(1)}, `[1 5 "4" 0 6000 1]`},
		{[]any{int64(1), int64(5), nil, int64(0), int64(6000), int64(1)}, `[1 5 <nil> 0 6000 1]`},
		{integers(2, 5, 4, 0, 6000, 1), "[2 5 4 0 6000 1]"},
		{integers(0, 5, 4, -2, 6000, 1), "[0 5 4 -2 6000 1]"},
		{integers(1, -5, 4, 0, 6000, 1), "[1 -5 4 0 6000 1]"},
		{integers(1, 5, -4, 0, 6000, 1), "[1 5 -4 0 6000 1]"},
		{integers(1, 5, 4, 0, -6000, 1), "[1 5 4 0 -6000 1]"},
		{integers(1, 1<<53+1, 4, 0, 6000, 1), "[1 9007199254740993 4 0 6000 1]"},
		{integers(1, 5, 1<<53+1, 0, 6000, 1), "[1 5 9007199254740993 0 6000 1]"},
		{integers(1, 5, 4, 0, 6000, 0), "[1 5 4 0 6000 0]"},
		{integers(1, 5, 4, 0, 6000, 2), "[1 5 4 0 6000 2]"},
		{strings.Repeat("é", 400), `the text "` + strings.Repeat("é", 45) + "..."},
	} {
		c := newClient(t, &fake{reply: tt.reply})
		_, err := c.Allow(t.Context(), "k", "5/m")
		if err == nil || !strings.Contains(err.Error(), "ratelimit_take returned "+tt.shown+", want ") {
			t.Errorf("%v: %v\nwant in it %s", tt.reply, err, tt.shown)
		}
		wantClasses(t, fmt.Sprint(tt.reply), err, typed("bad_reply"), client.ErrOutcomeUnknown)
		_, err = c.Peek(t.Context(), client.For("k", "5/m"))
		wantClasses(t, fmt.Sprint("peek ", tt.reply), err, typed("bad_reply"))
	}
	for _, tt := range []struct {
		verb, key string
		want      string
		call      func(*client.Client) error
		replies   []any
	}{
		{"refund", ` "k"`, "an array of at least 6 integers", func(c *client.Client) error { _, err := c.Refund(t.Context(), client.For("k", "5/m", 1)); return err },
			[]any{nil, int64(1), integers(1, 5, 4, 0, 6000), integers(1, 5, 4, 0, 6000, 2)}},
		{"acquire", ` "k"`, "an array of at least 6 integers", func(c *client.Client) error { _, err := c.Lease("k", "x", "").Acquire(t.Context()); return err },
			[]any{nil, int64(1), integers(1, 5, 4, 0, 6000), integers(1, 5, 4, 0, 6000, 2)}},
		{"renew", ` "k"`, "an array of at least 6 integers", func(c *client.Client) error { _, err := c.Lease("k", "x", "").Renew(t.Context()); return err },
			[]any{nil, int64(1), integers(1, 5, 4, 0, 6000)}},
		{"release", ` "k"`, "a count from 0 to 1", func(c *client.Client) error { _, err := c.Lease("k", "x", "").Release(t.Context()); return err },
			[]any{nil, "1", int64(-1), int64(2), integers(1)}},
		{"reset", ` "k"`, "a count from 0 to 1", func(c *client.Client) error { _, err := c.Reset(t.Context(), "k"); return err },
			[]any{nil, "1", int64(-1), int64(2), integers(1)}},
		{"unblock", ` "k"`, "a count from 0 to 1", func(c *client.Client) error { _, err := c.Unblock(t.Context(), "k"); return err },
			[]any{nil, "1", int64(-1), int64(2), integers(1)}},
		{"block", ` "k"`, "a count from 1 to 1", func(c *client.Client) error { return c.Block(t.Context(), client.Block{For: time.Second}, "k") },
			[]any{nil, "1", int64(-1), int64(0), int64(2), integers(1)}},
		{"override", ` "k"`, "a count from 1 to 1", func(c *client.Client) error { return c.Override(t.Context(), "5/m", time.Second, "k") },
			[]any{nil, "1", int64(-1), int64(0), int64(2), integers(1)}},
		{"override_end", ` "k"`, "a count from 0 to 1", func(c *client.Client) error { _, err := c.EndOverride(t.Context(), "k"); return err },
			[]any{nil, "1", int64(-1), int64(2), integers(1)}},
		{"usage", ` "k"`, "usage in fields and values", func(c *client.Client) error { _, err := c.Usage(t.Context(), "k"); return err },
			[]any{
				nil, int64(1), []any{}, integers(1, 2), usageReply()[1:], usageReply("allowed", nil), usageReply("denied", "2"), usageReply("cost", int64(-1)), usageReply("last_ms", int64(1<<53+1)),
				usageReply("series", nil), usageReply("series", "none"), usageReply("series", integers(1, 2, 3)),
				usageReply("series", []any{integers(1, 2)}), usageReply("series", []any{integers(1, 2, -3)}), usageReply("series", []any{integers(1, 1<<53+1, 3)}),
			}},
		{"info", "", "version, contract, build_id and policies", func(c *client.Client) error { _, err := c.Info(t.Context()); return err },
			[]any{
				nil, "0.1.0", []any{}, infoReply()[1:], infoReply("version", nil), infoReply("contract", "1"), infoReply("build_id", int64(1)),
				infoReply("policies", nil), infoReply("policies", integers(1)), infoReply("shadow_denied", []any{"export"}),
				infoReply("shadow_denied", []any{"export", "3"}), infoReply("shadow_denied", []any{int64(3), int64(3)}), infoReply("shadow_denied", "export"),
				infoReply("policy_calls", "calc"), infoReply("policy_calls", []any{"calc"}), infoReply("policy_calls", []any{[]any{"calc", int64(1)}}),
				infoReply("policy_calls", []any{integers(1, 2, 3)}), infoReply("policy_calls", []any{[]any{"calc", int64(1), int64(-1)}}),
				infoReply("policy_calls", []any{[]any{"calc", int64(1), int64(1<<53 + 1)}}), infoReply("policy_calls", []any{[]any{"calc", int64(1), int64(2), int64(50)}}),
				infoReply("class_calls", "calc"), infoReply("class_calls", []any{"calc"}), infoReply("class_calls", []any{[]any{"calc"}}), infoReply("class_calls", []any{[]any{"calc", "batch", int64(1)}}),
				infoReply("class_calls", []any{[]any{"calc", int64(1), int64(1), int64(1)}}), infoReply("class_calls", []any{[]any{"calc", "batch", int64(1), int64(-1)}}),
				infoReply("borrow_calls", []any{[]any{"calc", int64(1), int64(1)}}), infoReply("borrow_calls", []any{integers(1, 1, 1, 1)}), infoReply("borrow_calls", []any{[]any{"calc", int64(1), int64(1), int64(1<<53 + 1)}}),
			}},
	} {
		for _, reply := range tt.replies {
			f := &fake{reply: reply}
			err := tt.call(newClient(t, f))
			classes := []error{typed("bad_reply")}
			if tt.verb != "usage" && tt.verb != "info" {
				classes = append(classes, client.ErrOutcomeUnknown)
			}
			if err == nil || !strings.HasPrefix(err.Error(), "ratelimit: "+tt.verb+tt.key+": ratelimit_"+tt.verb+" returned ") || !strings.Contains(err.Error(), ", want "+tt.want) {
				t.Errorf("%s takes %v: %v", tt.verb, reply, err)
			}
			wantClasses(t, tt.verb, err, classes...)
			if len(f.lines) != 1 {
				t.Errorf("%s: %d commands sent, want one: a bad reply is not asked for again", tt.verb, len(f.lines))
			}
		}
	}
}

// The client rejects a limit that has the name of an option: the server would read the next limit
// as that option's value.
func TestOptionAsLimit(t *testing.T) {
	for _, word := range []client.Limit{"COST", "cost", "UpTo", "Once", "TRACK"} {
		f := &fake{reply: integers(1, 5, 4, 0, 1, 1)}
		_, err := newClient(t, f).Take(t.Context(), client.Request{Keys: []string{"k"}, Limits: []client.Limit{"5/m", word, "0"}})
		want := `ratelimit: take "k": BADLIMIT "` + string(word) + `" is the name of an option, not a limit; give one such as 100/m`
		if err == nil || err.Error() != want || len(f.lines) != 0 {
			t.Errorf("%v, %d commands sent\nwant %s, none sent", err, len(f.lines), want)
		}
		wantClasses(t, string(word), err, typed("bad_limit"))
	}
}

// A request that the server would read as a different call is not sent.
func TestNotSent(t *testing.T) {
	ctx := t.Context()
	once := client.Request{Keys: []string{"k"}, Limits: []client.Limit{"5/m"}, OnceKey: "o", OnceTTL: time.Minute}
	noTime, negative, noKey := once, once, once
	upTo := client.Request{Keys: []string{"k", "l"}, Limits: []client.Limit{"5/m", "5/m"}, Costs: []int64{1, 2}, UpTo: true}
	force := client.Request{Keys: []string{"k"}, Limits: []client.Limit{"5/m"}, Costs: []int64{2}, Force: true}
	forceUpTo := force
	forceUpTo.UpTo = true
	upToNone := upTo
	upToNone.Costs = nil
	noTime.OnceTTL, negative.OnceTTL, noKey.OnceKey = 0, -time.Second, ""
	request := func(ask func(*client.Client, context.Context, client.Request) (client.Result, error), req client.Request) func(*client.Client) error {
		return func(c *client.Client) error { _, err := ask(c, ctx, req); return err }
	}
	for _, tt := range []struct {
		call func(*client.Client) error
		want string
	}{
		{request((*client.Client).Take, noTime), `take "k" "o": BADARGS OnceTTL is 0s for OnceKey "o"; give how long the key holds, 1ms or more, such as a minute`},
		{request((*client.Client).Take, negative), `take "k" "o": BADARGS OnceTTL is -1s for OnceKey "o"; give how long the key holds, 1ms or more, such as a minute`},
		{request((*client.Client).Take, noKey), `take "k": BADARGS OnceTTL is 1m0s and there is no OnceKey; give both, or neither`},
		{request((*client.Client).Peek, once), `peek "k": BADARGS peek has no OnceKey, but got "o"; take it out of the request`},
		{request((*client.Client).Refund, noTime), `refund "k" "o": BADARGS OnceTTL is 0s for OnceKey "o"; give how long the key holds, 1ms or more, such as a minute`},
		{request((*client.Client).Peek, force), `peek "k": BADARGS peek has no Force; take it out of the request`},
		{request((*client.Client).Refund, force), `refund "k": BADARGS refund has no Force; take it out of the request`},
		{request((*client.Client).Take, forceUpTo), `take "k": BADARGS Force and UpTo are both set; Force takes all units, UpTo those that fit; set one`},
		{func(c *client.Client) error { return c.Wait(ctx, force) }, `take "k": BADARGS Force is set, but a call with it never waits; call Take`},
		{request((*client.Client).Take, upTo), `take "k" "l": BADARGS UpTo is given with the costs [1 2]; give one, the most to take from every key`},
		{request((*client.Client).Peek, upToNone), `peek "k" "l": BADARGS UpTo is given with the costs []; give one, the most to take from every key`},
		{request((*client.Client).Refund, upTo), `refund "k" "l": BADARGS refund has no UpTo; take it out of the request, and give as Costs how many units were taken`},
		{func(c *client.Client) error { return c.Block(ctx, client.Block{For: 0}, "k") }, `block "k": BADARGS a block of 0s; give a time above 0, or lift blocks with Unblock`},
		{func(c *client.Client) error { return c.Block(ctx, client.Block{For: -time.Hour}, "k") }, `block "k": BADARGS a block of -1h0m0s; give a time above 0, or lift blocks with Unblock`},
		{func(c *client.Client) error { return c.Override(ctx, "5/m", 0, "k") }, `override "k": BADARGS an override of 0s; give a time above 0, or end overrides with EndOverride`},
	} {
		f := &fake{reply: integers(1, 5, 4, 0, 1, 1)}
		err := tt.call(newClient(t, f))
		var e *client.Error
		if !errors.As(err, &e) || err.Error() != "ratelimit: "+tt.want || len(f.lines) != 0 || e.Code != "BADARGS" {
			t.Errorf("%v, %d commands sent\nwant %s, none sent", err, len(f.lines), tt.want)
		}
		wantClasses(t, tt.want, err, typed("bad_args"))
	}
}

// The error from a call that makes no decision says whether the call took effect, not whether it
// was counted.
func TestWordsOfOtherCalls(t *testing.T) {
	for _, tt := range []struct {
		err  error
		sent bool
		want string
	}{
		{io.EOF, true, "sent, but the reply was lost; it took effect once or not at all (EOF)"},
		{io.EOF, false, "no reply, nothing was changed (EOF)"},
		{redis.ErrPoolTimeout, false, "no connection, nothing was changed (redis: connection pool timeout)"},
	} {
		c := newClient(t, &fake{err: tt.err, sent: tt.sent})
		_, err := c.Unblock(t.Context(), "k")
		if want := `ratelimit: unblock "k": ` + tt.want; err == nil || err.Error() != want {
			t.Errorf("%v\nwant %s", err, want)
		}
	}
}

// An error shows at most three keys, and 200 bytes of each.
func TestErrorNamesFewKeys(t *testing.T) {
	_, err := newClient(t, &fake{err: answered("ERR x"), sent: true}).Reset(t.Context(), "a", strings.Repeat("b", 300), "c", "d", "e")
	if want := `ratelimit: reset "a" "` + strings.Repeat("b", 200) + `..." "c" and 2 more: the server answered: ERR x; whether it took effect is not known`; err == nil || err.Error() != want {
		t.Errorf("%v\nwant %s", err, want)
	}
}

// The server counts the OnceKey and the UsageKey among the keys, so the client itself counts those that are limited.
func TestCountsOfLimitedKeys(t *testing.T) {
	c := newClient(t, &fake{})
	for _, req := range []client.Request{
		{Keys: []string{"a"}, Limits: []client.Limit{"3/m", "5/h"}, OnceKey: "once", OnceTTL: time.Minute},
		{Keys: []string{"a"}, Limits: []client.Limit{"3/m", "5/h"}, UsageKey: "usage"},
	} {
		_, err := c.Take(t.Context(), req)
		if want := `: BADKEYS 1 keys and 2 limits; give one limit for each key`; err == nil || !strings.HasSuffix(err.Error(), want) {
			t.Errorf("%v\nwant %s", err, want)
		}
		wantClasses(t, "a key too few", err, typed("bad_keys"))
	}
}
