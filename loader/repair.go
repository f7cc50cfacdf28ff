package loader

import (
	"context"
	"errors"

	"github.com/redis/go-redis/v9"
)

// Repair loads build where it got lost, once: it is one look of a [Loader.Watch], and leaves the same servers as they are. It
// returns nil when every primary runs build, or one of the errors of those that do not.
func (l *Loader) Repair(ctx context.Context, build Build) error {
	want, err := readBuild("loader.Repair", build)
	if err != nil {
		return err
	}
	var left []error
	w := l.watch(want, func(e Event) {
		if e.Kind == Left || e.Kind == Failed {
			left = append(left, errors.New("loader.Repair: "+e.Text))
		}
	})
	defer w.s.close()
	w.round(ctx)
	if err := ctx.Err(); err != nil {
		return err
	}
	return errors.Join(left...)
}

// Healer returns a function for client.WithHealer: it has a server that lost the library [Loader.Repair] it with build.
func Healer(build Build, opts ...Option) func(context.Context, redis.UniversalClient) error {
	return func(ctx context.Context, server redis.UniversalClient) error {
		l, err := New(server, opts...)
		if err != nil {
			return err
		}
		return l.Repair(ctx, build)
	}
}
