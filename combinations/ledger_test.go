package combinations

import (
	"errors"
	"slices"
	"time"

	"github.com/ratelimit-functions/ratelimit/client"
	"github.com/ratelimit-functions/ratelimit/lua_test/model"
)

// account is what the server did for the commands of one exported call, or of several.
type account struct {
	moved     map[string]int64 // units taken from each key, less those given back
	lost      map[string]int64 // units taken by commands whose replies did not arrive
	executed  int              // commands that the server executed without an error
	delivered *execution       // the last reply that arrived, without an error
	repeated  bool             // whether ONCE repeated a reply
	denied    bool             // whether a reply that arrived was a denial
	charged   int              // commands that took units
}

func (s *scenario) account(ids ...int64) account {
	s.mu.Lock()
	defer s.mu.Unlock()
	a := account{moved: map[string]int64{}, lost: map[string]int64{}}
	for _, id := range ids {
		for _, x := range s.ledger[id] {
			if x.reason != "" {
				continue
			}
			a.executed++
			took := false
			for key, n := range x.moved {
				a.moved[key] += n
				took = took || n > 0
				if !x.delivered && n > 0 {
					a.lost[key] += n
				}
			}
			if took {
				a.charged++
			}
			a.repeated = a.repeated || x.repeated
			if x.delivered {
				a.delivered = x
				a.denied = a.denied || len(x.reply) > 0 && x.reply[0] == int64(0)
			}
		}
	}
	return a
}

// shadowed reports for each key of a request whether its limit may be a shadow policy's.
func shadowed(req client.Request) (all []bool) {
	for _, l := range req.Limits {
		all = append(all, slices.Repeat([]bool{shadows(string(l))}, size(string(l)))...)
	}
	return all
}

func costOf(req client.Request, i int) int64 {
	switch len(req.Costs) {
	case 0:
		return 1
	case 1:
		return req.Costs[0]
	}
	return req.Costs[i]
}

// claim is how many units of a key callers were told that the server took for them.
type claim struct {
	sure int64 // told as taken
	most int64 // sure, and the units of calls with an unknown outcome
}

// told adds up what callers were told about key i. free is whether a caller's units came from a
// fallback.
func told(req client.Request, i int, all []outcome) (c claim) {
	for _, o := range all {
		units := costOf(req, i)
		switch {
		case unknown(o.err) || unknown(o.res.Err):
			c.most += units
		case o.err == nil && o.res.Allowed && (o.res.Source == "server" || o.res.Source == "batch"):
			if req.UpTo {
				units = o.res.Taken
			}
			c.sure, c.most = c.sure+units, c.most+units
		}
	}
	return c
}

// judge checks what the callers of a take or a peek were told.
func (s *scenario) judge(st *step, id int64, req client.Request, all []outcome) {
	a := s.account(id)
	op := "take"
	if st.verb == "peek" {
		op = "peek"
	}
	if st.bad {
		s.judgeBad(st, id, op, all[0].err)
		return
	}
	s.observed(st, id, op, all)
	s.balance(st, req, a, func(i int) claim { return told(req, i, all) }, len(all))
	for _, o := range all {
		s.recalled(st, req, o)
	}
	if len(all) != 1 {
		return
	}
	o := all[0]
	switch x := a.delivered; {
	case o.err != nil && o.res.Source != "":
		s.broke("Source is true", "%+v with %v", o.res, o.err)
	case o.err != nil:
		if !unknown(o.err) && len(a.moved) > 0 {
			s.broke("an error changes nothing", "%v, and the server moved %v", o.err, a.moved)
		}
	case o.res.Source == "server" && x == nil:
		s.broke("Source is true", "%+v without a reply", o.res)
	case (o.res.Source == "memory" || o.res.Source == "batch") && a.executed > 0:
		s.broke("Source is true", "%+v after %d commands", o.res, a.executed)
	case (o.res.Source == "local" || o.res.Source == "fallback") && (x != nil || o.res.Err == nil):
		s.broke("Source is true", "%+v, but the server replied %v", o.res, x)
	case o.res.Source == "server" && !s.plan.Batches:
		if got, want := o.res.Allowed, x.reply[0].(int64) > 0; got != want {
			s.broke("the result is the reply", "%+v from %v", o.res, x.reply)
		}
		if got, want := o.res.RetryAfter, duration(x.reply[3].(int64)); got != want {
			s.broke("the result is the reply", "%+v from %v", o.res, x.reply)
		}
	}
}

