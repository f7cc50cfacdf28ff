package cli

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/ratelimit-functions/ratelimit/functions"
	"github.com/ratelimit-functions/ratelimit/internal/redistest"
	"github.com/ratelimit-functions/ratelimit/loader"
	"github.com/ratelimit-functions/ratelimit/loader/text"
)

const otherText = "#!lua name=ratelimit\nredis.register_function('ratelimit_take', function() return 'mine' end)\n"

// lines returns output with the given lines.
func lines(text ...string) string { return strings.Join(text, "\n") + "\n" }

// TestDeployAndStatus runs both commands on a real server: without a library, after a deployment,
// with a different library, and after another deployment.
func TestDeployAndStatus(t *testing.T) {
	addr := startRedis(t)
	rdb := admin(t, addr)
	env := []string{redisURL(addr)}
	build := functions.BuildID()
	version := functions.Version()
	engine := "redis " + serverVersion(t, addr)
	gap := strings.Repeat(" ", len(addr)-len("NODE")+2)
	wide := func(text string, width int) string { return fmt.Sprintf("%-*s", width, text) }
	head := func(library string) string {
		return "NODE" + gap + "ROLE     " + wide("SERVER", len(engine)+2) + strings.TrimRight(wide("LIBRARY", len(library)+2), " ")
	}
	row := func(library, outcome string) string {
		return addr + "  primary  " + engine + "  " + wide(library, max(len(library), len("LIBRARY"))+2) + outcome
	}
	ours := version + " build " + build
	digest := functions.Digest(otherText)[:12]

	steps := []struct {
		name   string
		before func()
		args   []string
		code   int
		want   string
	}{
		{"status of an empty server", nil, []string{"status"}, exitDiffers,
			lines(head("-"), row("-", "not deployed"), "", "no server has the library; load it with: ratelimit deploy --policies FILE; without --policies if there are none")},
		{"deploy", nil, []string{"deploy"}, exitFine,
			lines(head(ours), row(ours, "loaded"), "", ours+" is new, on "+addr+":", "  + function ratelimit_acquire", "  + function ratelimit_block",
				"  + function ratelimit_info", "  + function ratelimit_override", "  + function ratelimit_override_end", "  + function ratelimit_peek", "  + function ratelimit_refund", "  + function ratelimit_release", "  + function ratelimit_renew",
				"  + function ratelimit_reset", "  + function ratelimit_take", "  + function ratelimit_unblock", "  + function ratelimit_usage", "", "deployed ratelimit "+version+", build "+build)},
		{"deploy again", nil, []string{"deploy"}, exitFine,
			lines(head(ours), row(ours, "had it already"), "", "build "+build+" was there already; nothing to do")},
		{"status in step", nil, []string{"status"}, exitFine,
			lines(head(ours), row(ours, "in step"))},
		{"status of another text", func() { do(t, rdb, "FUNCTION", "LOAD", "REPLACE", otherText) }, []string{"status"}, exitDiffers,
			lines(head("unknown text "+digest), row("unknown text "+digest, "differs from build "+build), "", "not on build "+build+": 1 of 1 server; replace the other library with: ratelimit deploy --policies FILE --replace-foreign; without --policies if there are none")},
	}
	for _, s := range steps {
		t.Run(s.name, func(t *testing.T) {
			if s.before != nil {
				s.before()
			}
			run(t, env, s.args...).want(t, s.code, s.want, "")
		})
	}

	type nodes struct {
		InStep   bool         `json:"in_step"`
		Topology string       `json:"topology"`
		Wanted   text.Library `json:"wanted"`
		Nodes    []struct {
			Addr    string
			State   loader.State
			Running text.Library
			Changed bool
			Error   string
		} `json:"nodes"`
	}
	read := func(t *testing.T, got outcome) nodes {
		t.Helper()
		var report nodes
		if err := json.Unmarshal([]byte(got.stdout), &report); err != nil {
			t.Fatalf("%v: %+v", err, got)
		}
		if len(report.Nodes) != 1 || report.Nodes[0].Addr != addr || report.Wanted.Digest != functions.Digest(functions.Source()) {
			t.Fatalf("got %+v", report)
		}
		return report
	}
	t.Run("json: differs", func(t *testing.T) {
		got := run(t, env, "status", "--json")
		r := read(t, got)
		if got.code != exitDiffers || r.InStep || r.Nodes[0].State != loader.Different || r.Nodes[0].Running.Digest != functions.Digest(otherText) {
			t.Errorf("exit code %d, %+v", got.code, r)
		}
	})
	t.Run("json: deployed", func(t *testing.T) {
		got := run(t, env, "deploy", "--json", "--replace-foreign")
		r := read(t, got)
		if got.code != exitFine || !r.InStep || !r.Nodes[0].Changed || r.Nodes[0].State != loader.Same {
			t.Errorf("exit code %d, %+v", got.code, r)
		}
	})
	t.Run("json: another library has our name", func(t *testing.T) {
		do(t, rdb, "FUNCTION", "FLUSH")
		do(t, rdb, "FUNCTION", "LOAD", strings.Replace(otherText, "name=ratelimit", "name=theirs", 1))
		theirs := run(t, env, "status")
		if theirs.code != exitDiffers || !strings.Contains(theirs.stdout, "  not deployed; library theirs holds ratelimit_take\n") {
			t.Errorf("status: %+v", theirs)
		}
		got := run(t, env, "deploy", "--json")
		r := read(t, got)
		if got.code != exitError || r.Nodes[0].Error == "" || got.stderr != "ratelimit: "+r.Nodes[0].Error+"\n" {
			t.Errorf("%+v", got)
		}
	})
}

