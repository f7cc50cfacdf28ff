package loader

import "time"

// SetClock makes a Loader with the Config use a clock other than the machine's.
func SetClock(c *Config, now func() time.Time, after func(time.Duration) <-chan time.Time) {
	c.clock = clock{now, after}
}
