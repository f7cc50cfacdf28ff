package client_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"reflect"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/ratelimit-functions/ratelimit/client"
)

// outages are errors that mean that no server decided.
var outages = map[string]error{
	"no connection": redis.ErrPoolTimeout, "a lost reply": io.EOF, "loading": answered("LOADING Redis is loading the dataset in memory"),
	"no library": answered("ERR Function not found"), "no rights": answered("NOPERM no"), "another error": answered("ERR something else"),
}

func TestFallback(t *testing.T) {
	ctx := t.Context()
	one := client.Request{Keys: []string{"k"}, Limits: []client.Limit{"5/m"}}
	upTo := one
	upTo.Costs, upTo.UpTo = []int64{3}, true
	upToNone := upTo
	upToNone.Costs = []int64{0}
	open, closed := client.FailOpen, client.FailClosed
	let := client.Result{Allowed: true, Source: "fallback", Index: 1}
	letThree := let
	letThree.Taken = 3
	deny := client.Result{RetryAfter: time.Second, Source: "fallback", Index: 1}
	for _, tt := range []struct {
		name     string
		client   client.Fallback
		call     client.Fallback
		req      client.Request
		want     client.Result
		wantsErr bool
	}{
		{"none", client.Fallback{}, client.Fallback{}, one, client.Result{}, true},
		{"an error, said so", client.ReturnError, client.Fallback{}, one, client.Result{}, true},
		{"open", open, client.Fallback{}, one, let, false},
		{"open, up to", open, client.Fallback{}, upTo, letThree, false},
		{"open, up to none", open, client.Fallback{}, upToNone, client.Result{Source: "fallback", Index: 1}, false},
		{"closed", closed, client.Fallback{}, one, deny, false},
		{"closed, up to", closed, client.Fallback{}, upTo, deny, false},
		{"the call's own, open", closed, open, one, let, false},
		{"the call's own, closed", open, closed, one, deny, false},
		{"the call's own, an error", open, client.ReturnError, one, client.Result{}, true},
		{"the call's own, and no client's", client.Fallback{}, open, one, let, false},
	} {
		for why, err := range outages {
			var opts []client.Option
			if tt.client != (client.Fallback{}) {
				opts = append(opts, client.WithFallback(tt.client))
			}
			c := newClient(t, &fake{err: err, sent: true}, opts...)
			tt.req.Fallback = tt.call
			got, gotErr := c.Take(ctx, tt.req)
			name := tt.name + ", " + why
			if tt.wantsErr {
				if !errors.Is(gotErr, err) {
					t.Errorf("%s: %+v, %v", name, got, gotErr)
				}
				continue
			}
			var e *client.Error
			if !errors.As(got.Err, &e) || !errors.Is(got.Err, err) || e.Op != "take" {
				t.Errorf("%s: says %v, which is not the reason", name, got.Err)
			}
			got.Err = nil
			wantResult(t, name, got, gotErr, tt.want)
		}
	}
}

