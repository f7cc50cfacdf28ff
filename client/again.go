package client

import (
	"errors"
	"math/rand/v2"
	"time"
)

// pauses are the waits before a call is sent again. They are long enough for a cluster client to
// find another node. Each pause is shortened by up to half at random, so that callers of one failed
// server do not all retry at the same time.
var pauses = [...]time.Duration{10 * time.Millisecond, 40 * time.Millisecond, 160 * time.Millisecond}

// attempts records why a call was sent again.
type attempts struct {
	sent   time.Time // when the last attempt began; zero for the first one
	lost   error     // the error of the first attempt whose reply was lost; nil if there was none
	n      int       // attempts after a lost reply
	moves  int       // attempts while a cluster moved the keys, since the last lost reply or healing
	healed bool      // the library was reinstalled since the last lost reply
}

// again returns nil if a call that failed with err should be sent again now, and otherwise the error
// to return. A call is sent again
//   - while a cluster is moving its keys, because it was not executed, and there is time for a reply:
//     a reply that comes too late would make the outcome unknown;
//   - if the library was missing, and the healer has installed it (heal.go);
//   - if its reply was lost and the call may be repeated: once after each of the pauses, until ctx
//     is done or call.within, if set, has passed. If that fails, the outcome remains unknown.
func (s *server) again(ctx *bounded, call *call, a *attempts, err error) error {
	pause := pauses[min(a.moves, 1)]
	if e, ok := errors.AsType[*Error](err); ok && e.Code == "TRYAGAIN" && time.Until(ctx.deadline) > pause+timeForAReply(ctx) && pauseBefore(ctx, call, pause) {
		a.moves++
		a.sent = time.Now()
		return nil
	}
	if s.healer != nil && !a.healed && len(call.keys) > 0 && notFound(err) {
		if a.sent.IsZero() {
			a.sent = ctx.began
		}
		why := s.heal(ctx, ctx.sent.at, a.sent)
		if why == nil {
			a.healed, a.moves, a.sent = true, 0, time.Now()
			return nil
		}
		err = unhealed(err, why)
	}
	switch {
	case a.lost != nil:
		if !errors.Is(err, ErrUnavailable) {
			return lostAgain(ctx, a.lost, err, a.n)
		}
	case call.mode != repeatable || !lost(err):
		return err
	default:
		a.lost = err
		if call.within > 0 { // 2*call.within is OnceTTL; a later retry could be charged again
			ctx.shorten(2*call.within - time.Since(ctx.began))
		}
	}
	if a.n == len(pauses) || !pauseBefore(ctx, call, pauses[a.n]) {
		return lostAgain(ctx, a.lost, err, a.n)
	}
	*a = attempts{sent: time.Now(), lost: a.lost, n: a.n + 1}
	return nil
}

// timeForAReply returns how much time a call that was not executed must leave for the reply to another
// attempt: a tenth of its time, and at most half a second.
func timeForAReply(ctx *bounded) time.Duration {
	return min(ctx.deadline.Sub(ctx.began)/10, 500*time.Millisecond)
}

// pauseBefore waits for d, less up to half of it, and reports whether the call may then be sent
// again.
func pauseBefore(ctx *bounded, call *call, d time.Duration) bool {
	d -= rand.N(d / 2)
	if call.within > 0 && time.Since(ctx.began)+d > call.within {
		return false
	}
	select {
	case <-ctx.Context.Done():
		return false
	case <-time.After(min(d, time.Until(ctx.deadline))):
		return ended(ctx) == nil
	}
}
