package holds

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ratelimit-functions/ratelimit/client"
	"github.com/ratelimit-functions/ratelimit/internal/keytext"
)

// Invalid is the error of Reserve for parts that cannot be reserved. Reason is the code of the library.
type Invalid struct{ Reason, Text string }

func (i *Invalid) Error() string { return i.Text }

// name returns the prefix of the keys with the replies for part i.
func (r *record) name(id string, i int) (string, error) {
	if len(r.Parts[i].Keys) == 0 {
		return "", &Invalid{"BADKEYS", "the number of keys is 0; give each limit one key"}
	}
	slot, err := keytext.SameSlot("", r.Parts[i].Keys[0])
	if err != nil {
		return "", &Invalid{"BADKEYS", err.Error()[len("BADKEYS "):]}
	}
	return fmt.Sprintf("%s:hold:%s:%d", slot, id, i+1), nil
}

// request returns the take of part i. Each makes the units that a shadow policy was charged exact. It
// also makes the server refuse a policy with a guarantee and a pool, whose units could not be given
// back, because the reply does not say who paid.
func (r *record) request(id string, i int) (client.Request, error) {
	base, err := r.name(id, i)
	return client.Request{
		Keys: r.Parts[i].Keys, Limits: r.Parts[i].Limits, Costs: slices.Repeat([]int64{r.Amount}, len(r.Parts[i].Keys)), Each: true,
		OnceKey: base + ":take", OnceTTL: r.life() + longer,
	}, err
}

// refusal rewords the error of a part's take. The original may name the options Each and OnceKey, the
// key of OnceKey and the costs, of which the caller of Reserve knows nothing.
func refusal(err error, part Part) error {
	call, ok := errors.AsType[*client.Error](err)
	if !ok {
		return err
	}
	text := err.Error()
	switch {
	case call.Code == "BADKEYS" && strings.Contains(text, "the number of keys is "), call.Code == "BADARGS" && strings.Contains(text, "the number of costs is "):
		takes := "" // which keys a policy takes
		if i := strings.LastIndex(text, "; @"); i >= 0 {
			takes = text[i:]
		}
		return &Invalid{"BADKEYS", fmt.Sprintf("the number of keys is %d; give each limit one key, in order%s", len(part.Keys), takes)}
	case call.Code == "BADARGS" && strings.Contains(text, "EACH and @"):
		return &Invalid{call.Code, "a policy with a guarantee and a pool takes no reservation, because it could not give the units back to who paid; send a take for it, and a refund with paid"}
	case call.Code == "BADARGS" && strings.Contains(text, "ONCE is given for a policy with track"):
		return &Invalid{call.Code, "a policy with track takes no reservation, because it would count the estimate as used; name a policy without track"}
	case call.Code == "BADLIMIT" && strings.Contains(text, "concurrency is for"):
		return &Invalid{call.Code, "a limit with leases (concurrency) takes no reservation; call acquire and release"}
	}
	return err
}

// markLimit is a capacity that no limit has by chance, so the reply to a mark can be told from any
// other.
const markLimit = 9007199254740881

// mark asks whether the take of part i was charged. If it was, the reply is that of the take.
// Otherwise it takes 2 units of another key, and makes sure that the take is never charged.
func (r *record) mark(take client.Request) client.Request {
	mark := client.Request{UpTo: true, Costs: []int64{2}, Each: true, OnceKey: take.OnceKey, OnceTTL: take.OnceTTL}
	for range take.Keys { // as many as the take has, so that its reply is read in full
		mark.Keys = append(mark.Keys, fmt.Sprintf("%s:mark:%d", take.OnceKey, len(mark.Keys)+1))
		mark.Limits = append(mark.Limits, client.Limit(fmt.Sprintf("fixed_window %d/1ms", markLimit)))
	}
	return mark
}

// decision is what is to be done with a reservation.
type decision struct {
	by     string // "commit" or swept
	actual int64
	done   bool
}

const swept = "sweep"

func (d decision) String() string {
	text := d.by
	if d.by != swept {
		text += " " + strconv.FormatInt(d.actual, 10)
	}
	if d.done {
		text += " done"
	}
	return text
}

func parseDecision(text string) (decision, error) {
	d := decision{}
	rest, done := strings.CutSuffix(text, " done")
	by, number, found := strings.Cut(rest, " ")
	d.by, d.done = by, done
	if !found && by == swept {
		return d, nil
	}
	var err error
	if d.actual, err = strconv.ParseInt(number, 10, 64); err != nil || by != "commit" || d.actual < 0 {
		return d, fmt.Errorf("%q is not a decision of a gateway; another program uses its keys", text)
	}
	return d, nil
}

// settled is what settle has done.
type settled struct {
	news    bool          // whether this call, and no other, has carried the decision out
	charged bool          // whether the reservation had been charged
	blocked time.Duration // how long a key is still blocked; the decision is carried out after that
}

