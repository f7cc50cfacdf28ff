package client

import (
	"errors"
	"math/rand/v2"
	"time"
)

// pauses are the waits before retries of a call whose reply was lost. They are long enough for a
// cluster client to find another node. Each pause is shortened by up to half at random, so that
// callers of one failed server do not all retry at the same time.
var pauses = [...]time.Duration{10 * time.Millisecond, 40 * time.Millisecond, 160 * time.Millisecond}

// repeat retries a call whose reply was lost, once after each of the pauses. It stops when ctx is
// done or call.within, if set, has passed. It does not retry a call that was not sent. If a retry
// fails, the outcome of the lost call remains unknown.
func (s *server) repeat(ctx *bounded, call *call) (any, error) {
	began := time.Now()
	reply, err := s.attempt(ctx, call)
	first, last, n := err, err, 0
	if !lost(first) {
		return reply, err
	}
	if call.within > 0 { // 2*call.within is OnceTTL; a later retry could be charged again
		ctx.shorten(2*call.within - time.Since(began))
	}
	for _, pause := range pauses {
		pause -= rand.N(pause / 2)
		if call.within > 0 && time.Since(began)+pause > call.within || !sleep(ctx, pause) {
			break
		}
		n++
		if reply, last = s.attempt(ctx, call); last == nil {
			return reply, nil
		}
		if !errors.Is(last, ErrUnavailable) {
			break
		}
	}
	return nil, lostAgain(ctx, first, last, n)
}

// sleep waits for d. It returns false if ctx has ended.
func sleep(ctx *bounded, d time.Duration) bool {
	select {
	case <-ctx.Context.Done():
		return false
	case <-time.After(min(d, time.Until(ctx.deadline))):
		return ended(ctx) == nil
	}
}
