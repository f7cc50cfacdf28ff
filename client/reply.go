package client

import (
	"math"
	"slices"
	"time"

	"github.com/ratelimit-functions/ratelimit/internal/respmap"
)

// described returns the elements of an array before its first text. A newer library may add elements
// from there on, which are ignored.
func described(array any) []any {
	fields, _ := array.([]any)
	for i, field := range fields {
		if _, isText := field.(string); isText {
			return fields[:i]
		}
	}
	return fields
}

// parseResult parses a decision on req. It returns false if reply is not a decision. Elements seven
// to nine, if present, are the shadow decision. For a request with Each, the next element holds the
// results of each key.
func parseResult(reply any, req *Request) (Result, bool) {
	fields := described(reply)
	var n [6]int64
	// Check the ranges strictly: n[0] decides whether the call is allowed, and callers index their
	// keys with n[5].
	if !parseIntegers(fields, n[:]) || n[0] < 0 || n[0] > req.most() || slices.Min(n[1:3]) < 0 || slices.Max(n[1:3]) > mostCost ||
		n[3] < -1 || n[4] < 0 || n[5] < 1 || n[5] > int64(len(req.Keys)) {
		return Result{}, false
	}
	each, charged := parseEach(fields[6:], req)
	grown, ok := parseGrown(reply, req)
	if !ok {
		return Result{}, false
	}
	return Result{
		Allowed:    n[0] > 0,
		Taken:      req.units(n[0]),
		Limit:      n[1],
		Remaining:  n[2],
		RetryAfter: milliseconds(n[3]),
		ResetAfter: milliseconds(n[4]),
		Index:      int(n[5]),
		Source:     sourceServer,
		Shadow:     parseShadow(fields[6:], req),
		Each:       each,
		Grown:      grown,
		charged:    charged,
	}, true
}

// parseLease parses the reply to an acquire or a renewal. After the decision, it says how long the
// lease is held. A library that is too old for that sends no such element.
func parseLease(reply any, req *Request) (Result, bool) {
	res, ok := parseResult(reply, req)
	if ok {
		rest := described(reply)[6:]
		if len(rest) >= 3 {
			rest = rest[3:]
		}
		var ms [1]int64
		if parseIntegers(rest, ms[:]) && ms[0] > 0 {
			res.Lease = milliseconds(ms[0])
		}
	}
	return res, ok
}

// parseEach parses the results of each key, which are the first list in a reply to a request with
// Each. It returns nil if they are missing. charged has how many units each key was charged, if the
// call names a shadow policy.
func parseEach(fields []any, req *Request) (each []Result, charged []int64) {
	if !req.Each {
		return nil, nil
	}
	var list []any
	for _, field := range fields {
		if found, ok := field.([]any); ok {
			list = found
			break
		}
	}
	if len(list) != len(req.Keys) {
		return nil, nil
	}
	each = make([]Result, len(list))
	for i, entry := range list {
		var n [6]int64
		fields := described(entry)
		if !parseIntegers(fields, n[:5]) || slices.Min(n[:3]) < 0 || n[3] < -1 || n[4] < 0 {
			return nil, nil
		}
		each[i] = Result{Allowed: n[0] > 0, Limit: n[1], Remaining: n[2], RetryAfter: milliseconds(n[3]), ResetAfter: milliseconds(n[4])}
		if parseIntegers(fields, n[:]) && n[5] >= 0 && n[5] <= mostCost {
			charged = append(charged, n[5])
		}
	}
	return each, charged
}

// parseGrown parses what follows the text "grow" in the reply to a request with Grow.
func parseGrown(reply any, req *Request) (grown []struct{ Length, Forgotten time.Duration }, ok bool) {
	if !req.Grow {
		return nil, true
	}
	fields, _ := reply.([]any)
	at := slices.Index(fields, any("grow"))
	if at < 0 || at+1 == len(fields) {
		return nil, false
	}
	list, _ := fields[at+1].([]any)
	for _, entry := range list {
		var n [2]int64
		if !parseIntegers(described(entry), n[:]) || slices.Min(n[:]) < 0 {
			return nil, false
		}
		grown = append(grown, struct{ Length, Forgotten time.Duration }{milliseconds(n[0]), milliseconds(n[1])})
	}
	return grown, len(grown) == len(req.Keys)
}

// parseShadow parses would_allowed, would_retry_after_ms and would_index. It returns nil if they
// are missing.
func parseShadow(fields []any, req *Request) *Result {
	var n [3]int64
	if !parseIntegers(fields, n[:]) || n[0] < 0 || n[0] > req.most() || n[1] < -1 || n[2] < 1 || n[2] > int64(len(req.Keys)) {
		return nil
	}
	return &Result{Allowed: n[0] > 0, Taken: req.units(n[0]), RetryAfter: milliseconds(n[1]), Index: int(n[2])}
}

// parseUsage parses a reply from ratelimit_usage. It returns false if the reply is malformed.
func parseUsage(reply any) (Usage, bool) {
	fields := respmap.Of(reply)
	var n [6]int64
	for i, name := range []string{"allowed", "denied", "cost", "first_ms", "last_ms", "interval_ms"} {
		var ok bool
		if n[i], ok = fields[name].(int64); !ok || n[i] < 0 || n[i] > mostCost {
			return Usage{}, false
		}
	}
	series, ok := fields["series"].([]any)
	if !ok {
		return Usage{}, false
	}
	usage := Usage{
		Allowed: n[0], Denied: n[1], Cost: n[2], First: parseTime(n[3]), Last: parseTime(n[4]), Interval: milliseconds(n[5]),
	}
	for _, entry := range series {
		var e [3]int64
		if fields, _ := entry.([]any); !parseIntegers(fields, e[:]) || slices.Min(e[:]) < 0 || slices.Max(e[:]) > mostCost {
			return Usage{}, false
		}
		usage.Series = append(usage.Series, struct {
			Start           time.Time
			Allowed, Denied int64
		}{time.UnixMilli(e[0]).UTC(), e[1], e[2]})
	}
	return usage, true
}

