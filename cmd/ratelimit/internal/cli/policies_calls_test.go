package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"net"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/ratelimit-functions/ratelimit/cmd/ratelimit/internal/policycalls"
	"github.com/ratelimit-functions/ratelimit/cmd/ratelimit/internal/usage"
	"github.com/ratelimit-functions/ratelimit/embedded"
	"github.com/ratelimit-functions/ratelimit/functions"
	"github.com/ratelimit-functions/ratelimit/internal/fakeredis"
)

// withPolicies starts an embedded server with a stopped clock. Its library has three policies.
func withPolicies(t *testing.T) (*embedded.Server, functions.Build) {
	t.Helper()
	build := must[functions.Build](t)(functions.New(functions.WithPolicies(
		functions.Policy{Name: "api", Limits: []functions.PolicyLimit{{Limit: "2/d"}}, Canary: &functions.Canary{Limits: []string{"1/d"}, Share: 5, Shadow: true}},
		functions.Policy{Name: "calc", Limits: []functions.PolicyLimit{{Key: "resource", Limit: "9/d"}, {Key: "consumer", Limit: "5/m"}}, Track: true},
		functions.Policy{Name: "export", Limits: []functions.PolicyLimit{{Limit: "1/d"}}, Shadow: true},
	)))
	return embedded.Run(t, embedded.WithLibrary(build.Text()), embedded.WithTime(began)), build
}

// inCanary is a key in the canary of @api.
const inCanary = "key:61"

// took makes calls with a policy, all on the same key.
func took(t *testing.T, srv *embedded.Server, calls int, policy, key string) {
	t.Helper()
	for range calls {
		must[any](t)(srv.Do("FCALL", "ratelimit_take", "1", key, policy))
	}
}

func TestPolicies(t *testing.T) {
	srv, build := withPolicies(t)
	env := []string{redisURL(srv.Addr())}
	took(t, srv, 1002, "@api", "k")
	took(t, srv, 4, "@api", inCanary)
	took(t, srv, 4, "@export", "x")
	about := func(b functions.Build) string {
		return "ratelimit " + b.Version() + ", build " + b.ID() + ", contract 1\n"
	}
	run(t, env, "policies").want(t, exitFine, about(build)+`3 policies on 1 server; calls since each server loaded its library

POLICY   KIND                 ALLOWED   DENIED    DENIED %  LIMIT
@api     enforced                   2    1,000        99.8  2/d
@api     canary 0.5%, shadow        1  would 3  would 75.0  1/d
@calc    enforced                   0        0           -  resource: 9/d · consumer: 5/m
@export  shadow                     1  would 3  would 75.0  1/d
`, "")
	var report policiesReport
	got := run(t, env, "policies", "--json")
	if err := json.Unmarshal([]byte(got.stdout), &report); err != nil || got.code != exitFine || got.stderr != "" || strings.Count(got.stdout, "\n") != 1 {
		t.Fatalf("%v: %+v", err, got)
	}
	calls := func(allowed, denied int64) policycalls.Calls {
		return policycalls.Calls{Counted: true, Count: usage.Count{Allowed: allowed, Denied: denied}}
	}
	if want := (policiesReport{Complete: true, Servers: 1, Uncounted: []string{}, Libraries: []policycalls.Library{{Version: build.Version(), BuildID: build.ID(), Contract: 1, Servers: 1}}, Policies: []policycalls.Policy{
		{Name: "api", Limits: []string{"2/d"}, Calls: calls(2, 1000), Canary: &policycalls.Canary{Share: 5, Limits: []string{"1/d"}, Shadow: true, Calls: calls(1, 3)}},
		{Name: "calc", Limits: []string{"resource: 9/d", "consumer: 5/m"}, Track: true, Calls: calls(0, 0)},
		{Name: "export", Limits: []string{"1/d"}, Shadow: true, Calls: calls(1, 3)},
	}}); !reflect.DeepEqual(report, want) {
		t.Errorf("%+v\nwant %+v", report, want)
	}

	older := strings.Replace(build.Text(), "'policy_calls'", "'something_else'", 1)
	require(t, srv.Load(older))
	run(t, env, "policies").want(t, exitFine, about(build)+`3 policies on 1 server; calls since each server loaded its library

POLICY   KIND      ALLOWED  DENIED  DENIED %  LIMIT
@api     enforced        -       -         -  2/d
@calc    enforced        -       -         -  resource: 9/d · consumer: 5/m
@export  shadow          -       -         -  1/d

note: the library is too old to count calls on `+srv.Addr()+`; load a newer one with: ratelimit deploy --policies FILE; without --policies if there are none
`, "")
	plain := must[functions.Build](t)(functions.New())
	require(t, srv.Load(plain.Text()))
	run(t, env, "policies").want(t, exitFine, about(plain)+"the library has no policies; write some (docs/policies.md), and deploy them with: ratelimit deploy --policies FILE\n", "")
	if got := run(t, env, "policies", "--json"); got.stdout != `{"complete":true,"servers":1,"uncounted":[],"libraries":[{"version":"`+plain.Version()+`","build_id":"`+plain.ID()+`","contract":1,"servers":1}],"policies":[]}`+"\n" {
		t.Errorf("%+v", got)
	}
}

