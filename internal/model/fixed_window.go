package model

// window is what fixed_window keeps: what was counted, and when the window ends, in milliseconds.
type window struct{ count, end int64 }

type fixedWindow struct {
	rate Rate
	now  int64 // in milliseconds
	window
}

func standFixedWindow(r Rate, saved any, c int64, now instant) *fixedWindow {
	w := &fixedWindow{rate: r, now: now.ms()}
	period := r.Period.MS()
	if s, ok := saved.(window); ok && s.end > w.now {
		if s.end-w.now <= period {
			w.window = s
			return w
		}
		w.count = min(s.count, r.N-room(c, r.N))
	}
	w.end = w.now + period
	if r.Align {
		w.end = (w.now/period + 1) * period
	}
	return w
}

func (w *fixedWindow) fits(c int64) bool { return w.count+c <= w.rate.N }
func (w *fixedWindow) wait(int64) int64  { return w.end - w.now }
func (w *fixedWindow) delay() int64      { return 0 }
func (w *fixedWindow) charge(c int64)    { w.count += c }
func (w *fixedWindow) refund(c int64)    { w.count = max(0, w.count-c) }
func (w *fixedWindow) remaining() int64  { return max(0, w.rate.N-w.count) }

func (w *fixedWindow) reset() int64 {
	if w.count == 0 {
		return 0
	}
	return w.end - w.now
}

func (w *fixedWindow) fullAt() int64 { return w.now + w.reset() }
func (w *fixedWindow) save() any     { return w.window }
