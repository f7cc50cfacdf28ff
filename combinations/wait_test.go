package combinations

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/ratelimit-functions/ratelimit/client"
	"github.com/ratelimit-functions/ratelimit/lua_test/model"
)

// judgeWait checks what callers of Wait were told.
func (s *scenario) judgeWait(st *step, id int64, req client.Request, all []outcome) {
	if st.bad {
		s.judgeBad(st, id, "take", all[0].err)
		return
	}
	a := s.account(id)
	s.mu.Lock()
	seen := slices.Clone(s.seen[id])
	s.mu.Unlock()
	free := 0 // callers that a fallback allowed
	for _, x := range seen {
		if x.Op == model.Take && x.Outcome == "allowed" && (x.Source == "local" || x.Source == "fallback") {
			free++
		}
	}
	passed, doubtful := 0, 0
	for _, o := range all {
		switch {
		case o.err == nil:
			passed++
		case unknown(o.err) || strings.Contains(o.err.Error(), "could not be given back") || strings.Contains(o.err.Error(), "is kept for who asks again"):
			doubtful++
		}
		if o.at > st.patience+2*timeout && !st.canceled {
			s.broke("a wait ends with its context", "it took %v, patience %v: %v", o.at, st.patience, o.err)
		}
		var limited *client.Error
		if errors.Is(o.err, client.ErrLimited) && errors.As(o.err, &limited) && limited.RetryAfter == client.Never && st.meanwhile == nil && !s.neverFits(req) {
			s.broke("Never is true", "%v, but the limits have room for it", o.err)
		}
	}
	if len(all) == 1 {
		s.gotRoom(st, id, req, all[0])
	}
	if len(seen) == 0 {
		s.broke("each call is observed once", "wait %v: no observation", all)
	}
	s.balance(st, req, a, func(i int) claim {
		c := costOf(req, i)
		return claim{c * int64(max(0, passed-free)), c * int64(passed+doubtful)}
	}, len(all))
	if req.OnceKey != "" && len(all) == 1 {
		s.turn(st, id, req, all[0])
	}
}

// neverFits reports whether a call can never be allowed, according to the model now.
func (s *scenario) neverFits(req client.Request) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	c, m := s.peek(req), s.model.Clone()
	never := func() bool {
		reply, reason := m.Do(c)
		return reason == "BADLIMIT" || reason == "" && reply.([]any)[3] == int64(-1)
	}
	if never() {
		return true
	}
	if s.plan.Fallback == "local" { // a LocalFallback ignores overrides
		m.Do(model.Call{Verb: model.OverrideEnd, Keys: c.Keys})
		return never()
	}
	return false
}

// peek returns the call that asks for a request. s.mu must be held.
func (s *scenario) peek(req client.Request) model.Call {
	c := model.Call{Verb: model.Peek, Costs: req.Costs, Class: req.Class}
	if req.Floor > 0 {
		c.Floor = new(int64(req.Floor))
	}
	for _, key := range req.Keys {
		c.Keys = append(c.Keys, s.plan.Prefix+key)
	}
	for _, l := range req.Limits {
		c.Limits = append(c.Limits, s.policy(string(l)))
	}
	return c
}

// meanwhile starts the call that changes the key of a wait. The result waits for the call, and checks
// what it was told.
func (s *scenario) meanwhile(st *step) func() {
	s.room = time.Time{}
	other := st.meanwhile
	if other == nil {
		return func() {}
	}
	other.client, other.keys = st.client, st.keys[:1]
	if other.verb == "refund" {
		if other.texts = st.texts[:1]; size(st.texts[0]) > 1 {
			other.verb = "reset"
		}
	}
	c, req := s.clients[st.client], other.request()
	var id int64
	var op string
	var res client.Result
	var err error
	done := make(chan struct{})
	go func() {
		defer close(done)
		time.Sleep(st.after)
		var ctx context.Context
		id, ctx = s.call(context.Background())
		if other.verb == "refund" {
			res, err = c.Refund(ctx, req)
		} else {
			op, err = s.change(ctx, other, c)
		}
		s.forget(other)
		s.mark("change during a wait")
		s.mu.Lock()
		defer s.mu.Unlock()
		now := time.Now()
		s.outside(func() { s.sync(now) })
		if reply, reason := s.model.Clone().Do(s.peek(st.request())); err == nil && reason == "" && reply.([]any)[0] == int64(1) && reply.([]any)[3] == int64(0) {
			s.room = now
		}
	}()
	return func() {
		<-done
		if other.verb == "refund" {
			s.judgeRefund(other, id, req, res, err)
		} else {
			s.judgeCount(other, id, op, err)
		}
		delete(s.pools, pool{st.client, st.keys[0]})
	}
}

// gotRoom checks that a wait ends soon after its client has made room for it. A wait that already has its
// turn in the queue of a leaky_bucket keeps it.
func (s *scenario) gotRoom(st *step, id int64, req client.Request, o outcome) {
	s.mu.Lock()
	room := s.room
	turn := slices.ContainsFunc(s.ledger[id], func(x *execution) bool {
		return len(x.reply) > 0 && x.reply[0] == int64(1) && x.at.Before(room)
	})
	s.mu.Unlock()
	if room.IsZero() || turn || o.ended.Before(room) || req.OnceKey != "" || st.canceled || st.slow > 0 || len(st.faults) > 0 || st.outage || st.clock != 0 {
		return
	}
	if o.ended.Sub(room) > timeout {
		s.broke("a wait learns what its client changes", "the key had room, and the wait ended %v later: %v", o.ended.Sub(room), o.err)
	}
}

// turn is when a turn in a queue comes, until when the client repeats it, and the client.
type turn struct {
	at, until time.Time
	client    int
}

// turn checks that a wait with an OnceKey returns when its turn in the queue of a leaky_bucket
// comes, however often its client repeats it. The turn is set by the first call with the OnceKey, if its
// reply arrives: otherwise, the client does not know how old the reply is that it gets later.
func (s *scenario) turn(st *step, id int64, req client.Request, o outcome) {
	s.mu.Lock()
	for _, x := range s.ledger[id] {
		if x.reason == "" && x.delivered && !x.repeated && x.reply != nil && x.reply[0] == int64(1) && x.moved[s.plan.Prefix+req.Keys[0]] > 0 {
			s.turns[req.OnceKey] = turn{
				x.at.Add(duration(x.reply[3].(int64))), x.at.Add(req.OnceTTL - 2*time.Millisecond), st.client,
			}
		}
	}
	its, ok := s.turns[req.OnceKey]
	s.mu.Unlock()
	a := s.account(id)
	now, began, turn := time.Now(), time.Now().Add(-o.at), its.at
	if !ok || its.client != st.client || began.After(its.until) || a.delivered == nil || st.canceled || st.slow > 0 || len(st.faults) > 0 || st.clock != 0 || st.close || st.meanwhile != nil {
		return
	}
	switch late := now.Sub(turn); {
	case o.err == nil && a.repeated && late < -2*time.Millisecond:
		s.broke("a turn is a time", "the caller got its turn %v early", -late)
	case o.err == nil && a.repeated && now.Sub(began) > 2*time.Millisecond && late > 2*time.Millisecond:
		s.broke("a turn is a time", "the caller got its turn %v late", late)
	case o.err != nil && a.repeated && began.Add(st.patience).After(turn.Add(2*time.Millisecond)):
		s.broke("a turn is a time", "%v, but the turn comes %v after the call, which had %v", o.err, turn.Sub(began), st.patience)
	}
}
