package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/ratelimit-functions/ratelimit/functions"
	"github.com/ratelimit-functions/ratelimit/loader"
	"github.com/ratelimit-functions/ratelimit/loader/doctor"
)

// otherLibrary writes the library to a file, with another version and build ID.
func otherLibrary(t *testing.T, version, id string) string {
	t.Helper()
	text := strings.Replace(functions.Source(), "local VERSION = '"+functions.Version()+"'", "local VERSION = '"+version+"'", 1)
	text = strings.Replace(text, "local BUILD_ID = '"+functions.BuildID()+"'", "local BUILD_ID = '"+id+"'", 1)
	file := filepath.Join(t.TempDir(), "library.lua")
	require(t, os.WriteFile(file, []byte(text), 0o666))
	return file
}

// TestPlanDeployRollbackDelete plans and deploys, deploys a newer build, rolls back, and deletes.
func TestPlanDeployRollbackDelete(t *testing.T) {
	addr := startRedis(t)
	env := []string{redisURL(addr)}
	policies := filepath.Join(t.TempDir(), "policies.yaml")
	write := func(text string) {
		t.Helper()
		require(t, os.WriteFile(policies, []byte(text), 0o666))
	}
	has := func(got outcome, code int, stdout ...string) {
		t.Helper()
		if got.code != code || got.stderr != "" {
			t.Errorf("exit code %d, want %d; stderr %q", got.code, code, got.stderr)
		}
		for _, want := range stdout {
			if !strings.Contains(got.stdout, want) {
				t.Errorf("no %q in:\n%s", want, got.stdout)
			}
		}
	}
	fails := func(why string, args ...string) {
		t.Helper()
		if got := run(t, env, args...); got.code != exitError || got.stdout != "" && args[0] != "plan" || !strings.Contains(got.stderr, why) {
			t.Errorf("%v: %+v, want in it %s", args, got, why)
		}
	}
	write("policies:\n  t: {guarantee: 80/s, pool: 1000/s, floor: 80, tenants: 20}\n")
	has(run(t, env, "plan", "--policies", policies), exitDiffers, "\nnote: ", "the pool of 1000/s has less than 20 guarantees of 80/s")
	write("policies:\n  api: 100/m\n")
	has(run(t, env, "plan", "--policies", policies), exitDiffers, "  load 0.1.0 build ", " is new, on ", "  + function ratelimit_take\n", "  + policy api: 100/m\n")
	has(run(t, env, "deploy", "--policies", policies), exitFine, "  loaded\n", "\ndeployed ratelimit 0.1.0, build ")
	has(run(t, env, "plan", "--policies", policies), exitFine, "  nothing\n", "\nnothing to change\n")
	write("policies:\n  api: 200/m\n")
	has(run(t, env, "plan", "--policies", policies, "--diff"), exitDiffers, "  replace by 0.1.0 build ", "\n  ~ policy api: 100/m becomes 200/m\n      keys in use: carry over: after ", " are left\n\n--- 0.1.0 build ", "\n-  ['api'] = { '100/m' },\n+  ['api'] = { '200/m' },\n")
	var plan struct {
		Empty bool
		Nodes []nodePlan
	}
	got := run(t, env, "plan", "--policies", policies, "--json")
	if err := json.Unmarshal([]byte(got.stdout), &plan); err != nil || got.code != exitDiffers || plan.Empty || len(plan.Nodes) != 1 ||
		len(plan.Nodes[0].Node.Changes) != 1 || plan.Nodes[0].Node.Changes[0] != (loader.Change{Kind: "policy", Name: "api", What: "changed", Old: "100/m", New: "200/m",
		Keys: "carry over: after 50 units of 100, 100 of 200 are left"}) || plan.Nodes[0].Node.Addr != addr {
		t.Errorf("%v: %+v", err, got)
	}
	has(run(t, env, "deploy", "--policies", policies), exitFine, "\n  ~ policy api: 100/m becomes 200/m\n      keys in use: carry over: after ", " are left\n\ndeployed ratelimit 0.1.0, build ")
	has(run(t, env, "status", "--policies", policies), exitFine, "in step; rollback: 0.1.0 build ")
	has(run(t, env, "status"), exitFine, "in step; rollback: 0.1.0 build ")
	has(run(t, env, "rollback"), exitFine, "  loaded\n", "\n  ~ policy api: 200/m becomes 100/m\n      keys in use: carry over: after ", " are left\n\nwent back to ratelimit 0.1.0, build ")
	has(run(t, env, "status", "--policies", policies), exitDiffers, "differs from build ")
	has(run(t, env, "status"), exitFine, "in step; rollback: 0.1.0 build ")
	write("policies:\n  api: 100/m\n")
	has(run(t, env, "status", "--policies", policies), exitFine, "in step; rollback: 0.1.0 build ")

	write("policies:\n  api: {limit: 100/m, canary: {limit: 60/m, share: 5%}}\n")
	has(run(t, env, "deploy", "--policies", policies), exitFine, "\n  + canary of api: 5% of the keys: 60/m\n      keys in use: carry over: after ")
	write("policies:\n  api: {limit: 100/m, canary: {limit: 60/m, share: 20%}}\n")
	has(run(t, env, "plan", "--policies", policies), exitDiffers, "\n  ~ canary of api: 5% of the keys becomes 20% of the keys\n")
	write("policies:\n  api: 100/m\n")
	has(run(t, env, "deploy", "--policies", policies), exitFine, "\n  - canary of api: 5% of the keys: 60/m\n      keys in use: carry over: after ")

	// A rollback may remove what the deployment added.
	write("policies:\n  api: 100/m\n  search: 2/m\n")
	has(run(t, env, "deploy", "--policies", policies), exitFine, "\n  + policy search: 2/m\n")
	has(run(t, env, "rollback", "--plan"), exitDiffers, "\n  - policy search: 2/m\n")
	has(run(t, env, "rollback"), exitFine, "\n  - policy search: 2/m\n")

	newer := otherLibrary(t, "0.2.0", "222222222222")
	fails("--remove-policies", "deploy", "--library", newer)
	fails("--remove-policies", "plan", "--library", newer)
	if got := run(t, env, "plan", "--library", newer); got.code != exitError || !strings.Contains(got.stdout, "  refused\n") || !strings.Contains(got.stdout, "\n  - policy api: 100/m\n") {
		t.Errorf("the plan of a refused build shows no changes: %+v", got)
	}
	has(run(t, env, "plan", "--library", newer, "--remove-policies"), exitDiffers, "\n  - policy api: 100/m\n")
	has(run(t, env, "deploy", "--library", newer, "--remove-policies"), exitFine, "\n  - policy api: 100/m\n\ndeployed ratelimit 0.2.0, build 222222222222\n")
	has(run(t, env, "rollback"), exitFine, "\n  + policy api: 100/m\n", "\nthe servers keep one step: another rollback would bring back 0.2.0 build 222222222222, and nothing older\n")
	fails("which a rollback would bring back, does not have; see what changes with --plan, and add --remove-policies", "rollback")
	has(run(t, env, "rollback", "--remove-policies"), exitFine, "\nnote: the last deployment was a rollback, which this one undoes\n", "\n  - policy api: 100/m\n\nwent back to ratelimit 0.2.0, build 222222222222\n")
	fails("--allow-downgrade", "deploy")
	fails("--allow-downgrade", "plan")
	has(run(t, env, "plan", "--allow-downgrade"), exitDiffers)
	got = run(t, env, "history")
	has(got, exitFine, "WHEN ", "  code, api\n", "  rollback: code, api\n")
	for _, command := range []string{"deploy", "plan", "status"} {
		fails("not a build", command, "--library", policies)
		fails("--library and --policies exclude each other", command, "--library", policies, "--policies", policies)
	}

	// Without --yes, delete asks for confirmation.
	question := "delete the library ratelimit from redis://" + addr + "? Calls fail from then on. Type yes: "
	for _, tt := range []struct{ typed, stderr string }{
		{"", question + "\nratelimit: no answer; nothing was deleted; in a script, add --yes\n"},
		{"y\n", question + "ratelimit: the answer is not yes; nothing was deleted\n"},
	} {
		typing(t, env, tt.typed, "delete").want(t, exitError, "", tt.stderr)
	}
	got = typing(t, env, "yes\n", "delete")
	if got.code != exitFine || got.stderr != question || !strings.HasSuffix(got.stdout, "  deleted\n\ndeleted from 1 server\n") {
		t.Errorf("%+v", got)
	}
	has(run(t, env, "delete", "--yes"), exitFine, "had none\n\ndeleted from 0 servers\n")
	if list := admin(t, addr).FunctionList(t.Context(), redis.FunctionListQuery{}).Val(); len(list) != 1 || len(list[0].Functions) != 1 {
		t.Errorf("%+v is left", list)
	}
	fails("the library was deleted", "rollback")
}

