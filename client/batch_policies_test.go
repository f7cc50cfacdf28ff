package client_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/ratelimit-functions/ratelimit/client"
	"github.com/ratelimit-functions/ratelimit/functions"
)

// libraryOf returns the source of the library with the policy p, which gets the name "p".
func libraryOf(t *testing.T, p functions.Policy) string {
	t.Helper()
	p.Name = "p"
	return must[functions.Build](t)(functions.New(functions.WithPolicies(p))).Text()
}

func deployPolicy(t *testing.T, rdb redis.UniversalClient, p functions.Policy) {
	t.Helper()
	require(t, rdb.FunctionLoadReplace(t.Context(), libraryOf(t, p)).Err())
}

func limited(limit string) functions.Policy {
	return functions.Policy{Limits: []functions.PolicyLimit{{Limit: limit}}}
}

// canaryOf returns a policy whose canary applies to every key.
func canaryOf(limit string, shadow bool) functions.Policy {
	p := limited("100000/m")
	p.Canary = &functions.Canary{Limits: []string{limit}, Share: 1000, Shadow: shadow}
	return p
}

func shadowOf(limit string) functions.Policy {
	p := limited(limit)
	p.Shadow = true
	return p
}

// learns makes two calls, and waits until the client has learned the policy from the server.
func learns(t *testing.T, c *client.Client, key string) {
	t.Helper()
	for range 2 { // the client fetches the policy after the second call
		must[client.Result](t)(c.Allow(t.Context(), key, "@p"))
	}
	eventually(t, "the client knows the policy", func() bool { return client.KnowsPolicy(c, key, "@p") })
}

// Calls on one key under a frequently used policy are batched like calls under the limit of the
// policy.
func TestPoliciesAreBatched(t *testing.T) {
	s := newTestbed(t)
	deployPolicy(t, s.rdb, limited("100000/m"))
	c := s.client(t, client.WithBatches(16, ttl))
	learns(t, c, "k")
	s.sent()
	batched := 0
	for range 1 + 2 + 4 + 8 + 1 {
		if res := allow(t, c, "@p", 1); res.Source == "batch" {
			batched++
		}
	}
	if got := s.sizes(); got != "=1 2 4 8 16" || batched != 1+3+7 {
		t.Errorf("asked for %s, and %d calls came from batches", got, batched)
	}
	other := s.client(t) // a new client sees that the units left in the batch were charged
	if n := left(t, other, "k", "@p"); n != 100_000-2-31 {
		t.Errorf("%d are left", n)
	}
}

// The client does not fetch a policy that is rarely used.
func TestRarePoliciesAreNotFetched(t *testing.T) {
	s := newTestbed(t)
	deployPolicy(t, s.rdb, limited("100000/m"))
	c := s.client(t, client.WithBatches(16, ttl))
	s.calls(t, c, 1, 0)
	s.sent()
	for range 20 {
		allow(t, c, "@p", 1)
		s.pass(ttl)
	}
	check(t, c.Close())
	if n := len(s.sent()); n != 20 {
		t.Errorf("%d requests for 20 calls", n)
	}
}

// Every call under a policy that cannot be batched is sent to the server. If a redeployed policy
// can no longer be batched, clients notice within ttl.
func TestPoliciesThatAreNotBatched(t *testing.T) {
	for name, policy := range map[string]functions.Policy{
		"leaky_bucket":              limited("leaky_bucket 100000/m"),
		"shadow":                    shadowOf("100000/m"),
		"a canary of leaky_bucket":  canaryOf("leaky_bucket 100000/m", false),
		"a canary that is a shadow": canaryOf("100000/m", true),
	} {
		t.Run(name, func(t *testing.T) {
			s := newTestbed(t)
			direct := s.client(t, client.WithBatches(16, ttl))
			changed := s.client(t, client.WithBatches(16, ttl))
			deployPolicy(t, s.rdb, limited("100000/m"))
			learns(t, changed, "k")
			allow(t, changed, "@p", 1)
			allow(t, changed, "@p", 1)
			if res := allow(t, changed, "@p", 1); res.Source != "batch" {
				t.Fatalf("%+v, before the deployment", res)
			}
			deployPolicy(t, s.rdb, policy)
			s.pass(ttl)
			for range 50 {
				for _, c := range []*client.Client{direct, changed} {
					res := allow(t, c, "@p", 1)
					shadow := policy.Shadow || policy.Canary != nil && policy.Canary.Shadow
					if res.Source != "server" || shadow != (res.Shadow != nil) {
						t.Fatalf("%+v, ttl after the deployment", res)
					}
				}
				s.pass(ttl / 50)
			}
			learns(t, changed, "k")
			wantSource(t, changed, "@p", 1, "server")
		})
	}
}