// Without files, status compares the servers with the last deployment, and not with the library in
// this program.
func TestStatusWithoutFiles(t *testing.T) {
	addr := startRedis(t)
	env := []string{redisURL(addr)}
	inFolder(t, map[string]string{"policies.yaml": "policies:\n  api: 5/s\n"})
	deployed := run(t, env, "deploy", "--policies", "policies.yaml", "--json")
	var report loader.Report
	if err := json.Unmarshal([]byte(deployed.stdout), &report); err != nil || deployed.code != exitFine {
		t.Fatalf("%v: %+v", err, deployed)
	}
	got := run(t, env, "status")
	if got.code != exitFine || !strings.HasSuffix(got.stdout, name(report.Wanted)+"  in step\n") {
		t.Errorf("%+v", got)
	}
	got = run(t, env, "status", "--json")
	var found struct {
		InStep bool         `json:"in_step"`
		Wanted text.Library `json:"wanted"`
	}
	if err := json.Unmarshal([]byte(got.stdout), &found); err != nil || !found.InStep || found.Wanted != report.Wanted || got.code != exitFine {
		t.Errorf("%v: %+v", err, got)
	}
	do(t, admin(t, addr), "FUNCTION", "LOAD", "REPLACE", functions.Source())
	got = run(t, env, "status")
	if got.code != exitFine {
		t.Errorf("no deployment is known, and the server has the library in this program: %+v", got)
	}
	do(t, admin(t, addr), "FUNCTION", "LOAD", "REPLACE", strings.Replace(functions.Source(), functions.BuildID(), "222222222222", 1)+"-- edited\n")
	got = run(t, env, "status")
	if end := "  differs from build " + functions.BuildID() + "\n\nnot on build " + functions.BuildID() + ": 1 of 1 server; load it with: ratelimit deploy --policies FILE; without --policies if there are none\n"; got.code != exitDiffers || !strings.HasSuffix(got.stdout, end) {
		t.Errorf("%+v, want at the end:\n%s", got, end)
	}
}

// A cluster is discovered from one of its nodes, and every primary gets the library.
func TestCluster(t *testing.T) {
	first, second := startCluster(t)
	t.Run("the keys of the demo are on different nodes", func(t *testing.T) {
		got, _ := demo{args: []string{"--redis", "redis://" + first, "--duration", "2s"}}.run(t)
		if got.code != exitFine || !strings.Contains(got.stdout, " to 2 servers and read it back\n") {
			t.Errorf("%+v", got)
		}
		for _, addr := range []string{first, second} {
			if n := admin(t, addr).DBSize(t.Context()).Val(); n != 0 {
				t.Errorf("%s holds %d keys", addr, n)
			}
			do(t, admin(t, addr), "FUNCTION", "FLUSH")
		}
	})
	for _, url := range []string{"redis://" + first, "redis://" + second + "," + first, "redis+cluster://" + second} {
		env := []string{"REDIS_URL=" + url}
		if got := run(t, env, "status"); got.code == exitError {
			t.Fatalf("%s: %+v", url, got)
		}
	}
	env := []string{redisURL(first)}
	got := run(t, env, "deploy")
	if got.code != exitFine || strings.Count(got.stdout, "loaded\n") != 2 {
		t.Fatalf("deploy: %+v", got)
	}
	// Through either node, calls reach the keys of both nodes.
	for i := range 8 {
		key := fmt.Sprintf("key:%d", i)
		for _, url := range []string{redisURL(first), redisURL(second)} {
			if got := run(t, []string{url}, "take", key, "2/d"); got.code != exitFine {
				t.Errorf("%s: %+v", key, got)
			}
		}
		if got := run(t, env, "take", key, "2/d"); got.code != exitDiffers {
			t.Errorf("%s, the third time: %+v", key, got)
		}
	}
	if got := run(t, env, "take", "a", "1/s", "b", "1/s"); got.code != exitError || !strings.Contains(got.stderr, "CROSSSLOT") {
		t.Errorf("%+v", got)
	}
	if got := run(t, env, "reset", "key:1"); got.stdout != "forgot 1 of 1 key\n" {
		t.Errorf("reset: %+v", got)
	}
	do(t, admin(t, second), "FUNCTION", "FLUSH")
	got = run(t, env, "status")
	if got.code != exitDiffers || strings.Count(got.stdout, "in step\n") != 1 || strings.Count(got.stdout, "not deployed\n") != 1 ||
		!strings.HasSuffix(got.stdout, "\nnot on build "+functions.BuildID()+": 1 of 2 servers; load it with: ratelimit deploy --policies FILE; without --policies if there are none\n") {
		t.Errorf("status: %+v", got)
	}
	t.Run("servers that a deployment refuses to change have not failed", func(t *testing.T) {
		for _, addr := range []string{first, second} {
			do(t, admin(t, addr), "FUNCTION", "LOAD", "REPLACE", otherText)
		}
		got := run(t, nil, "deploy", "--redis", "redis://"+first)
		if got.code != exitError || strings.Count(got.stdout, "  refused\n") != 2 || strings.Count(got.stderr, "another library with the name") != 1 || !strings.Contains(got.stderr, ": each of ") {
			t.Errorf("%+v", got)
		}
	})
}

// startCluster starts a cluster of two primaries.
func startCluster(t *testing.T) (string, string) {
	t.Helper()
	first, second := startRedis(t, "--cluster-enabled", "yes"), startRedis(t, "--cluster-enabled", "yes")
	redistest.Join(t, []*redis.Client{admin(t, first), admin(t, second)}, 2)
	return first, second
}

func serverVersion(t *testing.T, addr string) string {
	t.Helper()
	info := must[string](t)(admin(t, addr).Info(t.Context(), "server").Result())
	_, rest, _ := strings.Cut(info, "redis_version:")
	version, _, _ := strings.Cut(rest, "\r\n")
	return version
}
