package api

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/ratelimit-functions/ratelimit/client"
	"github.com/ratelimit-functions/ratelimit/client/replyjson"
	"github.com/ratelimit-functions/ratelimit/gateway/internal/holds"
	"github.com/ratelimit-functions/ratelimit/gateway/internal/remedy"
	"github.com/ratelimit-functions/ratelimit/internal/printable"
)

type reserveRequest struct {
	Keys   []string       `json:"keys"`
	Limits []client.Limit `json:"limits"`
	Amount whole          `json:"amount"`
	TTLMS  whole          `json:"ttl_ms"`
}

type reserveReply struct {
	replyjson.Decision
	ReservationID string `json:"reservation_id,omitempty"` // absent if denied
}

type commitRequest struct {
	ReservationID string `json:"reservation_id"`
	Actual        whole  `json:"actual"`
}

type commitReply struct {
	Actual int64 `json:"actual"`
	Late   bool  `json:"late"`
}

// reserve returns the operation that charges an estimate. A denial has the status 429, so that a
// program that looks at nothing else does no work.
func reserve() operation {
	return typed[reserveRequest, reserveReply](func(ctx context.Context, o Options, q reserveRequest) (answer, error) {
		if err := between("amount", q.Amount, 1, holds.MostUnits); err != nil {
			return answer{}, err
		}
		if err := between("ttl_ms", q.TTLMS, holds.ShortestTTL.Milliseconds(), holds.LongestTTL.Milliseconds()); err != nil {
			return answer{}, err
		}
		got := answer{policy: policyIn(q.Limits...)}
		made, err := o.Holds.Reserve(ctx, "", []holds.Part{{Keys: q.Keys, Limits: q.Limits}}, int64(q.Amount), time.Duration(q.TTLMS)*time.Millisecond)
		if wrong, ok := errors.AsType[*holds.Invalid](err); ok {
			return got, &invalid{http.StatusBadRequest, wrong.Reason, wrong.Text}
		}
		if err != nil {
			return got, err
		}
		res := made.Results[0]
		res.Each = nil
		got.reply, got.decision = reserveReply{replyjson.Of(client.Request{Keys: q.Keys}, res), made.ID}, decided(res)
		if !res.Allowed {
			got.status = http.StatusTooManyRequests
		}
		return got, nil
	})
}

// commit returns the operation that replaces a reservation with what was used. The request has no
// keys, so an unknown reservation is an error.
func commit() operation {
	return typed[commitRequest, commitReply](func(ctx context.Context, o Options, q commitRequest) (answer, error) {
		if err := between("actual", q.Actual, 0, holds.MostUnits); err != nil {
			return answer{}, err
		}
		made, err := o.Holds.Commit(ctx, "", q.ReservationID, int64(q.Actual))
		if errors.Is(err, holds.ErrUnknown) || errors.Is(err, holds.ErrDomain) {
			err = &invalid{http.StatusNotFound, "NORESERVATION", fmt.Sprintf("there is no reservation %s; if its id is right, it was committed or given back more than 10 minutes ago: charge what was used with /v1/take and force", printable.Key(remedy.Cut(q.ReservationID)))}
		}
		return answer{reply: commitReply{Actual: made.Actual, Late: made.Late}, decision: "done"}, err
	})
}

// between returns an error that names field if n is out of range.
func between(field string, n whole, least, most int64) error {
	if int64(n) < least || int64(n) > most {
		return bad("%s is %d; give %d to %d", field, n, least, most)
	}
	return nil
}
