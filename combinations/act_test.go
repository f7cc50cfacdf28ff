package combinations

import (
	"context"
	"strings"
	"sync"
	"time"

	"github.com/ratelimit-functions/ratelimit/client"
)

// request returns the request of a step.
func (st *step) request() client.Request {
	req := client.Request{Keys: st.keys, Costs: st.costs, UpTo: st.upTo, Force: st.force, Each: st.each, Grow: st.grow}
	for _, text := range st.texts {
		req.Limits = append(req.Limits, client.Limit(text))
	}
	st.share(&req)
	if st.once != "" {
		req.OnceKey, req.OnceTTL = st.once, time.Duration(st.onceMS)*time.Millisecond
	}
	if st.track || tracks(st.texts) {
		req.UsageKey = "{v}:usage"
	}
	return req
}

// share sets the FLOOR, CLASS, BORROW and PAID of a request. The costs of a refund say who paid.
func (st *step) share(req *client.Request) {
	if st.floor != nil {
		req.Floor = int(*st.floor)
	}
	req.Class, req.Borrow = st.class, st.lends()
	if st.verb == "refund" && req.Borrow && !st.bad {
		cost := int64(1)
		if len(st.costs) > 0 {
			cost = st.costs[0]
		}
		req.Costs = []int64{cost, cost}
		if st.paid == 2 {
			req.Costs[0] = 0
		}
	}
}

// leaseOf returns the lease of a step with this ID.
func (st *step) leaseOf(c *client.Client, id string) *client.Lease {
	l := c.Lease(st.keys[0], client.Limit(st.texts[0]), id)
	l.Class = st.class
	if st.floor != nil {
		l.Floor = int(*st.floor)
	}
	return l
}

func tracks(texts []string) bool {
	for _, text := range texts {
		if policyOf(0, text).Track {
			return true
		}
	}
	return false
}

// act makes the exported calls of a step, and checks what each of them reports.
func (s *scenario) act(st *step) {
	c := s.clients[st.client]
	req := st.request()
	ctx, cancel := s.context(st)
	defer cancel()
	switch st.verb {
	case "take", "wait", "peek", "acquire", "lease wait":
		s.crowd(ctx, st, req)
	case "refund":
		id, ctx := s.call(ctx)
		res, err := c.Refund(ctx, req)
		s.judgeRefund(st, id, req, res, err)
		s.forget(st)
	case "hold":
		s.hold(ctx, st, req)
	case "charge":
		s.charge(ctx, st, req)
	case "renew":
		id, ctx := s.call(ctx)
		res, err := c.Lease(st.keys[0], req.Limits[0], st.lease).Renew(ctx)
		s.judgeLease(st, id, "renew", res, err)
	case "release":
		id, ctx := s.call(ctx)
		_, err := c.Lease(st.keys[0], req.Limits[0], st.lease).Release(ctx)
		s.judgeCount(st, id, "release", err)
	case "lease hold":
		s.leaseHold(ctx, st)
	default:
		s.onKeys(ctx, st, c)
	}
}

// onKeys makes a call without a limit, or an override.
func (s *scenario) onKeys(ctx context.Context, st *step, c *client.Client) {
	id, ctx := s.call(ctx)
	verb, err := s.change(ctx, st, c)
	s.judgeCount(st, id, verb, err)
	for _, key := range st.keys {
		delete(s.pools, pool{st.client, key})
	}
	if st.verb != "usage" {
		s.forget(st)
	}
}

// change makes the call of onKeys. It returns the name that an observer is told, and the call's error.
func (s *scenario) change(ctx context.Context, st *step, c *client.Client) (verb string, err error) {
	verb = st.verb
	switch st.verb {
	case "block":
		b := client.Block{For: st.span, Extend: st.extend}
		if st.grow {
			b.Max, b.Forget = 3*st.span, time.Minute
		}
		err = c.Block(ctx, b, st.keys...)
	case "unblock":
		_, err = c.Unblock(ctx, st.keys...)
	case "override":
		err = c.Override(ctx, client.Limit(st.texts[0]), st.span, st.keys...)
	case "end override":
		verb = "override_end"
		_, err = c.EndOverride(ctx, st.keys...)
	case "reset":
		_, err = c.Reset(ctx, st.keys...)
	case "usage":
		_, err = c.Usage(ctx, st.keys[0])
	}
	return verb, err
}

// forget notes that a client has forgotten the denials of the step's keys.
func (s *scenario) forget(st *step) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, key := range st.keys {
		s.forgot[pool{st.client, key}] = s.executed
	}
}