// settle carries a decision out: it corrects each part, and stores that this is done.
func (h *Holds) settle(ctx context.Context, id string, r *record, d decision) (s settled, err error) {
	var replyKeys []string
	for i := range r.Parts {
		take, err := r.request(id, i)
		if err != nil {
			return s, err
		}
		charged, blocked, settles, err := h.correct(ctx, r, take, d.actual)
		if err != nil {
			return s, err
		}
		s.charged, s.blocked = s.charged || charged, max(s.blocked, blocked)
		replyKeys = append(append(replyKeys, take.OnceKey), settles...)
	}
	if s.blocked > 0 {
		// Without its keys, nobody could carry the decision out, so each attempt makes them last.
		if err := h.Store.Expire(ctx, r.life()+longer, append(replyKeys, decisionKey(id))...); err != nil {
			return s, err
		}
		return s, h.Store.Wait(ctx, id, h.now().Add(min(s.blocked, kept/2)), r.life())
	}
	d.done = true
	if s.news, err = h.Store.Finish(ctx, id, d.String()); err == nil {
		_ = h.Store.Expire(ctx, replies, replyKeys...) // they expire anyway
	}
	return s, nil // without Finish, a sweep repeats all of this
}

// correct makes up the difference between what a take charged and actual. If it charged nothing, there
// is nothing to correct. correct reports whether it charged anything, and if a key is blocked, how long
// it will be. It also returns the request keys of the corrections.
func (h *Holds) correct(ctx context.Context, r *record, take client.Request, actual int64) (charged bool, blocked time.Duration, settles []string, err error) {
	res, err := h.Limiter.Take(ctx, r.mark(take))
	if err != nil || res.Taken == 2 {
		return false, 0, nil, err
	}
	units, err := res.Charged(take)
	if err != nil {
		return false, 0, nil, err
	}
	whole := Part{Keys: take.Keys, Limits: take.Limits}
	pieces := []Part{whole}
	if res.Shadow != nil {
		pieces = whole.split()
	}
	for i, piece := range pieces {
		back, more := make([]int64, len(piece.Keys)), make([]int64, len(piece.Keys))
		for k, n := range units[:len(piece.Keys)] {
			if n > 0 { // otherwise, a shadow policy would have denied the key
				charged, back[k], more[k] = true, max(n-actual, 0), max(actual-n, 0)
			}
		}
		units = units[len(piece.Keys):]
		fix := client.Request{Keys: piece.Keys, Limits: piece.Limits, Costs: back, OnceKey: fmt.Sprintf("%s:settle:%d", take.OnceKey, i+1), OnceTTL: take.OnceTTL}
		settles = append(settles, fix.OnceKey)
		switch {
		case slices.Max(back) > 0:
			res, err = h.Limiter.Refund(ctx, fix)
		case slices.Max(more) > 0:
			fix.Costs, fix.Force = more, true
			res, err = h.Limiter.Take(ctx, fix)
		default:
			continue
		}
		if err != nil {
			return charged, blocked, settles, err
		}
		if wait, is := blockedFor(res, piece); is {
			blocked = max(blocked, wait, time.Second)
		}
	}
	return charged, blocked, settles, nil
}

// blockedFor reports whether a refund or a forced take of p has changed nothing because a key is blocked, and for
// how long it still is. A shadow policy never denies, but a block keeps its keys as they are, too. Of several
// limits, it cannot say this: the reply is that of the others.
func blockedFor(res client.Result, p Part) (time.Duration, bool) {
	switch {
	case !res.Allowed:
		return res.RetryAfter, true
	case res.Shadow != nil && !res.Shadow.Allowed && len(p.Limits) == 1:
		return res.Shadow.RetryAfter, true
	}
	return 0, false
}

// split returns a part for each limit, if a policy is among them. A call with enforced limits and a shadow policy
// may charge the one and, because of a block, not the other. Its request key then repeats this reply, so nobody
// could make up for it after the block. If it is not known which keys belong to which limit, because one of several
// policies has several keys, split returns the part as it is.
func (p Part) split() []Part {
	policies, last := 0, 0
	for i, limit := range p.Limits {
		if strings.HasPrefix(string(limit), "@") {
			policies, last = policies+1, i
		}
	}
	several := len(p.Keys) - len(p.Limits) // beyond one for each limit; a policy has them
	if policies == 0 || several < 0 || several > 0 && policies > 1 {
		return []Part{p}
	}
	pieces, keys := make([]Part, len(p.Limits)), p.Keys
	for i, limit := range p.Limits {
		n := 1
		if i == last {
			n += several
		}
		pieces[i] = Part{Keys: keys[:n], Limits: []client.Limit{limit}}
		keys = keys[n:]
	}
	return pieces
}

// hashed returns a short text for an id, which may be any.
func hashed(id string) string {
	sum := sha256.Sum256([]byte(id))
	return hex.EncodeToString(sum[:16])
}
