package holds

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/ratelimit-functions/ratelimit/client"
)

// stream is a caller that reserves, works and commits, and what it knows at the end.
type stream struct {
	key    int
	id     string // empty if nothing was reserved
	actual int64
	more   int64 // actual beyond the estimate
	late   bool  // a commit has returned that it was late
	told   bool  // a commit has returned without an error
}

// TestModel runs a thousand streams at the same time, through gateways whose calls are lost before or
// after they are executed, while the clock moves, other gateways sweep, and ordinary calls are made.
// Streams have random estimates and costs, and some never commit, commit several times or give up. At
// the end, each key must have exactly what the decisions on the server say: the estimates of nobody
// are lost, and nothing is given back that was not charged, or twice.
func TestModel(t *testing.T) {
	const streams, budgets, budget, limit = 1000, 10, 5000, "fixed_window 5000/30d"
	b := newTestbed(t)
	var ordinary [budgets]int64
	var over [budgets]int64 // by how much commits exceed their estimates, and what late ones used
	list := make([]stream, streams)
	var mu sync.Mutex
	var wait sync.WaitGroup
	for i := range list {
		wait.Go(func() {
			random := rand.New(rand.NewPCG(1, uint64(i)))
			s := &list[i]
			s.key = random.IntN(budgets)
			key := fmt.Sprint("budget", s.key)
			h := b.gateway(b.unreliable(random, 0.03))
			estimate := 1 + random.Int64N(100)
			ttl, slow := time.Duration(1+random.IntN(60))*time.Second, random.IntN(12) == 0
			if slow { // the work takes longer than the ttl
				ttl = time.Second
			}
			made, err := h.Reserve(ctx, "web", part(key, limit), estimate, ttl)
			if s.id = made.ID; err != nil && s.id != "" {
				t.Errorf("an id beside %v", err)
			}
			if random.IntN(4) == 0 {
				if res, err := b.limiter.AllowN(ctx, key, limit, 3); err != nil {
					t.Error(err)
				} else if res.Allowed {
					mu.Lock()
					ordinary[s.key] += 3
					mu.Unlock()
				}
			}
			b.advance(time.Duration(random.IntN(200)) * time.Millisecond)
			if slow {
				b.advance(ttl)
				_ = h.Sweep(ctx)
			}
			if s.id == "" || random.IntN(10) == 0 { // denied, or the stream dies
				return
			}
			s.actual = random.Int64N(150)
			for attempts := 1 + random.IntN(8); attempts > 0; attempts-- { // at least once, and again after an error or without reason
				g := b.gateway(b.unreliable(random, 0.05))
				switch got, err := g.Commit(ctx, "web", s.id, s.actual); {
				case err != nil:
				case got.Actual != s.actual || s.told && got.Late != s.late:
					t.Errorf("stream %d: the commit of %d returns %v, before %v", i, s.actual, got, s.late)
				default:
					s.told, s.late = true, got.Late
				}
			}
			s.more = max(0, s.actual-estimate)
		})
	}
	wait.Wait()
	b.advance(time.Minute)
	b.sweep()
	b.advance(again)
	b.sweep()

	want, counts := ordinary, map[string]int{}
	for i, s := range list {
		if s.id == "" {
			counts["denied or lost"]++
			continue
		}
		text := must[string](t)(b.db.Do(ctx, "GETRANGE", decisionKey(s.id), 0, -1).Text())
		d, err := parseDecision(text)
		if err != nil || !d.done {
			t.Fatalf("stream %d: the decision is %q, %v", i, text, err)
		}
		counts[d.by]++
		late := must[int64](t)(b.db.Exists(ctx, fmt.Sprintf("{budget%d}:hold:%s:1:late", s.key, hashed(s.id))).Result()) > 0
		switch {
		case d.by == swept && late:
			counts["late"]++
			want[s.key] += s.actual
			over[s.key] += s.actual
		case d.by != swept:
			want[s.key] += d.actual
			over[s.key] += s.more
		}
		if s.told && (s.late != (d.by == swept) || s.late && !late && s.actual > 0 || !s.late && d.actual != s.actual) {
			t.Errorf("stream %d was told %d, late %v; the decision is %q, late %v", i, s.actual, s.late, text, late)
		}
	}
	for k := range budgets {
		res := must[client.Result](t)(b.limiter.Peek(ctx, client.For(fmt.Sprint("budget", k), "fixed_window 1000000/30d", 0))) // shows more than the budget
		if used := 1000000 - res.Remaining; used != want[k] {
			t.Errorf("budget %d: %d used, want %d", k, used, want[k])
		}
		if want[k] > budget+over[k] {
			t.Errorf("budget %d: %d used, at most %d and %d are documented", k, want[k], budget, over[k])
		}
	}
	t.Log(counts, want)
	for _, kind := range []string{"denied or lost", swept, "commit", "late"} {
		if counts[kind] < 10 {
			t.Errorf("only %d streams are %s; the test needs some of each", counts[kind], kind)
		}
	}
	b.empty()
}

// unreliable returns the limiter and the store of a gateway whose calls are lost, before or after
// they are executed, with a probability.
func (b *testbed) unreliable(random *rand.Rand, probability float64) (Limiter, Store) {
	var mu sync.Mutex
	f := &faulty{limiter: b.limiter, store: Redis{b.db}, fault: func() (bool, error) {
		mu.Lock()
		defer mu.Unlock()
		if random.Float64() >= probability {
			return true, nil
		}
		return random.IntN(2) == 0, errDied
	}}
	return f, f
}
