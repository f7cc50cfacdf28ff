package client

import (
	"math"
	"slices"
	"time"
)

// parseResult reads a decision on a request; false where it is not one. The seventh to the ninth element are those of
// shadow policies. What else follows may come from a newer library, and is not looked at.
func parseResult(reply any, req Request) (Result, bool) {
	fields, _ := reply.([]any)
	var n [6]int64
	// Callers branch on the first field and index with the last.
	if !parseIntegers(fields, n[:]) || n[0] < 0 || n[0] > req.most() || slices.Min(n[1:3]) < 0 || slices.Max(n[1:3]) > mostCost ||
		n[3] < -1 || n[4] < 0 || n[5] < 1 || n[5] > int64(len(req.Keys)) {
		return Result{}, false
	}
	return Result{
		Allowed:    n[0] > 0,
		Taken:      req.taken(n[0]),
		Limit:      n[1],
		Remaining:  n[2],
		RetryAfter: milliseconds(n[3]),
		ResetAfter: milliseconds(n[4]),
		Index:      int(n[5]),
		Shadow:     parseShadow(fields[6:], req),
	}, true
}

// parseShadow reads would_allowed, would_retry_after_ms, would_index; nil where they are not there.
func parseShadow(fields []any, req Request) *Shadow {
	var n [3]int64
	if !parseIntegers(fields, n[:]) || n[0] < 0 || n[0] > req.most() || n[1] < -1 || n[2] < 1 || n[2] > int64(len(req.Keys)) {
		return nil
	}
	return &Shadow{Allowed: n[0] > 0, Taken: req.taken(n[0]), RetryAfter: milliseconds(n[1]), Index: int(n[2])}
}

// parseUsage reads the reply of usage; false where it is not one.
func parseUsage(reply any) (Usage, bool) {
	fields, ok := parseFields(reply)
	if !ok {
		return Usage{}, false
	}
	var n [6]int64
	for i, name := range []string{"allowed", "denied", "cost", "first_ms", "last_ms", "interval_ms"} {
		if n[i], ok = fields[name].(int64); !ok || n[i] < 0 || n[i] > mostCost {
			return Usage{}, false
		}
	}
	series, ok := fields["series"].([]any)
	if !ok {
		return Usage{}, false
	}
	usage := Usage{
		Allowed: n[0], Denied: n[1], Cost: n[2], First: moment(n[3]), Last: moment(n[4]), Interval: milliseconds(n[5]),
	}
	for _, entry := range series {
		var e [3]int64
		if fields, _ := entry.([]any); !parseIntegers(fields, e[:]) || slices.Min(e[:]) < 0 || slices.Max(e[:]) > mostCost {
			return Usage{}, false
		}
		usage.Series = append(usage.Series, UsageInterval{Start: time.UnixMilli(e[0]).UTC(), Allowed: e[1], Denied: e[2]})
	}
	return usage, true
}

// parseInfo reads the reply of info; false where it is not one. Fields that it does not know are a newer library's.
func parseInfo(reply any) (Info, bool) {
	fields, ok := parseFields(reply)
	if !ok {
		return Info{}, false
	}
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
	if fields["shadow_denied"] == nil {
		return info, true
	}
	counts, ok := parseFields(fields["shadow_denied"])
	if !ok {
		return Info{}, false
	}
	info.ShadowDenied = make(map[string]int64, len(counts))
	for name, count := range counts {
		if info.ShadowDenied[name], ok = count.(int64); !ok {
			return Info{}, false
		}
	}
	return info, true
}

// parseFields reads field, value, field, value; false where the reply is not such. The last of equal fields counts.
func parseFields(reply any) (map[string]any, bool) {
	flat, ok := reply.([]any)
	if !ok || len(flat)%2 != 0 {
		return nil, false
	}
	fields := make(map[string]any, len(flat)/2)
	for i := 0; i < len(flat); i += 2 {
		name, ok := flat[i].(string)
		if !ok {
			return nil, false
		}
		fields[name] = flat[i+1]
	}
	return fields, true
}

// parseIntegers reads the first of fields into n; false where there are fewer, or one is no integer.
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

// moment is a point in time on the wire; 0 is none.
func moment(ms int64) time.Time {
	if ms == 0 {
		return time.Time{}
	}
	return time.UnixMilli(ms).UTC()
}

// milliseconds is a duration on the wire; -1 is never.
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
