package cli

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ratelimit-functions/ratelimit/embedded"
	"github.com/ratelimit-functions/ratelimit/functions"
)

// The library accepts each example of "help limits", and there is one for each algorithm.
func TestHelpLimits(t *testing.T) {
	build := must[functions.Build](t)(functions.New(functions.WithPolicies(functions.Policy{Name: "api", Limits: []functions.PolicyLimit{{Limit: "5/d"}}})))
	srv := embedded.Run(t, embedded.WithLibrary(build.Text()))
	help := run(t, nil, "help", "limits")
	if help.code != exitFine || run(t, nil, "limits").stdout != help.stdout {
		t.Errorf("%+v", help)
	}
	algorithms := []string{"gcra", "token_bucket", "leaky_bucket", "fixed_window", "sliding_window", "sliding_log", "concurrency"}
	for _, example := range limitExamples {
		if !strings.Contains(help.stdout, "\n  "+example.limit+"\n      "+example.meaning+"\n") {
			t.Errorf("no %s in\n%s", example.limit, help.stdout)
		}
		algorithm, _, _ := strings.Cut(example.limit, " ")
		algorithms = slices.DeleteFunc(algorithms, func(name string) bool { return name == algorithm })
		args := []any{"FCALL", "ratelimit_peek", 1, "k", example.limit}
		if algorithm == "concurrency" {
			args = []any{"FCALL", "ratelimit_acquire", 1, "leases", example.limit, "id"}
		}
		if _, err := srv.Do(args...); err != nil {
			t.Errorf("%s: %v", example.limit, err)
		}
	}
	if len(algorithms) > 0 {
		t.Errorf("no example of %v", algorithms)
	}
	if root := run(t, nil, "--help"); !strings.Contains(root.stdout, "\n  limits  ") {
		t.Errorf("--help does not list the topic:\n%s", root.stdout)
	}
}

// A period of several units is refused with an error that says what to write, in every place that
// accepts a limit.
func TestPeriodsOfSeveralUnits(t *testing.T) {
	srv := withLibrary(t)
	log := accessLog(t, "a", 1)
	t.Chdir(filepath.Dir(log))
	require(t, os.WriteFile("policies.yaml", []byte("policies:\n  api: 10/1m30s\n  jobs: concurrency 2 lease=1h30m\n"), 0o666))
	m := newMessages(t, "periods of several units", srv.Addr(), "SERVER")
	env := []string{redisURL(srv.Addr())}
	m.fails(env, "take", "k", "5/s, 10/1m30s")
	m.fails(env, "acquire", "jobs", "concurrency 2 lease=1h30m")
	m.fails(env, "override", "k", "10/1m30s", "--for", "1m30s")
	m.fails(env, "load", "--limit", "10/1m30s")
	m.fails(nil, "build", "--policies", "policies.yaml")
	m.fails(nil, "backtest", "access.log", "--limit", "10/1m30s")
	if got := run(t, nil, "verify", "--policies", "policies.yaml"); !strings.Contains(got.stdout, `the period "1m30s" has more than one unit; write 90s`) {
		t.Errorf("%+v", got)
	}
}
