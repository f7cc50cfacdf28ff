package client

import (
	"context"
	"fmt"
	"sync"
	"time"

	lru "github.com/hashicorp/golang-lru/v2/simplelru"
)

// mostDenials bounds the denials that a client remembers. Of more, the one that was asked for least recently is forgotten.
const mostDenials = 65536

// longestDenial is how long a denial may be remembered at most.
const longestDenial = time.Second

// WithDenialMemory has the client remember that a key was denied, until its RetryAfter is over and for longest at most, which
// is above 0 and up to 1 s. A call with the same key, limit and at least the cost that was denied is then denied without a
// request: it spares the server that a key is hammered on. Result.Source is [SourceMemory], RetryAfter and ResetAfter
// count down, and RetryAfter of a higher cost is the one that was denied, after which it may be denied again.
//
// What this client does by Reset, Refund, Block and Unblock ends the memory of the keys at once. What another process does
// shows at the latest after longest; so does a policy that is deployed anew, and a server's clock that is set.
//
// It is for calls with one key, without an OnceKey or a UsageKey. What a shadow policy has a part in is not remembered.
// Up to 65,536 denials are kept, about 15 MB. Without this option none is: every call asks a server.
func WithDenialMemory(longest time.Duration) Option {
	return func(c *Client) error {
		if longest <= 0 || longest > longestDenial {
			return fmt.Errorf("denials that are remembered for %v; give WithDenialMemory a time above 0 and up to %v", longest, longestDenial)
		}
		c.memory = newMemory(longest)
		return nil
	}
}

// memory is what a client remembers of denials, by key.
type memory struct {
	longest time.Duration
	now     func() time.Time

	mu      sync.Mutex
	keys    *lru.LRU[string, *denial]
	forgets uint64 // how often something was to be forgotten
}

// denial is the last of a key.
type denial struct {
	limit Limit
	cost  int64 // 1 of a call with UpTo, as not even one unit fitted
	res   Result
	read  time.Time // when the reply was there
	until time.Time
}

func newMemory(longest time.Duration) *memory {
	m := &memory{longest: longest, now: time.Now}
	m.keys, _ = lru.NewLRU[string, *denial](mostDenials, nil) // fails for a size of 0 only
	return m
}

// recall returns the denial of such a call, if one is remembered.
func (m *memory) recall(a single) (Result, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	d, ok := m.keys.Get(a.key)
	if !ok {
		return Result{}, false
	}
	now := m.now()
	if !now.Before(d.until) || d.limit != a.limit || a.least() < d.cost {
		return Result{}, false
	}
	res := d.res
	res.Source = SourceMemory
	res.ResetAfter = countedDown(res.ResetAfter, now.Sub(d.read))
	if res.RetryAfter != Never {
		res.RetryAfter = countedDown(res.RetryAfter, now.Sub(d.read))
	}
	return res, true
}

// before is what has to be known before a call is sent, so that its denial can be remembered.
func (m *memory) before() (sent time.Time, forgets uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.now(), m.forgets
}

// remember keeps the denial of a call that was sent at a moment, unless something was to be forgotten since. It ends when
// the wait is over for a server that decided at once.
func (m *memory) remember(a single, res Result, sent time.Time, forgets uint64) {
	lasts := m.longest
	if res.RetryAfter != Never {
		lasts = min(lasts, res.RetryAfter)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	now := m.now()
	if forgets != m.forgets || !now.Before(sent.Add(lasts)) {
		return
	}
	for range 2 { // so that the table shrinks when fewer keys are denied
		if _, oldest, any := m.keys.GetOldest(); any && !now.Before(oldest.until) {
			m.keys.RemoveOldest()
		}
	}
	m.keys.Add(a.key, &denial{limit: a.limit, cost: a.least(), res: res, read: now, until: sent.Add(lasts)})
}

// forget ends what is remembered of keys, and what is about to be.
func (m *memory) forget(keys []string) {
	if m == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.forgets++
	for _, key := range keys {
		m.keys.Remove(key)
	}
}

// decideAndRemember asks a server, and remembers a denial.
func (c *Client) decideAndRemember(ctx context.Context, req Request, a single) (Result, error) {
	if c.memory == nil {
		return c.decide(ctx, "take", req)
	}
	sent, forgets := c.memory.before()
	res, err := c.decide(ctx, "take", req)
	if err == nil && !res.Allowed && res.Shadow == nil {
		c.memory.remember(a, res, sent, forgets)
	}
	return res, err
}
