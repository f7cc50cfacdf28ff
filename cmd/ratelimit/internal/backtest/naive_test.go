package backtest

import (
	"math"
	"math/big"
	"slices"
)

// rule describes how the model charges a cost.
type rule struct {
	least, most int64 // the units that must fit are the cost, clamped to [least, most]
	debt        bool  // units that do not fit become debt
}

// ruleOf returns the charging rule that opts selects.
func ruleOf(opts Options) rule {
	if opts.After {
		return rule{1, 1, true}
	}
	return rule{0, math.MaxInt64, false}
}

func (r rule) need(cost int64) int64 { return min(max(cost, r.least), r.most) }

// naive is a simple model of three algorithms, in exact arithmetic. It returns the requests that
// are denied.
func naive(hits []hit, algorithm string, n, period, burst int64, r rule) (denied []hit) {
	log, ends, counts := map[string][]int64{}, map[string]int64{}, map[string]int64{}
	free := map[string]*big.Rat{} // time at which each bucket is full again
	for _, h := range hits {
		ok := false
		need := r.need(h.cost)
		charged := func(used int64) int64 {
			if r.debt {
				return min(h.cost, max(0, 2*n-used))
			}
			return h.cost
		}
		switch algorithm {
		case "sliding_log":
			log[h.key] = slices.DeleteFunc(log[h.key], func(at int64) bool { return at <= h.after-period })
			used := int64(len(log[h.key]))
			if ok = need == 0 || used+need <= n; ok {
				log[h.key] = append(log[h.key], slices.Repeat([]int64{h.after}, int(charged(used)))...)
			}
		case "fixed_window":
			if end, open := ends[h.key]; open && end <= h.after {
				delete(ends, h.key)
				delete(counts, h.key)
			}
			used := counts[h.key]
			if ok = need == 0 || used+need <= n; ok && h.cost > 0 {
				if used == 0 {
					ends[h.key] = h.after + period
				}
				counts[h.key] += charged(used)
			}
		case "gcra":
			now, step := big.NewRat(h.after, 1), big.NewRat(period, n)
			tat := now
			if f := free[h.key]; f != nil && f.Cmp(now) > 0 {
				tat = f
			}
			after := func(from *big.Rat, units int64) *big.Rat {
				return new(big.Rat).Add(from, new(big.Rat).Mul(step, big.NewRat(units, 1)))
			}
			if ok = need == 0 || after(tat, need).Cmp(after(now, burst)) <= 0; ok {
				cost := h.cost
				for r.debt && cost > 0 && after(tat, cost).Cmp(after(now, 2*burst-1)) > 0 {
					cost--
				}
				free[h.key] = after(tat, cost)
			}
		}
		if !ok {
			denied = append(denied, h)
		}
	}
	return denied
}

// counts adds up requests and their costs.
type counts struct {
	requests, units int64
	keys            map[string][2]int64 // requests and units of each key
}

func count(hits []hit) counts {
	c := counts{keys: map[string][2]int64{}}
	for _, h := range hits {
		c.requests++
		c.units += h.cost
		c.keys[h.key] = [2]int64{c.keys[h.key][0] + 1, c.keys[h.key][1] + h.cost}
	}
	return c
}
