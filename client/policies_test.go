package client_test

import (
	"reflect"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/ratelimit-functions/ratelimit/client"
	"github.com/ratelimit-functions/ratelimit/embedded"
	"github.com/ratelimit-functions/ratelimit/functions"
)

func TestPolicies(t *testing.T) {
	build := must[functions.Build](t)(functions.New(functions.WithPolicies(
		functions.Policy{Name: "calc", Limits: []functions.PolicyLimit{{Key: "resource", Limit: "10/m"}, {Key: "consumer", Limit: "1/m"}}},
		functions.Policy{Name: "export", Limits: []functions.PolicyLimit{{Limit: "10/d"}}, Shadow: true},
		functions.Policy{Name: "mail", Limits: []functions.PolicyLimit{{Limit: "10/d"}}, Track: true},
	)))
	server := embedded.Run(t, embedded.WithLibrary(build.Text()), embedded.WithTime(time.UnixMilli(1_700_000_000_000)), embedded.WithClusterRules())
	c := newClient(t, connect(t, redis.Options{Addr: server.Addr()}))
	take := func(limit client.Limit, keys ...string) client.Result {
		t.Helper()
		return must[client.Result](t)(c.Take(t.Context(), client.Request{Keys: keys, Limits: []client.Limit{limit}}))
	}
	want := func(got, want client.Result) {
		t.Helper()
		if !reflect.DeepEqual(got, want) {
			t.Errorf("got %+v (shadow %+v), want %+v (shadow %+v)", got, got.Shadow, want, want.Shadow)
		}
	}
	want(take("@calc", "calc:{a}", "consumer9:{a}"), client.Result{Allowed: true, Limit: 1, ResetAfter: time.Minute, Index: 2, Source: "server"})
	want(take("@calc", "calc:{a}", "consumer9:{a}"), client.Result{Limit: 1, RetryAfter: time.Minute, ResetAfter: time.Minute, Index: 2, Source: "server"})
	peeked := must[client.Result](t)(c.Peek(t.Context(), client.Request{Keys: []string{"calc:{a}", "consumer8:{a}"}, Limits: []client.Limit{"@calc"}, Costs: []int64{9, 1}}))
	want(peeked, client.Result{Allowed: true, Limit: 10, ResetAfter: time.Minute, Index: 1, Source: "server"})

	for range 10 {
		if got := take("@export", "export:42"); !got.Allowed || got.Shadow == nil || !got.Shadow.Allowed {
			t.Errorf("%+v", got)
		}
	}
	want(take("@export", "export:42"), client.Result{Allowed: true, Limit: 10, ResetAfter: 24 * time.Hour, Index: 1, Source: "server",
		Shadow: &client.Result{RetryAfter: 2*time.Hour + 24*time.Minute, Index: 1}})
	eleven := must[client.Result](t)(c.AllowN(t.Context(), "export:43", "@export", 11))
	want(eleven, client.Result{Allowed: true, Limit: 10, Remaining: 10, Index: 1, Source: "server", Shadow: &client.Result{RetryAfter: client.Never, Index: 1}})

	want(take("@mail", "mail:{42}", "usage:{42}"), client.Result{Allowed: true, Limit: 10, Remaining: 9, ResetAfter: 2*time.Hour + 24*time.Minute, Index: 1, Source: "server"})
	if _, err := c.Allow(t.Context(), "mail:{42}", "@mail"); typeOf(err) != "bad_keys" {
		t.Errorf("without a usage key: %v", err)
	}
}

// The elements after the sixth of a reply are parsed as a shadow decision only if they are valid.
func TestShadowsThatAreNone(t *testing.T) {
	decision := []int64{1, 5, 4, 0, 6000, 1}
	for _, more := range [][]any{
		{}, integers(1), integers(1, 0), {"a", int64(0), int64(1)}, {int64(1), nil, int64(1)}, integers(2, 0, 1), integers(-1, 0, 1),
		integers(1, -2, 1), integers(1, 0, 0), integers(1, 0, 2), {int64(0), int64(5), []any{int64(1)}},
	} {
		c := newClient(t, &fake{reply: append(integers(decision...), more...)})
		got, err := c.Allow(t.Context(), "k", "@p")
		if err != nil || !reflect.DeepEqual(got, client.Result{Allowed: true, Limit: 5, Remaining: 4, ResetAfter: 6 * time.Second, Index: 1, Source: "server"}) {
			t.Errorf("%v: %+v, %v", more, got, err)
		}
	}
	c := newClient(t, &fake{reply: append(integers(decision...), int64(0), int64(1500), int64(1), "more")})
	if got, err := c.Allow(t.Context(), "k", "@p"); err != nil || got.Shadow == nil || !reflect.DeepEqual(*got.Shadow, client.Result{RetryAfter: 1500 * time.Millisecond, Index: 1}) {
		t.Errorf("%+v, %v", got, err)
	}
}
