package combinations

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/ratelimit-functions/ratelimit/client"
	"github.com/ratelimit-functions/ratelimit/client/charge"
	"github.com/ratelimit-functions/ratelimit/client/httplimit"
	"github.com/ratelimit-functions/ratelimit/lua_test/model"
)

// handle is a hold or a charge: calls that took units, and calls that gave some back.
type handle struct {
	name string
	req  client.Request
	ids  []int64 // the exported calls
	ours int64   // units that the client had taken in advance
}

// late arms the faults of a step that affect the second call of a handle.
func (s *scenario) late(st *step) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults = append([]fault(nil), st.lateFaults...)
}

// checkHandle checks that a handle gave back only what it took, from each key.
func (s *scenario) checkHandle(h *handle) {
	a := s.account(h.ids...)
	for _, key := range h.req.Keys {
		if n := a.moved[s.plan.Prefix+key] + h.ours; n < 0 {
			s.broke("nobody is given back what was not charged", "%s: %d more units of %s were given back than taken", h.name, -n, key)
		}
	}
}

// inAdvance returns how many units of a call its client had taken in advance.
func inAdvance(res client.Result, req client.Request) int64 {
	if res.Source != "batch" {
		return 0
	}
	return costOf(req, 0)
}

// blockedNow reports whether a key of a request is blocked.
func (s *scenario) blockedNow(req client.Request) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, key := range req.Keys {
		if s.model.Blocked(s.plan.Prefix+key) > 0 {
			return true
		}
	}
	return false
}

func (s *scenario) hold(ctx context.Context, st *step, req client.Request) {
	c := s.clients[st.client]
	id, ctx := s.call(ctx)
	h, err := c.TakeEstimate(ctx, req)
	o := outcome{id: id, err: err}
	if err == nil {
		o.res = h.Result
	}
	s.judge(st, id, req, []outcome{o})
	if err != nil {
		return
	}
	s.late(st)
	all := &handle{name: "Hold.Settle", req: req, ids: []int64{id}, ours: inAdvance(o.res, req)}
	for range 2 {
		id, ctx := s.call(context.Background())
		_, err = h.Settle(ctx, st.actual)
		all.ids = append(all.ids, id)
		s.checkHandle(all)
	}
	if err != nil || !h.Result.Allowed || s.blockedNow(req) {
		return
	}
	a := s.account(all.ids...)
	for i, key := range req.Keys {
		spent, charged := a.moved[s.plan.Prefix+key], s.account(id).moved[s.plan.Prefix+key]
		if shadowed(req)[i] || s.isNever(req, i) || h.Result.Source == "batch" || s.plan.Batches {
			continue
		}
		if spent > st.actual || charged > 0 && st.actual <= costOf(req, i) && spent != st.actual {
			s.broke("a settled hold has cost what was used", "%s: %d units are charged, %d were used", key, spent, st.actual)
		}
	}
}

// charge runs a handler behind httplimit, which charges more, or gives units back.
func (s *scenario) charge(ctx context.Context, st *step, req client.Request) {
	id, ctx := s.call(ctx)
	opts := []httplimit.Option{httplimit.WithRequest(func(_ *http.Request, to *client.Request) error {
		*to = req
		return nil
	}), httplimit.WithOnError(func(*http.Request, error) {})}
	if st.penalty {
		opts = append(opts, httplimit.WithPenalty(st.span, 3*st.span, time.Minute))
	}
	m, err := httplimit.New(s.limiters[st.client], "web", req.Limits[0], httplimit.Header("Key"), opts...)
	must(err)
	served := false
	handler := m(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		served = true
		if c := charge.Of(r.Context(), "web"); c != nil {
			o := outcome{id: id, res: c.Result()}
			s.balance(st, req, s.account(id), func(i int) claim { return told(req, i, []outcome{o}) }, 1)
			s.corrections(st, &handle{name: "Charge", req: req, ids: []int64{id}, ours: inAdvance(c.Result(), req)}, c)
		}
	}))
	r := httptest.NewRequestWithContext(ctx, "GET", "/", nil)
	r.Header.Set("Key", "a")
	handler.ServeHTTP(httptest.NewRecorder(), r)
	if st.penalty {
		s.penalized(st, id, served)
	}
	s.counted(st, nil)
	if a := s.account(id); !served && a.charged > 0 && a.delivered != nil && a.delivered.reply[0] == int64(1) {
		s.broke("nobody is denied who was charged", "the handler was not called, and the server took %v", a.moved)
	}
}

// penalized checks that the middleware blocks at most once, and only what a server has denied.
func (s *scenario) penalized(st *step, id int64, served bool) {
	s.mu.Lock()
	denied, blocks := false, 0
	for _, x := range s.ledger[id] {
		switch {
		case x.Verb == model.Block:
			blocks++
			if served || !denied {
				s.mu.Unlock()
				s.broke("only denials are penalized", "a block, and served %v, denied %v", served, denied)
				s.mu.Lock()
			}
		case x.reason == "" && x.delivered && len(x.reply) > 0 && x.reply[0] == int64(0):
			denied = true
		}
	}
	s.mu.Unlock()
	if blocks > 1 {
		s.broke("a denial is one block", "%d blocks", blocks)
	}
	if blocks > 0 {
		s.forget(st)
	}
}

// corrections calls More, and then Refund until it succeeds.
func (s *scenario) corrections(st *step, h *handle, c *charge.Charge) {
	key := s.plan.Prefix + h.req.Keys[0]
	s.late(st)
	id, ctx := s.call(context.Background())
	n, err := c.More(ctx, st.actual)
	h.ids = append(h.ids, id)
	more := s.account(id)
	switch {
	case err == nil && n == 0 && st.actual > 0 && len(more.moved) > 0:
		s.broke("nobody is denied who was charged", "More returns 0, and the server took %v", more.moved)
	case err == nil && n > 0 && more.delivered == nil && s.plan.Fallback != "local": // a LocalFallback charges in the client
		s.broke("More is true", "More returns %d, and no server charged it", n)
	case err != nil && !unknown(err) && len(more.moved) > 0:
		s.broke("an error changes nothing", "More: %v, and the server took %v", err, more.moved)
	}
	if st.faultsAgain {
		s.late(st)
	}
	before := s.account(h.ids...).moved[key]
	back := max(1, st.actual)
	if before > 0 || n > 0 { // otherwise, only a fallback has allowed units, and no server gives them back
		back = min(before, back)
	}
	sure := n == st.actual || st.actual == 0
	var again []int64
	for range 3 {
		id, ctx := s.call(context.Background())
		err = c.Refund(ctx, back)
		h.ids, again = append(h.ids, id), append(again, id)
		s.checkHandle(h)
		if !unknown(err) {
			break
		}
	}
	given := -s.account(again...).moved[key]
	switch {
	case given > back:
		s.broke("a refund is executed once", "Refund of %d was called again after an unknown outcome, and %d were given back", back, given)
	case err == nil && given != back && sure && before > 0 && !s.blockedNow(h.req) && !shadowed(h.req)[0] && !s.plan.Batches:
		s.broke("what was charged is given back", "Refund(%d) succeeded, and %d units were given back", back, given)
	case err != nil && !unknown(err) && errors.Is(err, client.ErrMisconfigured) && given > 0:
		s.broke("an error changes nothing", "Refund: %v, and %d were given back", err, given)
	}
}
