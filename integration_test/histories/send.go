package histories

import (
	"context"
	"errors"
	"time"

	"github.com/ratelimit-functions/ratelimit/client"
	"github.com/ratelimit-functions/ratelimit/lua_test/model"
)

// sent is what a client returned for a call.
type sent struct {
	reply    string
	unknown  bool  // the call may have been executed
	executed bool  // the reply is known
	err      error // why there is no reply
	retry    int64 // retry_after_ms
}

// send makes a call with the Go client.
func send(ctx context.Context, c *client.Client, call model.Call) sent {
	span := time.Duration(call.SpanMS) * time.Millisecond
	var s sent
	var err error
	count := func(n int64, e error) { s.reply, err = text(call, n, ""), e }
	decided := func(r client.Result, e error) {
		s.reply, s.retry, err = decision(call, r), ms(r.RetryAfter), e
	}
	switch call.Verb {
	case model.Take:
		decided(c.Take(ctx, request(call)))
	case model.Peek:
		decided(c.Peek(ctx, request(call)))
	case model.Refund:
		decided(c.Refund(ctx, request(call)))
	case model.Acquire:
		decided(lease(c, call).Acquire(ctx))
	case model.Renew:
		decided(lease(c, call).Renew(ctx))
	case model.Release:
		held, e := lease(c, call).Release(ctx)
		if count(0, e); held {
			count(1, e)
		}
	case model.Reset:
		count(c.Reset(ctx, call.Keys...))
	case model.Block:
		if call.Extend {
			count(int64(len(call.Keys)), c.Block(ctx, client.Block{For: span, Extend: true}, call.Keys...))
		} else {
			count(int64(len(call.Keys)), c.Block(ctx, client.Block{For: span}, call.Keys...))
		}
	case model.Unblock:
		count(c.Unblock(ctx, call.Keys...))
	case model.Override:
		count(int64(len(call.Keys)), c.Override(ctx, client.Limit(call.Limits[0].String()), span, call.Keys...))
	case model.OverrideEnd:
		count(c.EndOverride(ctx, call.Keys...))
	case model.Usage:
		u, e := c.Usage(ctx, call.Keys[0])
		s.reply, err = counted(u), e
	}
	s.err = err
	e, _ := errors.AsType[*client.Error](err)
	switch {
	case err == nil:
		s.executed = true
	case errors.Is(err, client.ErrOutcomeUnknown):
		s.unknown = true
	case errors.Is(err, client.ErrMisconfigured) && e != nil: // the library's refusals
		s.executed, s.reply = true, text(call, nil, e.Code)
	}
	return s
}

func lease(c *client.Client, call model.Call) *client.Lease {
	return c.Lease(call.Keys[0], client.Limit(call.Limits[0].String()), call.Lease)
}

func request(call model.Call) client.Request {
	r := client.Request{
		Keys: call.Keys, Costs: call.Costs, UpTo: call.Upto, Each: call.Each, Force: call.Force,
		OnceKey: call.OnceKey, OnceTTL: time.Duration(call.OnceMS) * time.Millisecond, UsageKey: call.Usage,
	}
	for _, p := range call.Limits {
		r.Limits = append(r.Limits, client.Limit(p.String()))
	}
	return r
}

// repeatable returns what identifies the requests of a call that the client repeats if a reply is
// lost: a call with a request key, an acquire or a renew. For other calls it returns "".
func repeatable(call model.Call) string {
	switch {
	case call.OnceKey != "":
		return call.OnceKey
	case call.Verb == model.Acquire, call.Verb == model.Renew:
		return call.Verb + " " + call.Keys[0] + " " + call.Lease
	}
	return ""
}
