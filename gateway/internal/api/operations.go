package api

import (
	"context"
	"reflect"
	"strings"

	"github.com/ratelimit-functions/ratelimit/client"
	"github.com/ratelimit-functions/ratelimit/client/replyjson"
)

// operation is what a POST request to a path does. If get is true, GET does the same. If admin is
// true, only the admin port serves it.
type operation struct {
	get, admin     bool
	request, reply reflect.Type
	call           func(ctx context.Context, o Options, body []byte) (answer, error)
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
	class    string // the class that the call names
	decision string // for the metrics
	status   int    // 0 for 200
	failed   error  // why a denial got no penalty; nil if it needed none
}

// operations maps the name of a library function, which is the last part of a path, to its
// operation.
var operations = map[string]operation{
	"take":    take(),
	"peek":    decision((*client.Client).Peek, peekRequest.request),
	"refund":  decision((*client.Client).Refund, refundRequest.request),
	"acquire": lease[acquireRequest]((*client.Lease).Acquire, replyjson.OfLease),
	"renew":   lease[leaseRequest]((*client.Lease).Renew, replyjson.OfLease),
	"release": lease[leaseRequest](func(lease *client.Lease, ctx context.Context) (client.Result, error) {
		held, err := lease.Release(ctx)
		return client.Result{Allowed: held}, err
	}, func(_, id string, res client.Result) replyjson.Released {
		return replyjson.Released{Released: res.Allowed, LeaseID: id}
	}),
	"block": admin(plain(func(ctx context.Context, limiter *client.Client, q blockRequest) (replyjson.Blocked, error) {
		d, err := milliseconds("ms", q.MS)
		if err != nil {
			return replyjson.Blocked{}, err
		}
		return replyjson.Blocked{Blocked: len(q.Keys), ForMS: int64(q.MS)}, limiter.Block(ctx, client.Block{For: d, Extend: q.Extend}, q.Keys...)
	})),
	"unblock": admin(plain(func(ctx context.Context, limiter *client.Client, q keysRequest) (replyjson.Unblocked, error) {
		n, err := limiter.Unblock(ctx, q.Keys...)
		return replyjson.Unblocked{Unblocked: n, Keys: len(q.Keys)}, err
	})),
	"override": admin(plain(func(ctx context.Context, limiter *client.Client, q overrideRequest) (replyjson.Overridden, error) {
		d, err := milliseconds("ms", q.MS)
		if err != nil {
			return replyjson.Overridden{}, err
		}
		return replyjson.Overridden{Overridden: len(q.Keys), Limit: string(q.Limit), ForMS: int64(q.MS)}, limiter.Override(ctx, q.Limit, d, q.Keys...)
	})),
	"override_end": admin(plain(func(ctx context.Context, limiter *client.Client, q keysRequest) (replyjson.OverrideEnded, error) {
		n, err := limiter.EndOverride(ctx, q.Keys...)
		return replyjson.OverrideEnded{Ended: n, Keys: len(q.Keys)}, err
	})),
	"reset": admin(plain(func(ctx context.Context, limiter *client.Client, q keysRequest) (replyjson.Reset, error) {
		n, err := limiter.Reset(ctx, q.Keys...)
		return replyjson.Reset{Reset: n, Keys: len(q.Keys)}, err
	})),
	"usage": plain(func(ctx context.Context, limiter *client.Client, q usageRequest) (replyjson.Usage, error) {
		usage, err := limiter.Usage(ctx, q.Key)
		return replyjson.OfUsage(usage), err
	}),
	"info":    info(),
	"reserve": reserve(),
	"commit":  commit(),
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
func typed[Q, A any](call func(ctx context.Context, o Options, q Q) (answer, error)) operation {
	return operation{
		request: reflect.TypeFor[Q](), reply: reflect.TypeFor[A](),
		call: func(ctx context.Context, o Options, body []byte) (answer, error) {
			var q Q
			if err := decode(body, &q); err != nil {
				return answer{}, err
			}
			return call(ctx, o, q)
		},
	}
}

type takeReply struct {
	replyjson.Decision
	Warning int `json:"warning,omitempty"` // percentage of the limit that is used, if the policy warns from it on
}

// take returns the operation take, which does what the policy says: it blocks a key that was denied, or warns.
func take() operation {
	return typed[takeRequest, takeReply](func(ctx context.Context, o Options, q takeRequest) (answer, error) {
		req, err := q.request()
		if err != nil {
			return answer{}, err
		}
		got := answer{policy: policyIn(req.Limits...), class: req.Class}
		res, err := o.Limiter.Take(ctx, req)
		if err != nil {
			return got, err
		}
		res, got.failed = o.Limiter.Penalize(ctx, client.Block{}, req, res)
		got.reply, got.decision = takeReply{replyjson.Of(req, res), o.Limiter.Warning(ctx, req, res)}, decided(res)
		return got, nil
	})
}

func decision[Q any](ask func(*client.Client, context.Context, client.Request) (client.Result, error), request func(Q) (client.Request, error)) operation {
	return typed[Q, replyjson.Decision](func(ctx context.Context, o Options, q Q) (answer, error) {
		req, err := request(q)
		if err != nil {
			return answer{}, err
		}
		got := answer{policy: policyIn(req.Limits...), class: req.Class}
		res, err := ask(o.Limiter, ctx, req)
		if err != nil {
			return got, err
		}
		got.reply, got.decision = replyjson.Of(req, res), decided(res)
		return got, nil
	})
}

func lease[Q interface {
	of(*client.Client) (leaseRequest, *client.Lease)
}, A any](ask func(*client.Lease, context.Context) (client.Result, error), report func(key, id string, res client.Result) A) operation {
	return typed[Q, A](func(ctx context.Context, o Options, given Q) (answer, error) {
		q, lease := given.of(o.Limiter)
		got := answer{policy: policyIn(q.Limit), class: lease.Class}
		res, err := ask(lease, ctx)
		if err != nil {
			return got, err
		}
		got.reply, got.decision = report(q.Key, lease.ID, res), decided(res)
		return got, nil
	})
}

func plain[Q, A any](ask func(context.Context, *client.Client, Q) (A, error)) operation {
	return typed[Q, A](func(ctx context.Context, o Options, q Q) (answer, error) {
		got, err := ask(ctx, o.Limiter, q)
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
	op := plain(func(ctx context.Context, limiter *client.Client, _ struct{}) (replyjson.Info, error) {
		info, err := limiter.Info(ctx)
		return replyjson.Info{
			Version: info.Version, Contract: info.Contract, BuildID: info.BuildID, Policies: append([]string{}, info.Policies...), ShadowDenied: info.ShadowDenied,
		}, err
	})
	call := op.call
	op.get = true
	op.call = func(ctx context.Context, o Options, body []byte) (answer, error) {
		if len(body) == 0 {
			body = []byte("{}")
		}
		return call(ctx, o, body)
	}
	return op
}
