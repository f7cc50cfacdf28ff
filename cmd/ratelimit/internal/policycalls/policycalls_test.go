package policycalls

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/ratelimit-functions/ratelimit/client"
	"github.com/ratelimit-functions/ratelimit/cmd/ratelimit/internal/scan"
	"github.com/ratelimit-functions/ratelimit/cmd/ratelimit/internal/usage"
	"github.com/ratelimit-functions/ratelimit/embedded"
	"github.com/ratelimit-functions/ratelimit/functions"
	"github.com/ratelimit-functions/ratelimit/internal/redistest"
)

// TestMain ignores a goroutine of go-redis. If a pool fails to dial, this goroutine retries once a
// second. It can therefore outlive the closed pool by a second.
func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/redis/go-redis/v9/internal/pool.(*ConnPool).tryDial"))
}

func must[T any](t testing.TB) func(T, error) T { return redistest.Must[T](t) }

// library returns a build with three policies: an enforced policy, a policy with two keys and a
// canary, and a shadow policy.
func library(t *testing.T) functions.Build {
	t.Helper()
	return must[functions.Build](t)(functions.New(functions.WithPolicies(
		functions.Policy{Name: "api", Limits: []functions.PolicyLimit{{Limit: "2/d"}}},
		functions.Policy{Name: "calc", Limits: []functions.PolicyLimit{{Key: "resource", Limit: "5/d"}, {Key: "consumer", Limit: "1/d"}}, Track: true,
			Canary: &functions.Canary{Limits: []string{"4/d", "0/d"}, Share: 500}},
		functions.Policy{Name: "export", Limits: []functions.PolicyLimit{{Limit: "1/d"}}, Shadow: true},
	)))
}

// port returns a server's address without the host, such as ":6379". The client of redistest.ClusterOf
// uses this form.
func port(srv *embedded.Server) string { return strings.TrimPrefix(srv.Addr(), "127.0.0.1") }

// take makes the given number of calls, all with the same keys.
func take(t *testing.T, srv *embedded.Server, calls int, policy string, keys ...any) {
	t.Helper()
	words := append(append([]any{"FCALL", "ratelimit_take", fmt.Sprint(len(keys))}, keys...), policy)
	for range calls {
		must[any](t)(srv.Do(words...))
	}
}

// TestRead checks that Read adds up the counts of all primaries. It must name each server that does
// not reply or whose library is too old to count calls, and still return the counts of the other
// servers.
func TestRead(t *testing.T) {
	build := library(t)
	one, two := embedded.Run(t, embedded.WithLibrary(build.Text())), embedded.Run(t, embedded.WithLibrary(build.Text()))
	take(t, one, 3, "@api", "k")
	take(t, two, 5, "@api", "k")
	for i := range 20 { // 7 of these keys are in the canary, which denies all calls
		take(t, one, 3, "@calc", fmt.Sprint("r", i), fmt.Sprint("c", i), "usage")
	}
	take(t, two, 4, "@export", "x")
	r := Reader{Timeout: time.Minute}
	rdb := redistest.ClusterOf(t, one.Addr(), two.Addr())
	libraries := []Library{{Version: build.Version(), BuildID: build.ID(), Contract: functions.Contract, Servers: 2}}
	want := Fleet{Replied: 2, Libraries: libraries, Policies: []Policy{
		{Name: "api", Limits: []string{"2/d"}, Calls: Calls{Counted: true, Count: usage.Count{Allowed: 4, Denied: 4}}},
		{Name: "calc", Limits: []string{"resource: 5/d", "consumer: 1/d"}, Track: true, Calls: Calls{Counted: true, Count: usage.Count{Allowed: 13, Denied: 26}},
			Canary: &Canary{Share: 500, Limits: []string{"resource: 4/d", "consumer: 0/d"}, Calls: Calls{Counted: true, Count: usage.Count{Denied: 21}}}},
		{Name: "export", Limits: []string{"1/d"}, Shadow: true, Calls: Calls{Counted: true, Count: usage.Count{Allowed: 1, Denied: 3}}},
	}}
	if got := must[Fleet](t)(r.Read(t.Context(), rdb)); !reflect.DeepEqual(got, want) {
		t.Errorf("%+v\nwant %+v", got, want)
	}

	// older has the same policies, but does not count calls.
	older := strings.Replace(build.Text(), "'policy_calls'", "'something_else'", 1)
	if older == build.Text() {
		t.Fatal("the library has no field policy_calls")
	}
	redistest.Require(t, two.Load(older))
	got := must[Fleet](t)(r.Read(t.Context(), rdb))
	if !slices.Equal(got.Uncounted, []string{port(two)}) || got.Replied != 2 || len(got.Policies) != 3 || got.Policies[0].Count != (usage.Count{Allowed: 2, Denied: 1}) || !got.Policies[0].Counted {
		t.Errorf("%+v", got)
	}
	_ = one.Close()
	got, err := r.Read(t.Context(), rdb)
	var node *scan.NodeError
	if !errors.As(err, &node) || node.Addr != port(one) || !errors.Is(err, client.ErrUnavailable) {
		t.Errorf("the error is %v", err)
	}
	if got.Replied != 1 || len(got.Policies) != 3 || got.Policies[0].Counted {
		t.Errorf("%+v", got)
	}
}

