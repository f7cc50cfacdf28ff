package loader

import (
	"context"
	"time"

	"github.com/ratelimit-functions/ratelimit/functions"
)

// SetClock makes a Loader with the Config use a clock other than the machine's.
func SetClock(c *Config, now func() time.Time, after func(time.Duration) <-chan time.Time) {
	c.clock = clock{now, after}
}

// SetEffects makes a Loader with the Config try changes of policies with f.
func SetEffects(c *Config, f func(library string, changes [][2]functions.Policy) ([]functions.Effect, error)) {
	c.effects = f
}

// Rounds starts a watch. round runs one round of it, and returns for how many nodes the watch then has a
// read and a sight.
func Rounds(l *Loader, build Build) (round func(context.Context) (reads, sights int), end func(), err error) {
	file, err := l.readBuild(build)
	if err != nil {
		return nil, nil, err
	}
	w := l.watch(file, func(Event) {})
	return func(ctx context.Context) (reads, sights int) {
		w.round(ctx)
		return len(w.s.lists), len(w.seen)
	}, w.s.Close, nil
}
