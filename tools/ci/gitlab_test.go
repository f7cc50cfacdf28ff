package ci

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v4"
)

// gitlabJob has the fields of a GitLab job that our files use.
type gitlabJob struct {
	Extends, Image, Stage string
	Variables             map[string]string
	BeforeScript          []string `yaml:"before_script"`
	Script, Needs         []string
	Environment           gitlabEnvironment
	ResourceGroup         string `yaml:"resource_group"`
	Rules                 []struct{ If string }
	Parallel              struct{ Matrix []map[string][]string }
	AllowFailure          struct {
		ExitCodes int `yaml:"exit_codes"`
	} `yaml:"allow_failure"`
	Artifacts struct {
		When    string
		Reports struct{ Junit string }
	}
}

// gitlabEnvironment is a name, or a mapping with a name.
type gitlabEnvironment struct{ Name, Action string }

func (e *gitlabEnvironment) UnmarshalYAML(node *yaml.Node) error {
	if node.Kind == yaml.ScalarNode {
		*e = gitlabEnvironment{Name: node.Value}
		return nil
	}
	type plain gitlabEnvironment
	return node.Decode((*plain)(e))
}

// gitlabRun is how a job ended: "success", "warning", "failed", or "skipped" because of another
// job. A job that its rules exclude has no run.
type gitlabRun struct {
	status, log, junit string
}

// pipeline runs the jobs for a pipeline with these variables, using the shell that the image has.
// urls has the variable REDIS_URL of each environment; before has functions to call just before a
// job, by its name.
func pipeline(t *testing.T, shell string, variables, files, urls map[string]string, before map[string]func()) map[string]gitlabRun {
	t.Helper()
	var nodes map[string]yaml.Node
	load(t, "examples/ci/gitlab-ci.yml", &nodes)
	jobs, done := map[string]gitlabJob{}, map[string]gitlabRun{}
	for name := range nodes {
		job := gitlabJob{}
		extend(t, nodes, name, &job)
		if !strings.HasPrefix(name, ".") && included(t, job, variables) {
			jobs[name] = job
		}
	}
	for _, stage := range []string{"test", "deploy"} {
		stagesBefore := stageStatus(done)
		for len(jobs) > 0 {
			n := len(jobs)
			for name, job := range jobs {
				if job.Stage != stage || slices.ContainsFunc(job.Needs, func(need string) bool { return jobs[need].Stage != "" }) {
					continue
				}
				delete(jobs, name)
				// A job with needs waits only for those, a job without needs for the stages before
				// its own.
				ready := stagesBefore
				for _, need := range job.Needs {
					ready = done[need].status == "success" || done[need].status == "warning"
				}
				if !ready {
					done[name] = gitlabRun{status: "skipped"}
					continue
				}
				if happens := before[name]; happens != nil {
					happens()
				}
				if job.Parallel.Matrix == nil {
					done[name] = job.run(t, shell, job.Environment.Name, files, urls)
				}
				for _, dimension := range job.Parallel.Matrix {
					for _, environment := range dimension["ENVIRONMENT"] {
						named := strings.ReplaceAll(job.Environment.Name, "$ENVIRONMENT", environment)
						done[name+": ["+environment+"]"] = job.run(t, shell, named, files, urls)
					}
				}
			}
			if len(jobs) == n {
				break
			}
		}
	}
	if len(jobs) > 0 {
		t.Fatalf("these jobs are in no stage, or wait for one another: %v", jobs)
	}
	return done
}

func stageStatus(done map[string]gitlabRun) bool {
	for _, run := range done {
		if run.status != "success" && run.status != "warning" {
			return false
		}
	}
	return true
}

// extend decodes a job over the job that it extends.
func extend(t *testing.T, nodes map[string]yaml.Node, name string, job *gitlabJob) {
	t.Helper()
	node := nodes[name]
	var base struct{ Extends string }
	if err := node.Decode(&base); err != nil {
		t.Fatal(err)
	}
	if base.Extends != "" {
		extend(t, nodes, base.Extends, job)
	}
	if err := node.Load(job, yaml.WithKnownFields()); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
}

// included evaluates the rules of a job.
func included(t *testing.T, job gitlabJob, variables map[string]string) bool {
	t.Helper()
	value := func(word string) string {
		if name, found := strings.CutPrefix(word, "$"); found {
			return variables[name]
		}
		text, found := strings.CutPrefix(word, `"`)
		if !found {
			t.Fatalf("this is neither a variable nor a text: %s", word)
		}
		return strings.TrimSuffix(text, `"`)
	}
	for _, rule := range job.Rules {
		all := true
		for condition := range strings.SplitSeq(rule.If, " && ") {
			words := strings.Fields(condition)
			if len(words) != 3 || (words[1] != "==" && words[1] != "!=") {
				t.Fatalf("this rule is not understood here: %s", rule.If)
			}
			all = all && (value(words[0]) == value(words[2])) == (words[1] == "==")
		}
		if all {
			return true
		}
	}
	return len(job.Rules) == 0
}

// run runs the scripts of a job like GitLab's runner: all lines in one shell, which exits at the
// first failure.
func (job gitlabJob) run(t *testing.T, shell, environmentName string, files, urls map[string]string) gitlabRun {
	t.Helper()
	dir := workspace(t, files)
	env := append(image(t, job.Variables["RATELIMIT_VERSION"]), "CI=true", "GITLAB_CI=true", "REDIS_URL="+urls[environmentName])
	for name, value := range job.Variables {
		env = append(env, name+"="+value)
	}
	lines := strings.Join(append(slices.Clone(job.BeforeScript), job.Script...), "\n") + "\n"
	text := "if set -o | grep pipefail >/dev/null; then set -o pipefail; fi\nset -o errexit\nset +o noclobber\n" +
		": | eval '" + strings.ReplaceAll(lines, "'", `'\''`) + "'\nexit 0\n"
	log, code := script(t, dir, environment(env...), shell, "-c", text)
	run := gitlabRun{status: "failed", log: log + fmt.Sprintf("exit code %d\n", code)}
	switch {
	case code == 0:
		run.status = "success"
	case code == job.AllowFailure.ExitCodes:
		run.status = "warning"
	}
	if name := job.Artifacts.Reports.Junit; name != "" && (code == 0 || job.Artifacts.When == "always") {
		report, _ := os.ReadFile(filepath.Join(dir, name))
		run.junit = string(report)
	}
	return run
}
