package model

import "slices"

func init() {
	Algorithms["fixed_window"] = &Algorithm{
		Options: map[string]func(r Rate) []string{
			"align": func(r Rate) []string {
				if r.calendar() { // listed six times, so that most draws have it: the library rejects these limits without it
					return []string{"align=clock", "align=clock", "align=clock", "align=clock", "align=clock", "align=clock"}
				}
				return []string{"align=clock"}
			},
			"from": func(r Rate) []string {
				if r.Period == "mo" {
					return []string{"from=1", "from=15", "from=28", "from=29", "from=30", "from=31"}
				}
				return nil
			},
			"zone": func(r Rate) []string {
				if r.has("align=clock") && r.MS()%dayMS == 0 {
					return []string{"zone=+05:30", "zone=-18:00", "zone=+18:00", "zone=-00:01"}
				}
				return nil
			},
		},
		Open: openWindow,
		Refuses: func(l Limit) bool {
			return slices.ContainsFunc(l.Rates, func(r Rate) bool { return r.calendar() && !r.has("align=clock") })
		},
	}
}

type window struct {
	n     int64
	count int64
	end   int64 // in ms
}

func openWindow(r Rate, was state, at moment) state {
	now, period := at.ms(), r.MS()
	w := window{n: r.N, end: now + period}
	if r.has("align=clock") {
		w.end = r.clockEnd(now)
	}
	if old, ok := was.(window); ok && old.end > now {
		if old.end-now > period {
			w.count = min(old.count, r.N-at.room)
		} else {
			w.count, w.end = old.count, old.end
		}
	}
	return w
}

func (w window) left() int64 { return max(0, w.n-w.count) }

func (w window) owes() int64 { return max(0, mostOwed(w.n)-w.count) }

func (w window) take(c int64) state { return window{w.n, w.count + c, w.end} }

func (w window) refund(c int64) state { return window{w.n, max(0, w.count-c), w.end} }

func (w window) counted() int64 { return w.count }
