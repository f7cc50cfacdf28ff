package histories

import (
	"context"
	"errors"
	"fmt"
	"net"

	"github.com/redis/go-redis/v9"

	"github.com/ratelimit-functions/ratelimit/integration_test/backend"
)

// failoverBehind kills a primary whose replica has not received the last changes. The replica takes
// over.
func (f *Fleet) failoverBehind(ctx context.Context, r *Run, at int) error {
	s := f.shards[at]
	if err := errors.Join(s.replica.Pause(ctx), s.primary.Client().ClientKillByFilter(ctx, "TYPE", "replica").Err(), r.AfterReplies(ctx, at, 30)); err != nil {
		return err
	}
	return f.killed(ctx, r, at, func() error { return s.replica.Resume(ctx) })
}

// failoverKilled kills a primary while calls are in progress. Its replica takes over.
func (f *Fleet) failoverKilled(ctx context.Context, r *Run, at int) error {
	return f.killed(ctx, r, at, func() error { return nil })
}

// killed kills a primary, calls then, and lets the replica take over. The clock stands still until
// replies have shown what the replica lacks. Then the killed server returns as a replica.
func (f *Fleet) killed(ctx context.Context, r *Run, at int, then func() error) error {
	s := f.shards[at]
	r.Outage()
	err := r.Still(func(func(int64) error) error {
		e := r.Begin(TakenOver, at, 0)
		err := errors.Join(s.primary.Kill(ctx), then(), takeOver(ctx, s.replica))
		r.End(e)
		s.primary, s.replica = s.replica, s.primary
		r.recover()
		return errors.Join(err, r.AfterReplies(ctx, at, 20), r.barrier(ctx))
	})
	if err := errors.Join(err, f.restart(ctx, r, s.replica), demoted(ctx, s.replica)); err != nil {
		return err
	}
	return f.sync(ctx, s)
}

// failoverStopped suspends a primary, and lets its replica take over. Then the former primary goes
// on, with the calls that it has received.
func (f *Fleet) failoverStopped(ctx context.Context, r *Run, at int) error {
	s := f.shards[at]
	if err := s.primary.Pause(ctx); err != nil {
		return err
	}
	r.Outage()
	if err := r.AfterFailures(ctx, 2); err != nil {
		return err
	}
	err := r.Still(func(func(int64) error) error {
		e := r.Begin(Replaced, at, 0)
		err := takeOver(ctx, s.replica)
		r.End(e)
		s.primary, s.replica = s.replica, s.primary
		r.recover()
		if err := errors.Join(err, r.AfterReplies(ctx, at, 20), s.replica.Resume(ctx)); err != nil {
			return err
		}
		last := r.Begin(Demoted, at, 0)
		err = demoted(ctx, s.replica)
		r.End(last)
		return errors.Join(err, r.barrier(ctx))
	})
	return errors.Join(err, f.sync(ctx, s))
}

// failoverPlanned lets a replica take over that has all changes, while no call is in progress.
func (f *Fleet) failoverPlanned(ctx context.Context, r *Run, at int) error {
	s := f.shards[at]
	e := r.Begin(HandedOver, at, 0)
	err := r.Quiet(func() error {
		return errors.Join(f.sync(ctx, s), takeOver(ctx, s.replica), demoted(ctx, s.primary))
	})
	r.End(e)
	s.primary, s.replica = s.replica, s.primary
	return errors.Join(err, f.sync(ctx, s))
}

// takeOver makes a replica the primary, without a vote, which would need a running clock.
func takeOver(ctx context.Context, n *backend.Node) error {
	err := backend.Until(ctx, n.String()+" to take over", func() error { return n.Client().Do(ctx, "CLUSTER", "FAILOVER", "TAKEOVER").Err() })
	if err != nil {
		return err
	}
	return role(ctx, n, "master")
}

// demoted waits until a former primary is a replica.
func demoted(ctx context.Context, n *backend.Node) error { return role(ctx, n, "slave") }

func role(ctx context.Context, n *backend.Node, want string) error {
	return backend.Until(ctx, n.String()+" to be a "+want, func() error {
		info, err := n.Client().InfoMap(ctx, "replication").Result()
		if got := info["Replication"]["role"]; err == nil && got != want {
			err = fmt.Errorf("it is a %s", got)
		}
		return err
	})
}

// moveSlot moves the slot of an episode in progress to another shard, key by key.
func (f *Fleet) moveSlot(ctx context.Context, r *Run) error {
	slot := slotOf(r.Tag())
	from := f.owner(slot)
	to := (from + 1) % len(f.shards)
	source, target := f.shards[from].primary, f.shards[to].primary
	err := r.Still(func(advance func(us int64) error) error { return moveSlot(ctx, r, int(slot), source, target, advance) })
	if err != nil {
		return err
	}
	for _, s := range f.shards {
		if s.primary == source || s.primary == target {
			continue
		}
		if err := setSlot(ctx, s.primary, int(slot), "NODE", target); err != nil {
			return err
		}
	}
	f.mu.Lock()
	f.moved[slot] = to
	f.mu.Unlock()
	r.Moved()
	return errors.Join(r.AfterCalls(ctx, 20), f.sync(ctx, f.shards[from]), f.sync(ctx, f.shards[to]))
}

// moveSlot moves the keys of a slot. The clock stands still, because MIGRATE sends the time that a
// key has left, and so moves its expiry if the clock moves on the way.
func moveSlot(ctx context.Context, r *Run, slot int, source, target *backend.Node, advance func(us int64) error) error {
	if err := errors.Join(setSlot(ctx, target, slot, "IMPORTING", source), setSlot(ctx, source, slot, "MIGRATING", target)); err != nil {
		return err
	}
	host, port, err := net.SplitHostPort(target.Addr)
	if err != nil {
		return err
	}
	for {
		keys, err := source.Client().ClusterGetKeysInSlot(ctx, slot, 1).Result()
		if err != nil {
			return err
		}
		if len(keys) == 0 {
			break
		}
		left, err := source.Client().PTTL(ctx, keys[0]).Result()
		if _, gone := redis.IsAskError(err); gone { // the key was deleted in the meantime
			continue
		}
		if err == nil && left == 0 { // MIGRATE would add a millisecond to a key that expires in this one
			err = advance(1000)
		}
		if err == nil {
			err = source.Client().Do(ctx, "MIGRATE", host, port, keys[0], 0, 60000).Err()
		}
		if err := errors.Join(err, r.AfterCalls(ctx, 5)); err != nil {
			return err
		}
	}
	return errors.Join(setSlot(ctx, target, slot, "NODE", target), setSlot(ctx, source, slot, "NODE", target))
}

func setSlot(ctx context.Context, n *backend.Node, slot int, what string, other *backend.Node) error {
	id, err := other.Client().ClusterMyID(ctx).Result()
	if err != nil {
		return err
	}
	if err := n.Client().Do(ctx, "CLUSTER", "SETSLOT", slot, what, id).Err(); err != nil {
		return fmt.Errorf("%s: CLUSTER SETSLOT %d %s: %w", n, slot, what, err)
	}
	return nil
}
