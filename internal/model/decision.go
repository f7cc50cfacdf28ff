package model

import "math"

// A verdict is what one rate of one key has to say about a call.
type verdict struct {
	index     int // of the key, from 1
	capacity  int64
	allowed   bool
	wait      int64 // if denied; -1: never
	remaining int64
	reset     int64
}

// judge asks every rate of the holding whether it allows its cost.
func (h *holding) judge(index int) []verdict {
	verdicts := make([]verdict, len(h.rates))
	for i, s := range h.rates {
		v := verdict{index: index, capacity: h.limit.Rates[i].Capacity()}
		switch {
		case h.blocked > 0:
			v.wait = h.blocked
			if h.cost > v.capacity {
				v.wait = -1
			}
			v.capacity = h.limit.Rates[0].Capacity()
		case h.cost == 0:
			v.allowed = true
		case h.cost > v.capacity:
			v.wait = -1
		case s.fits(h.cost):
			v.allowed = true
		case h.lapses > 0:
			v.wait = h.lapses
		default:
			v.wait = s.wait(h.cost)
		}
		verdicts[i] = v
	}
	return verdicts
}

// look fills in how the rates stand.
func (h *holding) look(verdicts []verdict) {
	for i, s := range h.rates {
		v := &verdicts[i]
		switch v.remaining, v.reset = s.remaining(), s.reset(); {
		case h.blocked > 0:
			v.remaining, v.reset = 0, h.blocked
		case !v.allowed && h.lapses > 0:
			v.reset = h.lapses
		}
	}
}

// sum makes one reply of all verdicts. wait is retry_after_ms of an allowed call.
func sum(verdicts []verdict, wait int64) []any {
	allowed := true
	for _, v := range verdicts {
		allowed = allowed && v.allowed
	}
	remaining, reset := int64(math.MaxInt64), int64(0)
	var binding *verdict
	for i := range verdicts {
		v := &verdicts[i]
		switch {
		case allowed && v.remaining < remaining, !allowed && !v.allowed && binding == nil:
			binding = v
		}
		remaining = min(remaining, v.remaining)
		reset = max(reset, v.reset)
		if !v.allowed && wait >= 0 {
			wait = max(wait, v.wait)
			if v.wait < 0 {
				wait = -1
			}
		}
	}
	return answer(allowed, binding.capacity, remaining, wait, reset, binding.index)
}

func answer(allowed bool, limit, remaining, retry, reset int64, index int) []any {
	yes := int64(0)
	if allowed {
		yes = 1
	}
	return []any{yes, limit, remaining, retry, reset, int64(index)}
}
