package client_test

import (
	"maps"
	"reflect"
	"testing"
	"time"

	"github.com/ratelimit-functions/ratelimit/client"
)

// TestElementsOfALaterLibrary checks that elements that a later library adds change no result. They
// come last, and the first of them is a text.
func TestElementsOfALaterLibrary(t *testing.T) {
	ctx := t.Context()
	added := []any{"added", int64(1), int64(0), int64(1), []any{integers(0, 9, 9, 9, 9)}}
	with := func(lists ...[]any) (all []any) {
		for _, list := range lists {
			all = append(all, list...)
		}
		return all
	}
	decision, shadow := integers(1, 5, 4, 0, 6000, 1), integers(0, 100, 1)
	entry := integers(1, 5, 4, 0, 6000)
	for _, rest := range [][]any{{}, shadow, {[]any{entry}}, with(shadow, []any{[]any{entry}})} {
		for _, each := range []bool{false, true} {
			take := func(reply []any) client.Result {
				req := one("k", "@p")
				req.Each = each
				return must[client.Result](t)(newClient(t, &fake{reply: reply}).Take(ctx, req))
			}
			want := take(with(decision, rest))
			if got := take(with(decision, rest, added)); !reflect.DeepEqual(got, want) {
				t.Errorf("%v: %+v, want %+v", rest, got, want)
			}
		}
	}
	for _, entry := range [][]any{entry, with(entry, integers(1))} {
		req := one("k", "@p")
		req.Each = true
		take := func(entry []any) client.Result {
			return must[client.Result](t)(newClient(t, &fake{reply: with(decision, shadow, []any{[]any{entry}})}).Take(ctx, req))
		}
		if got, want := take(with(entry, added)), take(entry); len(want.Each) != 1 || !reflect.DeepEqual(got, want) {
			t.Errorf("a result of EACH: %+v, want %+v", got, want)
		}
	}
	for _, rest := range [][]any{{}, shadow} {
		reply := with(decision, rest, integers(30000), added)
		got := must[client.Result](t)(newClient(t, &fake{reply: reply}).Lease("jobs", "@p", "id").Acquire(ctx))
		if got.Lease != 30*time.Second || (got.Shadow != nil) != (len(rest) > 0) {
			t.Errorf("acquire, %v: %+v", rest, got)
		}
	}
	// A library without lease_ms says nothing about the lease.
	if got := must[client.Result](t)(newClient(t, &fake{reply: with(decision, added)}).Lease("jobs", "@p", "id").Acquire(ctx)); got.Lease != 0 || got.Shadow != nil {
		t.Errorf("acquire without lease_ms: %+v", got)
	}

	usage := must[client.Usage](t)(newClient(t, &fake{reply: usageReply("series", []any{with(integers(60000, 2, 1), added)})}).Usage(ctx, "k"))
	if len(usage.Series) != 1 || usage.Series[0].Allowed != 2 {
		t.Errorf("usage: %+v", usage)
	}
	calls := []any{with([]any{"p"}, integers(3, 1), added), with([]any{"q"}, integers(3, 1, 100, 2, 0), added)}
	info := must[client.Info](t)(newClient(t, &fake{reply: infoReply("policy_calls", calls)}).Info(ctx))
	want := map[string]client.PolicyCalls{"p": {Allowed: 3, Denied: 1}, "q": {Allowed: 3, Denied: 1, CanaryShare: 100, CanaryAllowed: 2}}
	if !maps.EqualFunc(info.PolicyCalls, want, func(a, b client.PolicyCalls) bool { return reflect.DeepEqual(a, b) }) {
		t.Errorf("policy_calls: %+v", info.PolicyCalls)
	}
	c := newClient(t, &fake{reply: infoReply("limit", []any{with(integers(0, 10, 1000, 20), added)}, "algorithms", []any{"gcra"})})
	if client.Learn(c, "@p"); !client.Knows(c, "@p") {
		t.Error("the limit in a reply to info is not read")
	}
}