// If a policy becomes a shadow policy, a client does not spend units that come from shadow
// decisions. The server then decides every call.
func TestShadowUnitsAreNotSpent(t *testing.T) {
	s := newTestbed(t)
	deployPolicy(t, s.rdb, limited("100000/m"))
	c := s.client(t, client.WithBatches(16, ttl))
	learns(t, c, "k")
	allow(t, c, "@p", 1)
	deployPolicy(t, s.rdb, shadowOf("100000/m"))
	for range 20 {
		if res := allow(t, c, "@p", 1); res.Source != "server" || res.Shadow == nil || res.Shadow.Taken != 0 {
			t.Fatalf("%+v", res)
		}
	}
}

// If a policy becomes a leaky_bucket while a client batches it, no two callers get the same place
// in the bucket's queue.
func TestQueueTurnsAreNotShared(t *testing.T) {
	s := newTestbed(t)
	deployPolicy(t, s.rdb, limited("100000/m"))
	c := s.client(t, client.WithBatches(16, ttl))
	learns(t, c, "k")
	for range 1 + 2 + 4 + 8 { // let the batches grow
		allow(t, c, "@p", 1)
	}
	deployPolicy(t, s.rdb, limited("leaky_bucket 600/m"))
	turns := map[time.Duration]bool{}
	for range 20 {
		res := allow(t, c, "@p", 1)
		if res.RetryAfter == 0 { // the unit is from an earlier batch
			continue
		}
		if res.Source != "server" || turns[res.RetryAfter] {
			t.Fatalf("%+v, after the turns %v", res, turns)
		}
		turns[res.RetryAfter] = true
	}
	if len(turns) == 0 {
		t.Error("nobody was told to wait")
	}
}

// If the library does not report policies, or has no info function, no policy is batched, even a
// policy that the client knew before.
func TestPoliciesOfLibrariesThatDoNotReportThem(t *testing.T) {
	for name, tt := range map[string]struct {
		old, new string // old is replaced by new in the library's source code
		policy   string
		knows    bool // whether the client has learned the policy before the test
		asked    int  // number of requests sent for 100 calls; not checked if 0
	}{
		"no info":       {"'ratelimit_info'", "'ratelimit_of_another_name'", "100000/m", true, 0},
		"no algorithms": {"prefix .. 'algorithms'", "prefix .. 'of_later_versions'", "100000/m", false, 100},
		"no limits":     {"add(reply, '', limit)", "do return errors.new('BADARGS', 'no limits here') end", "leaky_bucket 100000/m", true, 0},
	} {
		t.Run(name, func(t *testing.T) {
			s := newTestbed(t)
			c := s.client(t, client.WithBatches(16, ttl))
			if tt.knows {
				deployPolicy(t, s.rdb, limited("100000/m"))
				learns(t, c, "k")
			}
			text := libraryOf(t, limited(tt.policy))
			changed := strings.Replace(text, tt.old, tt.new, 1)
			if changed == text {
				t.Fatalf("the library's text has no %q", tt.old)
			}
			require(t, s.rdb.FunctionLoadReplace(t.Context(), changed).Err())
			s.pass(ttl)
			learns(t, c, "k")
			s.sent()
			for range 100 {
				if res := allow(t, c, "@p", 1); res.Source != "server" {
					t.Fatalf("%+v", res)
				}
				s.pass(ttl / 4)
			}
			if n := len(s.sent()); tt.asked > 0 && n != tt.asked {
				t.Errorf("%d requests for 100 calls, want %d", n, tt.asked)
			}
		})
	}
}

