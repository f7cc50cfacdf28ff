package rlqs

import (
	"math"
	"time"

	"github.com/ratelimit-functions/ratelimit/client"
)

// A class leaves a part of each limit to others. Remaining in a reply to it is without this part, and Limit and
// ResetAfter are with it. So the part must be known to see how fast the limit refills. It is the difference
// between what ask reads, without the class, and what take finds after that. A call without a class has the class
// default, if the policy has one. What that leaves to others can be seen only while the limit is full. So if the
// limit is never full, the gateway takes the part of the class default for units that were used: it then asks for
// units more often than it has to.

// plain reports whether the bucket has no class but default.
func (b *bucket) plain() bool { return b.class == "" || b.class == "default" }

// keeps notes from the reply to take, or to ask, what the class leaves to others.
func (b *bucket) keeps(result *client.Result) {
	if result.Limit < 1 {
		return
	}
	before, limit := result.Remaining+result.Taken, float64(result.Limit)
	switch {
	case b.plain() && result.Allowed && result.ResetAfter == 0: // the limit is full, and the key is not blocked
		b.kept = 1 - float64(before)/limit
	case !b.plain() && !b.known: // ask has just read what is left
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
