package client_test

import (
	"fmt"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/ratelimit-functions/ratelimit/client"
)

// An observation names the policies of a call, never its other limits, its keys, or a name that no
// server has confirmed.
func TestObserverNamesPolicies(t *testing.T) {
	h, rdb := &heard{}, &fake{}
	c := newClient(t, rdb, client.WithFallback(client.FailOpen), client.WithObserver(h.observer()))
	ctx := t.Context()
	allow := func(limits ...client.Limit) func() {
		return func() {
			req := client.Request{Limits: limits}
			for i := range limits {
				req.Keys = append(req.Keys, fmt.Sprintf("secret%d", i))
			}
			_, _ = c.Take(ctx, req)
		}
	}
	decided, refused := integers(1, 10, 9, 0, 1, 1), answered("RATELIMIT NOPOLICY no such policy")
	for i, tt := range []struct {
		call  func()
		reply any
		err   error
		want  string
	}{
		{allow(perDay), decided, nil, ""},
		{allow("@api"), nil, refused, ""},
		{allow("@api"), nil, redis.ErrPoolTimeout, ""}, // no server has confirmed yet that this policy exists
		{allow("@api"), decided, nil, "api"},
		{allow("@api"), nil, redis.ErrPoolTimeout, "api"},
		{allow("@api", perDay), decided, nil, "api"},
		{allow("@calc", "@api", "@calc"), decided, nil, "calc,api"},
		{func() { _, _ = c.Peek(ctx, client.For("secret", "@jobs")) }, integers(0, 10, 0, 5, 1, 1), nil, "jobs"},
		{func() { _, _ = c.Refund(ctx, client.For("secret", "@api", 1)) }, decided, nil, "api"},
		{func() { _, _ = c.Lease("secret", "@lease", "").Acquire(ctx) }, decided, nil, "lease"},
		{func() { _, _ = c.Lease("secret", "@lease", "").Release(ctx) }, int64(1), nil, ""},
		{func() { _, _ = c.Reset(ctx, "@api") }, int64(1), nil, ""},
	} {
		rdb.reply, rdb.err = tt.reply, tt.err
		tt.call()
		if len(h.calls) != i+1 || h.calls[i].Policy != tt.want {
			t.Fatalf("call %d: %+v, want the policy %q", i, h.calls[len(h.calls)-1], tt.want)
		}
	}
}

// An observation names the class of a call under a policy, never a class that no server has accepted, and
// not more than 256 of them.
func TestObserverNamesClasses(t *testing.T) {
	h, rdb := &heard{}, &fake{}
	c := newClient(t, rdb, client.WithFallback(client.FailOpen), client.WithObserver(h.observer()))
	take := func(limit client.Limit, class string) func() {
		return func() { _, _ = c.Take(t.Context(), withClass(one("secret", limit), class)) }
	}
	l := c.Lease("secret", "@lease", "")
	l.Class = "batch"
	decided, refused := integers(1, 10, 9, 0, 1, 1), answered("RATELIMIT BADARGS no such class")
	for i, tt := range []struct {
		call  func()
		reply any
		err   error
		want  string
	}{
		{take(perDay, "batch"), decided, nil, ""},
		{take("@api", "bulk"), nil, refused, ""},
		{take("@api", ""), decided, nil, ""},
		{take("@api", "bulk"), nil, refused, ""},
		{take("@api", "batch"), nil, redis.ErrPoolTimeout, ""},
		{take("@api", "batch"), decided, nil, "batch"},
		{take("@api", "batch"), nil, redis.ErrPoolTimeout, "batch"},
		{take("@other", "batch"), nil, refused, ""},
		{func() { _, _ = c.Peek(t.Context(), withClass(one("secret", "@api"), "critical")) }, decided, nil, "critical"},
		{func() { _, _ = c.Refund(t.Context(), withClass(one("secret", "@api", 1), "batch")) }, decided, nil, ""},
		{func() { _, _ = l.Acquire(t.Context()) }, decided, nil, "batch"},
		{func() { _, _ = l.Renew(t.Context()) }, decided, nil, ""},
	} {
		rdb.reply, rdb.err = tt.reply, tt.err
		tt.call()
		if len(h.calls) != i+1 || h.calls[i].Class != tt.want {
			t.Fatalf("call %d: %+v, want the class %q", i, h.calls[len(h.calls)-1], tt.want)
		}
	}
	rdb.reply, rdb.err = decided, nil
	h.calls = nil
	for i := range 300 {
		take("@any", fmt.Sprint("c", i))()
	}
	take("@any", "c0")()
	named := 0
	for _, call := range h.calls {
		if call.Class != "" {
			named++
		}
	}
	if named != 256-3+1 { // batch, critical and the lease's are known
		t.Errorf("%d calls name their class", named)
	}
}
