package api

import (
	"context"
	"reflect"
	"strings"
	"time"

	"github.com/ratelimit-functions/ratelimit/client"
	"github.com/ratelimit-functions/ratelimit/internal/reply"
)

// operation is what a POST request to a path does. If get is true, GET does the same. If admin is
// true, only the admin port serves it.
type operation struct {
	get, admin     bool
	request, reply reflect.Type
	call           func(ctx context.Context, limiter *client.Client, body []byte) (answer, error)
}

func (o operation) methods() string {
	if o.get {
		return "GET, POST"
	}
	return "POST"
}

type answer struct {
	reply    any
	policy   string // "@name", if the call names a policy; set even if the call fails
	decision string // for the metrics
	failed   error  // why a denial got no penalty; nil if it needed none
}

// operations maps the name of a library function, which is the last part of a path, to its
// operation.
var operations = map[string]operation{
	"take":    decision((*client.Client).Take, takeRequest.request, true),
	"peek":    decision((*client.Client).Peek, peekRequest.request, false),
	"refund":  decision((*client.Client).Refund, refundRequest.request, false),
	"acquire": lease[acquireRequest]((*client.Lease).Acquire, leaseReply),
	"renew":   lease[leaseRequest]((*client.Lease).Renew, leaseReply),
	"release": lease[leaseRequest](func(lease *client.Lease, ctx context.Context) (client.Result, error) {
		held, err := lease.Release(ctx)
		return client.Result{Allowed: held}, err
	}, func(_, id string, res client.Result) reply.Released {
		return reply.Released{Released: res.Allowed, LeaseID: id}
	}),
	"block": admin(plain(func(ctx context.Context, limiter *client.Client, q blockRequest) (reply.Blocked, error) {
		d, err := milliseconds("ms", q.MS)
		if err != nil {
			return reply.Blocked{}, err
		}
		if q.Extend {
			err = limiter.Block(ctx, client.Block{For: d, Extend: true}, q.Keys...)
		} else {
			err = limiter.Block(ctx, client.Block{For: d}, q.Keys...)
		}
		return reply.Blocked{Blocked: len(q.Keys), ForMS: int64(q.MS)}, err
	})),
	"unblock": admin(plain(func(ctx context.Context, limiter *client.Client, q keysRequest) (reply.Unblocked, error) {
		n, err := limiter.Unblock(ctx, q.Keys...)
		return reply.Unblocked{Unblocked: n, Keys: len(q.Keys)}, err
	})),
	"override": admin(plain(func(ctx context.Context, limiter *client.Client, q overrideRequest) (reply.Overridden, error) {
		d, err := milliseconds("ms", q.MS)
		if err != nil {
			return reply.Overridden{}, err
		}
		return reply.Overridden{Overridden: len(q.Keys), Limit: string(q.Limit), ForMS: int64(q.MS)}, limiter.Override(ctx, q.Limit, d, q.Keys...)
	})),
	"override_end": admin(plain(func(ctx context.Context, limiter *client.Client, q keysRequest) (reply.OverrideEnded, error) {
		n, err := limiter.EndOverride(ctx, q.Keys...)
		return reply.OverrideEnded{Ended: n, Keys: len(q.Keys)}, err
	})),
	"reset": admin(plain(func(ctx context.Context, limiter *client.Client, q keysRequest) (reply.Reset, error) {
		n, err := limiter.Reset(ctx, q.Keys...)
		return reply.Reset{Reset: n, Keys: len(q.Keys)}, err
	})),
	"usage": plain(func(ctx context.Context, limiter *client.Client, q usageRequest) (reply.Usage, error) {
		usage, err := limiter.Usage(ctx, q.Key)
		return usageReply(usage), err
	}),
	"info": info(),
}

type whole int64

// costs is one cost for all keys, or a list with a cost for each key.
type costs []int64

type onceRequest struct {
	Key   string `json:"key"`
	TTLMS whole  `json:"ttl_ms"`
}

type takeRequest struct {
	Keys   []string       `json:"keys"`
	Limits []client.Limit `json:"limits"`
	Cost   costs          `json:"cost,omitempty"`
	UpTo   bool           `json:"upto,omitempty"`
	Force  bool           `json:"force,omitempty"`
	Once   *onceRequest   `json:"once,omitempty"`
	Track  string         `json:"track,omitempty"`
	Each   bool           `json:"each,omitempty"`
}

type peekRequest struct {
	Keys   []string       `json:"keys"`
	Limits []client.Limit `json:"limits"`
	Cost   costs          `json:"cost,omitempty"`
	UpTo   bool           `json:"upto,omitempty"`
	Each   bool           `json:"each,omitempty"`
}

type refundRequest struct {
	Keys   []string       `json:"keys"`
	Limits []client.Limit `json:"limits"`
	Cost   costs          `json:"cost,omitempty"`
	Once   *onceRequest   `json:"once,omitempty"`
	Each   bool           `json:"each,omitempty"`
}

type acquireRequest struct {
	Key     string       `json:"key"`
	Limit   client.Limit `json:"limit"`
	LeaseID string       `json:"lease_id,omitempty"` // random if absent
}

type leaseRequest struct {
	Key     string       `json:"key"`
	Limit   client.Limit `json:"limit"`
	LeaseID string       `json:"lease_id"`
}

type blockRequest struct {
	Keys   []string `json:"keys"`
	MS     whole    `json:"ms"`
	Extend bool     `json:"extend,omitempty"`
}