// typing runs a command line with input as its stdin.
func typing(t *testing.T, env []string, input string, args ...string) outcome {
	t.Helper()
	var stdout, stderr bytes.Buffer
	a := testApp(env, &stdout, &stderr)
	a.stdin = strings.NewReader(input)
	code := a.execute(t.Context(), args)
	return outcome{code, stdout.String(), stderr.String()}
}

// A command that waits for an answer ends as soon as it is interrupted, even if stdin never
// delivers anything.
func TestInterruptedQuestion(t *testing.T) {
	addr := startRedis(t)
	fine(t, nil, "deploy", "--redis", addr)
	stdin, typist := io.Pipe()
	defer func() { _ = typist.Close() }() // unblocks the read of stdin, which the interrupted command has abandoned
	s := startWith(t, nil, func(a *app) { a.stdin = stdin }, "delete", "--redis", addr)
	question := "delete the library ratelimit from redis://" + addr + "? Calls fail from then on. Type yes: "
	eventually(t, "it asks", func() bool { return s.stderr.String() == question })
	s.end().want(t, exitError, "", question+"\nratelimit: interrupted; nothing was deleted\n")
	if list := admin(t, addr).FunctionList(t.Context(), redis.FunctionListQuery{LibraryNamePattern: functions.Name}).Val(); len(list) != 1 {
		t.Errorf("the server holds %d libraries of this name", len(list))
	}
}

