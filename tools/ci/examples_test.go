package ci

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"go.yaml.in/yaml/v4"
)

var pinned = regexp.MustCompile(`^[\w-]+/[\w-]+@[0-9a-f]{40}$`)

func TestWorkflow(t *testing.T) {
	type step struct {
		Uses, If, Run string
		With          map[string]string
	}
	type job struct {
		If, Needs, Environment string
		Steps                  []step
	}
	var workflow struct{ Jobs map[string]job }
	load(t, "examples/ci/github-workflow.yml", &workflow)
	got := map[string]job{}
	for name, j := range workflow.Jobs {
		for _, s := range j.Steps {
			if strings.HasPrefix(s.Uses, "ratelimit-functions/") && s.Uses != "ratelimit-functions/ratelimit@"+version {
				t.Errorf("%s uses %s, want %s", name, s.Uses, version)
			}
			if !strings.HasPrefix(s.Uses, "ratelimit-functions/") && s.Uses != "" && !pinned.MatchString(s.Uses) {
				t.Errorf("%s uses %s, which is not pinned to a commit", name, s.Uses)
			}
			if s.Run != "" {
				wantDeploys(t, "bash", s.Run)
				j.If += "; deploys" + strings.TrimSuffix(" if "+s.If, " if ")
			}
		}
		j.Steps = nil
		got[name] = j
	}
	want := map[string]job{
		"check":      {},
		"plan":       {If: "github.event_name == 'pull_request'", Needs: "check", Environment: "staging-plan"},
		"staging":    {If: "github.event_name == 'push'; deploys", Needs: "check", Environment: "staging"},
		"production": {If: "github.event_name == 'push'; deploys", Needs: "staging", Environment: "production"},
		"drift":      {If: "github.event_name == 'schedule'", Environment: "${{ matrix.environment }}"},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("the jobs are\n%+v, want\n%+v", got, want)
	}
}

// wantDeploys runs a deployment script with the URL of a server and with an empty REDIS_URL, and
// checks the results.
func wantDeploys(t *testing.T, shell, text string) {
	t.Helper()
	install(t)
	url := server(t)
	for _, tt := range []struct {
		url, prints string
		code        int
	}{
		{url: url},
		{url: "", code: 1, prints: "REDIS_URL is empty; add it to the "},
	} {
		printed, code := script(t, workspace(t, nil), []string{"REDIS_URL=" + tt.url}, shell, "-e", "-c", text)
		if code != tt.code || !strings.Contains(printed, tt.prints) {
			t.Errorf("with REDIS_URL %q: exit code %d, printed:\n%s", tt.url, code, printed)
		}
	}
	wantDeployed(t, url, true)
}

// gitlabJob holds the fields of a GitLab job that the tests use.
type gitlabJob struct {
	Extends, Stage string
	Variables      map[string]string
	BeforeScript   []string `yaml:"before_script"`
	Script, Needs  []string
	Environment    any
	Rules          []struct{ If string }
	AllowFailure   struct {
		ExitCodes int `yaml:"exit_codes"`
	} `yaml:"allow_failure"`
	Artifacts struct {
		When    string
		Reports struct{ Junit string }
	}
}

// extend decodes the job that the named job extends, and then decodes the named job over it.
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
	if err := node.Decode(job); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
}

