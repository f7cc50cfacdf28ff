package model

// A standing is one rate's state as this decision finds it: brought to the present, and replaced by one with room for
// this call where the contract says so. Times out of it are in milliseconds, rounded up.
type standing interface {
	fits(c int64) bool  // whether a cost from 1 to the capacity would be allowed
	wait(c int64) int64 // where it does not fit: the shortest wait
	delay() int64       // how long to wait before proceeding, if allowed now
	charge(c int64)     // of what fits, or of units that another algorithm has counted
	refund(c int64)     // never beyond full
	remaining() int64   // takes of cost 1 that fit
	reset() int64       // until full, 0 if full
	fullAt() int64      // when that is, in milliseconds since the epoch
	save() any          // what a key keeps of it
}

// room is how many units are left in a state that replaces one which this limit cannot have reached.
func room(c, capacity int64) int64 {
	if c > capacity {
		return 1
	}
	return max(1, c)
}

// stand opens a rate's state. saved is nil for a rate that has not been written; it is of this algorithm otherwise.
func stand(l Limit, r Rate, saved any, c int64, now instant) standing {
	switch l.Algorithm {
	case GCRA, LeakyBucket:
		return standGCRA(l, r, saved, c, now)
	case TokenBucket:
		return standTokenBucket(r, saved, c, now)
	case FixedWindow:
		return standFixedWindow(r, saved, c, now)
	case SlidingWindow:
		return standSlidingWindow(r, saved, c, now)
	case SlidingLog:
		return standSlidingLog(r, saved, c, now)
	}
	panic("no such algorithm: " + l.Algorithm)
}
