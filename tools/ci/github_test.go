package ci

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"go.yaml.in/yaml/v4"
)

// The fields of a workflow and of an action that our files use.
type (
	workflow struct {
		Name        string
		On          yaml.Node
		Permissions map[string]string
		Jobs        map[string]job
	}
	job struct {
		If, Needs, Environment, Concurrency string
		RunsOn                              string `yaml:"runs-on"`
		Strategy                            struct {
			FailFast bool `yaml:"fail-fast"`
			Matrix   map[string][]string
		}
		Steps []step
	}
	step struct {
		ID, Name, If, Uses, Shell, Run string
		With, Env                      map[string]string
	}
	action struct {
		Name, Description string
		Inputs            map[string]struct{ Description, Default string }
		Outputs           map[string]struct{ Description, Value string }
		Runs              struct {
			Using string
			Steps []step
		}
	}
)

// outputs are the outputs of the steps of a job or of an action, by the step's ID.
type outputs map[string]map[string]string

// github runs one job like GitHub's runner.
type github struct {
	t         *testing.T
	event     string
	ref       string
	matrix    string // matrix.environment
	secret    string // secrets.REDIS_URL
	files     map[string]string
	workspace string
	temp      string // RUNNER_TEMP
	path      string // PATH, to which steps can add
	status    string // "success" or "failure"
	log       strings.Builder
	summary   strings.Builder
	junit     string // the displayed report
}

// newGithub starts a job; files are the files of the repository that differ from the examples.
func newGithub(t *testing.T, files map[string]string) *github {
	t.Helper()
	temp, installed := t.TempDir(), filepath.Join(scratch, "ratelimit")
	// All jobs install to one place: linking the command again for each would take most of the
	// time, and test nothing more.
	if err := errors.Join(os.MkdirAll(installed, 0o755), os.Symlink(installed, filepath.Join(temp, "ratelimit"))); err != nil {
		t.Fatal(err)
	}
	return &github{t: t, ref: "refs/heads/main", files: files, temp: temp, path: os.Getenv("PATH"), status: "success"}
}

// value returns the value of a name in an expression.
func (g *github) value(name string, inputs map[string]string, out outputs) string {
	if input, found := strings.CutPrefix(name, "inputs."); found && inputs != nil {
		return inputs[input]
	}
	if parts := strings.Split(name, "."); len(parts) == 4 && parts[0] == "steps" && parts[2] == "outputs" {
		return out[parts[1]][parts[3]]
	}
	switch name {
	case "success()", "failure()":
		return word(g.status+"()" == name)
	case "secrets.REDIS_URL":
		return g.secret
	case "github.event_name":
		return g.event
	case "github.ref":
		return g.ref
	case "matrix.environment":
		return g.matrix
	}
	g.t.Fatalf("nothing here stands for %s", name)
	return ""
}

// steps runs the steps of a job, or of the action in the folder home with its inputs.
func (g *github) steps(steps []step, inputs map[string]string, home string) outputs {
	out := outputs{}
	get := func(name string) string { return g.value(name, inputs, out) }
	for _, s := range steps {
		// A condition that does not use the status also requires success.
		if !strings.Contains(s.If, "()") && g.status != "success" {
			continue
		}
		if s.If != "" && evaluate(g.t, s.If, get) != "true" {
			continue
		}
		if s.Uses != "" {
			out[s.ID] = g.uses(s.Uses, expandAll(g.t, s.With, get))
		} else {
			out[s.ID] = g.run(s, expandAll(g.t, s.Env, get), home)
		}
	}
	return out
}

// run runs a script.
func (g *github) run(s step, values map[string]string, home string) map[string]string {
	if strings.Contains(s.Run, "${{") {
		g.t.Fatalf("an expression stands within a script, where the text that it gives is run:\n%s", s.Run)
	}
	dir := g.t.TempDir()
	env := []string{"CI=true", "GITHUB_ACTIONS=true", "GITHUB_WORKSPACE=" + g.workspace, "RUNNER_TEMP=" + g.temp, "PATH=" + g.path}
	for _, name := range []string{"GITHUB_OUTPUT", "GITHUB_PATH", "GITHUB_STEP_SUMMARY"} {
		write(g.t, filepath.Join(dir, name), "")
		env = append(env, name+"="+filepath.Join(dir, name))
	}
	if home != "" {
		env = append(env, "GITHUB_ACTION_PATH="+home)
	}
	for name, value := range values {
		env = append(env, name+"="+value)
	}
	// GitHub writes the script to a file; it runs the same from the command line.
	command := []string{"bash", "-e", "-c", s.Run}
	if s.Shell == "bash" {
		command = []string{"bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", s.Run}
	} else if s.Shell != "" || home != "" {
		g.t.Fatalf("the step %q has the shell %q; GitHub wants one for each step of an action, and only bash is known here", s.Name, s.Shell)
	}
	printed, code := script(g.t, g.workspace, environment(env...), command...)
	g.log.WriteString(printed)
	if code != 0 {
		g.status = "failure"
		fmt.Fprintf(&g.log, "%s ended with %d\n", s.Name, code)
	}
	g.summary.WriteString(read(g.t, filepath.Join(dir, "GITHUB_STEP_SUMMARY")))
	for line := range strings.Lines(read(g.t, filepath.Join(dir, "GITHUB_PATH"))) {
		g.path = strings.TrimSpace(line) + string(os.PathListSeparator) + g.path
	}
	out := map[string]string{}
	for line := range strings.Lines(read(g.t, filepath.Join(dir, "GITHUB_OUTPUT"))) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		out[name] = value
	}
	return out
}

