package histories

import (
	"fmt"
	"slices"
	"time"

	"github.com/ratelimit-functions/ratelimit/client"
	"github.com/ratelimit-functions/ratelimit/lua_test/model"
)

// text returns a reply of the model as text. Like a client's result, it does not contain the units
// of the entries that EACH adds, neither those of UPTO nor those that were charged.
func text(c model.Call, reply any, reason string) string {
	if reason != "" {
		return "RATELIMIT " + reason
	}
	fields, ok := reply.([]any)
	if !ok || !c.Each || len(fields) == 0 {
		return fmt.Sprint(reply)
	}
	each, ok := fields[len(fields)-1].([]any)
	if !ok {
		return fmt.Sprint(reply)
	}
	fields, each = slices.Clone(fields), slices.Clone(each)
	for i, entry := range each {
		one := slices.Clone(entry.([]any)[:5])
		one[0] = min(1, one[0].(int64))
		each[i] = one
	}
	fields[len(fields)-1] = each
	return fmt.Sprint(fields)
}

// decision returns a client's result as text of the model's form.
func decision(c model.Call, r client.Result) string {
	units := func(allowed bool, taken int64) int64 {
		switch {
		case c.Upto:
			return taken
		case allowed:
			return 1
		}
		return 0
	}
	fields := []any{units(r.Allowed, r.Taken), r.Limit, r.Remaining, ms(r.RetryAfter), ms(r.ResetAfter), int64(r.Index)}
	if s := r.Shadow; s != nil {
		fields = append(fields, units(s.Allowed, s.Taken), ms(s.RetryAfter), int64(s.Index))
	}
	if c.Verb == model.Acquire || c.Verb == model.Renew {
		fields = append(fields, ms(r.Lease))
	}
	if r.Each != nil {
		var each []any
		for _, one := range r.Each {
			allowed := int64(0)
			if one.Allowed {
				allowed = 1
			}
			each = append(each, []any{allowed, one.Limit, one.Remaining, ms(one.RetryAfter), ms(one.ResetAfter)})
		}
		fields = append(fields, each)
	}
	return fmt.Sprint(fields)
}

func ms(d time.Duration) int64 {
	if d == client.Never {
		return -1
	}
	return d.Milliseconds()
}

// counted returns the counts of a usage key as text of the model's form.
func counted(u client.Usage) string {
	at := func(t time.Time) int64 {
		if t.IsZero() {
			return 0
		}
		return t.UnixMilli()
	}
	series := []any{}
	for _, one := range u.Series {
		series = append(series, []any{at(one.Start), one.Allowed, one.Denied})
	}
	return fmt.Sprint([]any{"allowed", u.Allowed, "denied", u.Denied, "cost", u.Cost, "first_ms", at(u.First), "last_ms", at(u.Last),
		"interval_ms", u.Interval.Milliseconds(), "series", series})
}
