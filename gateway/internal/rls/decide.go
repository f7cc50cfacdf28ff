package rls

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strconv"
	"sync"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	"github.com/ratelimit-functions/ratelimit/client"
	"github.com/ratelimit-functions/ratelimit/gateway/internal/remedy"
)

// decide fills in the results of the questions in list. Descriptors that name policies are decided
// together: if one is denied, none is charged. The others are decided separately or, if AllOrNone
// is set, together. Descriptors are always decided separately if they take no units, if they share
// a key, or if their keys are on several servers of a cluster. So are those of different classes, and
// those with a pool, because a call has one class, or one pool. If a limit is wrong, the descriptors
// with other limits are still decided, and decide returns an error.
func (s *Server) decide(ctx context.Context, list []question) error {
	if len(list) == 1 && list[0].limit != "" {
		return s.one(ctx, &list[0])
	}
	var groups [][]*question
	var others []*question
	for i := range list {
		q := &list[i]
		at := slices.IndexFunc(groups, func(g []*question) bool { return g[0].together == q.together && g[0].class == q.class })
		switch {
		case q.limit == "":
		case q.hits == 0 || q.back || q.pool != "":
			others = append(others, q)
		case at < 0:
			groups = append(groups, []*question{q})
		default:
			groups[at] = append(groups[at], q)
		}
	}
	var failed error
	for _, group := range groups {
		rest, err := s.group(ctx, group)
		if err != nil && !wrong(err) {
			return err
		}
		others, failed = append(others, rest...), cmp.Or(failed, err)
	}
	return cmp.Or(failed, s.decideEach(ctx, others))
}

// wrong reports whether a call failed because of its limits, for example because a server lacks the
// policy, or because of their class. A client may be able to choose both names, with a header.
func wrong(err error) bool {
	code := remedy.Code(err)
	return code == "NOPOLICY" || code == "BADLIMIT" || code == "BADKEYS" || code == "BADARGS"
}

// right returns the questions of a list whose limits are not wrong, and the first error of the others.
func (s *Server) right(ctx context.Context, list []*question) (rest []*question, err error) {
	errs := make([]error, len(list))
	var wait sync.WaitGroup
	for i, q := range list {
		wait.Go(func() { _, errs[i] = s.Limiter.Peek(ctx, q.request(0)) })
	}
	wait.Wait()
	for i, q := range list {
		if errs[i] == nil {
			rest = append(rest, q)
		}
	}
	return rest, cmp.Or(errs...)
}

// group tries to decide several descriptors in one call. It returns the descriptors that must still
// be decided separately. If the call is allowed, all descriptors are charged. If it is denied, none
// is charged. For policies and with AllOrNone, the denial is final. Otherwise, group returns the
// descriptors that were not denied, because they must still be charged.
func (s *Server) group(ctx context.Context, list []*question) (rest []*question, err error) {
	if len(list) < 2 || s.clustered.Load() || !distinct(list) {
		return list, nil
	}
	allowed, err := s.takeAll(ctx, list)
	switch {
	case remedy.Code(err) == "CROSSSLOT":
		s.clustered.Store(true)
		return list, nil
	case wrong(err):
		others, why := s.right(ctx, list)
		if why == nil || !wrong(why) { // a limit has become right in the meantime, or the server has failed
			return nil, cmp.Or(why, err)
		}
		rest, err = s.group(ctx, others)
		return rest, cmp.Or(err, why)
	case err != nil || allowed || list[0].together || s.AllOrNone:
		return nil, err
	}
	for _, q := range list {
		if q.result.Allowed {
			rest = append(rest, q)
		} else if err := s.overshoot(ctx, q); err != nil {
			return nil, err
		}
	}
	return rest, nil
}

// decideEach decides each descriptor in its own call: concurrently, or in order if a key occurs
// twice.
func (s *Server) decideEach(ctx context.Context, list []*question) error {
	errs := make([]error, len(list))
	if len(list) <= 1 || !distinct(list) {
		for i, q := range list {
			if errs[i] = s.one(ctx, q); errs[i] != nil && !wrong(errs[i]) {
				return errs[i]
			}
		}
		return cmp.Or(errs...)
	}
	var wait sync.WaitGroup
	for i, q := range list {
		wait.Go(func() { errs[i] = s.one(ctx, q) })
	}
	wait.Wait()
	return errors.Join(errs...)
}

func distinct(list []*question) bool {
	for i, q := range list {
		if slices.ContainsFunc(list[:i], func(other *question) bool { return other.key == q.key || q.pool != "" && other.pool == q.pool }) {
			return false
		}
	}
	return true
}

