package generate

import (
	"slices"

	"pgregory.net/rapid"

	"github.com/ratelimit-functions/ratelimit/lua_test/model"
)

var (
	limiterKeys = []string{"{v}:a", "{v}:b", "{v}:c", "{v}:d"}
	leaseKeys   = []string{"{v}:leases"}
	onceKeys    = []string{"{v}:request1", "{v}:request2"}
	usageKeys   = []string{"{v}:usage"}
	allKeys     = slices.Concat(limiterKeys, leaseKeys, onceKeys, usageKeys)
	leaseIDs    = []string{"x", "y", "z", "w"}
)

const (
	msUS   = int64(1000)
	hourUS = 3600000 * msUS
)

// move draws a move of the clock. Often the clock does not move; otherwise it usually moves to a
// time close to one at which a decision changes.
func (p pool) move(t *rapid.T) Move {
	switch pick(t, "stay", "stay", "stay", "small", "retry", "rate", "rate", "reset", "minutes", "hours") {
	case "small":
		return Move{US: pick(t, 1, msUS, between(t, 1, 2*msUS), between(t, 1, 1000)*msUS, -1, -msUS)}
	case "retry":
		return Move{AfterRetry, nudge(t)}
	case "reset":
		return Move{AfterReset, nudge(t)}
	case "rate":
		r := pick(t, slices.Concat(p.limits, p.leases, p.overrides)...).Limits[0].Rates[0]
		period := r.MS() * msUS
		us := pick(t, refill(r, 1), refill(r, 1), period, period/2, period/5, refill(r, between(t, 1, max(1, r.Capacity()))))
		return Move{US: pick(t, us, us, us, -us) + nudge(t)}
	case "minutes":
		return Move{US: between(t, 1, 70) * hourUS / 60}
	case "hours":
		return Move{US: pick(t, hourUS, -hourUS, -hourUS, 25*hourUS)}
	}
	return Move{}
}

// span draws the duration of a block or an override, in ms.
func span(t *rapid.T) int64 { return pick(t, 1, 10, 1000, 60000, 3600000, between(t, 1, 100000)) }

func nudge(t *rapid.T) int64 { return pick(t, 0, 0, -1, 1, -msUS, msUS) }

var verbs = map[string][]string{
	"": {
		model.Take, model.Take, model.Take, model.Take, model.Take, model.Take, model.Take, model.Take, model.Take, model.Take,
		model.Peek, model.Refund, model.Refund, model.Reset, model.Block, model.Unblock, model.Acquire, model.Usage,
		model.Override, model.Override, model.OverrideEnd,
	},
	"leases": {
		model.Acquire, model.Acquire, model.Acquire, model.Acquire, model.Renew, model.Renew, model.Release, model.Release,
		model.Take, model.Reset, model.Block, model.Unblock, model.Override, model.Override, model.OverrideEnd,
	},
	"usage": {model.Take, model.Take, model.Take, model.Usage},
}

func (p pool) call(t *rapid.T) model.Call {
	c := model.Call{Verb: pick(t, verbs[p.only]...)}
	switch c.Verb {
	case model.Take, model.Peek, model.Refund:
		p.decision(t, &c)
	case model.Reset, model.Block, model.Unblock, model.Override, model.OverrideEnd:
		from := slices.Concat(limiterKeys, leaseKeys)
		if p.only == "leases" {
			from = slices.Concat(leaseKeys, limiterKeys)
		}
		c.Keys = keys(t, from, 1, 2)
		if c.Verb == model.Reset && rapid.Bool().Draw(t, "all") {
			c.Keys = allKeys
		}
		if c.Verb == model.Block {
			c.SpanMS = span(t)
			switch pick(t, "", "", "EXTEND", "GROW", "GROW") {
			case "EXTEND":
				c.Extend = true
			case "GROW":
				c.Grow = &model.Grow{Max: c.SpanMS * pick(t, int64(1), 2, 3, 100), Forget: span(t)}
			}
		}
		if c.Verb == model.Override {
			c.SpanMS = span(t)
			c.Limits = []model.Policy{pick(t, p.overrides...)}
			forLeases := slices.Contains(leaseKeys, c.Keys[0])
			if forLeases != pick(t, false, false, false, false, false, false, false, true) { // sometimes a limit of the wrong kind for the key
				c.Limits = []model.Policy{pick(t, p.leases...)}
			}
		}
	case model.Acquire, model.Renew, model.Release:
		c.Keys = keys(t, leaseKeys, 1, 1)
		c.Limits = []model.Policy{pick(t, p.leases...)}
		c.Lease = pick(t, leaseIDs...)
		if c.Verb == model.Acquire {
			leave(t, &c)
		}
	case model.Usage:
		c.Keys = keys(t, usageKeys, 1, 1)
	}
	return c
}

// decision fills in the remaining fields of a take, peek or refund.
func (p pool) decision(t *rapid.T, c *model.Call) {
	if Shares && pick(t, false, false, false, false, true) {
		p.lend(t, c)
	} else {
		p.plain(t, c)
	}
	if c.Verb == model.Peek {
		return
	}
	if pick(t, false, false, false, false, true) {
		c.OnceMS = pick(t, 1, 1000, 60000, between(t, 1, 100000))
		c.OnceKey = keys(t, onceKeys, 1, 1)[0]
	}
	if c.Verb == model.Refund {
		return
	}
	c.Force = !c.Upto && c.Floor == nil && c.Class == "" && !c.Borrow && pick(t, false, false, false, true)
	c.Track = p.only == "usage" || pick(t, false, false, false, false, false, true)
	tracked := slices.ContainsFunc(c.Limits, func(p model.Policy) bool { return p.Track })
	c.Track = c.Track || tracked && c.OnceMS > 0 // with ONCE, the library insists on the word
	if c.Track || tracked {
		c.Usage = keys(t, usageKeys, 1, 1)[0]
	}
}

// plain draws the limits, costs, UPTO, EACH, FLOOR and CLASS of a take, peek or refund.
func (p pool) plain(t *rapid.T, c *model.Call) {
	most := pick(t, 1, 1, 1, 2, 3) // maximum number of keys
	var limits []model.Limit
	for len(limits) < most {
		policy := pick(t, p.limits...)
		c.Limits, limits = append(c.Limits, policy), append(limits, policy.Limits...)
	}
	c.Keys = keys(t, limiterKeys, len(limits), len(limits))
	switch pick(t, "none", "one", "each") {
	case "one":
		c.Costs = []int64{cost(t, pick(t, limits...))}
	case "each":
		for _, l := range limits {
			c.Costs = append(c.Costs, cost(t, l))
		}
	}
	c.Each = pick(t, false, false, true)
	if c.Verb != model.Refund && len(c.Costs) < 2 {
		c.Upto = pick(t, false, false, true)
	}
	if c.Verb != model.Refund {
		leave(t, c)
	}
	if c.Verb == model.Peek && pick(t, false, true) {
		c.Grow = &model.Grow{}
	}
}

// keys draws between least and most distinct keys from list, or sometimes from allKeys instead. It
// draws the first key of the list most often, so that calls find what other calls have stored.
func keys(t *rapid.T, list []string, least, most int) []string {
	if rapid.IntRange(0, 15).Draw(t, "other use") == 15 {
		list = allKeys
	}
	first := pick(t, 0, rapid.IntRange(0, len(list)-1).Draw(t, "first key"))
	drawn := make([]string, rapid.IntRange(least, most).Draw(t, "keys"))
	for i := range drawn {
		drawn[i] = list[(first+i)%len(list)]
	}
	return drawn
}