// In any time span of length L, at most as many units are admitted as the limit allows in L + ttl,
// even if a deployment lowers the limit. A client can spend units for up to ttl after it took them,
// so it may spend them after the deployment.
func TestBatchesKeepTheBoundAcrossADeployment(t *testing.T) {
	s := newTestbed(t)
	const before, after = 200, 5 // units per second, with a burst of the same size
	deployPolicy(t, s.rdb, limited("200/s"))
	var clients []*client.Client
	for range 3 {
		c := s.client(t, client.WithBatches(16, ttl))
		learns(t, c, "k")
		clients = append(clients, c)
	}
	var admitted []admission
	batched := 0
	run := func(d time.Duration) {
		for end := s.now().Add(d); s.now().Before(end); s.pass(time.Millisecond) {
			for _, c := range clients {
				if res := must[client.Result](t)(c.Allow(t.Context(), "k", "@p")); res.Allowed {
					admitted = append(admitted, admission{1, s.now()})
					if res.Source == "batch" {
						batched++
					}
				}
			}
		}
	}
	s.pass(time.Minute)
	run(2 * time.Second)
	if batched == 0 {
		t.Fatal("nothing came from batches")
	}
	deployPolicy(t, s.rdb, limited("5/s"))
	deployed := s.now()
	run(2 * time.Second)
	for i := range admitted {
		rate, burst := time.Second/before, int64(before)
		if !admitted[i].at.Before(deployed.Add(ttl)) {
			rate, burst = time.Second/after, after
		}
		for j := i; j < len(admitted); j++ {
			span := admitted[j].at.Sub(admitted[i].at)
			if n, most := int64(j-i+1), burst+int64((span+ttl)/rate); n > most {
				t.Fatalf("%d admitted in %v from %v on, at most %d are allowed", n, span, admitted[i].at.Sub(deployed), most)
			}
		}
	}
}

// onShards deploys a policy to each shard of the cluster, and returns a client that has learned
// both policies.
func onShards(t *testing.T, low, high string) (*cluster, *client.Client) {
	t.Helper()
	nodes := startCluster(t)
	direct := flushCluster(t, nodes)
	deployPolicy(t, direct[0], limited(low))
	deployPolicy(t, direct[1], limited(high))
	t.Cleanup(func() {
		for _, rdb := range direct {
			check(t, rdb.FunctionLoadReplace(context.Background(), functions.Source()).Err())
		}
	})
	c := open(t, nodes.nodes[0].Addr+","+nodes.nodes[1].Addr, client.WithBatches(16, time.Minute), client.WithTimeout(slow))
	for _, key := range []string{lowKey, highKey} {
		// Use another key to learn the slots of the cluster. Otherwise, the call would leave a state of
		// 10/d under this key, and the policy's limit would treat the key as used up.
		must[client.Result](t)(c.Allow(t.Context(), key+":other", perDay))
		learns(t, c, key)
	}
	return nodes, c
}

// While a deployment has reached only some shards, the client batches a key according to the policy
// on the key's own shard.
func TestPoliciesAreKnownByShard(t *testing.T) {
	_, c := onShards(t, "100000/m", "leaky_bucket 100000/m")
	batched := map[string]int{}
	for range 8 {
		for _, key := range []string{lowKey, highKey} {
			if res := must[client.Result](t)(c.Allow(t.Context(), key, "@p")); res.Source == "batch" {
				batched[key]++
			}
		}
	}
	if batched[lowKey] == 0 || batched[highKey] != 0 {
		t.Errorf("from batches: %v", batched)
	}
}

// Whether Close refunds a key's units depends on the policy that the key's shard reports.
func TestCloseGivesBackByShard(t *testing.T) {
	nodes, c := onShards(t, "1000/d", "fixed_window 1000/d")
	for _, key := range []string{lowKey, highKey} {
		for range 1 + 2 + 4 + 1 {
			must[client.Result](t)(c.Allow(t.Context(), key, "@p"))
		}
	}
	other := newClient(t, clusterOf(t, nodes), client.WithTimeout(slow))
	low, high := left(t, other, lowKey, "@p"), left(t, other, highKey, "@p")
	check(t, c.Close())
	if low, high = left(t, other, lowKey, "@p")-low, left(t, other, highKey, "@p")-high; low < 1 || high != 0 {
		t.Errorf("%d units were given back under gcra, and %d under fixed_window; want some, and none", low, high)
	}
}