func TestGitlabJobs(t *testing.T) {
	var nodes map[string]yaml.Node
	load(t, "examples/ci/gitlab-ci.yml", &nodes)
	jobs, got := map[string]gitlabJob{}, map[string]string{}
	for name := range nodes {
		if strings.HasPrefix(name, ".") {
			continue
		}
		var j gitlabJob
		extend(t, nodes, name, &j)
		jobs[name] = j
		got[name] = fmt.Sprint(j.Stage, " ", j.Needs, " ", j.Rules, " ", j.Environment)
		if line := strings.Join(j.BeforeScript, "\n"); j.Variables["RATELIMIT_VERSION"] != version ||
			line != `go install "github.com/ratelimit-functions/ratelimit/cmd/ratelimit@$RATELIMIT_VERSION"` {
			t.Errorf("%s installs %s of %s", name, line, j.Variables)
		}
	}
	const main, schedule = `$CI_COMMIT_BRANCH == $CI_DEFAULT_BRANCH && $CI_PIPELINE_SOURCE != "schedule"`, `$CI_PIPELINE_SOURCE == "schedule"`
	want := map[string]string{
		"ratelimit-check":      "test [] [] <nil>",
		"ratelimit-plan":       `test [ratelimit-check] [{$CI_PIPELINE_SOURCE != "schedule"}] map[action:prepare name:staging-plan]`,
		"ratelimit-staging":    "deploy [] [{" + main + "}] staging",
		"ratelimit-production": "deploy [ratelimit-staging] [{" + main + "}] production",
		"ratelimit-drift":      "test [] [{" + schedule + "}] map[action:verify name:$ENVIRONMENT]",
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("the jobs are\n%v, want\n%v", got, want)
	}
	if code := jobs["ratelimit-plan"].AllowFailure.ExitCodes; code != 2 {
		t.Errorf("the plan may exit with %d, want 2", code)
	}
	check := jobs["ratelimit-check"]
	if check.Artifacts.When != "always" {
		t.Errorf("the report of the tests is kept %q, want always", check.Artifacts.When)
	}

	for _, shell := range []string{"bash", "sh"} {
		t.Run(shell, func(t *testing.T) {
			t.Parallel()
			install(t)
			url := server(t)
			for _, tt := range []struct {
				job, url string
				files    map[string]string
				code     int
				prints   string
			}{
				{job: "ratelimit-check"},
				{job: "ratelimit-check", files: badPolicies, code: 1, prints: "fortnight"},
				{job: "ratelimit-check", files: badTests, code: 1, prints: "six passwords"},
				{job: "ratelimit-plan", url: url, code: 2, prints: "+ policy api"},
				{job: "ratelimit-plan", url: nobody, code: 1, prints: "connection refused"},
				{job: "ratelimit-plan", code: 1, prints: "REDIS_URL is empty; add it to the variables"},
				{job: "ratelimit-drift", code: 1, prints: "REDIS_URL is empty; add it to the variables"},
				{job: "ratelimit-drift", url: url, code: 2},
				{job: "ratelimit-staging", url: url},
				{job: "ratelimit-drift", url: url},
				{job: "ratelimit-plan", url: url},
			} {
				dir := workspace(t, tt.files)
				printed, code := script(t, dir, []string{"REDIS_URL=" + tt.url}, shell, "-c", asRunner(jobs[tt.job].Script))
				// Some shells turn every nonzero exit code into 1. Only the plan job must preserve
				// its exit code, so accept any nonzero code from the drift job.
				if tt.job == "ratelimit-drift" && code != 0 && tt.code != 0 {
					code = tt.code
				}
				if code != tt.code || !strings.Contains(printed, tt.prints) {
					t.Errorf("%s with REDIS_URL %q: exit code %d, want %d; it printed:\n%s", tt.job, tt.url, code, tt.code, printed)
				}
				report := filepath.Join(dir, check.Artifacts.Reports.Junit)
				if _, err := os.Stat(report); err == nil && tt.code == 0 {
					wantJUnit(t, report, 11, 0)
				} else if err == nil {
					wantJUnit(t, report, 1, 1)
				} else if tt.job == "ratelimit-check" && tt.prints != "fortnight" {
					t.Errorf("no report: %v", err)
				}
			}
			for _, name := range []string{"ratelimit-staging", "ratelimit-production"} {
				wantDeploys(t, shell, asRunner(jobs[name].Script))
			}
		})
	}
}

// asRunner joins a job's lines into a script as GitLab's runner does. One shell runs all lines, and
// exits when a line fails.
func asRunner(lines []string) string {
	return "if set -o | grep pipefail >/dev/null; then set -o pipefail; fi\nset -o errexit\nset +o noclobber\n" +
		": | eval '" + strings.ReplaceAll(strings.Join(lines, "\n"), "'", `'\''`) + "'\nexit 0\n"
}
