package accesslog

// MaxValues is the maximum number of values in a Sorter.
const MaxValues = 1 << 20

// Sorter sorts values by time. It keeps each value until another value is later by more than
// Within, or until the Sorter is full. Values with the same time keep their order. The zero value
// is ready to use. A Sorter is not safe for concurrent use.
type Sorter[T any] struct {
	Within int64 // how late a value may be, in ms

	heap   []timed[T] // a heap as in container/heap, but without an allocation for each value
	newest int64      // largest time so far
	taken  int64      // time of the last value that Take returned
	count  int64
}

type timed[T any] struct {
	at, number int64
	value      T
}

func (a *timed[T]) before(b *timed[T]) bool {
	return a.at < b.at || a.at == b.at && a.number < b.number
}

// Put adds a value and returns 0. If Take has already returned a later value, Put rejects the
// value, and returns the time in ms from this value to the newest one. Put would have accepted the
// value if Within were at least that long.
func (s *Sorter[T]) Put(at int64, value T) (late int64) {
	if at < s.taken {
		return s.newest - at
	}
	s.newest = max(s.newest, at)
	s.count++
	s.heap = append(s.heap, timed[T]{at, s.count, value})
	for i := len(s.heap) - 1; i > 0; {
		parent := (i - 1) / 2
		if !s.heap[i].before(&s.heap[parent]) {
			break
		}
		s.heap[i], s.heap[parent] = s.heap[parent], s.heap[i]
		i = parent
	}
	return 0
}

// Take removes and returns the oldest value if no older value can still arrive, the Sorter is full,
// or end is true. ok reports whether Take returned a value.
func (s *Sorter[T]) Take(end bool) (at int64, value T, ok bool) {
	if len(s.heap) == 0 || !end && s.heap[0].at >= s.newest-s.Within && len(s.heap) < MaxValues {
		return 0, value, false
	}
	oldest, n := s.heap[0], len(s.heap)-1
	s.heap[0] = s.heap[n]
	s.heap = s.heap[:n]
	for i := 0; ; {
		least := i
		for child := 2*i + 1; child <= 2*i+2 && child < n; child++ {
			if s.heap[child].before(&s.heap[least]) {
				least = child
			}
		}
		if least == i {
			break
		}
		s.heap[i], s.heap[least] = s.heap[least], s.heap[i]
		i = least
	}
	s.taken = oldest.at
	return oldest.at, oldest.value, true
}