// TestReadLess checks what Read returns without a library, without nodes, and if the library's
// source code cannot be read.
func TestReadLess(t *testing.T) {
	bare := embedded.Run(t)
	r := Reader{Timeout: time.Minute}
	if got, err := r.Read(t.Context(), redistest.ClusterOf(t, bare.Addr())); !errors.Is(err, client.ErrNotDeployed) || !reflect.DeepEqual(got, Fleet{}) {
		t.Errorf("%+v, %v", got, err)
	}
	if got, err := r.Read(t.Context(), redistest.ClusterOf(t)); err == nil || !reflect.DeepEqual(got, Fleet{}) {
		t.Errorf("of a cluster without nodes: %+v, %v", got, err)
	}
	plain := must[functions.Build](t)(functions.New())
	redistest.Require(t, bare.Load(plain.Text()))
	libraries := []Library{{Version: plain.Version(), BuildID: plain.ID(), Contract: functions.Contract, Servers: 1}}
	if got, err := r.Read(t.Context(), redistest.ClusterOf(t, bare.Addr())); err != nil || !reflect.DeepEqual(got, Fleet{Replied: 1, Libraries: libraries}) {
		t.Errorf("without policies: %+v, %v", got, err)
	}
	// Library code that ReadPolicies cannot parse has the same effect as a missing permission.
	redistest.Require(t, bare.Load(strings.Replace(library(t).Text(), "local POLICIES = {", "local POLICIES =  {", 1)))
	got := must[Fleet](t)(r.Read(t.Context(), redistest.ClusterOf(t, bare.Addr())))
	if len(got.Policies) != 3 || got.Policies[0].Limits != nil || got.Policies[0].Shadow || !got.Policies[2].Shadow || !got.Policies[2].Counted ||
		got.Policies[1].Canary.Limits != nil || got.Policies[1].Canary.Shadow {
		t.Errorf("%+v", got)
	}
}

// The rate of a policy is the sum of what each node counted since its own last reply. A node that
// is new, or that did not count before, adds nothing. A node whose library was loaded again counts
// from 0.
// The calls of each class, and those that the guarantee and the pool paid, have rates of their own.
func TestRatesOfShares(t *testing.T) {
	type counts = struct{ Allowed, Denied int64 }
	reply := func(addr string, second int64, batch counts, guaranteed, borrowed int64) Node {
		calls := map[string]client.PolicyCalls{
			"api":    {Classes: map[string]struct{ Allowed, Denied int64 }{"batch": batch, "critical": {}}},
			"tenant": {Pool: &struct{ Guaranteed, Borrowed int64 }{guaranteed, borrowed}},
		}
		return Node{Addr: addr, At: time.Unix(1_700_000_000+second, 0), Info: client.Info{Policies: []string{"api", "tenant"}, PolicyCalls: calls}}
	}
	var r Reader
	r.sum([]Node{reply("a", 0, counts{10, 4}, 5, 0), reply("b", 0, counts{}, 0, 0)})
	got := r.sum([]Node{reply("a", 2, counts{14, 10}, 9, 2), reply("b", 4, counts{4, 0}, 8, 4)}).Policies
	counted := Calls{Counted: true, PerSec: &usage.Rate{}}
	want := []Policy{
		{Name: "api", Calls: counted, Classes: []Class{
			{Name: "batch", Count: usage.Count{Allowed: 18, Denied: 10}, PerSec: &usage.Rate{Allowed: 3, Denied: 3}},
			{Name: "critical", PerSec: &usage.Rate{}},
		}},
		{Name: "tenant", Calls: counted, Pool: &Pool{Guaranteed: 17, Borrowed: 6, PerSec: &Paid{Guaranteed: 4, Borrowed: 2}}},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%+v\nwant %+v", got, want)
	}
	got = r.sum([]Node{reply("a", 3, counts{2, 0}, 3, 1)}).Policies // the library was loaded again
	if batch, pool := got[0].Classes[0].PerSec, got[1].Pool.PerSec; *batch != (usage.Rate{Allowed: 2}) || *pool != (Paid{3, 1}) {
		t.Errorf("%+v %+v", batch, pool)
	}
}

