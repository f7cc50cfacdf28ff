package rlqs

import (
	"context"
	"time"

	"github.com/ratelimit-functions/ratelimit/client"
)

// portion is the part of an Envoy in a distribution.
type portion struct {
	*share
	fresh bool // has just reported, so that the rest of its units is known
	want  int64
	got   int64
}

// assign gives units to the Envoys that are due, and returns how many shares have ended. It is called
// with b.mu, and unlocks it while it waits for the server. If the server does not answer, the present
// assignments stay until they end.
func (b *bucket) assign(ctx context.Context) (ended int) {
	list := b.dueNow()
	err := b.ask(ctx)
	switch {
	case err != nil:
	case b.shadow || b.trial:
		ended = b.allow(list)
	default:
		var back int64
		if back, ended, err = b.divide(ctx, list); back > 0 {
			b.refund(ctx, back)
		}
	}
	if err != nil {
		b.server.failed("a bucket gets no assignment", b, err)
	}
	return ended
}

// dueNow returns the Envoys that are due.
func (b *bucket) dueNow() (list []*portion) {
	now := b.server.Now()
	for _, sh := range b.shares {
		// Units that an Envoy has just got would be lost until its next report, so it waits for the next tick.
		ticked := b.ticked && sh.idle == 0 && now.Sub(sh.reported) <= interval+late && now.Sub(sh.assigned) >= b.period/2
		if sh.due || ticked && !sh.stream.waits(sh) {
			list = append(list, &portion{share: sh, fresh: sh.due})
		}
		sh.due = false
	}
	b.ticked = false
	return list
}

// ask charges what was used without units, and reads the state of the limit if it is unknown.
func (b *bucket) ask(ctx context.Context) error {
	if b.excess > 0 {
		if err := b.charge(ctx); err != nil {
			return err
		}
	}
	if b.known && !b.trial { // a shadow policy may be deployed without it
		return nil
	}
	whole := client.For(b.key, b.limit, 0) // without the class: see keeps
	result, err := b.call(func() (client.Result, error) { return b.server.Limiter.Peek(ctx, whole) })
	if err == nil {
		b.trial, b.kept, b.unsure = result.Shadow != nil, 0, false
		if b.plain() {
			b.keeps(&result)
		}
		b.learn(&result, 0, 0)
		if b.known = b.plain(); !b.known && result.ResetAfter == 0 {
			b.remaining = b.capacity // also if the class default leaves some
		}
	}
	return err
}

// divide takes units and divides them among the Envoys in list. It returns how many units to give
// back, because no Envoy needs them or because the limit has refilled since they were charged.
func (b *bucket) divide(ctx context.Context, list []*portion) (back int64, ended int, err error) {
	var want, rest int64
	for _, p := range list {
		p.want = b.want(p)
		want += p.want
		if p.fresh {
			rest += p.open
		}
	}
	result, err := b.take(ctx, want-rest)
	if err != nil {
		return 0, 0, err
	}
	if b.trial = result.Shadow != nil; b.trial { // deployed since the last call
		for _, p := range list {
			p.open = 0
		}
		return 0, b.allow(list), nil
	}
	// Reports during the call have changed p.open, and streams have ended.
	rest, want = 0, 0
	for _, p := range list {
		if p.gone.Load() {
			p.want, p.fresh = 0, false
			continue
		}
		want += p.want
		if p.fresh {
			rest += p.open
			p.open = 0
		}
	}
	b.keeps(&result)
	taken := result.Taken
	back = min(rest, max(0, result.Remaining+taken+rest-b.usable(&result)))
	pool := rest - back + taken
	b.learn(&result, taken, want-rest)
	b.known = !b.unsure || result.Remaining+taken == 0
	back += pool - b.distribute(list, min(pool, want), want)
	for _, p := range list {
		switch now := b.server.Now(); {
		case p.gone.Load():
		case b.abandons(p):
			ended++
		case p.got > 0:
			p.open, p.assigned = p.open+p.got, now
			p.stream.send(p.share, action{kind: tokens, units: p.got, at: now})
		case p.fresh:
			p.stream.send(p.share, action{kind: denyAll, at: now})
		}
	}
	return back, ended, nil
}

// mostPlenty is how many units an Envoy with few requests gets of what is plenty.
const mostPlenty = 20