// recalled checks a denial that a client remembered: the server denied the key a short time before, and
// the client has not changed the key since.
func (s *scenario) recalled(st *step, req client.Request, o outcome) {
	if o.err != nil || o.res.Source != "memory" {
		return
	}
	s.mu.Lock()
	last, ok := s.denied[s.plan.Prefix+req.Keys[0]]
	forgot := s.forgot[pool{st.client, req.Keys[0]}]
	s.mu.Unlock()
	if o.res.Allowed || !ok || time.Since(last.at) > remembered+slowest || last.executed <= forgot {
		s.broke("Source is true", "%+v is remembered; the last denial of %s is command %d, %v ago; the client forgot it at command %d",
			o.res, req.Keys[0], last.executed, time.Since(last.at), forgot)
	}
}

func duration(ms int64) time.Duration {
	switch {
	case ms < 0:
		return client.Never
	case ms > int64(1<<63-1)/1000000:
		return 1<<63 - 1
	}
	return time.Duration(ms) * time.Millisecond
}

// balance checks that the server took what callers were told: not less than they know of, and not
// more than that and the units of unknown outcomes.
func (s *scenario) balance(st *step, req client.Request, a account, told func(i int) claim, callers int) {
	if st.verb == "peek" && len(a.moved) > 0 {
		s.broke("a peek takes nothing", "%v", a.moved)
	}
	shadow := shadowed(req)
	s.judged = a.moved
	for i, key := range req.Keys {
		took, c := a.moved[s.plan.Prefix+key], told(i)
		if st.verb == "peek" {
			continue
		}
		p := pool{st.client, key}
		if s.plan.Batches && len(req.Keys) == 1 && req.OnceKey == "" && req.UsageKey == "" && !req.Force && !req.Each && !req.UpTo {
			if shadow[i] { // in one of the builds, and only the other's units are taken in advance
				continue
			}
			s.idle = s.pools[p] == 0
			free := s.pools[p] + took - a.lost[s.plan.Prefix+key] - c.sure
			queued := false
			s.outside(func() { queued = s.model.Queued(s.plan.Prefix + key) })
			switch {
			case free < 0:
				s.broke("units on the server = units reported as taken", "%s: callers were told of %d units; the server took %d, and %d were left of earlier ones",
					key, c.sure, took, s.pools[p])
			case queued: // a client drops all but one unit of a request that a leaky_bucket decided; see WithBatches
			case free > 0 && a.denied && st.verb == "take" && st.slow == 0 && s.pools[p] == 0 && callers > 1 && a.lost[s.plan.Prefix+key] == 0 && len(st.faults) == 0:
				s.broke("nobody is denied who was charged", "%s: %d units were taken in advance for nobody, and callers were denied; they were told of %d", key, free, c.sure)
			}
			s.pools[p] = free
			if a.lost[s.plan.Prefix+key] > 0 && c.most == c.sure {
				s.broke("an unknown outcome stays unknown", "%s: %d units were taken with lost replies, and no caller was told", key, a.lost[s.plan.Prefix+key])
			}
			continue
		}
		switch {
		case req.OnceKey != "":
			if most := costOf(req, i); took > most {
				s.broke("ONCE moves units once", "%s: %d units were taken, %d asked", key, took, most)
			}
			if a.lost[s.plan.Prefix+key] > 0 && a.delivered == nil && c.most == 0 {
				s.broke("an unknown outcome stays unknown", "%s: %d units were taken, no reply arrived, and no caller was told", key, took)
			}
			if !a.repeated && !req.Force && !st.lends() && !shadow[i] && took < c.sure/int64(callers) {
				s.broke("units on the server = units reported as taken", "%s: callers were told of %d units, the server took %d", key, c.sure, took)
			}
		case took > c.most:
			s.broke("units on the server = units reported as taken", "%s: callers were told of at most %d units, the server took %d", key, c.most, took)
		case took < c.sure && !req.Force && !st.lends() && !shadow[i]:
			s.broke("units on the server = units reported as taken", "%s: callers were told of %d units, the server took %d", key, c.sure, took)
		}
	}
}

