package combinations

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/ratelimit-functions/ratelimit/client"
	"github.com/ratelimit-functions/ratelimit/lua_test/model"
)

// heldNow returns how long the leases of a key are still held, in ms, by ID.
func (s *scenario) heldNow(key string) map[string]int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	s.outside(func() { s.sync(now) })
	return s.model.Leases(s.plan.Prefix + key)
}

// judgeLease checks what a caller of Acquire or Renew was told.
func (s *scenario) judgeLease(st *step, id int64, op string, res client.Result, err error) {
	if st.bad {
		s.judgeBad(st, id, op, err)
		return
	}
	s.mu.Lock()
	seen := s.seen[id]
	n := 1
	if st.crowd > 0 {
		n = max(st.crowd, len(seen))
	}
	granted := false // whether this call took the lease
	for _, x := range s.ledger[id] {
		granted = granted || x.Verb == model.Acquire && x.reason == "" && x.reply[0] == int64(1) && (len(x.reply) < 9 || x.reply[6] == int64(1))
	}
	s.mu.Unlock()
	if len(seen) != n || seen[0].Op != op {
		s.broke("each call is observed once", "%d calls of %s, observed %+v", n, op, seen)
	}
	left, held := s.heldNow(st.keys[0])[st.lease]
	a := s.account(id)
	shadow := res.Shadow != nil
	switch {
	case st.crowd > 0:
	case err == nil && a.delivered == nil:
		s.broke("Source is true", "%s succeeded without a reply", op)
	case err == nil && res.Allowed && !shadow && !held && st.slow == 0:
		s.broke("a granted lease is held", "%s: %+v", op, res)
	case err == nil && !res.Allowed && granted && held:
		s.broke("nobody is denied who was charged", "%s was denied, %+v, and the lease is held for %d ms", op, res, left)
	case err != nil && !unknown(err) && granted:
		s.broke("an error changes nothing", "%s: %v, and the lease was granted", op, err)
	}
}

// judgeLeaseWait checks that waiting callers got leases.
func (s *scenario) judgeLeaseWait(st *step, id int64, all []outcome) {
	if st.bad {
		s.judgeBad(st, id, "acquire", all[0].err)
		return
	}
	a := s.account(id)
	passed := 0
	for _, o := range all {
		if o.err == nil {
			passed++
		}
		if o.at > st.patience+2*timeout && !st.canceled {
			s.broke("a wait ends with its context", "it took %v, patience %v: %v", o.at, st.patience, o.err)
		}
	}
	s.mu.Lock()
	seen := s.seen[id]
	s.mu.Unlock()
	if len(seen) == 0 {
		s.broke("each call is observed once", "lease wait %v: no observation", all)
	}
	if a.executed < passed {
		s.broke("Source is true", "%d leases were acquired with %d commands", passed, a.executed)
	}
}

// leaseHold runs a function with Lease.Run. While the function runs and its context is not done,
// the lease is held on the server. Then a second caller waits for the place.
func (s *scenario) leaseHold(ctx context.Context, st *step) {
	c := s.clients[st.client]
	id, ctx := s.call(ctx)
	l := st.leaseOf(c, st.lease)
	ran := false
	err := l.Run(ctx, func(ctx context.Context) error {
		ran = true
		s.mu.Lock()
		var first *execution
		for _, x := range s.ledger[id] {
			if x.Verb == model.Acquire && x.delivered {
				first = x
			}
		}
		s.mu.Unlock()
		if first == nil || len(first.reply) > 6 && first.reply[6] == int64(0) {
			return nil // a shadow policy: the lease is not held
		}
		slices := 60
		for range slices {
			time.Sleep(max(time.Millisecond, st.span/time.Duration(slices)))
			if ctx.Err() != nil {
				return nil
			}
			if _, held := s.heldNow(st.keys[0])[st.lease]; !held {
				time.Sleep(2 * time.Millisecond)
				if ctx.Err() == nil {
					s.broke("a held lease is held", "the function of Lease.Run still runs, and the server does not hold the lease")
				}
				return nil
			}
		}
		return nil
	})
	if st.bad {
		s.judgeBad(st, id, "acquire", err)
		return
	}
	s.mu.Lock()
	seen := slices.Clone(s.seen[id])
	s.mu.Unlock()
	if len(seen) == 0 {
		s.broke("each call is observed once", "lease hold %v: no observation", err)
	}
	quiet := len(st.faults) == 0 && !st.outage && !st.canceled && !st.close
	if errors.Is(err, client.ErrLeaseLost) && quiet {
		s.broke("a held lease is held", "%v, and nobody took it", err)
	}
	if ran && err == nil {
		s.nudge(st)
	}
}

// nudge checks that a caller that waits for a lease is woken when the same client releases one.
func (s *scenario) nudge(st *step) {
	c := s.clients[st.client]
	const limit = client.Limit("concurrency 1 lease=30s")
	_, ctx := s.call(context.Background())
	first := c.Lease("{v}:one", limit, "first")
	if res, err := first.Acquire(ctx); err != nil || !res.Allowed {
		return
	}
	s.mu.Lock()
	slow := st.slow
	st.slow = 10 * time.Millisecond // the release comes while the waiter's first call is under way
	s.mu.Unlock()
	woken := make(chan time.Time, 1)
	go func() {
		_, ctx := s.call(context.Background())
		if err := c.Lease("{v}:one", limit, "second").Wait(ctx); err != nil {
			woken <- time.Time{}
			return
		}
		woken <- time.Now()
	}()
	time.Sleep(5 * time.Millisecond)
	s.mu.Lock()
	st.slow = 0
	s.mu.Unlock()
	if found, err := first.Release(ctx); err == nil && found {
		released := time.Now()
		if at := <-woken; !at.IsZero() && at.Sub(released) > 50*time.Millisecond {
			s.broke("a release wakes a waiter", "the waiter got the lease %v after the release", at.Sub(released))
		}
	} else {
		<-woken
	}
	_, _ = c.Reset(ctx, "{v}:one")
	s.mu.Lock()
	st.slow = slow
	s.mu.Unlock()
}
