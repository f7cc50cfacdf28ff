// Package usage finds the keys under which TRACK counts, over all primaries, and keeps those that come first in some order. It
// writes nothing, needs the rights +scan, +hmget, +time and +ping, and leaves the servers to others: see [Share].
package usage

import (
	"cmp"
	"slices"
	"time"
)

// Order is by what keys are ordered.
type Order string

const (
	Total  Order = "total"  // most decisions first
	Denied Order = "denied" // most denials first
	Last   Order = "last"   // used last first
	Newest Order = "newest" // used for the first time last first
	Oldest Order = "oldest" // used for the first time first
)

// Orders are all there are.
var Orders = []Order{Total, Denied, Last, Newest, Oldest}

// compare says which of two records comes first.
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

// Count is calls, allowed and denied.
type Count struct {
	Allowed int64 `json:"allowed"`
	Denied  int64 `json:"denied"`
}

func (c Count) plus(other Count) Count {
	return Count{c.Allowed + other.Allowed, c.Denied + other.Denied}
}

// Record is what was counted under one key, as of At.
type Record struct {
	Key string
	Count
	Cost        int64     // of the allowed calls, for the first limit of each
	First, Last time.Time // the first and the last call, by the server's clock

	recent
}

// recent is what was counted in the minute in which a pass began and the one before it, when it was read.
type recent struct {
	At     time.Time // when this was read, by the server's clock
	minute int64     // of the epoch, in which the pass began
	counts [2]Count  // in that minute, and in the one before
}

// Rate is calls a second.
type Rate struct {
	Allowed float64 `json:"allowed"`
	Denied  float64 `json:"denied"`
}

// rate is what was counted since before was read; where before is too old for that or none, in the last whole minute.
func (r recent) rate(before recent) Rate {
	now, then, span := r.counts[1], Count{}, time.Minute
	switch seconds := r.At.Sub(before.At); {
	case seconds <= 0:
	case before.minute == r.minute:
		now, then, span = r.counts[0].plus(r.counts[1]), before.counts[0].plus(before.counts[1]), seconds
	case before.minute == r.minute-1:
		now, then, span = r.counts[0].plus(r.counts[1]), before.counts[0], seconds
	}
	// A key that was reset has counted less than before.
	return Rate{
		Allowed: float64(max(0, now.Allowed-then.Allowed)) / span.Seconds(), Denied: float64(max(0, now.Denied-then.Denied)) / span.Seconds(),
	}
}

// Snapshot is what a scan has found so far. It is a plain value that nothing changes later.
type Snapshot struct {
	Top      map[Order][]Record // the first by each order that was asked for
	Sum      Count              // of all keys that count
	Cost     int64              // likewise
	Tracked  int64              // keys that count
	Looked   int64              // keys that were looked at, of any kind
	Keys     int64              // keys that there are to look at, about; 0 if no server said
	Refused  int64              // keys that the user may not read
	Complete bool               // the scan came to its end on every server

	recent
}

// Rate is calls a second over all keys that count: since the scan before was made, or, without one or where it is too long ago, in the
// last whole minute.
func (s Snapshot) Rate(before *Snapshot) Rate {
	if before == nil {
		return s.rate(recent{})
	}
	return s.rate(before.recent)
}

// RateOf is the same of one record of s.
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
