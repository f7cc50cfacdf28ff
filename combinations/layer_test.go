package combinations

import (
	"context"
	"slices"
	"sync"

	"github.com/ratelimit-functions/ratelimit/client"
)

// layers are what users may put around a Client. They change nothing.
var layers = map[string]func(client.Limiter) client.Limiter{
	"counts": func(next client.Limiter) client.Limiter { return &counts{next: next, tenants: map[string]tally{}} },
	"copies": func(next client.Limiter) client.Limiter { return copies{next} },
}

// counts counts the decisions for each tenant, who is named by the first key.
type counts struct {
	next    client.Limiter
	mu      sync.Mutex
	tenants map[string]tally
}

type tally struct{ allowed, denied, failed int }

func (t tally) add(res client.Result, err error) tally {
	switch {
	case err != nil:
		t.failed++
	case res.Allowed:
		t.allowed++
	default:
		t.denied++
	}
	return t
}

func (c *counts) Unwrap() client.Limiter { return c.next }

func (c *counts) Take(ctx context.Context, req client.Request) (client.Result, error) {
	res, err := c.next.Take(ctx, req)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.tenants[req.Keys[0]] = c.tenants[req.Keys[0]].add(res, err)
	return res, err
}

// copies passes a copy of each request on, and overwrites the copy after the call.
type copies struct{ next client.Limiter }

func (c copies) Unwrap() client.Limiter { return c.next }

func (c copies) Take(ctx context.Context, req client.Request) (client.Result, error) {
	req.Keys, req.Limits, req.Costs = slices.Clone(req.Keys), slices.Clone(req.Limits), slices.Clone(req.Costs)
	defer func() {
		for i := range req.Keys {
			req.Keys[i] = "overwritten"
		}
		for i := range req.Limits {
			req.Limits[i] = "overwritten"
		}
		for i := range req.Costs {
			req.Costs[i] = -1
		}
	}()
	return c.next.Take(ctx, req)
}

// surround puts the user's layers of the plan around client i.
func (s *scenario) surround(i int) {
	s.limiters[i], s.waits[i], s.counters[i] = s.clients[i], s.clients[i].Wait, nil
	for _, name := range s.plan.Layers {
		s.limiters[i] = layers[name](s.limiters[i])
		if c, ok := s.limiters[i].(*counts); ok {
			s.counters[i] = append(s.counters[i], c)
		}
	}
	if s.plan.Layers != nil {
		var err error
		s.waits[i], err = client.WaitFunc(s.limiters[i])
		must(err)
	}
}

// passesLayers reports whether the calls of a step pass through a user's layers.
func (s *scenario) passesLayers(st *step) bool {
	return s.plan.Layers != nil && slices.Contains(find("user's layers").with, st.verb)
}

// counted checks what the layers counted for the calls of a step, of which callers were told all: each
// layer counts the same, and for takes, each call as its caller was told.
func (s *scenario) counted(st *step, all []outcome) {
	if !s.passesLayers(st) {
		return
	}
	first := s.counters[st.client][0]
	for tenant, n := range first.tenants {
		for _, c := range s.counters[st.client] {
			if c.tenants[tenant] != n {
				s.broke("layers see the same", "of %s, one layer counted %+v, another %+v", tenant, n, c.tenants[tenant])
			}
		}
	}
	var want tally
	for _, o := range all {
		want = want.add(o.res, o.err)
	}
	if got := first.tenants[st.keys[0]]; st.verb == "take" && got != want {
		s.broke("a layer sees each decision once", "the layer counted %+v, callers were told of %+v", got, want)
	}
	for _, c := range s.counters[st.client] {
		clear(c.tenants)
	}
}
