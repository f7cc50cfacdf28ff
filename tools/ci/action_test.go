package ci

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The action alone, in the situations that it may encounter.
func TestAction(t *testing.T) {
	for _, tc := range []struct {
		name    string
		with    map[string]string
		files   map[string]string
		status  string
		outputs map[string]string
		prints  string
		summary string
	}{{
		name:   "nothing but the library",
		status: "success", prints: "ok: ",
	}, {
		name:   "policies and their tests",
		with:   map[string]string{"policies": "policies.yaml", "tests": "*_test.yaml"},
		status: "success", prints: "ok    policies_test.yaml: 8 tests",
	}, {
		name:   "bad policies",
		with:   map[string]string{"policies": "policies.yaml", "tests": "policies_test.yaml", "redis-url": server(t)},
		files:  badPolicies,
		status: "failure", prints: "Verify ended with 1\n",
	}, {
		name:   "a test that fails",
		with:   map[string]string{"policies": "policies.yaml", "tests": "policies_test.yaml", "redis-url": server(t)},
		files:  badTests,
		status: "failure", prints: "Test ended with 1\n",
	}, {
		name:   "a file with tests that is not there",
		with:   map[string]string{"tests": "policies_test.yaml others_test.yaml"},
		status: "failure", prints: "others_test.yaml",
	}, {
		name:   "something to change",
		with:   map[string]string{"policies": "policies.yaml", "redis-url": server(t)},
		status: "success", outputs: map[string]string{"exit-code": "2", "changes": "true"}, summary: "+ policy api",
	}, {
		name:   "something to change, where nothing should be",
		with:   map[string]string{"policies": "policies.yaml", "redis-url": server(t), "fail-on-drift": "true"},
		status: "failure", outputs: map[string]string{"exit-code": "2", "changes": "true"}, prints: "Plan ended with 2\n",
	}, {
		name:   "a server that does not answer",
		with:   map[string]string{"policies": "policies.yaml", "redis-url": nobody(t)},
		status: "failure", outputs: map[string]string{"exit-code": "1"}, prints: "Plan ended with 1\n", summary: "connection refused",
	}, {
		name:   "drift, and no server to look at",
		with:   map[string]string{"policies": "policies.yaml", "redis-url": "", "fail-on-drift": "true"},
		status: "failure", prints: "redis-url is empty",
	}, {
		name:   "neither true nor false",
		with:   map[string]string{"redis-url": server(t), "fail-on-drift": "yes"},
		status: "failure", prints: "fail-on-drift is 'yes'; write true or false",
	}} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			g := newGithub(t, tc.files)
			g.uses("actions/checkout@v6", nil)
			got := g.action(tc.with)
			if g.status != tc.status || !strings.Contains(g.log.String(), tc.prints) || !strings.Contains(g.summary.String(), tc.summary) {
				t.Errorf("%s, want %s; it printed:\n%s\nand in the summary:\n%s", g.status, tc.status, g.log.String(), g.summary.String())
			}
			for _, name := range []string{"exit-code", "changes"} {
				if got[name] != tc.outputs[name] {
					t.Errorf("the output %s is %q, want %q", name, got[name], tc.outputs[name])
				}
			}
		})
	}
}

func TestActionOnServersInStep(t *testing.T) {
	t.Parallel()
	with := map[string]string{"policies": "policies.yaml", "redis-url": server(t), "fail-on-drift": "true"}
	g := newGithub(t, nil)
	g.uses("actions/checkout@v6", nil)
	g.action(map[string]string{})
	// The program that the action installs is available to later steps.
	g.run(step{Name: "Deploy", Run: "ratelimit deploy --policies policies.yaml"}, map[string]string{"REDIS_URL": with["redis-url"]}, "")
	got := g.action(with)
	if g.status != "success" || got["exit-code"] != "0" || got["changes"] != "false" {
		t.Errorf("%s, outputs %v; it printed:\n%s", g.status, got, g.log.String())
	}

	// A change that removes policies must be allowed explicitly.
	g = newGithub(t, map[string]string{"policies.yaml": "policies: {api: 10/s}\n"})
	g.uses("actions/checkout@v6", nil)
	got = g.action(map[string]string{"policies": "policies.yaml", "redis-url": with["redis-url"]})
	if g.status != "failure" || got["exit-code"] != "1" || !strings.Contains(g.summary.String(), "--remove-policies") {
		t.Errorf("%s, outputs %v; it printed:\n%s", g.status, got, g.log.String())
	}
}

// No input is ever executed as code.
func TestActionDoesNotRunItsInputs(t *testing.T) {
	t.Parallel()
	for _, hostile := range []string{"$(touch ran)", "policies_test.yaml; touch ran", `"; touch ran; "`} {
		for _, name := range []string{"policies", "tests", "junit", "redis-url", "fail-on-drift"} {
			with := map[string]string{"policies": "policies.yaml", "tests": "policies_test.yaml", "redis-url": server(t)}
			with[name] = hostile
			g := newGithub(t, nil)
			g.uses("actions/checkout@v6", nil)
			g.action(with)
			if _, err := os.Stat(filepath.Join(g.workspace, "ran")); err == nil || g.log.Len() == 0 {
				t.Errorf("the input %s was run; printed:\n%s", name, g.log.String())
			}
		}
	}
}