// TestPolicyTable checks the rows of canaries and of policies that the user may not read.
func TestPolicyTable(t *testing.T) {
	calls := func(allowed, denied int64, rate *usage.Rate) policycalls.Calls {
		return policycalls.Calls{Counted: true, Count: usage.Count{Allowed: allowed, Denied: denied}, PerSec: rate}
	}
	fleet := policycalls.Fleet{Replied: 12, Libraries: []policycalls.Library{{Version: "0.1.0", BuildID: "a1", Contract: 1, Servers: 11}, {Version: "0.2.0", BuildID: "b2", Contract: 1, Servers: 1}}, Policies: []policycalls.Policy{
		{Name: "api", Limits: []string{"100/m"}, Calls: calls(9000, 1, &usage.Rate{Allowed: 88.25, Denied: 0.001}),
			Canary: &policycalls.Canary{Share: 50, Limits: []string{"60/m"}, Calls: calls(1, 2, nil)}},
		{Name: "jobs", Shadow: true, Canary: &policycalls.Canary{Share: 5, Shadow: true}},
	}}
	a := testApp(nil, nil, nil)
	const want = `ratelimit 0.1.0, build a1, contract 1, on 11 servers
ratelimit 0.2.0, build b2, contract 1, on 1 server
2 policies on 12 servers; calls since each server loaded its library

POLICY  KIND                 ALLOWED  DENIED  DENIED %  ALLOWED/S  DENIED/S  LIMIT
@api    enforced               9,000       1      <0.1       88.2     <0.01  100/m
@api    canary 5%                  1       2      66.7          -         -  60/m
@jobs   shadow                     -       -         -          -         -  -
@jobs   canary 0.5%, shadow        -       -         -          -         -  -
`
	wantText(t, "table", a.policyTable(fleet), want)
	text := must[[]byte](t)(json.Marshal(newPoliciesReport(policyLook{fleet: fleet}).Policies[0]))
	wantText(t, "JSON", string(text), `{"name":"api","limits":["100/m"],"shadow":false,"track":false,"counted":true,"allowed":9000,"denied":1,"per_second":{"allowed":88.25,"denied":0.001},`+
		`"canary":{"share_per_mille":50,"limits":["60/m"],"shadow":false,"counted":true,"allowed":1,"denied":2}}`)
}

// The output shows the primaries that reply, and an error for each of the others.
func TestPoliciesOfServersThatFail(t *testing.T) {
	srv, _ := withPolicies(t)
	took(t, srv, 1, "@api", "k")
	var self int
	listed := make(chan struct{})
	addr := standIn(t, srv, true, func(words []string) string {
		<-listed
		if strings.EqualFold(strings.Join(words, " "), "CLUSTER SLOTS") {
			return resp([]any{[]any{0, 5000, []any{"127.0.0.1", self, "a"}}, []any{5001, 16383, []any{"127.0.0.1", 1, "b"}}})
		}
		return ""
	})
	_, port, _ := net.SplitHostPort(addr)
	self, _ = strconv.Atoi(port)
	close(listed)
	m := newMessages(t, "calls of policies", addr, "ADDR", srv.Addr(), "ADDR")
	out := m.failsAfter(nil, "policies", "--redis", addr)
	if !strings.Contains(out, "\n3 policies on 1 server; ") || !strings.Contains(out, "\n@api     enforced                   1       0       0.0  2/d\n") {
		t.Errorf("%s", out)
	}
	if out := m.failsAfter(nil, "policies", "--json", "--redis", addr); !strings.HasPrefix(out, `{"complete":false,"servers":1,`) || !strings.HasSuffix(out, `"error":"cannot reach 127.0.0.1:1: connection refused; check that the server runs"}`+"\n") {
		t.Errorf("%s", out)
	}
	m.fails(nil, "policies", "--redis", "127.0.0.1:1")
	m.fails(nil, "policies", "--interval", "1s")
	m.fails(nil, "policies", "api")
	must[any](t)(srv.Do("FUNCTION", "FLUSH"))
	m.fails(nil, "policies", "--redis", "redis://"+srv.Addr())
	refuses := standIn(t, srv, false, func(words []string) string {
		if strings.EqualFold(words[0], "FCALL_RO") {
			return "-NOPERM User web has no permissions to run the 'fcall_ro' command\r\n"
		}
		return ""
	})
	m.names = append(m.names, refuses, "ADDR")
	m.fails(nil, "policies", "--redis", "redis://"+refuses)
}

