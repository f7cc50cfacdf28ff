package holds

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"time"

	"github.com/ratelimit-functions/ratelimit/client"
	"github.com/ratelimit-functions/ratelimit/gateway/internal/metrics"
)

// Bounds of a reservation. They are for callers to check.
const (
	MostUnits   = 1 << 53
	ShortestTTL = time.Second
	LongestTTL  = 24 * time.Hour
)

var (
	// ErrUnknown is the error of Commit if there is no such reservation, or no longer.
	ErrUnknown = errors.New("there is no such reservation")
	// ErrDomain is the error of Commit for a reservation of another domain.
	ErrDomain = errors.New("the reservation was made in another domain")
)

// Limiter has the methods of [client.Client] that a reservation needs.
type Limiter interface {
	Take(context.Context, client.Request) (client.Result, error)
	Refund(context.Context, client.Request) (client.Result, error)
}

// Options configures [Holds]. All fields but Now are required.
type Options struct {
	Limiter Limiter
	Store   Store
	Metrics *metrics.Metrics
	Log     *slog.Logger
	Timeout time.Duration    // maximum time of a Reserve or a Commit
	Now     func() time.Time // time.Now if nil
}

// Holds reserves units. Its methods may be called concurrently.
type Holds struct {
	Options
	ahead    atomic.Int64 // how far the servers' clock is ahead of Now, in ns, as of the last sweep
	measured atomic.Bool
}

// New returns a Holds. Only [Holds.Run] or [Holds.Sweep] gives back what is not committed.
func New(options Options) *Holds {
	if options.Now == nil {
		options.Now = time.Now
	}
	return &Holds{Options: options}
}

// now returns the time by the servers' clock, so that the clocks of the gateways need not agree.
func (h *Holds) now() time.Time { return h.Now().Add(time.Duration(h.ahead.Load())) }

// measure asks a server for its time, and returns it.
func (h *Holds) measure(ctx context.Context) (time.Time, error) {
	now, err := h.Store.Now(ctx)
	if err == nil {
		h.ahead.Store(int64(now.Sub(h.Now())))
		h.measured.Store(true)
	}
	return now, err
}

// Part is what one call charges: all of its keys, or none. If Optional is true, a denial of the part
// does not deny the reservation.
type Part struct {
	Keys     []string       `json:"keys"`
	Limits   []client.Limit `json:"limits"`
	Optional bool           `json:"-"`
}

// record is the stored form of a reservation. Domain may be any text that says who may commit it.
type record struct {
	Domain string `json:"domain,omitempty"`
	Parts  []Part `json:"parts"`
	Amount int64  `json:"amount"`
	TTLMS  int64  `json:"ttl_ms"`
}

// life returns how long the record is kept after Reserve.
func (r *record) life() time.Duration { return time.Duration(r.TTLMS)*time.Millisecond + kept }

// Reservation is the result of [Holds.Reserve].
type Reservation struct {
	ID      string          // empty if denied
	Results []client.Result // of the parts, in order; after a denial, of those before it and of the denied part
}

// Reserve charges amount to each key of the parts, or to none. If it returns an error, an unknown
// part of the units may be charged; it is given back after ttl.
func (h *Holds) Reserve(ctx context.Context, domain string, parts []Part, amount int64, ttl time.Duration) (Reservation, error) {
	ctx, cancel := context.WithTimeout(ctx, h.Timeout)
	defer cancel()
	r := &record{Domain: domain, Parts: parts, Amount: amount, TTLMS: ttl.Milliseconds()}
	for i := range parts {
		if _, err := r.request("", i); err != nil {
			return Reservation{}, err
		}
	}
	text, err := json.Marshal(r)
	if err != nil { // cannot happen with these types
		return Reservation{}, err
	}
	if !h.measured.Load() {
		_, err = h.measure(ctx)
	}
	id := newID()
	if err == nil {
		err = h.Store.Add(ctx, id, text, h.now().Add(ttl), r.life())
	}
	if err != nil {
		return Reservation{}, fmt.Errorf("the reservation was not stored, and nothing was charged: %w", err)
	}
	made := Reservation{ID: id}
	for i, part := range parts {
		request, _ := r.request(id, i)
		began := time.Now()
		res, err := h.Limiter.Take(ctx, request)
		if err == nil && res.Allowed && res.Limit == markLimit { // a sweep came first, because ttl is over
			err = fmt.Errorf("the reservation took longer than its ttl, %v, and nothing was charged; give a longer one", ttl)
		}
		if err != nil {
			if !errors.Is(err, client.ErrOutcomeUnknown) {
				h.cancel(ctx, id, r, i > 0)
			}
			return Reservation{}, refusal(err, part)
		}
		if made.Results = append(made.Results, res); res.Allowed || part.Optional {
			continue
		}
		h.cancel(ctx, id, r, i > 0 || time.Since(began) >= sentOnce)
		h.Metrics.Reservation("denied")
		return Reservation{Results: made.Results}, nil
	}
	h.Metrics.Reservation("reserved")
	return made, nil
}

