package client

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"
)

// longestDenial is the longest time that a denial may be remembered.
const longestDenial = time.Second

// WithDenialMemory makes the client remember that a key was denied, until its RetryAfter has
// passed, but at most for longest. longest must be above 0 and at most 1 s. A call with the same
// key and limit is then denied without a request if it costs at least as much as the denied call.
// So denied callers that retry put no load on the server. The Result of such a call has the Source
// "memory", and its RetryAfter and ResetAfter count down. A call with a higher cost gets the
// RetryAfter of the denied call, and may be denied again after that time.
//
// Reset, Refund, Block, Unblock, Override and EndOverride in this client clear the memory of their
// keys immediately. Changes by other processes take effect here within longest, as do a redeployed
// policy, the end of an override, and a change to the server's clock.
//
// The memory applies to calls with one key, without Force, Borrow, an OnceKey or a UsageKey. A denial
// of a Class or a Floor applies only to calls of the same. Decisions that involve a shadow policy are
// not remembered. The client keeps up to 65,536 denials, about 32 MB; with one more, it forgets the one
// that was not used for longest.
// Without this option, the client remembers no denials.
func WithDenialMemory(longest time.Duration) Option {
	return option("WithDenialMemory", longest, func(c *config) error {
		if longest <= 0 || longest > longestDenial {
			return fmt.Errorf("denials that are remembered for %v; give WithDenialMemory a time above 0 and up to %v", longest, longestDenial)
		}
		c.remembered = longest
		return nil
	})
}

// memory is the layer that repeats a recent denial of a key. It adds no denial that a server has not
// made: it repeats one for a second at most, and never longer than its RetryAfter. The methods of a
// nil memory remember nothing.
type memory struct {
	*common
	next    Limiter
	longest time.Duration
	forgets atomic.Uint64 // number of calls to forget
	sharedTable[*denial]
}

type denial struct {
	limit Limit
	cost  int64 // 1 for a call with UpTo, because not even one unit was available
	res   Result
	read  time.Time // when the reply was received
	until time.Time
}

// Take implements [Limiter].
func (m *memory) Take(ctx context.Context, req Request) (Result, error) {
	a, ok := m.single(ctx, &req)
	if !ok {
		return m.next.Take(ctx, req)
	}
	if res, ok := m.recall(a); ok {
		return res, nil
	}
	sent, forgets := m.now(), m.forgets.Load()
	res, err := m.next.Take(ctx, req)
	if err == nil && !res.Allowed && res.Shadow == nil {
		m.remember(a, &res, sent, forgets)
	}
	return res, err
}

// recall returns the denial of a call, if it is remembered.
func (m *memory) recall(a single) (Result, bool) {
	if m == nil {
		return Result{}, false
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	now := m.now()
	d, ok := m.entries.Get(a.sharedKey)
	if !ok || !now.Before(d.until) || d.limit != a.limit || a.least() < d.cost {
		return Result{}, false
	}
	res := d.res
	res.Source = sourceMemory
	res.ResetAfter = countedDown(res.ResetAfter, now.Sub(d.read))
	if res.RetryAfter != Never {
		res.RetryAfter = countedDown(res.RetryAfter, now.Sub(d.read))
	}
	return res, true
}

// remember keeps the denial of a call that was sent at the time sent, when m.forgets had the value
// forgets. If forget was called since, remember does nothing. The denial expires as if the server
// had decided at the time sent.
func (m *memory) remember(a single, res *Result, sent time.Time, forgets uint64) {
	lasts := m.longest
	if res.RetryAfter != Never {
		lasts = min(lasts, res.RetryAfter)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	now := m.now()
	if forgets != m.forgets.Load() || !now.Before(sent.Add(lasts)) {
		return
	}
	m.shrink(func(oldest *denial) bool { return now.Before(oldest.until) })
	m.add(a.sharedKey, &denial{limit: a.limit, cost: a.least(), res: *res, read: now, until: sent.Add(lasts)})
}

// forget drops the denials of keys. It also prevents calls in progress from storing their denials.
func (m *memory) forget(keys []string) {
	if m == nil {
		return
	}
	m.forgets.Add(1)
	m.drop(keys)
}