var pinned = regexp.MustCompile(`^[\w-]+/[\w-]+@v\d+$`)

// uses runs our action, or simulates the relevant effects of another one.
func (g *github) uses(name string, with map[string]string) map[string]string {
	if name == "ratelimit-functions/ratelimit@"+version {
		return g.action(with)
	}
	if !pinned.MatchString(name) {
		g.t.Fatalf("%s: an action of others is named with its major version, ours with %s", name, version)
	}
	switch name, _, _ := strings.Cut(name, "@"); name {
	case "actions/checkout":
		g.workspace = workspace(g.t, g.files)
	case "actions/setup-go":
		if _, code := script(g.t, g.temp, environment("PATH="+g.path), "go", "version"); code != 0 {
			g.t.Fatal("there is no Go")
		}
	case "mikepenz/action-junit-report":
		// It continues if there is no report.
		text, _ := os.ReadFile(filepath.Join(g.workspace, with["report_paths"]))
		g.junit = string(text)
	default:
		g.t.Fatalf("nothing here stands for the action %s", name)
	}
	return nil
}

// action runs action.yml and returns its outputs.
func (g *github) action(with map[string]string) map[string]string {
	var a action
	load(g.t, "action.yml", &a)
	inputs := map[string]string{}
	for name, input := range a.Inputs {
		inputs[name] = input.Default
	}
	for name := range with {
		if _, found := a.Inputs[name]; !found {
			g.t.Fatalf("the action has no input %s", name)
		}
	}
	maps.Copy(inputs, with)
	out := g.steps(a.Runs.Steps, inputs, root)
	values := map[string]string{}
	for name, output := range a.Outputs {
		values[name] = expand(g.t, output.Value, func(name string) string { return g.value(name, inputs, out) })
	}
	return values
}

// event runs the jobs of the workflow for an event, in the order of their needs. It returns how
// each ended, by its name with the environment of a matrix in brackets. urls has the secret
// REDIS_URL of each environment.
func event(t *testing.T, name string, files, urls map[string]string) map[string]*github {
	t.Helper()
	var w workflow
	load(t, "examples/ci/github-workflow.yml", &w)
	done := map[string]*github{}
	for len(w.Jobs) > 0 {
		before := len(w.Jobs)
		for id, j := range w.Jobs {
			if _, waits := w.Jobs[j.Needs]; waits {
				continue
			}
			delete(w.Jobs, id)
			g := newGithub(t, files)
			g.event = name
			if !g.wants(j, done) {
				g.status = "skipped"
				done[id] = g
				continue
			}
			environments := j.Strategy.Matrix["environment"]
			if environments == nil {
				g.job(j, urls)
				done[id] = g
			}
			for _, environment := range environments {
				one := newGithub(t, files)
				one.event, one.matrix = name, environment
				one.job(j, urls)
				done[id+" ("+environment+")"] = one
			}
		}
		if len(w.Jobs) == before {
			t.Fatal("the jobs of the workflow wait for one another")
		}
	}
	return done
}

// wants reports whether a job should run.
func (g *github) wants(j job, done map[string]*github) bool {
	if j.Needs != "" && done[j.Needs].status != "success" {
		return false
	}
	return j.If == "" || evaluate(g.t, j.If, func(name string) string { return g.value(name, nil, nil) }) == "true"
}

func (g *github) job(j job, urls map[string]string) {
	get := func(name string) string { return g.value(name, nil, nil) }
	expand(g.t, j.Concurrency, get)
	g.secret = urls[expand(g.t, j.Environment, get)]
	g.steps(j.Steps, nil, "")
}

// wantJobs compares how the jobs ended.
func wantJobs(t *testing.T, got map[string]*github, want map[string]string) {
	t.Helper()
	for name, g := range got {
		if g.status != want[name] {
			t.Errorf("%s: %s, want %q; it printed:\n%s", name, g.status, want[name], g.log.String())
		}
	}
	if len(got) != len(want) {
		t.Errorf("%d jobs, want %d", len(got), len(want))
	}
}