// sentOnce is shorter than the first pause before package client sends a take again. A take that was
// slower may have been sent twice, and the first attempt may still arrive.
const sentOnce = 5 * time.Millisecond

// cancel ends a reservation of which the caller gets no id. If its units may be charged, they are given
// back. If cancel fails, a sweep does this.
func (h *Holds) cancel(ctx context.Context, id string, r *record, charged bool) {
	if !charged {
		_ = h.Store.Drop(ctx, id)
	} else if first, err := h.Store.Decide(ctx, id, swept, h.now(), r.life()+longer); err == nil && first == swept {
		_, _ = h.settle(ctx, id, r, decision{by: swept})
	}
}

// Committed is the result of [Holds.Commit].
type Committed struct {
	Actual int64 // the units of the first Commit
	Late   bool  // the reservation had ended, so its units were given back before, and Actual was charged by force
}

// Commit replaces what a reservation charged with actual. Repeated calls return the first result and
// ignore actual. If the error is neither [ErrUnknown] nor [ErrDomain], the commit may have been made
// or may still be made by a sweep, and can be repeated.
func (h *Holds) Commit(ctx context.Context, domain, id string, actual int64) (Committed, error) {
	ctx, cancel := context.WithTimeout(ctx, h.Timeout)
	defer cancel()
	r, err := h.record(ctx, id)
	switch {
	case err != nil:
		return Committed{}, fmt.Errorf("the reservation was not read, and nothing has changed: %w", err)
	case r == nil:
		h.Metrics.Reservation("unknown")
		return Committed{}, ErrUnknown
	case r.Domain != domain:
		return Committed{}, ErrDomain
	}
	mine := decision{by: "commit", actual: actual}
	text, err := h.Store.Decide(ctx, id, mine.String(), h.now(), r.life()+longer)
	if err != nil {
		return Committed{}, fmt.Errorf("%w: the commit may have been stored; send it again: %w", client.ErrOutcomeUnknown, err)
	}
	first, err := parseDecision(text)
	if err != nil {
		return Committed{}, err
	}
	if first.by == swept {
		h.Metrics.Reservation("late")
		return Committed{Actual: actual, Late: true}, h.report(ctx, r.Parts, actual, id, r.life()+longer)
	}
	made := Committed{Actual: first.actual}
	if text == mine.String() {
		h.Metrics.Reservation("committed")
	} else {
		h.Metrics.Reservation("repeated")
	}
	if first.done {
		return made, nil
	}
	_, err = h.settle(ctx, id, r, first)
	return made, err
}

// Report charges units that have been used to each key of the parts, even if they do not fit. With an
// id, they are charged once, however often this is called.
func (h *Holds) Report(ctx context.Context, parts []Part, actual int64, id string) error {
	ctx, cancel := context.WithTimeout(ctx, h.Timeout)
	defer cancel()
	return h.report(ctx, parts, actual, id, 2*repeatable)
}

// report is Report, where a call with an id may be repeated for ttl.
func (h *Holds) report(ctx context.Context, parts []Part, actual int64, id string, ttl time.Duration) error {
	r := &record{}
	for _, part := range parts {
		r.Parts = append(r.Parts, part.split()...)
	}
	var failed error
	for i, part := range r.Parts {
		request := client.Request{Keys: part.Keys, Limits: part.Limits, Costs: []int64{actual}, Force: true}
		if id != "" {
			base, err := r.name(hashed(id), i)
			if err != nil {
				return err
			}
			request.OnceKey, request.OnceTTL = base+":late", ttl
		}
		res, err := h.Limiter.Take(ctx, request)
		if wait, is := blockedFor(res, part); err == nil && is {
			err = fmt.Errorf("%q is blocked for %v, and nothing was charged to it; send what was used again after that", part.Keys, wait)
		}
		failed = cmp.Or(failed, err)
	}
	return failed
}

// record returns the record of an id, or nil if it is unknown.
func (h *Holds) record(ctx context.Context, id string) (*record, error) {
	if !wellFormed(id) {
		return nil, nil
	}
	text, err := h.Store.Record(ctx, id)
	if err != nil || len(text) == 0 {
		return nil, err
	}
	r := &record{}
	if err := json.Unmarshal(text, r); err != nil {
		return nil, fmt.Errorf("the record of %s is not one of a gateway: %w", id, err)
	}
	return r, nil
}

// newID returns a random id: the letter of a shard, and 26 characters from A to Z and 2 to 7.
func newID() string {
	text := rand.Text()
	return string(shards[int(text[0])%len(shards)]) + rand.Text()
}

func wellFormed(id string) bool {
	return len(id) == 27 && strings.Contains(shards, id[:1]) && strings.Trim(id[1:], "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567") == ""
}