func TestStatusWatch(t *testing.T) {
	addr := startRedis(t)
	rdb := admin(t, addr)
	for _, asJSON := range []bool{false, true} {
		args := []string{"status", "--watch", "--interval", "20ms"}
		if asJSON {
			args = append(args, "--json")
		}
		s := start(t, []string{redisURL(addr)}, args...)
		lines := func(n int) func() bool {
			return func() bool { return strings.Count(s.stdout.String(), "\n") >= n }
		}
		eventually(t, "the first event", lines(1))
		do(t, rdb, "FUNCTION", "FLUSH")
		eventually(t, "the repair", lines(2))
		got := s.end()
		if got.code != exitFine || got.stderr != "" {
			t.Errorf("%+v", got)
		}
		last := strings.Split(strings.TrimSpace(got.stdout), "\n")[1]
		if asJSON {
			var e struct {
				Event string
				Node  loader.Node
			}
			if err := json.Unmarshal([]byte(last), &e); err != nil || e.Event != "repaired" || e.Node.Addr != addr || !e.Node.Changed {
				t.Errorf("%v: %s", err, last)
			}
		} else if !regexp.MustCompile(`^\d\d:\d\d:\d\d\.\d{3}  repaired  ` + addr + ` had no library: loaded build ` + functions.BuildID() + `$`).MatchString(last) {
			t.Error(last)
		}
	}
}

