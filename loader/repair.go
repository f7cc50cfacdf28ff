package loader

import (
	"context"
	"errors"

	"github.com/redis/go-redis/v9"
)

// Repair does one round of a [Loader.Watch]: it loads build on servers that lost it, and does not
// change servers that a watch would not change. It returns nil if every primary runs build, and
// otherwise the errors for the primaries that do not.
func (l *Loader) Repair(ctx context.Context, build Build) error {
	want, err := l.readBuild(build)
	if err != nil {
		return err
	}
	var left []error
	w := l.watch(want, func(e Event) {
		if e.Kind == Left || e.Kind == Failed {
			left = append(left, e.Err)
		}
	})
	defer w.s.close()
	w.round(ctx)
	if err := ctx.Err(); err != nil {
		return err
	}
	return errors.Join(left...)
}

// Healer returns a function for client.WithHealer. If a server has lost the library, the function
// loads build there as [Loader.Repair] does. It succeeds if that server has the library afterwards,
// even if another server of the cluster is unreachable.
func Healer(build Build, opts ...Option) func(context.Context, redis.UniversalClient) error {
	return func(ctx context.Context, server redis.UniversalClient) error {
		l, err := New(server, opts...)
		if err != nil {
			return err
		}
		err = l.Repair(ctx, build)
		// Another server may be unreachable. The caller asks only for this one.
		if node, ok := server.(*redis.Client); ok && errors.Is(err, ErrUnreachable) && node.FCallRO(ctx, "ratelimit_info", nil).Err() == nil {
			return nil
		}
		return err
	}
}