// observed checks that each exported call was observed once, with its source and error.
func (s *scenario) observed(st *step, id int64, op string, all []outcome) {
	s.mu.Lock()
	seen := slices.Clone(s.seen[id])
	s.mu.Unlock()
	if len(seen) != len(all) {
		s.broke("each call is observed once", "%d calls of %s (%v), %d observations", len(all), op, all, len(seen))
		return
	}
	for _, o := range all {
		i := slices.IndexFunc(seen, func(x observation) bool {
			return x.Op == op && (o.err != nil || x.Source == o.res.Source) && errors.Is(x.Err, errorOf(o)) &&
				(x.Outcome == "allowed") == (o.err == nil && o.res.Allowed)
		})
		if i < 0 {
			s.broke("each call is observed once", "%s: no observation of %+v %v among %+v", op, o.res, o.err, seen)
			return
		}
		seen = slices.Delete(seen, i, i+1)
	}
}

func errorOf(o outcome) error {
	if o.err != nil {
		return o.err
	}
	return o.res.Err
}

// judgeRefund checks what a caller of Refund was told.
func (s *scenario) judgeRefund(st *step, id int64, req client.Request, res client.Result, err error) {
	if st.bad {
		s.judgeBad(st, id, "refund", err)
		return
	}
	a := s.account(id)
	s.observed(st, id, "refund", []outcome{{id: id, res: res, err: err}})
	shadow := shadowed(req)
	for i, key := range req.Keys {
		back, cost := -a.moved[s.plan.Prefix+key], costOf(req, i)
		switch {
		case shadow[i]:
		case back < 0 || back > cost:
			s.broke("a refund is executed once", "%s got %d back, asked %d", key, back, cost)
		case err == nil && res.Allowed && back != cost && !a.repeated && !s.isNever(req, i):
			s.broke("a refund gives back what it says", "%s got %d back, asked %d: %+v", key, back, cost, res)
		case (err != nil && !unknown(err) || err == nil && !res.Allowed) && back != 0:
			s.broke("a refund gives back what it says", "%s got %d back: %+v %v", key, back, res, err)
		}
	}
}

// isNever reports whether the limit of a key has a count of 0.
func (s *scenario) isNever(req client.Request, i int) bool {
	for _, l := range req.Limits {
		p := policyOf(s.loaded[0], string(l))
		if i < len(p.Limits) {
			return p.Limits[i].Rates[0].N == 0
		}
		i -= len(p.Limits)
	}
	return false
}

// judgeCount checks the error of a call that returns a count or usage.
func (s *scenario) judgeCount(st *step, id int64, op string, err error) {
	if st.bad {
		s.judgeBad(st, id, op, err)
		return
	}
	a := s.account(id)
	s.mu.Lock()
	seen := s.seen[id]
	s.mu.Unlock()
	if len(seen) != 1 || seen[0].Op != op || !errors.Is(seen[0].Err, err) {
		s.broke("each call is observed once", "%s %v: observed %+v", op, err, seen)
	}
	switch {
	case a.executed > 1:
		s.broke("a call is executed at most once", "%s was executed %d times", op, a.executed)
	case err == nil && a.delivered == nil:
		s.broke("Source is true", "%s succeeded without a reply", op)
	case err != nil && !unknown(err) && a.executed > 0 && op != model.Usage:
		s.broke("an error changes nothing", "%s: %v, and the server executed it", op, err)
	}
}

// judgeBad checks a call with a wrong argument: it returns an error, changes nothing, and is observed
// once.
func (s *scenario) judgeBad(st *step, id int64, op string, err error) {
	a := s.account(id)
	s.mu.Lock()
	seen := s.seen[id]
	s.mu.Unlock()
	if st.keys[0] == tooLong && a.executed == 0 && len(seen) == 1 && (seen[0].Source == "fallback" || seen[0].Source == "local") {
		return // only a server refuses such a key, and after an outage, the breaker still asks none
	}
	if err == nil || a.executed > 0 {
		s.broke("bad input changes nothing", "%s with %q and cost %v: %v, %d commands were executed", st.verb, st.keys, st.costs, err, a.executed)
	}
	if len(seen) != 1 || seen[0].Op != op || !errors.Is(seen[0].Err, err) {
		s.broke("each call is observed once", "%s with bad input, %v: observed %+v", st.verb, err, seen)
	}
}
