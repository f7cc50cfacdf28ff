// Package usage finds the keys that contain the usage records of TRACK, on all primaries. It keeps
// the keys that come first in the given orders. It writes nothing. It needs the permission +hmget
// and the permissions of package scan.
package usage

import (
	"cmp"
	"slices"
	"time"

	"github.com/ratelimit-functions/ratelimit/cmd/ratelimit/internal/scan"
)

// Order is an order of keys.
type Order string

const (
	Total  Order = "total"  // most decisions first
	Denied Order = "denied" // most denials first
	Last   Order = "last"   // most recently used first
	Newest Order = "newest" // most recently created first
	Oldest Order = "oldest" // least recently created first
)

// Orders lists all orders.
var Orders = []Order{Total, Denied, Last, Newest, Oldest}

func (o Order) compare(a, b Record) int {
	order := 0
	switch o {
	case Denied:
		order = cmp.Compare(b.Denied, a.Denied)
	case Last:
		order = b.Last.Compare(a.Last)
	case Newest:
		order = b.First.Compare(a.First)
	case Oldest:
		order = a.First.Compare(b.First)
	}
	return cmp.Or(order, cmp.Compare(b.Allowed+b.Denied, a.Allowed+a.Denied), cmp.Compare(a.Key, b.Key))
}

// Count is the number of calls allowed and denied.
type Count struct {
	Allowed int64 `json:"allowed"`
	Denied  int64 `json:"denied"`
}

func (c Count) plus(other Count) Count {
	return Count{c.Allowed + other.Allowed, c.Denied + other.Denied}
}

// Record is the usage recorded in one key, as of At.
type Record struct {
	Key string
	Count
	Cost        int64     // sum of the costs for the first limit in all allowed calls
	First, Last time.Time // times of the first and the last call, by the server's clock

	recent
}

// recent holds the counts of the minute in which a pass began, and of the minute before that.
type recent struct {
	At     time.Time // when the counts were read, by the server's clock
	minute int64     // the minute in which the pass began, counted from the epoch
	counts [2]Count  // counts in this minute and in the one before it
}

// Rate is the number of calls allowed and denied per second.
type Rate struct {
	Allowed float64 `json:"allowed"`
	Denied  float64 `json:"denied"`
}

// rate returns the rate of calls between two readings of the counts, before and r. If before is
// zero or too old, rate returns the rate of the last full minute.
func (r recent) rate(before recent) Rate {
	now, then, span := r.counts[1], Count{}, time.Minute
	switch seconds := r.At.Sub(before.At); {
	case seconds <= 0:
	case before.minute == r.minute:
		now, then, span = r.counts[0].plus(r.counts[1]), before.counts[0].plus(before.counts[1]), seconds
	case before.minute == r.minute-1:
		now, then, span = r.counts[0].plus(r.counts[1]), before.counts[0], seconds
	}
	// A reset lowers the counts of a key, so a difference may be negative.
	return Rate{
		Allowed: float64(max(0, now.Allowed-then.Allowed)) / span.Seconds(), Denied: float64(max(0, now.Denied-then.Denied)) / span.Seconds(),
	}
}

// Snapshot holds what a scan has found so far. It is immutable.
type Snapshot struct {
	Top     map[Order][]Record // the first records in each requested order
	Sum     Count              // total over all keys with usage
	Cost    int64              // total cost over all keys with usage
	Tracked int64              // keys with usage
	Refused int64              // keys that the user may not read

	scan.Progress
	recent
}

// Rate returns the calls per second over all keys with usage. The parameter before is an earlier
// snapshot, from which the rate is measured. If before is nil or too old, Rate returns the rate of
// the last full minute.
func (s Snapshot) Rate(before *Snapshot) Rate {
	if before == nil {
		return s.rate(recent{})
	}
	return s.rate(before.recent)
}

// Entry is a record as the reports of top and the dashboard show it. Times are in ms since the epoch.
type Entry struct {
	Count
	Cost    int64 `json:"cost"`
	FirstMS int64 `json:"first_ms"`
	LastMS  int64 `json:"last_ms"`
	PerSec  Rate  `json:"per_second"`
}

// Entry returns the entry for r, a record in s; see RateOf.
func (s Snapshot) Entry(r Record, before *Snapshot) Entry {
	return Entry{r.Count, r.Cost, r.First.UnixMilli(), r.Last.UnixMilli(), s.RateOf(r, before)}
}

// RateOf is like Rate, but returns the rate of a single key. r is the record of that key in s.
func (s Snapshot) RateOf(r Record, before *Snapshot) Rate {
	if before != nil {
		for _, records := range before.Top {
			if i := slices.IndexFunc(records, func(b Record) bool { return b.Key == r.Key }); i >= 0 {
				return r.rate(records[i].recent)
			}
		}
	}
	return r.rate(recent{})
}