// parseInfo parses a reply from ratelimit_info. It returns false if the reply is malformed. Unknown
// fields are ignored, because a newer library may send them.
func parseInfo(reply any) (Info, bool) {
	fields := respmap.Of(reply)
	version, ok1 := fields["version"].(string)
	contract, ok2 := fields["contract"].(int64)
	build, ok3 := fields["build_id"].(string)
	names, ok4 := fields["policies"].([]any)
	if !ok1 || !ok2 || !ok3 || !ok4 {
		return Info{}, false
	}
	info := Info{Version: version, Contract: contract, BuildID: build}
	for _, name := range names {
		text, ok := name.(string)
		if !ok {
			return Info{}, false
		}
		info.Policies = append(info.Policies, text)
	}
	if shadows := fields["shadow_denied"]; shadows != nil {
		counts := respmap.Of(shadows)
		if counts == nil {
			return Info{}, false
		}
		info.ShadowDenied = make(map[string]int64, len(counts))
		for name, count := range counts {
			var ok bool
			if info.ShadowDenied[name], ok = count.(int64); !ok {
				return Info{}, false
			}
		}
	}
	if calls := fields["policy_calls"]; calls != nil {
		var ok bool
		if info.PolicyCalls, ok = parsePolicyCalls(calls); !ok {
			return Info{}, false
		}
	}
	return info, parseShares(fields["class_calls"], fields["borrow_calls"], info.PolicyCalls)
}

// parseShares adds the fields class_calls and borrow_calls of a reply from ratelimit_info to the calls of
// the policies. Older libraries have neither.
func parseShares(classes, borrows any, calls map[string]PolicyCalls) bool {
	for i, field := range []any{classes, borrows} {
		list, ok := field.([]any)
		if !ok && field != nil {
			return false
		}
		for _, entry := range list {
			fields, _ := entry.([]any)
			texts := 2 - i // the policy's name and, for class_calls, the class
			if len(fields) < texts {
				return false
			}
			var n [3]int64
			counts := n[:2+i]
			name, isName := fields[0].(string)
			class, isClass := fields[texts-1].(string)
			policy, known := calls[name]
			if !isName || !isClass || !parseIntegers(described(fields[texts:]), counts) || slices.Min(counts) < 0 || slices.Max(counts) > mostCost {
				return false
			}
			switch {
			case !known:
				continue
			case i == 1:
				policy.Pool = &struct{ Guaranteed, Borrowed int64 }{n[0], n[1]}
			case policy.Classes == nil:
				policy.Classes = map[string]struct{ Allowed, Denied int64 }{class: {n[0], n[1]}}
			default:
				policy.Classes[class] = struct{ Allowed, Denied int64 }{n[0], n[1]}
			}
			calls[name] = policy
		}
	}
	return true
}

// parsePolicyCalls parses the field policy_calls of a reply from ratelimit_info. For each policy,
// the field lists the name and the numbers of allowed and denied calls. If the policy has a canary,
// the canary's share and its numbers of allowed and denied calls follow.
func parsePolicyCalls(reply any) (map[string]PolicyCalls, bool) {
	list, ok := reply.([]any)
	if !ok {
		return nil, false
	}
	calls := make(map[string]PolicyCalls, len(list))
	for _, entry := range list {
		fields, _ := entry.([]any)
		var n [5]int64
		if len(fields) < 3 {
			return nil, false
		}
		name, isText := fields[0].(string)
		numbers := described(fields[1:])
		canary := len(numbers) > 2
		counts := n[:2]
		if canary {
			counts = n[:]
		}
		if !isText || !parseIntegers(numbers, counts) || slices.Min(n[:]) < 0 || slices.Max(n[:]) > mostCost {
			return nil, false
		}
		policy := PolicyCalls{Allowed: n[0], Denied: n[1]}
		if canary {
			policy.CanaryShare, policy.CanaryAllowed, policy.CanaryDenied = n[2], n[3], n[4]
		}
		calls[name] = policy
	}
	return calls, true
}

// parseIntegers reads the first len(n) fields into n. It returns false if there are fewer, or if
// one is not an integer.
func parseIntegers(fields []any, n []int64) bool {
	if len(fields) < len(n) {
		return false
	}
	for i := range n {
		var ok bool
		if n[i], ok = fields[i].(int64); !ok {
			return false
		}
	}
	return true
}

// parseTime converts a time in the wire format, in which 0 means that there is no time.
func parseTime(ms int64) time.Time {
	if ms == 0 {
		return time.Time{}
	}
	return time.UnixMilli(ms).UTC()
}

// milliseconds converts a duration in the wire format, in which -1 means never.
func milliseconds(ms int64) time.Duration {
	switch {
	case ms == -1:
		return Never
	case ms > math.MaxInt64/int64(time.Millisecond):
		return math.MaxInt64
	default:
		return time.Duration(ms) * time.Millisecond
	}
}