// takeAll takes units from all keys in one call, or from none. It sets the results of the
// questions, and reports whether the call was allowed. A shadow policy never denies its descriptor.
func (s *Server) takeAll(ctx context.Context, list []*question) (bool, error) {
	request := client.Request{Each: true, Class: list[0].class, Keys: make([]string, len(list)), Limits: make([]client.Limit, len(list))}
	for i, q := range list {
		request.Keys[i], request.Limits[i] = q.key, q.limit
	}
	if slices.ContainsFunc(list, func(q *question) bool { return q.hits != 1 }) { // 1 is the default
		for _, q := range list {
			request.Costs = append(request.Costs, q.hits)
		}
	}
	result, err := s.Limiter.Take(ctx, request)
	if err != nil {
		return false, err
	}
	denied := false
	for i, q := range list {
		q.result, q.decided = of(&result), true
		q.aside = result.Shadow != nil && i != result.Index-1
		if i < len(result.Each) {
			q.result = result.Each[i]
			q.result.Source, q.result.Index = result.Source, 1
		}
		if q.result.Allowed || result.Shadow == nil {
			denied = denied || !q.result.Allowed
			continue
		}
		if q.result.Allowed = result.Allowed; result.Allowed {
			continue // the denial comes from a shadow policy
		}
		// Decide as if the descriptor were the only one in the request, and charge nothing.
		if err := q.got(s.Limiter.Peek(ctx, q.request(q.hits))); err != nil {
			return false, err
		}
		denied = denied || !q.result.Allowed
	}
	if !result.Allowed && !denied { // a unit has come back since, but nothing was charged
		list[result.Index-1].result = of(&result)
	}
	return result.Allowed, nil
}

func (s *Server) one(ctx context.Context, q *question) error {
	if q.back || q.hits == 0 {
		return s.uncharged(ctx, q)
	}
	if err := q.got(s.Limiter.Take(ctx, q.request(q.hits))); err != nil {
		return err
	}
	return s.overshoot(ctx, q)
}

// uncharged decides on a descriptor that takes no units: it gives its hits back, or has 0 hits and
// only queries the limit.
func (s *Server) uncharged(ctx context.Context, q *question) error {
	if q.back {
		return q.got(s.Limiter.Refund(ctx, q.request(q.hits)))
	}
	result, err := s.Limiter.Peek(ctx, q.request(0))
	if err == nil && result.Allowed && result.Remaining == 0 { // no unit is left, so ask how long to wait for one
		result, err = s.Limiter.Peek(ctx, q.request(1))
	}
	return q.got(result, err)
}

// overshoot charges a denied descriptor for its hits, as envoyproxy/ratelimit does, if q.window is
// set. It does not charge a single hit, because the denial of one hit means that no unit is left.
func (s *Server) overshoot(ctx context.Context, q *question) error {
	if !q.window || q.hits < 2 || q.back || q.result.Allowed {
		return nil
	}
	q.result.Remaining = 0
	_, err := s.Limiter.Take(ctx, client.Request{Keys: []string{q.key}, Limits: []client.Limit{q.limit}, Costs: []int64{q.hits}, Force: true})
	return err
}

// got sets the result of a question, unless its call failed.
func (q *question) got(result client.Result, err error) error {
	if err == nil {
		q.result, q.decided = of(&result), true
	}
	return err
}

// of returns the decision on one descriptor.
func of(r *client.Result) client.Result {
	return client.Result{Source: r.Source, Index: 1, Allowed: r.Allowed, Limit: r.Limit, Remaining: r.Remaining, RetryAfter: r.RetryAfter, ResetAfter: r.ResetAfter}
}

// headers returns the X-RateLimit fields for one of the statuses: one that is over its limit or, if
// there is none, the one with the smallest LimitRemaining.
func headers(statuses []*rls.RateLimitResponse_DescriptorStatus) []*core.HeaderValue {
	var least *rls.RateLimitResponse_DescriptorStatus
	for _, status := range statuses {
		switch {
		case status.CurrentLimit == nil:
		case least == nil,
			status.Code == rls.RateLimitResponse_OVER_LIMIT && least.Code != status.Code,
			status.Code == least.Code && status.LimitRemaining < least.LimitRemaining:
			least = status
		}
	}
	if least == nil {
		return nil
	}
	header := func(key string, value int64) *core.HeaderValue {
		return &core.HeaderValue{Key: key, Value: strconv.FormatInt(value, 10)}
	}
	return []*core.HeaderValue{
		header("X-RateLimit-Limit", int64(least.CurrentLimit.RequestsPerUnit)),
		header("X-RateLimit-Remaining", int64(least.LimitRemaining)),
		header("X-RateLimit-Reset", least.DurationUntilReset.GetSeconds()),
	}
}
