package accesslog

// MostHeld is the largest number of values in a Sorter.
const MostHeld = 1 << 20

// Sorter sorts values by time. It keeps each value until one has come that is more than Within
// later. Values of the same time keep their order. The zero value allows no delay. A Sorter is not
// safe for concurrent use.
type Sorter[T any] struct {
	Within int64 // ms by which a value may come late

	held   []timed[T] // a heap like container/heap, without an allocation for each value
	newest int64      // largest time so far
	gone   int64      // time of the last value that was taken out
	count  int64
}

type timed[T any] struct {
	at, number int64
	value      T
}

func (a *timed[T]) before(b *timed[T]) bool {
	return a.at < b.at || a.at == b.at && a.number < b.number
}

// Put adds a value. If the value is older than one that was already taken out, Put refuses it and
// returns how many ms it came after the newest: a Within of that size would have accepted it.
func (s *Sorter[T]) Put(at int64, value T) (late int64) {
	if at < s.gone {
		return s.newest - at
	}
	s.newest = max(s.newest, at)
	s.count++
	s.held = append(s.held, timed[T]{at, s.count, value})
	for i := len(s.held) - 1; i > 0; {
		parent := (i - 1) / 2
		if !s.held[i].before(&s.held[parent]) {
			break
		}
		s.held[i], s.held[parent] = s.held[parent], s.held[i]
		i = parent
	}
	return 0
}

// Take removes and returns the oldest value, if no older one can still come, or if there is no room
// for another. If end is true, it returns every value in turn.
func (s *Sorter[T]) Take(end bool) (at int64, value T, ok bool) {
	if len(s.held) == 0 || !end && s.held[0].at >= s.newest-s.Within && len(s.held) < MostHeld {
		return 0, value, false
	}
	oldest, n := s.held[0], len(s.held)-1
	s.held[0] = s.held[n]
	s.held = s.held[:n]
	for i := 0; ; {
		least := i
		for child := 2*i + 1; child <= 2*i+2 && child < n; child++ {
			if s.held[child].before(&s.held[least]) {
				least = child
			}
		}
		if least == i {
			break
		}
		s.held[i], s.held[least] = s.held[least], s.held[i]
		i = least
	}
	s.gone = oldest.at
	return oldest.at, oldest.value, true
}
