package ci

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// result holds the exit code of a run of the action, and what the run printed and wrote.
type result struct {
	code                            int
	workspace, log, summary, output string
}

var ofInput = regexp.MustCompile(`^\$\{\{ inputs\.([a-z-]+) \}\}$`)

// run runs the last step of action.yml with the given inputs, in a repository with some files
// replaced.
func run(t *testing.T, with, files map[string]string) result {
	t.Helper()
	install(t)
	var action struct {
		Inputs map[string]struct{ Default string }
		Runs   struct {
			Steps []struct {
				Run string
				Env map[string]string
			}
		}
	}
	load(t, "action.yml", &action)
	step := action.Runs.Steps[len(action.Runs.Steps)-1]
	if len(step.Env) != len(action.Inputs) || strings.Contains(step.Run, "${{") {
		t.Fatalf("the step has the variables %v and runs %s: want one variable for each input, and no expression", step.Env, step.Run)
	}
	dir, got := t.TempDir(), result{workspace: workspace(t, files)}
	env := []string{"RUNNER_TEMP=" + temp, "GITHUB_ACTION_PATH=" + root}
	for _, name := range []string{"GITHUB_OUTPUT", "GITHUB_PATH", "GITHUB_STEP_SUMMARY"} {
		write(t, filepath.Join(dir, name), "")
		env = append(env, name+"="+filepath.Join(dir, name))
	}
	for name, value := range step.Env {
		input := ofInput.FindStringSubmatch(value)
		if input == nil {
			t.Fatalf("the variable %s is %q, and not an input", name, value)
		}
		text, given := with[input[1]]
		if !given {
			text = action.Inputs[input[1]].Default
		}
		env = append(env, name+"="+text)
	}
	got.log, got.code = script(t, got.workspace, env, "bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step.Run)
	got.summary = read(t, filepath.Join(dir, "GITHUB_STEP_SUMMARY"))
	got.output = read(t, filepath.Join(dir, "GITHUB_OUTPUT"))
	// GITHUB_PATH must contain the command's directory, so that later steps can use the command.
	if path := read(t, filepath.Join(dir, "GITHUB_PATH")); path != "" {
		if _, err := os.Stat(filepath.Join(strings.TrimSpace(path), "ratelimit")); err != nil {
			t.Error(err)
		}
	} else if got.code == 0 {
		t.Error("PATH has no new folder")
	}
	return got
}

func TestAction(t *testing.T) {
	if text := read(t, filepath.Join(root, "tools", "ci", "action.sh")); !strings.HasPrefix(text, "#!/usr/bin/env bash\n") {
		t.Error("the script does not begin with #!/usr/bin/env bash")
	}
	for _, line := range strings.Split(read(t, filepath.Join(root, "action.yml")), "\n") {
		if _, uses, ok := strings.Cut(line, "uses: "); ok && !pinned.MatchString(strings.Fields(uses)[0]) {
			t.Errorf("action.yml uses %s, which is not pinned to a commit", uses)
		}
	}
	const changes, same = "exit-code=2\nchanges=true\n", "exit-code=0\nchanges=false\n"
	deployed := server(t)
	install(t)
	if printed, code := script(t, workspace(t, nil), []string{"REDIS_URL=" + deployed}, "env", "ratelimit", "deploy", "--policies", "policies.yaml"); code != 0 {
		t.Fatal(printed)
	}
	for _, tc := range []struct {
		name            string
		with, files     map[string]string
		code            int
		output          string
		prints, summary string
	}{{
		name:   "nothing but the library",
		prints: "ok: ",
	}, {
		name:   "policies and their tests",
		with:   map[string]string{"policies": "policies.yaml", "tests": "*_test.yaml"},
		prints: "ok    policies_test.yaml: 11 tests",
	}, {
		name:  "a name with blanks",
		with:  map[string]string{"policies": "our policies.yaml", "redis-url": server(t)},
		files: map[string]string{"our policies.yaml": "policies: {api: 10/s}\n"},
		code:  0, output: changes, prints: "+ policy api", summary: "+ policy api",
	}, {
		name:  "bad policies",
		with:  map[string]string{"policies": "policies.yaml", "tests": "policies_test.yaml", "redis-url": server(t)},
		files: badPolicies,
		code:  1, prints: "fortnight",
	}, {
		name:  "a test that fails",
		with:  map[string]string{"policies": "policies.yaml", "tests": "policies_test.yaml", "redis-url": server(t)},
		files: badTests,
		code:  1, prints: "six passwords",
	}, {
		name: "a file with tests that is not there",
		with: map[string]string{"tests": "policies_test.yaml others_test.yaml"},
		code: 1, prints: "others_test.yaml",
	}, {
		name:   "something to change",
		with:   map[string]string{"policies": "policies.yaml", "redis-url": server(t)},
		output: changes, prints: "+ policy api", summary: "+ policy api",
	}, {
		name: "something to change, where nothing should be",
		with: map[string]string{"policies": "policies.yaml", "redis-url": server(t), "fail-on-drift": "true"},
		code: 2, output: changes, summary: "+ policy api",
	}, {
		name:   "a team's policies",
		with:   map[string]string{"policies": "policies.yaml", "namespace": "payments", "redis-url": deployed},
		output: changes, prints: "+ policy payments/api", summary: "+ policy payments/api",
	}, {
		name:   "nothing to change",
		with:   map[string]string{"policies": "policies.yaml", "redis-url": deployed, "fail-on-drift": "true"},
		output: same,
	}, {
		name:  "a policy is removed",
		with:  map[string]string{"policies": "policies.yaml", "redis-url": deployed},
		files: map[string]string{"policies.yaml": "policies: {api: 10/s}\n"},
		code:  1, output: "exit-code=1\n", summary: "--remove-policies",
	}, {
		name: "a server that does not answer",
		with: map[string]string{"policies": "policies.yaml", "redis-url": nobody},
		code: 1, output: "exit-code=1\n", prints: "connection refused", summary: "connection refused",
	}, {
		name:   "no server",
		with:   map[string]string{"policies": "policies.yaml", "redis-url": ""},
		prints: "redis-url is empty, so nothing is planned",
	}, {
		name: "drift, and no server to look at",
		with: map[string]string{"policies": "policies.yaml", "redis-url": "", "fail-on-drift": "true"},
		code: 1, prints: "redis-url is empty",
	}, {
		name: "neither true nor false",
		with: map[string]string{"redis-url": server(t), "fail-on-drift": "yes"},
		code: 1, prints: "fail-on-drift is 'yes'; write true or false",
	}} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			got := run(t, tc.with, tc.files)
			if got.code != tc.code || got.output != tc.output || !strings.Contains(got.log, tc.prints) || !strings.Contains(got.summary, tc.summary) {
				t.Errorf("exit code %d, want %d; the outputs %q, want %q; it printed:\n%s\nand in the summary:\n%s",
					got.code, tc.code, got.output, tc.output, got.log, got.summary)
			}
			if url := tc.with["redis-url"]; tc.output == "" && url != "" {
				wantDeployed(t, url, false)
			}
			switch report := filepath.Join(got.workspace, "ratelimit-junit.xml"); tc.name {
			case "policies and their tests":
				wantJUnit(t, report, 11, 0)
			case "a test that fails":
				wantJUnit(t, report, 1, 1)
			}
		})
	}
}

// TestActionDoesNotRunItsInputs checks that the action does not execute any input as code.
func TestActionDoesNotRunItsInputs(t *testing.T) {
	url := server(t)
	for _, hostile := range []string{"$(touch ran)", "policies_test.yaml; touch ran", `"; touch ran; "`} {
		for _, name := range []string{"policies", "tests", "junit", "redis-url", "fail-on-drift"} {
			t.Run(name+" "+hostile, func(t *testing.T) {
				t.Parallel()
				with := map[string]string{"policies": "policies.yaml", "tests": "policies_test.yaml", "redis-url": url}
				with[name] = hostile
				got := run(t, with, nil)
				if _, err := os.Stat(filepath.Join(got.workspace, "ran")); err == nil || got.log == "" {
					t.Errorf("the input was run; printed:\n%s", got.log)
				}
			})
		}
	}
}