// A watch without the policies leaves those on the server, and restores them.
func TestStatusWatchWithoutPolicies(t *testing.T) {
	addr := startRedis(t)
	inFolder(t, map[string]string{"policies.yaml": "policies:\n  api: 5/s\n"})
	fine(t, []string{redisURL(addr)}, "deploy", "--policies", "policies.yaml")
	s := start(t, []string{redisURL(addr)}, "status", "--watch")
	eventually(t, "the first event", func() bool { return strings.HasSuffix(s.stdout.String(), "\n") })
	if got := s.end(); got.code != exitFine || !strings.HasSuffix(got.stdout, ", which was deployed after the build of this watch\n") {
		t.Errorf("%+v", got)
	}
}

func TestDoctor(t *testing.T) {
	addr := startRedis(t)
	env := []string{redisURL(addr)}
	m := newMessages(t, "doctor", addr, "ADDR", strings.Replace(addr, ":", " -p ", 1), "ADDR")
	examine := func(code int, servers ...string) {
		t.Helper()
		got := run(t, env, append([]string{"doctor"}, servers...)...)
		if got.code != code || got.stderr != "" {
			t.Errorf("%+v", got)
		}
		m.add(got.stdout)
	}
	examine(exitDiffers)
	fine(t, env, "deploy")
	examine(exitDiffers)
	do(t, admin(t, addr), "ACL", "SETUSER", "default", "-function|delete")
	examine(exitDiffers)
	do(t, admin(t, addr), "ACL", "SETUSER", "default", "+function|delete")
	server := withLibrary(t)
	m.names = append(m.names, server.Addr(), "EMBEDDED")
	examine(exitFine, "--redis", server.Addr())
	do(t, admin(t, server.Addr()), "FUNCTION", "LOAD", "REPLACE", otherText)
	examine(exitDiffers, "--redis", server.Addr())
	examine(exitDiffers, "--redis", "redis://127.0.0.1:1")
	if got := run(t, env, "doctor", "--json", "--redis", "redis://127.0.0.1:1"); !strings.Contains(got.stdout, "\"nodes\": [],") {
		t.Errorf("a list of no server is not empty: %+v", got)
	}
	var d doctor.Diagnosis
	if got := run(t, env, "doctor", "--json"); json.Unmarshal([]byte(got.stdout), &d) != nil || got.code != exitDiffers || len(d.Findings) != 1 || d.Findings[0].Check != "persistence" {
		t.Errorf("%+v", got)
	}
	do(t, admin(t, addr), "CONFIG", "SET", "appendonly", "yes")
	run(t, env, "doctor").want(t, exitFine, "0 findings on 1 server\n", "")
}

// A problem that several servers share is one finding, and one line lists the checks that were not
// made.
func TestPrintDiagnosis(t *testing.T) {
	var nodes []string
	for i := range 6 {
		nodes = append(nodes, fmt.Sprintf("10.0.0.%d:6379", i+1))
	}
	m := newMessages(t, "a diagnosis")
	for _, d := range []doctor.Diagnosis{
		{Nodes: nodes, Findings: []doctor.Finding{
			{Check: "reach", Addrs: []string{"10.0.0.7:6379"}, Found: "it cannot be reached", Means: "calls fail", Do: "start it"},
			{Check: "coverage", Found: "no primary serves 10 slots", Means: "calls fail", Do: "start it"},
			{Check: "persistence", Addrs: nodes, Found: "it saves nothing", Means: "counts are lost", Do: "save"},
			{Check: "eviction", Addrs: nodes[:2], Found: "it evicts", Means: "counts are lost", Do: "do not"},
		}, Unchecked: []doctor.Unchecked{
			{What: "the clock", Addrs: nodes, Why: "grant +time"}, {What: "the slots", Addrs: nodes[1:3], Why: "grant +cluster|info"},
		}},
		{Findings: []doctor.Finding{{Check: "reach", Found: "it cannot be reached", Means: "calls fail", Do: "start it"}}},
		{Nodes: nodes[:1]},
	} {
		var stdout bytes.Buffer
		testApp(nil, &stdout, &stdout).printDiagnosis(d)
		m.add(stdout.String())
	}
}
