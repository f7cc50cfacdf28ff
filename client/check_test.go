package client_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/ratelimit-functions/ratelimit/client"
	"github.com/ratelimit-functions/ratelimit/embedded"
	"github.com/ratelimit-functions/ratelimit/functions"
	"github.com/ratelimit-functions/ratelimit/internal/redistest"
)

func TestCheck(t *testing.T) {
	ctx := t.Context()
	build := must[functions.Build](t)(functions.New(functions.WithPolicies(
		functions.Policy{Name: "api", Limits: []functions.PolicyLimit{{Limit: "1/d"}}}, functions.Policy{Name: "calc", Limits: []functions.PolicyLimit{{Limit: "1/d"}}},
		functions.Policy{Name: "jobs", Limits: []functions.PolicyLimit{{Limit: "concurrency 2 lease=9s"}}},
	)))
	older := tooOldForLimits(t, build.Text())
	speaks := func(contract string) string {
		return strings.Replace(functions.Source(), "local CONTRACT = 1\n", "local CONTRACT = "+contract+"\n", 1)
	}
	if speaks("2") == functions.Source() {
		t.Fatal("the library's text says its contract in another way")
	}
	for _, tt := range []struct {
		name     string
		library  string
		policies []client.Limit
		want     string
		class    error
	}{
		{"fit", build.Text(), []client.Limit{"@calc", "@api"}, "", nil},
		{"fit, no policies asked for", functions.Source(), nil, "", nil},
		{"a library that cannot say, a policy", older, []client.Limit{"@api"}, "", nil},
		{"no library", "", nil, "the server does not have the library (ERR Function not found); deploy the library with: ratelimit deploy, or with package loader", client.ErrNotDeployed},
		{"an older contract", speaks("0"), nil, "the library speaks contract 0, and this client contract 1; deploy the library of this client's version", client.ErrNotDeployed},
		{"a newer contract", speaks("2"), nil, "the library speaks contract 2, and this client contract 1; build the program with a newer client", client.ErrBadReply},
		{"another policy", build.Text(), []client.Limit{"@api", "@login"},
			"the library has no policy @login, it has @api, @calc, @jobs; deploy a build that has it", client.ErrNoPolicy},
		{"no policy", functions.Source(), []client.Limit{"@login"}, "the library has no policy @login, it has none; deploy a build that has it", client.ErrNoPolicy},
		{"limits", build.Text(), []client.Limit{"5/m", "@api", "fixed_window 9/mo align=clock", "concurrency 3 lease=30s", "@jobs"}, "", nil},
		{"a wrong limit", build.Text(), []client.Limit{"5/m", "3/min"},
			`BADLIMIT "3/min": the unit of the period "min" is none of ms, s, m, h, d`, client.ErrBadLimit},
		{"a wrong limit of leases", build.Text(), []client.Limit{"concurrency 3"},
			`BADLIMIT "concurrency 3": the limit is not of the form concurrency n lease=30s`, client.ErrBadLimit},
		{"no limit", build.Text(), []client.Limit{""}, `BADLIMIT "": no rate such as 100/m or 5/10s; the keys come first, and a limit with blanks is one argument`, client.ErrBadLimit},
		{"a library that cannot say", older, []client.Limit{"@api", "5/m"},
			`the library is too old to check "5/m"; deploy the library of this client's version`, client.ErrNotDeployed},
	} {
		var opts []embedded.Option
		if tt.library != "" {
			opts = append(opts, embedded.WithLibrary(tt.library))
		}
		server := embedded.Run(t, opts...)
		err := open(t, "redis://"+server.Addr(), client.WithTimeout(slow)).Check(ctx, tt.policies...)
		if tt.want == "" {
			if err != nil {
				t.Errorf("%s: %v", tt.name, err)
			}
			continue
		}
		if err == nil || err.Error() != "ratelimit: check: "+tt.want {
			t.Errorf("%s: %v\nwant %s", tt.name, err, tt.want)
		}
		wantClasses(t, tt.name, err, tt.class)
	}
	if functions.Contract != 1 {
		t.Errorf("the library speaks contract %d, which this package does not know", functions.Contract)
	}
}

// tooOldForLimits returns a library whose ratelimit_info accepts no limit.
func tooOldForLimits(t *testing.T, text string) string {
	t.Helper()
	const refusal = "elseif #args > 1 then\n      return errors.new('BADARGS', '%s: info takes one limit, or none', errors.quote(args[2]))"
	older := strings.Replace(text, refusal, strings.NewReplacer("> 1", "> 0", "[2]", "[1]").Replace(refusal), 1)
	if older == text {
		t.Fatal("the library refuses a second limit in another way")
	}
	return older
}

// The error names every wrong limit, and matches the class of each.
func TestCheckNamesEachWrongLimit(t *testing.T) {
	server := embedded.Run(t, embedded.WithLibrary(functions.Source()))
	p := startProxy(t, server.Addr())
	c := open(t, "redis://"+p.addr(), client.WithTimeout(slow))
	err := c.Check(t.Context(), "3/min", "5/m", "@fre", "1/s burst=0")
	wantText(t, err, `ratelimit: check: BADLIMIT "3/min": the unit of the period "min" is none of ms, s, m, h, d; `+
		`and the library has no policy @fre, it has none; deploy a build that has it; `+
		`and BADLIMIT "1/s burst=0": burst="0" is not a whole number from 1 to 9007199254740992`)
	wantClasses(t, "three wrong limits", err, client.ErrBadLimit, client.ErrNoPolicy)
	if n := p.seen(); n != 1 {
		t.Errorf("%d round trips, want one", n)
	}
}

// In a cluster and in a ring, each server is checked.
func TestCheckOfEachServer(t *testing.T) {
	ctx := t.Context()
	nodes := startCluster(t)
	direct := flushCluster(t, nodes)
	c := newClient(t, clusterOf(t, nodes), client.WithTimeout(slow))
	check(t, c.Check(ctx))
	require(t, direct[1].FunctionFlush(ctx).Err())
	want := "ratelimit: check: " + nodes.nodes[1].Addr + ": the server does not have the library (ERR Function not found); deploy the library with: ratelimit deploy, or with package loader"
	wantText(t, c.Check(ctx), want)
	deploy(t, direct[1])
	check(t, c.Check(ctx, "3/m"))
	if err := c.Check(ctx, "3/min"); !errors.Is(err, client.ErrBadLimit) || !strings.Contains(err.Error(), `BADLIMIT "3/min"`) {
		t.Errorf("of a wrong limit: %v", err)
	}

	one, two := redistest.Run(t), redistest.Run(t)
	deploy(t, connect(t, redis.Options{Addr: one.Addr}))
	ring := redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"one": one.Addr, "two": two.Addr}})
	t.Cleanup(func() { _ = ring.Close() })
	c = newClient(t, ring, client.WithTimeout(slow))
	want = "ratelimit: check: " + two.Addr + ": the server does not have the library (ERR Function not found); deploy the library with: ratelimit deploy, or with package loader"
	wantText(t, c.Check(ctx), want)
	two.Stop()
	eventually(t, "the ring finds that one is gone", func() bool {
		err := c.Check(ctx)
		return errors.Is(err, client.ErrUnavailable) && strings.Contains(err.Error(), "1 of the 2 shards of the ring do not reply")
	})
}
