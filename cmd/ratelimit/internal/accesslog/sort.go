package accesslog

// MostHeld is how many values a Sorter holds at most.
const MostHeld = 1 << 20

// Sorter puts values into the order of their times. It holds each until one has come that is later by more than it allows
// for. Values of one time keep their order. The zero value allows for nothing. It is not safe for concurrent use.
type Sorter[T any] struct {
	Within int64 // ms by which a value may come late

	held   []timed[T] // a heap, as container/heap has it, without an allocation for each value
	newest int64      // of the times that came
	gone   int64      // of the last value that was taken out
	count  int64
}

type timed[T any] struct {
	at, number int64
	value      T
}

func (a *timed[T]) before(b *timed[T]) bool {
	return a.at < b.at || a.at == b.at && a.number < b.number
}

// Put takes a value in. If it is older than one that was taken out already it is refused, and late is by how many ms it came
// after the newest: the Within with which it would have been in time.
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

// Take takes the oldest value out, if none that is older can come any more, or there is no room for another. At the end, all are.
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
