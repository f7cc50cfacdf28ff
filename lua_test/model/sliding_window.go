package model

import (
	"maps"
	"slices"
)

func init() {
	Algorithms["sliding_window"] = &Algorithm{
		Options: map[string]func(r Rate) []string{"buckets": func(Rate) []string {
			return numbered("buckets", 1, 2, 3, 5, 10, 60, 1000)
		}},
		Open:  openBuckets,
		Bound: Rate.buckets,
		Most:  3000,
		Refuses: func(l Limit) bool {
			return slices.ContainsFunc(l.Rates, func(r Rate) bool { return r.buckets() > 1000 || r.MS()%r.buckets() != 0 })
		},
	}
}

func (r Rate) buckets() int64 { return r.number("buckets", 1) }

// buckets is the state of sliding_window: the count of each bucket, by bucket number. n is the
// rate's n, k is the number of buckets in a period, and width is the length of a bucket in ms.
type buckets struct {
	n, k, width int64
	now         int64 // time of the last write, in ms
	counts      map[int64]int64
}

func openBuckets(r Rate, was state, at moment) state {
	b := buckets{n: r.N, k: r.buckets(), width: r.MS() / r.buckets(), now: at.ms(), counts: map[int64]int64{}}
	old, ok := was.(buckets)
	switch {
	case ok && old.current()*old.width > b.now:
		b.counts[b.current()] = min(old.counted(), r.N-at.room)
	case ok:
		for j, count := range old.counts {
			i := j * old.width / b.width
			b.counts[i] = min(MaxCount, b.counts[i]+count)
		}
	}
	return b
}

func (b buckets) current() int64 { return b.now / b.width }

func (b buckets) left() int64 { return max(0, b.n-b.estimate()) }

func (b buckets) owes() int64 { return max(0, mostOwed(b.n)-b.estimate()) }

func (b buckets) estimate() int64 {
	i := b.current()
	sum := int64(0)
	for j := i - b.k + 1; j <= i; j++ {
		sum += b.counts[j]
	}
	part := over(times(b.counts[i-b.k], whole(b.width-b.now%b.width)), whole(b.width))
	return sum + ceil(part)
}

// written returns the state as it is stored, without buckets that no longer count.
func (b buckets) written() buckets {
	b.counts = maps.Clone(b.counts)
	maps.DeleteFunc(b.counts, func(j, count int64) bool { return count == 0 || j < b.current()-b.k })
	return b
}

func (b buckets) take(c int64) state {
	b = b.written()
	b.counts[b.current()] += c
	return b
}

func (b buckets) refund(c int64) state {
	b = b.written()
	for _, j := range slices.Backward(slices.Sorted(maps.Keys(b.counts))) {
		back := min(c, b.counts[j])
		b.counts[j] -= back
		c -= back
	}
	return b
}

func (b buckets) counted() (sum int64) {
	for _, count := range b.counts {
		sum = min(MaxCount, sum+count)
	}
	return sum
}
