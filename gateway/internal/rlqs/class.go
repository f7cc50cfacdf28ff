package rlqs

import (
	"math"
	"time"

	"github.com/ratelimit-functions/ratelimit/client"
)

// A class leaves a part of each limit to others. Remaining in a reply to it is without this part, and Limit and
// ResetAfter are with it. So the part must be known to see how fast the limit refills. It is the difference
// between what ask reads, without the class, and what take finds after that.

// keeps notes from the reply to take what the class leaves to others.
func (b *bucket) keeps(result *client.Result) {
	if b.class == "" || result.Limit < 1 {
		return
	}
	before, limit := result.Remaining+result.Taken, float64(result.Limit)
	if !b.known { // ask has just read what is left
		b.unsure = before == 0 // perhaps others have used some of what is left to them
		if result.Limit == b.capacity {
			b.kept = float64(max(0, b.remaining-before)) / limit
			b.refill = time.Duration(float64(b.refill) * (1 - b.kept))
		}
	}
	b.kept = min(b.kept, max(0, 1-float64(before)/limit)) // if others took units after ask
}

// usable returns the capacity of the limit without what the class leaves to others.
func (b *bucket) usable(result *client.Result) int64 {
	return result.Limit - int64(math.Round(b.kept*float64(result.Limit)))
}

// tells reports whether a reply tells how many units are used. before is how many the class had. If it had
// none, others may have used some of what it leaves to them.
func (b *bucket) tells(before int64) bool {
	return before > 0 || b.kept == 0 && !b.unsure
}
