package loader

import "time"

// WithClock makes a Loader use a clock other than the machine's.
func WithClock(now func() time.Time, after func(time.Duration) <-chan time.Time) Option {
	return func(l *Loader) error {
		l.clock = clock{now, after}
		return nil
	}
}
