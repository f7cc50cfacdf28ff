package backtest

// series counts decisions by interval. All intervals have the same length: the shortest length in
// widths that needs at most mostIntervals intervals.
type series struct {
	level       int                // index in widths
	first, last int64              // times of the first and the last decision, in seconds since 1970
	counts      map[int64]Interval // by the interval's number, counted from 1970
}

// Interval counts the decisions within an interval of a time line.
type Interval struct {
	Allowed int64 `json:"allowed"`
	Denied  int64 `json:"denied"`
	Units
}

// Units adds up the costs of allowed and of denied requests. The sums saturate at 2^63 - 1.
type Units struct {
	Allowed int64 `json:"units_allowed"`
	Denied  int64 `json:"units_denied"`
}

// AllUnits returns the sum of the costs of all requests.
func (u Units) AllUnits() int64 { return plus(u.Allowed, u.Denied) }

// widths are the possible lengths of an interval, in seconds. Each length is a multiple of the one
// before it.
var widths = []int64{1, 5, 15, 60, 300, 900, 3600, 14_400, 86_400, 604_800}

const mostIntervals = 600

func (s *series) width() int64 { return widths[s.level] }

// add adds n to the interval that contains at, a time in seconds since 1970.
func (s *series) add(at int64, n Interval) {
	if len(s.counts) == 0 {
		s.first, s.last, s.counts = at, at, map[int64]Interval{}
	}
	s.first, s.last = min(s.first, at), max(s.last, at)
	level := s.level
	for s.last/widths[level]-s.first/widths[level] >= mostIntervals && level < len(widths)-1 {
		level++
	}
	s.coarsen(level)
	sum := s.counts[at/s.width()]
	s.counts[at/s.width()] = Interval{sum.Allowed + n.Allowed, sum.Denied + n.Denied, sum.Units.plus(n.Units)}
}

// coarsen merges intervals until they have at least the width of level.
func (s *series) coarsen(level int) {
	if level <= s.level {
		return
	}
	finer := *s
	s.level, s.counts = level, map[int64]Interval{}
	s.merge(finer)
}

func (s *series) merge(other series) {
	s.coarsen(other.level)
	for number, n := range other.counts {
		s.add(number*other.width(), n)
	}
}

// moments returns all intervals from the first to the last.
func (s *series) moments() []Moment {
	moments := []Moment{}
	if len(s.counts) > 0 {
		for number := s.first / s.width(); number <= s.last/s.width(); number++ {
			moments = append(moments, Moment{utc(number * s.width() * 1000), s.counts[number]})
		}
	}
	return moments
}
