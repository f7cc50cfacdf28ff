package holds

import (
	"cmp"
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/ratelimit-functions/ratelimit/client"
	"github.com/ratelimit-functions/ratelimit/gateway/internal/remedy"
	"github.com/ratelimit-functions/ratelimit/internal/sleep"
)

const (
	sweepEvery = time.Second
	page       = 100             // ids that a sweep reads at once
	again      = 5 * time.Second // until a sweep tries a reservation again that failed
	corrected  = time.Minute     // the same, if a person must correct something first, such as a missing policy
	sweepTime  = 5 * time.Second // maximum time for a reservation
)

// Run sweeps every second until ctx is done. It logs an error if it is news, and at most once a minute.
func (h *Holds) Run(ctx context.Context) {
	said, logs := "", rate.Sometimes{Interval: time.Minute}
	for ctx.Err() == nil {
		if err := h.Sweep(ctx); err != nil && ctx.Err() == nil && err.Error() != said {
			logs.Do(func() {
				said = err.Error()
				h.Log.Error("reservations that have ended are not given back yet", "error", remedy.For(err))
			})
		}
		_ = sleep.For(ctx, sweepEvery)
	}
}

// Sweep gives back the reservations that have ended without a Commit, and carries out commits that
// another gateway has only stored. All gateways may sweep at the same time.
func (h *Holds) Sweep(ctx context.Context) error {
	now, err := h.measure(ctx)
	if err != nil {
		return err
	}
	errs := make([]error, len(shards))
	var wait sync.WaitGroup
	for i := range shards {
		wait.Go(func() { errs[i] = h.sweep(ctx, shards[i:i+1], now) })
	}
	wait.Wait()
	return cmp.Or(errs...)
}

// sweep sweeps a shard. A reservation that fails is postponed, so that it does not hold up the others.
func (h *Holds) sweep(ctx context.Context, shard string, now time.Time) error {
	var failed error
	for {
		ids, err := h.Store.Ended(ctx, shard, now, page)
		if err != nil {
			return err
		}
		rand.Shuffle(len(ids), func(i, j int) { ids[i], ids[j] = ids[j], ids[i] }) // gateways that sweep at the same time share the work
		for _, id := range ids {
			if err := h.end(ctx, id); err != nil {
				failed = err
				pause := again
				if errors.Is(err, client.ErrMisconfigured) {
					pause = corrected
				}
				if err := h.Store.Postpone(ctx, id, now.Add(pause)); err != nil {
					return err
				}
			}
		}
		if len(ids) < page {
			return failed
		}
	}
}

// end settles a reservation that has ended.
func (h *Holds) end(ctx context.Context, id string) error {
	ctx, cancel := context.WithTimeout(ctx, sweepTime)
	defer cancel()
	r, err := h.record(ctx, id)
	if err != nil {
		return err
	}
	if r == nil { // it was kept for long enough, or a failover lost it
		return h.Store.Drop(ctx, id)
	}
	text, err := h.Store.Decide(ctx, id, swept, h.now(), r.life()+longer)
	if err != nil {
		return err
	}
	d, err := parseDecision(text)
	if err != nil {
		return err
	}
	if d.done {
		_, err = h.Store.Finish(ctx, id, text)
		return err
	}
	s, err := h.settle(ctx, id, r, d)
	if s.news && s.charged && d.by == swept {
		h.Metrics.Reservation("given_back")
	}
	return err
}
