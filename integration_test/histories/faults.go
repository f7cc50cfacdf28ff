package histories

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"

	"github.com/ratelimit-functions/ratelimit/integration_test/backend"
)

// Faults returns one fault of each kind that the fleet can have. Their order and their targets
// depend on the seed only.
func (f *Fleet) Faults(seed uint64) []Fault {
	draw := rand.New(rand.NewPCG(seed, 0))
	on := func(do func(ctx context.Context, r *Run, at int) error) func(context.Context, *Run) error {
		at := draw.IntN(len(f.shards))
		return func(ctx context.Context, r *Run) error { return do(ctx, r, at) }
	}
	all := []Fault{
		{"stop", on(f.stop)},
		{"kill, no persistence", on(f.kill)},
		{"cut", f.cut},
		{"delay", f.delay},
		{"clock forward", step(100_000_000)},
		{"clock back", step(-3_600_000_000)},
		{"library lost", on(f.loseLibrary)},
		{"library lost and healed", on(f.healLibrary)},
		{"deployment", f.deploy},
	}
	if f.b.Cluster {
		all = append(all,
			Fault{"failover, replica behind", on(f.failoverBehind)},
			Fault{"failover, killed", on(f.failoverKilled)},
			Fault{"failover, stopped", on(f.failoverStopped)},
			Fault{"failover, planned", on(f.failoverPlanned)},
			Fault{"slot moved", f.moveSlot})
	} else {
		all = append(all, Fault{"kill, snapshot", on(f.killSaved)})
	}
	draw.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	return all
}

// stop suspends a server until calls have failed.
func (f *Fleet) stop(ctx context.Context, r *Run, at int) error {
	n := f.shards[at].primary
	if err := n.Pause(ctx); err != nil {
		return err
	}
	r.Outage()
	return errors.Join(r.AfterFailures(ctx, 5), r.resume(ctx, n))
}

// resume resumes a server, and waits until it has executed what it has received.
func (r *Run) resume(ctx context.Context, n *backend.Node) error {
	return r.Still(func(func(int64) error) error {
		return errors.Join(n.Resume(ctx), n.Client().Ping(ctx).Err())
	})
}

// kill kills a server. It loses its keys and its library, or returns to its last snapshot.
func (f *Fleet) kill(ctx context.Context, r *Run, at int) error {
	s := f.shards[at]
	r.Outage()
	what := Lost
	if f.saved >= 0 {
		what = Restored
	}
	e := r.Begin(what, at, f.saved)
	if err := s.primary.Kill(ctx); err != nil {
		return err
	}
	version := r.Version(at)
	err := r.AfterFailures(ctx, 5)
	r.Dead(at)
	err = errors.Join(err, f.restart(ctx, r, s.primary))
	r.End(e)
	if err != nil {
		return err
	}
	last := r.Begin(Deployed, at, version)
	err = f.load(ctx, s, version)
	r.End(last)
	return err
}

// restart restarts a killed server. A node of a cluster accepts calls again two seconds later, by
// its clock, which therefore must not be set back now.
func (f *Fleet) restart(ctx context.Context, r *Run, n *backend.Node) error {
	if !f.b.Cluster {
		return n.Restart(ctx)
	}
	return r.Still(func(advance func(us int64) error) error {
		if err := n.Restart(ctx); err != nil {
			return err
		}
		tries := 0
		return backend.Until(ctx, n.String()+" to be part of the cluster", func() error {
			if tries++; tries%20 == 5 {
				if err := advance(3_000_000); err != nil {
					return err
				}
			}
			info, err := n.Client().ClusterInfo(ctx).Result()
			if err == nil && !strings.Contains(info, "cluster_state:ok\r\n") {
				err = fmt.Errorf("CLUSTER INFO: %s", info)
			}
			return err
		})
	})
}

// killSaved kills a server some calls after a snapshot.
func (f *Fleet) killSaved(ctx context.Context, r *Run, at int) error {
	n := f.shards[at].primary
	saved := r.Begin(Saved, at, 0)
	err := n.Client().Save(ctx).Err()
	r.End(saved)
	f.saved = r.Version(at)
	if err := errors.Join(err, r.AfterCalls(ctx, 40)); err != nil {
		return err
	}
	r.Outage()
	restored := r.Begin(Restored, at, f.saved)
	err = errors.Join(n.Kill(ctx), r.AfterFailures(ctx, 5))
	r.Dead(at)
	err = errors.Join(err, f.restart(ctx, r, n))
	r.End(restored)
	return err
}

func (f *Fleet) cut(ctx context.Context, r *Run) error {
	return r.Cut(ctx, cutBefore, cutAfter, cutReply, cutHalf, silent, cutAfter)
}

func (f *Fleet) delay(ctx context.Context, r *Run) error { return r.Cut(ctx, late, late, late) }

// step returns a fault that moves the clock once.
func step(us int64) func(context.Context, *Run) error {
	return func(ctx context.Context, r *Run) error {
		return errors.Join(r.Move(us), r.AfterCalls(ctx, 20))
	}
}

// loseLibrary deletes the library of a server, and loads it again when calls have failed.
func (f *Fleet) loseLibrary(ctx context.Context, r *Run, at int) error {
	s := f.shards[at]
	r.Outage()
	if err := s.primary.Client().FunctionFlush(ctx).Err(); err != nil {
		return err
	}
	return errors.Join(r.AfterFailures(ctx, 1), f.load(ctx, s, r.Version(at)))
}

// healLibrary deletes the library of a server, and waits until a client has restored it. When the run
// has ended, no client calls, and none restores it.
func (f *Fleet) healLibrary(ctx context.Context, r *Run, at int) error {
	s := f.shards[at]
	f.healing.Store(true)
	defer f.healing.Store(false)
	if err := s.primary.Client().FunctionFlush(ctx).Err(); err != nil {
		return err
	}
	err := backend.Until(ctx, "a client to restore the library", func() error {
		functions, err := s.primary.Client().FunctionStats(ctx).Result()
		if err == nil && len(functions.Engines) > 0 && functions.Engines[0].LibrariesCount == 0 && !r.report.ended(r.Most) {
			err = errors.New("there is no library")
		}
		return err
	})
	return errors.Join(err, f.sync(ctx, s))
}

// deploy loads the next version of the library on one server after another.
func (f *Fleet) deploy(ctx context.Context, r *Run) error {
	version := (r.Version(0) + 1) % len(f.texts)
	f.version.Store(int64(version))
	for at, s := range f.shards {
		e := r.Begin(Deployed, at, version)
		err := f.load(ctx, s, version)
		r.End(e)
		if err := errors.Join(err, r.AfterCalls(ctx, 10)); err != nil {
			return err
		}
	}
	return nil
}