// A call with invalid arguments returns an error, regardless of the fallback.
func TestNobodyIsLetInByARefusedArgument(t *testing.T) {
	ctx := t.Context()
	local := client.LocalFallback(1)
	for _, f := range []client.Fallback{client.FailOpen, client.FailClosed, local} {
		for reply, class := range map[string]error{
			"RATELIMIT BADLIMIT no": typed("bad_limit"), "RATELIMIT BADCOST no": typed("bad_cost"), "RATELIMIT BADKEYS no": typed("bad_keys"),
			"RATELIMIT BADARGS no": typed("bad_args"), "RATELIMIT BADSTATE no": typed("bad_state"), "RATELIMIT NOPOLICY no": typed("no_policy"),
			"CROSSSLOT no": typed("cross_slot"),
		} {
			c := newClient(t, &fake{err: answered(reply), sent: true}, client.WithFallback(f))
			if got, err := c.Allow(ctx, "k", "5/m"); !is(err, class) || !reflect.DeepEqual(got, client.Result{}) {
				t.Errorf("%s: %+v, %v", reply, got, err)
			}
		}
		// Without a server, the client returns the errors that it can detect without parsing a
		// limit.
		down := newClient(t, &fake{err: redis.ErrPoolTimeout}, client.WithFallback(f))
		for _, tt := range []struct {
			req  client.Request
			want string
		}{
			{client.Request{Limits: []client.Limit{"5/m"}}, "BADKEYS there is no key"},
			{client.Request{Keys: []string{""}, Limits: []client.Limit{"5/m"}}, "BADKEYS key 1 is empty"},
			{client.Request{Keys: []string{"k", "k"}, Limits: []client.Limit{"5/m", "5/m"}}, `BADKEYS the key "k" is given twice`},
			{client.Request{Keys: []string{"k"}}, "BADLIMIT there is no limit"},
			{client.Request{Keys: []string{"k"}, Limits: []client.Limit{""}}, "BADLIMIT limit 1 is empty"},
			{client.Request{Keys: []string{"k"}, Limits: []client.Limit{"once"}}, `BADLIMIT "once" is the name of an option`},
			{client.Request{Keys: []string{"k", "l"}, Limits: []client.Limit{"5/m"}}, "BADKEYS 2 keys and 1 limits"},
			{client.Request{Keys: []string{"k"}, Limits: []client.Limit{"5/m", "@p"}}, "BADKEYS 1 keys and 2 limits"},
			{client.Request{Keys: []string{"k"}, Limits: []client.Limit{"5/m"}, Costs: []int64{-1}}, "BADCOST -1"},
			{client.Request{Keys: []string{"k"}, Limits: []client.Limit{"5/m"}, Costs: []int64{1<<53 + 1}}, "BADCOST 9007199254740993"},
			{client.Request{Keys: []string{"k"}, Limits: []client.Limit{"5/m"}, Costs: []int64{1, 2}}, "BADARGS 2 costs for 1 keys"},
		} {
			got, err := down.Take(ctx, tt.req)
			if err == nil || !strings.Contains(err.Error(), tt.want) || !reflect.DeepEqual(got, client.Result{}) {
				t.Errorf("%+v: %+v, %v\nwant %s", tt.req, got, err, tt.want)
			}
		}
		policy := client.Request{Keys: []string{"k", "l"}, Limits: []client.Limit{"@p"}, Costs: []int64{0}}
		if got, err := down.Take(ctx, policy); f != local && (err != nil || got.Source != "fallback") {
			t.Errorf("a policy of two keys: %+v, %v", got, err)
		}
	}
}

