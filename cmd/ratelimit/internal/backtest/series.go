package backtest

// series counts decisions over time. Its intervals are the shortest for which their number stays
// within mostIntervals.
type series struct {
	level  int   // index in widths
	first  int64 // the number of the first interval since 1970
	counts []Interval
}

// Interval is a part of a time line.
type Interval struct {
	Allowed int64 `json:"allowed"`
	Denied  int64 `json:"denied"`
}

// widths are the possible lengths of an interval, in seconds. Each is a multiple of the one before.
var widths = []int64{1, 5, 15, 60, 300, 900, 3600, 14_400, 86_400, 604_800}

const mostIntervals = 600

func (s *series) width() int64 { return widths[s.level] }

// add counts a decision at a time, in ms since 1970. Times must not decrease.
func (s *series) add(at int64, denied bool) {
	if len(s.counts) == 0 {
		s.first = at / 1000 / s.width()
	}
	for at/1000/s.width()-s.first >= mostIntervals && s.level < len(widths)-1 {
		s.coarsen(s.level + 1)
	}
	i := int(at/1000/s.width() - s.first)
	for len(s.counts) <= i {
		s.counts = append(s.counts, Interval{})
	}
	if denied {
		s.counts[i].Denied++
	} else {
		s.counts[i].Allowed++
	}
}

// coarsen merges intervals until they have the width of level.
func (s *series) coarsen(level int) {
	if level <= s.level {
		return
	}
	times := widths[level] / s.width()
	first := s.first / times
	var joined []Interval
	for i, c := range s.counts {
		at := int((s.first+int64(i))/times - first)
		for len(joined) <= at {
			joined = append(joined, Interval{})
		}
		joined[at].Allowed += c.Allowed
		joined[at].Denied += c.Denied
	}
	s.level, s.first, s.counts = level, first, joined
}

// merge adds the counts of another series.
func (s *series) merge(other series) {
	if len(other.counts) == 0 {
		return
	}
	if len(s.counts) == 0 {
		*s = other
		return
	}
	s.coarsen(other.level)
	other.coarsen(s.level)
	first := min(s.first, other.first)
	end := max(s.first+int64(len(s.counts)), other.first+int64(len(other.counts)))
	all := make([]Interval, end-first)
	for _, from := range []series{*s, other} {
		for i, c := range from.counts {
			at := from.first - first + int64(i)
			all[at].Allowed += c.Allowed
			all[at].Denied += c.Denied
		}
	}
	s.first, s.counts = first, all
	for len(s.counts) > mostIntervals && s.level < len(widths)-1 {
		s.coarsen(s.level + 1)
	}
}