// outcome is what one caller was told.
type outcome struct {
	id    int64
	res   client.Result
	err   error
	at    time.Duration // how long the call took
	ended time.Time
}

// crowd makes the call of a step once or, for a crowd, several times at the same time. Two
// thirds of a crowd call again at once.
func (s *scenario) crowd(ctx context.Context, st *step, req client.Request) {
	n := max(1, st.crowd)
	id, ctx := s.call(ctx) // all callers share the number: their round trips may be shared, too
	s.mu.Lock()
	s.world.crowd = id
	s.mu.Unlock()
	all := make([]outcome, 0, n)
	var mu sync.Mutex
	var wg sync.WaitGroup
	began := time.Now()
	for i := range n {
		wg.Go(func() {
			for range st.calls(i) {
				o := s.one(ctx, st, req, id)
				mu.Lock()
				all = append(all, o)
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	s.lasted = time.Since(began)
	s.summarize(all)
	s.counted(st, all)
	switch st.verb {
	case "take", "peek":
		s.judge(st, id, req, all)
		if st.verb == "take" {
			s.admit(st, req, all)
		}
		if st.warning {
			s.warned(st, req, all[0])
		}
	case "wait":
		s.judgeWait(st, id, req, all)
	case "acquire":
		for _, o := range all[:1] {
			s.judgeLease(st, id, "acquire", o.res, o.err)
		}
	case "lease wait":
		s.judgeLeaseWait(st, id, all)
	}
}

// summarize notes what the callers of a crowd were told.
func (s *scenario) summarize(all []outcome) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, o := range all {
		switch {
		case len(all) == 1:
		case o.err != nil:
			s.note("                after %v: %v", o.at, o.err)
		default:
			s.note("                after %v: allowed %v, taken %d, from the %v, %v", o.at, o.res.Allowed, o.res.Taken, o.res.Source, o.res.Err)
		}
	}
}

// calls returns how often caller i of a step calls. A crowd that meets a Close goes on until then.
func (st *step) calls(i int) int {
	switch {
	case st.crowd == 0:
		return 1
	case st.close && st.slow > 0:
		return 12
	}
	return 1 + i%3
}

// one makes the call of a step once. Plain calls go through Allow or AllowN.
func (s *scenario) one(ctx context.Context, st *step, req client.Request, id int64) outcome {
	c, limiter, began := s.clients[st.client], s.limiters[st.client], time.Now()
	o := outcome{id: id}
	plain := len(req.Keys) == 1 && len(req.Limits) == 1 && req.OnceKey == "" && req.UsageKey == "" && !req.Force && !req.Each && len(req.Costs) < 2
	switch st.verb {
	case "take":
		switch {
		case s.plan.Layers != nil:
			o.res, o.err = limiter.Take(ctx, req)
		case plain && !req.UpTo && len(req.Costs) == 1:
			o.res, o.err = c.AllowN(ctx, req.Keys[0], req.Limits[0], req.Costs[0])
		case plain && !req.UpTo:
			o.res, o.err = c.Allow(ctx, req.Keys[0], req.Limits[0])
		default:
			o.res, o.err = c.Take(ctx, req)
		}
	case "peek":
		req.OnceKey, req.OnceTTL, req.UsageKey = "", 0, ""
		o.res, o.err = c.Peek(ctx, req)
	case "wait":
		if plain && len(req.Costs) == 1 {
			o.err = s.waits[st.client](ctx, client.For(req.Keys[0], req.Limits[0], req.Costs[0]))
		} else {
			o.err = s.waits[st.client](ctx, req)
		}
	case "acquire":
		o.res, o.err = st.leaseOf(c, st.lease).Acquire(ctx)
	case "lease wait":
		o.err = st.leaseOf(c, "").Wait(ctx)
	}
	o.at, o.ended = time.Since(began), time.Now()
	return o
}

// tooLong is a key with one byte more than the library takes. Only a server refuses it.
var tooLong = "{v}:" + strings.Repeat("k", 65533)

// spoil gives a step an argument that every verb refuses.
func (s *step) spoil(d *draw) {
	s.bad = true
	if s.verb != "hold" && d.chance(3) { // a hold of 0 units asks no server
		s.keys = append([]string{tooLong}, s.keys[1:]...)
		return
	}
	switch s.verb {
	case "block", "override":
		s.span = 0
	case "take", "wait", "refund", "peek", "hold":
		if d.chance(2) {
			s.costs = []int64{-1}
			return
		}
		s.keys = append([]string{""}, s.keys[1:]...)
	case "charge":
		s.costs = []int64{-1}
	default:
		s.keys = append([]string{""}, s.keys[1:]...)
	}
}