func TestRates(t *testing.T) {
	start := time.Unix(1_700_000_000, 0)
	reply := func(addr string, second int, calls map[string]client.PolicyCalls) Node {
		node := Node{Addr: addr, At: start.Add(time.Duration(second) * time.Second), Info: client.Info{PolicyCalls: calls}}
		for name := range calls {
			node.Info.Policies = append(node.Info.Policies, name)
		}
		return node
	}
	dead := func(addr string, second int) Node {
		return Node{Addr: addr, At: start.Add(time.Duration(second) * time.Second), Err: errors.New("dead")}
	}
	api := func(allowed, denied int64, canary ...int64) map[string]client.PolicyCalls {
		calls := client.PolicyCalls{Allowed: allowed, Denied: denied}
		if canary != nil {
			calls.CanaryShare, calls.CanaryAllowed, calls.CanaryDenied = canary[0], canary[1], canary[2]
		}
		return map[string]client.PolicyCalls{"api": calls}
	}
	var r Reader
	for i, step := range []struct {
		nodes  []Node
		count  usage.Count
		perSec *usage.Rate
		canary *Canary
	}{
		{nodes: []Node{reply("a", 0, api(100, 10)), reply("b", 0, api(50, 0))}, count: usage.Count{Allowed: 150, Denied: 10}},
		{nodes: []Node{reply("a", 2, api(120, 10)), reply("b", 4, api(58, 4))}, count: usage.Count{Allowed: 178, Denied: 14}, perSec: &usage.Rate{Allowed: 12, Denied: 1}},
		{nodes: []Node{reply("a", 4, api(120, 10)), dead("b", 6)}, count: usage.Count{Allowed: 120, Denied: 10}, perSec: &usage.Rate{}},
		// b is compared with its last reply, 10 s ago; c is new.
		{nodes: []Node{reply("a", 6, api(122, 10)), reply("b", 14, api(68, 4)), reply("c", 6, api(1000, 0))}, count: usage.Count{Allowed: 1190, Denied: 14}, perSec: &usage.Rate{Allowed: 2}},
		// A deployment adds a canary to the policy, which resets the counts on node a.
		{nodes: []Node{reply("a", 8, api(20, 2, 50, 4, 2)), dead("b", 15)}, count: usage.Count{Allowed: 20, Denied: 2}, perSec: &usage.Rate{Allowed: 10, Denied: 1},
			canary: &Canary{Share: 50, Calls: Calls{Counted: true, Count: usage.Count{Allowed: 4, Denied: 2}}}},
		{nodes: []Node{reply("a", 10, api(20, 2, 50, 4, 8))}, count: usage.Count{Allowed: 20, Denied: 2}, perSec: &usage.Rate{},
			canary: &Canary{Share: 50, Calls: Calls{Counted: true, Count: usage.Count{Allowed: 4, Denied: 8}, PerSec: &usage.Rate{Denied: 3}}}},
		// b was not among the nodes of the previous step, so it is new.
		{nodes: []Node{reply("b", 16, api(70, 4))}, count: usage.Count{Allowed: 70, Denied: 4}},
		{nodes: []Node{reply("b", 16, api(70, 4))}, count: usage.Count{Allowed: 70, Denied: 4}}, // no time has passed
	} {
		got := r.sum(step.nodes).Policies
		want := []Policy{{Name: "api", Calls: Calls{Counted: true, Count: step.count, PerSec: step.perSec}, Canary: step.canary}}
		if !reflect.DeepEqual(got, want) {
			t.Fatalf("step %d: %+v %+v\nwant %+v", i, got, got[0].PerSec, want)
		}
	}
}
