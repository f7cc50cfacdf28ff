package loader

import "time"

// WithClock has a Loader go by another clock than this machine's.
func WithClock(now func() time.Time, after func(time.Duration) <-chan time.Time) Option {
	return func(l *Loader) error {
		l.clock = clock{now, after}
		return nil
	}
}
