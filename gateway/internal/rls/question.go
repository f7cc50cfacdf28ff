package rls

import (
	"cmp"
	"math"

	entries "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/ratelimit-functions/ratelimit/client"
	"github.com/ratelimit-functions/ratelimit/gateway/internal/envoyconfig"
	"github.com/ratelimit-functions/ratelimit/internal/keytext"
)

type question struct {
	label string // for metrics
	name  string // name of the rule
	limit client.Limit
	key   string
	pool  string // key of the pool of a policy with a guarantee; "" for every other limit
	class string // class of the request under the policy, or ""
	hits  int64
	back  bool // whether the hits are given back (is_negative_hits)

	together  bool // whether the limit is a policy; all descriptors with policies are charged, or none
	window    bool // whether the limit is a window like envoyproxy/ratelimit's
	unlimited bool
	shadow    bool
	quota     bool
	decided   bool // whether there is a result
	aside     bool // whether the result is that of another descriptor, and this one may have a shadow policy
	result    client.Result

	// The parts of the status, which point to each other. Storing them here saves allocations.
	answer  rls.RateLimitResponse_DescriptorStatus
	current rls.RateLimitResponse_RateLimit
	reset   durationpb.Duration
}

// questions returns a question for each descriptor. A descriptor without a limit gets no decision.
func (s *Server) questions(request *rls.RateLimitRequest) ([]question, error) {
	config := s.config.Load()
	known := config != nil && config.Known(request.Domain)
	list := make([]question, len(request.Descriptors))
	var replaced map[string]bool
	for i, descriptor := range request.Descriptors {
		q := &list[i]
		q.hits, q.back = hits(request, descriptor), descriptor.GetIsNegativeHits()
		if q.hits < 0 {
			return nil, badDescriptor(i, "hits_addend is above 2^53, the most")
		}
		var rule *envoyconfig.Rule
		if config != nil {
			rule, q.key = config.Find(request.Domain, descriptor.GetEntries())
		}
		switch override := descriptor.GetLimit(); {
		case override != nil && (known || config == nil):
			if err := q.override(i, request.Domain, descriptor, override); err != nil {
				return nil, err
			}
		case known:
			if q.rule(rule); rule != nil {
				for _, name := range rule.Replaces {
					if replaced == nil {
						replaced = map[string]bool{}
					}
					replaced[name] = true
				}
			}
		default:
			if err := q.policy(i, descriptor); err != nil {
				return nil, err
			}
		}
		q.label = cmp.Or(q.label, unmatched)
	}
	if replaced == nil {
		return list, nil
	}
	for i := range list {
		if name := list[i].name; name != "" && replaced[name] {
			list[i].limit, list[i].unlimited = "", false
		}
	}
	return list, nil
}

const (
	unknown    = "unknown"  // the metrics label of requests that cannot be read, and of policies that may not exist
	unmatched  = "none"     // the metrics label of descriptors without a limit
	overridden = "override" // the metrics label of descriptors with their own limit
)

// hits returns how many units a descriptor takes. If the descriptor has its own number, which may
// be 0, hits returns that. Otherwise it returns the request's number, in which 0 means 1. The
// result is negative if the number is above 2^53.
func hits(request *rls.RateLimitRequest, descriptor *entries.RateLimitDescriptor) int64 {
	if own := descriptor.GetHitsAddend(); own != nil {
		if own.Value > 1<<53 {
			return -1
		}
		return int64(own.Value)
	}
	return int64(max(1, request.HitsAddend))
}

