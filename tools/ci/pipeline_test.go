package ci

import (
	"maps"
	"strings"
	"testing"

	"github.com/ratelimit-functions/ratelimit/embedded"
)

var (
	onBranch   = map[string]string{"CI_PIPELINE_SOURCE": "push", "CI_COMMIT_BRANCH": "feature", "CI_DEFAULT_BRANCH": "main"}
	onMain     = map[string]string{"CI_PIPELINE_SOURCE": "push", "CI_COMMIT_BRANCH": "main", "CI_DEFAULT_BRANCH": "main"}
	onSchedule = map[string]string{"CI_PIPELINE_SOURCE": "schedule", "CI_COMMIT_BRANCH": "main", "CI_DEFAULT_BRANCH": "main"}
)

func wantRuns(t *testing.T, got map[string]gitlabRun, want map[string]string) {
	t.Helper()
	statuses := map[string]string{}
	for name, run := range got {
		statuses[name] = run.status
		if run.status != want[name] {
			t.Errorf("%s: %s, want %q; it printed:\n%s", name, run.status, want[name], run.log)
		}
	}
	if !maps.Equal(statuses, want) {
		t.Errorf("the jobs are %v, want %v", statuses, want)
	}
}

func TestPipeline(t *testing.T) {
	for _, shell := range []string{"bash", "sh"} {
		t.Run(shell, func(t *testing.T) {
			t.Parallel()
			urls := map[string]string{"staging": server(t), "production": server(t)}

			// On a branch, the pipeline plans, warns that there are changes, and changes nothing.
			got := pipeline(t, shell, onBranch, nil, urls, nil)
			wantRuns(t, got, map[string]string{"ratelimit-check": "success", "ratelimit-plan": "warning"})
			wantJUnit(t, got["ratelimit-check"].junit, 8, 0)
			wantDeployed(t, urls["staging"], false)
			wantDeployed(t, urls["production"], false)

			got = pipeline(t, shell, onMain, nil, urls, nil)
			wantRuns(t, got, map[string]string{
				"ratelimit-check": "success", "ratelimit-plan": "warning", "ratelimit-staging": "success", "ratelimit-production": "success",
			})
			wantDeployed(t, urls["staging"], true)
			wantDeployed(t, urls["production"], true)

			// There are no changes left.
			got = pipeline(t, shell, onBranch, nil, urls, nil)
			wantRuns(t, got, map[string]string{"ratelimit-check": "success", "ratelimit-plan": "success"})

			flush(t, urls["staging"])
			got = pipeline(t, shell, onSchedule, nil, urls, nil)
			wantRuns(t, got, map[string]string{
				"ratelimit-check": "success", "ratelimit-drift: [staging]": "failed", "ratelimit-drift: [production]": "success",
			})
		})
	}
}

func TestPipelineStops(t *testing.T) {
	for _, tc := range []struct {
		name        string
		files       map[string]string
		staging     string // REDIS_URL of staging
		check, plan string
		says        string
	}{
		{"bad policies", badPolicies, server(t), "failed", "skipped", "fortnight"},
		{"a policy test that fails", badTests, server(t), "failed", "skipped", "six passwords"},
		{"staging does not answer", nil, nobody(t), "success", "failed", "connection refused"},
		{"no variable", nil, "", "success", "failed", "REDIS_URL is empty; add it to the variables"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			urls := map[string]string{"staging": tc.staging, "production": server(t)}
			got := pipeline(t, "sh", onMain, tc.files, urls, nil)
			wantRuns(t, got, map[string]string{
				"ratelimit-check": tc.check, "ratelimit-plan": tc.plan, "ratelimit-staging": "skipped", "ratelimit-production": "skipped",
			})
			if log := got["ratelimit-check"].log + got["ratelimit-plan"].log; !strings.Contains(log, tc.says) {
				t.Errorf("it does not say %q:\n%s", tc.says, log)
			}
			if tc.check == "failed" {
				wantDeployed(t, tc.staging, false)
			}
			wantDeployed(t, urls["production"], false)
		})
	}
}

func TestPipelineShowsTheTestThatFails(t *testing.T) {
	t.Parallel()
	got := pipeline(t, "bash", onBranch, badTests, map[string]string{"staging": server(t)}, nil)
	wantJUnit(t, got["ratelimit-check"].junit, 1, 1)
}

func TestPipelineLeavesProductionWhereStagingFailed(t *testing.T) {
	t.Parallel()
	staging := embedded.Run(t)
	urls := map[string]string{"staging": "redis://" + staging.Addr() + patient, "production": server(t)}
	got := pipeline(t, "bash", onMain, nil, urls, map[string]func(){"ratelimit-staging": func() { _ = staging.Close() }})
	wantRuns(t, got, map[string]string{
		"ratelimit-check": "success", "ratelimit-plan": "warning", "ratelimit-staging": "failed", "ratelimit-production": "skipped",
	})
	wantDeployed(t, urls["production"], false)
}