type overrideRequest struct {
	Keys  []string     `json:"keys"`
	Limit client.Limit `json:"limit"`
	MS    whole        `json:"ms"`
}

type keysRequest struct {
	Keys []string `json:"keys"`
}

type usageRequest struct {
	Key string `json:"key"`
}

func (q takeRequest) request() (client.Request, error) {
	req, err := q.Once.of(q.Keys, q.Limits, q.Cost)
	req.UpTo, req.Force, req.UsageKey, req.Each = q.UpTo, q.Force, q.Track, q.Each
	return upTo(req), err
}

func (q peekRequest) request() (client.Request, error) {
	req, err := (*onceRequest)(nil).of(q.Keys, q.Limits, q.Cost)
	req.UpTo, req.Each = q.UpTo, q.Each
	return upTo(req), err
}

func (q refundRequest) request() (client.Request, error) {
	req, err := q.Once.of(q.Keys, q.Limits, q.Cost)
	req.Each = q.Each
	return req, err
}

// of returns a request with the given keys, limits and cost. If o is not nil, the request also has
// the key and the TTL of o.
func (o *onceRequest) of(keys []string, limits []client.Limit, cost costs) (client.Request, error) {
	req := client.Request{Keys: keys, Limits: limits, Costs: cost}
	if o == nil {
		return req, nil
	}
	var err error
	req.OnceKey = o.Key
	req.OnceTTL, err = milliseconds("once.ttl_ms", o.TTLMS)
	return req, err
}

// upTo returns req. If UpTo is set and req has no cost, the cost is 1, the library's default.
func upTo(req client.Request) client.Request {
	if req.UpTo && len(req.Costs) == 0 {
		req.Costs = []int64{1}
	}
	return req
}

// milliseconds returns ms as a duration, or an error that names field if ms is out of range.
func milliseconds(field string, ms whole) (time.Duration, error) {
	const most = 36500 * 24 * time.Hour
	if ms < 1 || ms > whole(most.Milliseconds()) {
		return 0, bad("%s is %d; give 1 to %d", field, ms, most.Milliseconds())
	}
	return time.Duration(ms) * time.Millisecond, nil
}

func policyIn(limits ...client.Limit) string {
	for _, limit := range limits {
		if strings.HasPrefix(string(limit), "@") {
			return string(limit)
		}
	}
	return ""
}

// decided returns the decision label for the metrics.
func decided(res client.Result) string {
	if res.Allowed {
		return "allowed"
	}
	return "denied"
}

// typed returns an operation with requests of type Q and replies of type A.
func typed[Q, A any](call func(ctx context.Context, limiter *client.Client, q Q) (answer, error)) operation {
	return operation{
		request: reflect.TypeFor[Q](), reply: reflect.TypeFor[A](),
		call: func(ctx context.Context, limiter *client.Client, body []byte) (answer, error) {
			var q Q
			if err := decode(body, &q); err != nil {
				return answer{}, err
			}
			return call(ctx, limiter, q)
		},
	}
}

func decision[Q any](ask func(*client.Client, context.Context, client.Request) (client.Result, error), request func(Q) (client.Request, error), penalty bool) operation {
	return typed[Q, reply.Decision](func(ctx context.Context, limiter *client.Client, q Q) (answer, error) {
		req, err := request(q)
		if err != nil {
			return answer{}, err
		}
		got := answer{policy: policyIn(req.Limits...)}
		res, err := ask(limiter, ctx, req)
		if err != nil {
			return got, err
		}
		if penalty {
			res, got.failed = limiter.Penalize(ctx, client.Block{}, req, res)
		}
		got.reply, got.decision = decisionReply(req, res), decided(res)
		return got, nil
	})
}

func lease[Q acquireRequest | leaseRequest, A any](ask func(*client.Lease, context.Context) (client.Result, error), report func(key, id string, res client.Result) A) operation {
	return typed[Q, A](func(ctx context.Context, limiter *client.Client, given Q) (answer, error) {
		q := leaseRequest(given)
		lease := limiter.Lease(q.Key, q.Limit, q.LeaseID)
		got := answer{policy: policyIn(q.Limit)}
		res, err := ask(lease, ctx)
		if err != nil {
			return got, err
		}
		got.reply, got.decision = report(q.Key, lease.ID, res), decided(res)
		return got, nil
	})
}

func plain[Q, A any](ask func(context.Context, *client.Client, Q) (A, error)) operation {
	return typed[Q, A](func(ctx context.Context, limiter *client.Client, q Q) (answer, error) {
		got, err := ask(ctx, limiter, q)
		return answer{reply: got, decision: "done"}, err
	})
}

// admin marks an operation as one for operators: it changes what other calls decide on a key.
func admin(op operation) operation {
	op.admin = true
	return op
}

// info returns the operation info. Its request may be empty.
func info() operation {
	op := plain(func(ctx context.Context, limiter *client.Client, _ struct{}) (reply.Info, error) {
		info, err := limiter.Info(ctx)
		return reply.Info{
			Version: info.Version, Contract: info.Contract, BuildID: info.BuildID, Policies: append([]string{}, info.Policies...), ShadowDenied: info.ShadowDenied,
		}, err
	})
	call := op.call
	op.get = true
	op.call = func(ctx context.Context, limiter *client.Client, body []byte) (answer, error) {
		if len(body) == 0 {
			body = []byte("{}")
		}
		return call(ctx, limiter, body)
	}
	return op
}