func (q *question) override(i int, domain string, descriptor *entries.RateLimitDescriptor, override *entries.RateLimitDescriptor_RateLimitOverride) error {
	unit := rls.RateLimitResponse_RateLimit_Unit(override.Unit)
	multiplier := max(1, override.GetUnitMultiplier().GetValue())
	if !envoyconfig.Known(unit) {
		return badDescriptor(i, "the unit of its limit is %v; use SECOND, MINUTE, HOUR, DAY, WEEK, MONTH or YEAR", override.Unit)
	}
	q.label, q.window = overridden, true
	q.limit = envoyconfig.Window(override.RequestsPerUnit, unit, multiplier)
	q.key = envoyconfig.Key(domain, descriptor.GetEntries(), nil) + "|" + string(q.limit)
	q.current.RequestsPerUnit, q.current.Unit = override.RequestsPerUnit, unit
	if multiplier > 1 {
		q.current.UnitMultiplier = wrapperspb.UInt32(multiplier)
	}
	return nil
}

// rule takes the limit from a rule of the Envoy configuration. A nil rule means that the descriptor
// has no limit.
func (q *question) rule(rule *envoyconfig.Rule) {
	if rule == nil {
		return
	}
	q.label, q.name, q.limit, q.unlimited, q.shadow, q.quota = rule.Label, rule.Name, rule.Limit, rule.Unlimited, rule.Shadow, rule.Quota
	if rule.Unlimited {
		return
	}
	q.window = rule.Unit != rls.RateLimitResponse_RateLimit_UNKNOWN
	q.current.Name, q.current.RequestsPerUnit, q.current.Unit = rule.Name, rule.Count, rule.Unit
}

// policy takes the limit, the class and the pool from the entries that name them. The other entries
// form the key. Descriptor i without a policy has no limit.
func (q *question) policy(i int, descriptor *entries.RateLimitDescriptor) error {
	named, err := envoyconfig.Policy(descriptor.GetEntries())
	switch {
	case err != nil:
		return badDescriptor(i, "%v", err)
	case named.Policy == "":
		return nil
	case named.Pool != "" && q.back:
		return badDescriptor(i, "is_negative_hits beside the entry pool; the gateway does not know whether the guarantee or the pool paid")
	}
	q.label, q.limit, q.class, q.together = "@"+named.Policy, client.Limit("@"+named.Policy), named.Class, named.Pool == ""
	q.key, q.current.Name = named.Key, named.Policy
	if named.Pool != "" {
		q.key, q.pool = keytext.Pooled(q.key, named.Pool)
	}
	return nil
}

// request returns the call that takes hits units.
func (q *question) request(hits int64) client.Request {
	req := client.For(q.key, q.limit)
	if hits != 1 { // the default
		req.Costs = []int64{hits}
	}
	if req.Class = q.class; q.pool != "" {
		req.Keys, req.Borrow = []string{q.key, q.pool}, true
	}
	return req
}

// over reports whether the descriptor is over its limit. In shadow mode, it returns false.
func (q *question) over() bool { return q.limit != "" && q.decided && !q.result.Allowed && !q.shadow }

// decision returns the decision label for the metrics. A denial by a rule in shadow mode has its
// own label.
func (q *question) decision() string {
	switch {
	case q.limit == "":
		return "no_limit"
	case !q.decided:
		return "error"
	case q.result.Allowed:
		return "allowed"
	case q.shadow:
		return "shadow_denied"
	}
	return "denied"
}

func (q *question) status() *rls.RateLimitResponse_DescriptorStatus {
	answer := &q.answer
	answer.Code = rls.RateLimitResponse_OK
	switch {
	case q.unlimited:
		answer.LimitRemaining = math.MaxUint32
		return answer
	case q.limit == "":
		return answer
	case !q.decided:
		answer.Code = rls.RateLimitResponse_UNKNOWN
		return answer
	}
	answer.CurrentLimit = &q.current
	if q.current.Unit == rls.RateLimitResponse_RateLimit_UNKNOWN {
		q.current.RequestsPerUnit = count(q.result.Limit)
	}
	answer.LimitRemaining = count(q.result.Remaining)
	until := q.result.ResetAfter
	if !q.result.Allowed {
		until = q.result.RetryAfter
	}
	q.reset.Seconds = seconds(until)
	answer.DurationUntilReset = &q.reset
	if q.over() && !q.quota {
		answer.Code = rls.RateLimitResponse_OVER_LIMIT
	}
	return answer
}