// A call gets no fallback if its context is canceled at any time, or if the context's deadline has
// passed before the call. The caller of such a call no longer waits for a decision.
func TestNoFallbackForAContextThatEnded(t *testing.T) {
	expired, cancel := context.WithDeadline(t.Context(), time.Now().Add(-time.Hour))
	defer cancel()
	c := newClient(t, &fake{err: redis.ErrPoolTimeout}, client.WithFallback(client.FailOpen))
	if got, err := c.Allow(expired, "k", "5/m"); !errors.Is(err, context.DeadlineExceeded) || got.Allowed {
		t.Errorf("expired before: %+v, %v", got, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	c = newClient(t, &fake{err: io.EOF, sent: true, after: func(int) { cancel() }}, client.WithFallback(client.FailOpen))
	if got, err := c.Allow(ctx, "k", "5/m"); !errors.Is(err, context.Canceled) || got.Allowed {
		t.Errorf("cancelled meanwhile: %+v, %v", got, err)
	}
	// If the client's timeout ends the call, the fallback applies.
	c = newClient(t, &fake{hangs: true, err: io.EOF, sent: true}, client.WithFallback(client.FailOpen), client.WithTimeout(time.Millisecond))
	if got, err := c.Allow(t.Context(), "k", "5/m"); err != nil || !got.Allowed || !errors.Is(got.Err, context.DeadlineExceeded) {
		t.Errorf("expired meanwhile: %+v, %v", got, err)
	}
}

// Calls that do not take units have no fallback: nothing can replace their effect.
func TestNoFallbackOfOtherCalls(t *testing.T) {
	c := newClient(t, &fake{err: redis.ErrPoolTimeout}, client.WithFallback(client.FailOpen))
	for name, call := range everyCall(t.Context(), c, "k") {
		err := call()
		takes := name == "Allow" || name == "AllowN" || strings.HasPrefix(name, "Take") || name == "Wait"
		if takes == (err != nil) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A call may wait for the request of another call. If the client's timeout ends this wait, the
// fallback decides. If the call's own context ends it, the call returns the context's error.
func TestFallbackAfterWaitingForAnother(t *testing.T) {
	c := newClient(t, &fake{}, client.WithFallback(client.FailOpen), client.WithTimeout(time.Millisecond))
	got, err := client.TakeAfterWaiting(t.Context(), c, one("k", "5/m"))
	if err != nil || got.Source != "fallback" || !got.Allowed {
		t.Errorf("%+v, %v", got, err)
	}
	wantClasses(t, "waited", got.Err, client.ErrUnavailable)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if got, err := client.TakeAfterWaiting(ended, c, one("k", "5/m")); !errors.Is(err, context.Canceled) || got.Allowed {
		t.Errorf("its own context has ended: %+v, %v", got, err)
	}
}

// If the server accepts connections but never replies, callers that wait for a batch get the
// fallback. They get it even if the caller that requested the batch gives up early.
func TestFallbackOfThoseWhoWaitForABatch(t *testing.T) {
	c := open(t, "redis://"+blackHole(t), client.WithBatches(1000, time.Second), client.WithFallback(client.FailOpen), client.WithTimeout(bound))
	for range 5 {
		impatient, cancel := context.WithTimeout(t.Context(), bound/4)
		var all sync.WaitGroup
		all.Go(func() { _, _ = c.Allow(impatient, "k", wide) })
		for range 200 {
			all.Go(func() {
				if got, err := c.Allow(context.Background(), "k", wide); err != nil || !got.Allowed || got.Source != "fallback" {
					t.Errorf("%+v, %v", got, err)
				}
			})
		}
		all.Wait()
		cancel()
	}
}

// While a fallback decides, the client logs once a minute what that means for the limits, the
// number of decisions, and why no server decides and what to do. It uses the logger of LogTo or the
// default logger. LogTo's observer does not log these decisions again.
func TestFallbackLogs(t *testing.T) { synctest.Test(t, testFallbackLogs) }

func testFallbackLogs(t *testing.T) {
	var own, standard bytes.Buffer
	before := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(&standard, nil)))
	defer slog.SetDefault(before)
	for _, tt := range []struct {
		fallback client.Fallback
		text     string
	}{
		{client.FailOpen, "no rate limit applies: no server decides, and FailOpen allows every call"},
		{client.FailClosed, "every call with a rate limit is denied: no server decides, and FailClosed denies"},
		{client.LocalFallback(1), "this process decides on rate limits alone, with its share of each limit"},
	} {
		for reply, remedy := range map[string]string{
			"ERR Function not found": "deploy the library with: ratelimit deploy", "NOPERM no": "grant the user the rules", "LOADING": "try again later",
		} {
			for _, log := range []*bytes.Buffer{&standard, &own} {
				h := &heard{}
				opts := []client.Option{client.WithFallback(tt.fallback), client.WithObserver(h.observer())}
				if log == &own {
					opts = append(opts, client.WithObserver(client.LogTo(slog.New(slog.NewTextHandler(&own, nil)))))
				}
				c := newClient(t, &fake{err: answered(reply), sent: true}, opts...)
				for range 3 {
					must[client.Result](t)(c.Allow(t.Context(), "k", "5/m"))
				}
				time.Sleep(time.Minute)
				must[client.Result](t)(c.Allow(t.Context(), "k", "5/m"))
				got := log.String()
				if strings.Count(got, "\n") != 2 || strings.Count(got, tt.text) != 2 || !strings.Contains(got, "decisions=1 ") ||
					!strings.Contains(got, "decisions=3 ") || !strings.Contains(got, remedy) {
					t.Errorf("%s: logged %s", tt.text, got)
				}
				log.Reset()
				if len(h.calls) != 4 || h.calls[3].Err == nil {
					t.Errorf("observed %+v, want 4 decisions", h.calls)
				}
				if own.Len() > 0 || standard.Len() > 0 {
					t.Errorf("logged twice: %s %s", own.String(), standard.String())
				}
			}
		}
	}
}