// want returns how many units an Envoy should have for the next period: what it needs, but at most its
// part of what is there and will be. If the server has plenty, each Envoy also gets a part of that, for
// requests that come all at once.
func (b *bucket) want(sh *portion) int64 {
	if sh.idle >= 2 {
		return 0
	}
	total := 0.0
	for _, other := range b.shares {
		total += other.demand
	}
	n, period := int64(len(b.shares)), b.period.Seconds()
	part := 1 / float64(n)
	if total > 0 {
		part = sh.demand / total
	}
	need := sh.demand * period * 1.1
	if b.period == interval { // otherwise, all Envoys are due together
		need = min(need, (float64(b.remaining)+b.refills()*period)*part)
	}
	plenty := float64(max(0, b.remaining-b.capacity/2))
	// Bounded, because nobody gives back what an Envoy holds when its stream ends, as streams do each half hour.
	need += min(plenty/8*(part+1/float64(n)), max(need, mostPlenty)) + sh.carry
	units := int64(need)
	sh.carry = need - float64(units)
	if units == 0 && sh.fresh && b.remaining > 0 && (sh.assigned.IsZero() || b.remaining >= min(n, b.capacity/2)) {
		units = 1
	}
	if sh.assigned.IsZero() { // perhaps the Envoy was on another stream, and still has the units of that
		units = max(min(units, 1), units-b.orphaned(b.server.Now()))
	}
	return units
}

// request returns a request for n units, in the bucket's class.
func (b *bucket) request(n int64) client.Request {
	request := client.For(b.key, b.limit, n)
	request.Class = b.class
	return request
}

// take takes up to n units. With n below 1, it only reads the state of the limit. Taken is how many it
// took.
func (b *bucket) take(ctx context.Context, n int64) (client.Result, error) {
	request := b.request(min(max(n, 0), 1<<53))
	return b.call(func() (client.Result, error) {
		if n < 1 {
			return b.server.Limiter.Peek(ctx, request)
		}
		request.UpTo = true
		result, err := b.server.Limiter.Take(ctx, request)
		if err == nil {
			b.server.Metrics.Units("charged", result.Taken)
		}
		return result, err
	})
}

// distribute divides units among the Envoys in proportion to what they want, and returns how many it gave.
func (b *bucket) distribute(list []*portion, units, want int64) (given int64) {
	for _, p := range list {
		if want > 0 {
			p.got = int64(float64(units) / float64(want) * float64(p.want))
			p.got = min(p.got, p.want, units-given)
			given += p.got
		}
	}
	for i := 0; i < len(list) && given < units; i++ {
		b.turn++
		if p := list[b.turn%len(list)]; p.got < p.want {
			p.got++
			given++
		}
	}
	return given
}

// learn remembers a reply, and adapts the period to how fast the limit refills. missing is how many
// units the Envoys wanted to take.
func (b *bucket) learn(result *client.Result, taken, missing int64) {
	before := result.Remaining + taken
	b.known, b.remaining, b.capacity = true, result.Remaining, b.usable(result)
	if away := b.capacity - b.remaining; away > 0 && result.ResetAfter > 0 && b.tells(before) {
		b.refill = time.Duration(float64(result.ResetAfter) / float64(away) * float64(b.capacity))
		if half := b.refill / 2; half < b.period {
			b.period = half
		} else if before < b.capacity/4 {
			b.period = min(half, b.period*5/4)
		}
	}
	if missing > taken && before >= b.capacity { // units that nobody took were lost
		b.period /= 2
	}
	if b.period = max(b.period, quick); b.period > interval*4/5 { // reports come as often, and ticks would replace their units
		b.period = interval
	}
	if b.period < interval && !b.ticking {
		b.next = b.server.Now().Add(b.period)
		b.ticks(true)
	}
}

// refills returns how many units the limit refills in a second.
func (b *bucket) refills() float64 {
	if b.refill <= 0 {
		return float64(b.capacity) / interval.Seconds()
	}
	return float64(b.capacity) / b.refill.Seconds()
}

// refund gives units back. It is not repeated, because its outcome may be unknown.
func (b *bucket) refund(ctx context.Context, units int64) {
	result, err := b.call(func() (client.Result, error) { return b.server.Limiter.Refund(ctx, client.For(b.key, b.limit, units)) })
	if err != nil {
		b.server.failed("units were not given back", b, err)
		return
	}
	if result.Allowed { // otherwise, the key is blocked
		b.server.Metrics.Units("refunded", units)
	}
	b.remaining = max(0, result.Remaining-(result.Limit-b.usable(&result))) // a refund has no class
}