// An interrupted command says that it was interrupted, because its table may lack servers.
func TestPoliciesInterrupted(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	addr := fakeredis.Run(t, func(words []string) string {
		if strings.EqualFold(words[0], "HELLO") {
			return resp([]any{"mode", "standalone"})
		}
		stop()
		return fakeredis.HangUp
	})
	var stdout, stderr bytes.Buffer
	code := testApp([]string{redisURL(addr)}, &stdout, &stderr).execute(ctx, []string{"policies", "--json"})
	if want := `{"complete":false,"servers":0,"uncounted":[],"libraries":[],"policies":[],"error":"interrupted before every server answered"}` + "\n"; stdout.String() != want ||
		code != exitError || stderr.String() != "ratelimit: interrupted before every server answered\n" {
		t.Errorf("exit code %d, %s%s", code, stdout.String(), stderr.String())
	}
}

// On a terminal, the table and the error of the last pass fit on the screen. If no server replies,
// the last table stays.
func TestPolicyView(t *testing.T) {
	l := look{width: 30, height: 5}
	view := &policyView{}
	if lines := view.lines(l); len(lines) != 2 || !strings.HasSuffix(lines[0], "q: end") || lines[1] != "looking" {
		t.Errorf("before the first pass: %q", lines)
	}
	view.show(policyLook{table: strings.Repeat("@api "+strings.Repeat("x", 50)+"\n", 9)})
	view.show(policyLook{fault: "\x1b[2Jbroken"})
	lines := view.lines(l)
	if len(lines) != 5 || lines[1] != `ratelimit: \x1b[2Jbroken` || !strings.HasPrefix(lines[4], "@api x") {
		t.Errorf("%q", lines)
	}
	if i := slices.IndexFunc(lines, func(line string) bool { return textWidth(line) > 30 }); i >= 0 {
		t.Errorf("a line %q", lines[i])
	}
}

// TestPoliciesShowShares checks the rows of classes, guarantees and pools.
func TestPoliciesShowShares(t *testing.T) {
	build := must[functions.Build](t)(functions.New(functions.WithPolicies(
		functions.Policy{Name: "api", Limits: []functions.PolicyLimit{{Limit: "10/d"}}, Classes: map[string]int{"batch": 50, "critical": 0, "default": 20}},
		functions.Policy{Name: "tenant", Limits: []functions.PolicyLimit{{Key: "guarantee", Limit: "2/d"}, {Key: "pool", Limit: "10/d"}}, Borrow: true, Floor: 50},
		functions.Policy{Name: "login", Limits: []functions.PolicyLimit{{Limit: "5/m"}}, Penalty: &functions.Penalty{First: time.Minute, Max: time.Hour, Forget: 24 * time.Hour}},
	)))
	srv := embedded.Run(t, embedded.WithLibrary(build.Text()), embedded.WithTime(began))
	for range 7 {
		must[any](t)(srv.Do("FCALL", "ratelimit_take", "1", "k", "@api", "CLASS", "batch"))
		must[any](t)(srv.Do("FCALL", "ratelimit_take", "2", "t", "p", "@tenant"))
	}
	took(t, srv, 1, "@api", "k")
	env := []string{redisURL(srv.Addr())}
	run(t, env, "policies").want(t, exitFine, "ratelimit "+build.Version()+", build "+build.ID()+`, contract 1
3 policies on 1 server; calls since each server loaded its library

POLICY   KIND                 ALLOWED  DENIED  DENIED %  LIMIT
@api     enforced                   6       2      25.0  10/d
@api     class batch 50%            5       2      28.6  -
@api     class critical 0%          0       0         -  -
@api     class default 20%          1       0       0.0  -
@login   enforced                   0       0         -  5/m (penalty 1m..1h, forget 1d)
@tenant  enforced                   5       2      28.6  guarantee: 2/d · pool: 10/d
@tenant  guaranteed                 2       -         -  -
@tenant  borrowed, floor 50%        3       -         -  -
`, "")
	got := run(t, env, "policies", "--json")
	for _, want := range []string{
		`"classes":[{"name":"batch","percent":50,"allowed":5,"denied":2},{"name":"critical","percent":0,"allowed":0,"denied":0},{"name":"default","percent":20,"allowed":1,"denied":0}]`,
		`"pool":{"floor":50,"guaranteed":2,"borrowed":3}`, `"penalty":"1m..1h, forget 1d"`,
	} {
		if !strings.Contains(got.stdout, want) {
			t.Errorf("%s\nwant %s", got.stdout, want)
		}
	}
}
